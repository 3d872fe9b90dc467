# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make image``: Packer bakes all profiles into a disk image, and a VM that boots from it has them in force.

The image is built from Debian packages, once by booting it and once in a chroot, and booted in the lab. This machine's own
network, services and files stay untouched. Needs root.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import installation
from demo import expect, probe, say

from lab import Lab, Node, azure_vnet, collection, disk, host, kubelet, packer, snapshot
from lab.disk import Disk, DiskFiles
from lab.machine import ThisMachine
from lab.metadata_replies import Aws, Azure, Nic, Reply, Request

FOLDER = collection.CHECKOUT / ".build/image"
TEMPLATES = collection.CHECKOUT / "packer"
VARIABLES = {
    "eni_policy_routing_layout": "aws_vpc_cni",
    "eni_policy_routing_cloud": "aws",
    "eni_policy_routing_primary_interface": "eth0",
    "eni_policy_routing_connmark": "always",
    "eni_policy_routing_pod_interfaces": "veth-*",
}
PROBE_TABLE, MARK_TABLE = "ip6 azureSLBProbe", "inet kubenodeReturnPath"
LOOSE = "2"
OURS = "kubenode"
CONF = "/proc/sys/net/ipv4/conf"
INERT = f"{azure_vnet.CONFLIST}.kubenode_bak"
# Files that any boot writes, and that are cleared before a disk becomes an image: journals, seeds, the machine's ID.
OF_THE_BOOT = re.compile(r"/(etc/machine-id|tmp/\.[\w-]+-unix|var/(lib/(dbus|systemd)|log)/.*)")


class Clouds:
    """Metadata of Azure and of AWS at once: the image has profiles for both."""

    address = Azure.address

    def reply(self, request: Request, nics: tuple[Nic, ...]) -> Reply:
        cloud = Aws() if request.path.startswith("/latest/") else Azure()
        return cloud.reply(request, nics)


class Builder(ThisMachine):
    def state(self) -> dict[str, object]:
        """The machine's network, its configuration, and the services that a profile might start."""
        services = self.run(["systemctl", "list-units", "--plain", "kubenode*", "nftables.service"], check=False)
        return {
            **snapshot.network(self),
            "files": snapshot.tree(Path("/"), ("/etc", "/var/lib/kubenode")),
            "services": services.stdout,
        }


def main() -> None:
    base = make_base()
    say("Packer looks at the templates for clouds")
    validate_templates()
    builder = Builder()
    before = builder.state()
    say("Packer boots the image for Ansible (emulated, a minute or two)")
    image = timed(packer.build_by_booting, base, FOLDER / "node", VARIABLES)
    say("Packer has Ansible change the files of another copy, in a chroot")
    other = timed(packer.build_in_chroot, base, FOLDER / "chroot.raw", VARIABLES, installation.collections())
    expect("rules, routes, sysctls, nft, services and files of this machine were to stay", builder.state() == before)
    say("Rules, routes, sysctls, nft, services and files of this machine are as they were.")
    compare(base, image, other)

    say("The image boots in the lab")
    node = Node("node1", pods=["pod1"], system="bookworm", vm=True, disk=image)
    with Lab("image", nodes=[node], metadata=Clouds()) as lab:
        show(lab)


def make_base() -> Disk:
    """The base of the images: a Debian that azure-vnet serves, with a stand-in for kubelet."""
    base = disk.disk("bookworm")
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = base._replace(image=FOLDER / "base.disk")
    host.run(["cp", "--sparse=always", base.image, made.image])
    files = DiskFiles(made.image)
    files.write(azure_vnet.CONFLIST, azure_vnet.conflist("azure-vnet", "portmap"), 0o600)
    kubelet.place(files)
    return made


def validate_templates() -> None:
    """Validates the templates for clouds, as far as possible without an account."""
    packer.validate(TEMPLATES / "azure.pkr.hcl", image_resource_group="images")
    packer.validate(TEMPLATES / "amazon.pkr.hcl")


def timed(build: Callable[..., Disk], *arguments: Any) -> Disk:
    started = time.monotonic()
    built = build(*arguments)
    print(f"    built in {time.monotonic() - started:.0f} s", flush=True)
    return built


def compare(base: Disk, booted: Disk, unbooted: Disk) -> None:
    """Checks that the images differ from their base by the collection's files alone, and do not differ from each other."""
    old, new, other = (DiskFiles(one.image).tree() for one in (base, booted, unbooted))
    changes = {path: new.get(path, "gone") for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    changes = {path: kind_of_file for path, kind_of_file in changes.items() if not OF_THE_BOOT.fullmatch(path)}
    strange = [path for path in changes if not any(OURS in one for one in changes if f"{one}/".startswith(f"{path}/"))]
    expect(f"the image was to have new files of ours alone, and has {strange}", strange == [azure_vnet.CONFLIST])
    differing = [path for path, kind_of_file in changes.items() if other.get(path, "gone") != kind_of_file]
    differing += [path for path in other if other[path] != old.get(path) and path not in changes]
    expect(f"both images were to be the same but for a boot, and differ in {differing}", not differing)
    say(f"The image has {len(changes)} new files, all of them ours, and {INERT} in place of a CNI's; so has the other.")


def show(lab: Lab) -> None:
    """The first boot. What follows it on an image is tested in integration/roles/test_image.py."""
    node = lab.node("node1")
    tables = node.kubelet_starts()[-1].tables
    print(f"    when kubelet started, the node had: {', '.join(tables)}")
    expect("kubelet was to start after the tables", {PROBE_TABLE, MARK_TABLE} <= set(tables))
    probe(lab, expected=True)
    rules = node.run(["ip", "rule"]).stdout
    expect("the primary interface was to filter loosely", node.read(f"{CONF}/eth0/rp_filter").strip() == LOOSE)
    expect("marked replies were to leave by the primary interface", "1024:\tfrom all fwmark 0x80/0x80 lookup main" in rules)
    say(f"Reverse-path filtering and policy rules are in force:\n{rules}")
    expect("azure-vnet was to be inert", node.run(["ls", "/etc/cni/net.d"]).stdout.split() == [Path(INERT).name])


if __name__ == "__main__":
    host.reported(main)
