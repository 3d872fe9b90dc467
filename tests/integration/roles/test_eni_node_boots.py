# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rp_filter, nftables_connmark and link_addresses through real boots and hotplugs, which apply the modules' files.

The last scene has packets: marks of ENIs, as the role gives them to an image.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Eni, EniLab, namespace, playbook
from lab.container import SystemdNode
from lab.eni import PRIMARY, EniSystemdNode
from lab.machine import Machine
from lab.metadata import MetadataServer
from lab.metadata_replies import Aws, Nic
from lab.podman import Podman
from lab.waiting import until

VLAN = "eth0.100"  # by name; the kernel treats the name in the same way for every kind of link
RP_FILTER = {"interfaces": ["eth0", VLAN, "eth1", "eni*"], "mode": "loose"}
CONNMARK = {"primary_interface": "eth0", "pod_interfaces": ["veth*"], "strict": True}
ADDRESSES = {link: f"10.9.{number}.10" for number, link in enumerate(("eth0", VLAN, "eth1", "eni1"))}
LINK_ADDRESSES = {"addresses": [{"dev": dev, "address": address} for dev, address in ADDRESSES.items()]}
PATH = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
HARDENING = """
net.ipv4.conf.default.rp_filter = 1
net.ipv4.conf.eth0.rp_filter = 1
-net.ipv4.conf.en*.rp_filter = 0
"""
FILTERS = [f"{link}/rp_filter" for link in ("eth0", VLAN, "eth1", "eni1")]
SEEN = "/var/log/src-valid-mark"
KUBELET = f"""
[Service]
ExecStartPre=/bin/sh -c 'cat /proc/sys/net/ipv4/conf/eth0/src_valid_mark > {SEEN}'
"""


class Rack:
    """A node, and the machine at the other end of its links."""

    def __init__(self, node: SystemdNode, front: Machine) -> None:
        self.node = node
        self._front = front

    def plug(self, link: str) -> None:
        """Adds a network interface; returns when udev has handled it."""
        self._front.ip([f"link add plug-{link} type veth peer name {link} netns {self.node.pid}"])
        self.node.run(["udevadm", "settle"])

    def pull(self) -> None:
        """Removes the network interfaces added since the boot."""
        self.node.run(["sh", "-c", "for link in eth1 eni1; do ip link delete $link 2> /dev/null; done; true"])

    def run(self, module: str, **options: Any) -> dict[str, Any]:
        result = self.node.module(module, options)
        assert not result["failed"], result
        return result

    def addressed(self) -> set[str]:
        """The links that have their own address."""
        listed = self.node.run(["ip", "-o", "address"]).stdout
        return {link for link, address in ADDRESSES.items() if f" {address}/32 scope global noprefixroute {link}" in listed}

    def values(self) -> dict[str, int]:
        """rp_filter of each link, and src_valid_mark of the primary."""
        script = "cd /proc/sys/net/ipv4/conf; grep . */rp_filter eth0/src_valid_mark"
        lines = self.node.run(["sh", "-c", script]).stdout.splitlines()
        return {line.partition(":")[0]: int(line.partition(":")[2]) for line in lines}


@pytest.fixture(scope="module")
def rack(podman: Podman) -> Iterator[Rack]:
    """A hardened node with two links, on which kubelet records the settings at its start."""
    with namespace.machine("front") as machine:

        def plug(node: SystemdNode) -> None:
            machine.ip([f"link add plug-{link} type veth peer name {link} netns {node.pid}" for link in ("eth0", VLAN)])

        node = SystemdNode("eni-boots", podman, podman.image("bookworm"), plug)
        node.start()
        node.wait_until_booted()
        node.write("/etc/sysctl.d/10-hardening.conf", HARDENING)
        node.write("/etc/systemd/system/kubelet.service.d/look.conf", KUBELET)
        node.place_kubelet_stand_in()
        yield Rack(node, machine)


@pytest.fixture(scope="module")
def bare(rack: Rack) -> dict[str, int]:
    """The values after a boot and two hotplugs, without the collection."""
    rack.node.reboot()
    rack.plug("eth1")
    rack.plug("eni1")
    values = rack.values()
    assert [values[name] for name in FILTERS] == [1, 1, 1, 0]
    return values


@pytest.fixture
def booted(rack: Rack, bare: dict[str, int]) -> Rack:
    """A boot after the two modules have run."""
    rack.pull()
    rack.run("rp_filter", **RP_FILTER)
    rack.run("nftables_connmark", **CONNMARK)
    rack.node.reboot()
    return rack


def test_a_boot_brings_all_before_kubelet_and_a_later_run_has_nothing_to_do(booted: Rack, bare: dict[str, int]) -> None:
    assert "inet kubenodeReturnPath" in booted.node.kubelet_starts()[-1].tables
    assert booted.node.read(SEEN) == "1\n"
    assert not booted.run("nftables_connmark", **CONNMARK)["changed"]
    assert not booted.run("rp_filter", **RP_FILTER)["changed"]

    booted.plug("eth1")
    assert not booted.run("rp_filter", **RP_FILTER)["changed"]
    booted.plug("eni1")
    assert booted.values() == {**bare, **dict.fromkeys(FILTERS, 2), "eth0/src_valid_mark": 1}
    (entry,) = booted.run("rp_filter", **RP_FILTER)["diff"]
    assert entry["after_header"].startswith("permanent: ")  # a line by name, for later boots
    assert not booted.run("rp_filter", **RP_FILTER)["changed"]
    remove_all(booted, bare)


def test_absent_after_a_boot_leaves_what_a_node_without_us_has(booted: Rack, bare: dict[str, int]) -> None:
    booted.plug("eth1")
    booted.plug("eni1")
    remove_all(booted, bare)


INIT = """#!/bin/sh
mkdir /run/udev
touch /run/udev/control
exec /lib/systemd/systemd
"""


def see_devices(node: SystemdNode) -> None:
    """From the next boot, systemd has units for devices, as outside of containers.

    Before systemd listens to udev, it checks for a devtmpfs at /dev, or for udev (sd_device_monitor_new_full).
    """
    node.run(["rm", "/sbin/init"])
    node.write("/sbin/init", INIT)
    node.run(["chmod", "+x", "/sbin/init"])


def test_a_link_gets_its_address_at_boot_when_it_comes_and_when_it_comes_again(rack: Rack) -> None:
    see_devices(rack.node)
    rack.pull()
    rack.run("link_addresses", **LINK_ADDRESSES, immediate=False)
    assert rack.addressed() == set()
    rack.node.reboot()
    until("two links have addresses", rack.addressed, rack.node, expected={"eth0", VLAN})
    for _time in range(2):
        rack.plug("eth1")
        rack.plug("eni1")
        until("all links have addresses", rack.addressed, rack.node, expected=ADDRESSES.keys())
        again = rack.run("link_addresses", **LINK_ADDRESSES)
        assert (again["changed"], again["addresses"]["kept"]) == (False, 4)
        rack.pull()
        until("two links have addresses", rack.addressed, rack.node, expected={"eth0", VLAN})
    # The record keeps the addresses that the boot has added, although the unit is removed first.
    rack.run("link_addresses", state="absent", immediate=False)
    assert rack.addressed() == {"eth0", VLAN}
    assert rack.run("link_addresses", state="absent")["addresses"]["removed"]
    assert rack.addressed() == set()
    assert not rack.run("link_addresses", state="absent")["changed"]
    assert not rack.node.exists("/run/kubenode")


FIRST, SECOND = Eni("eth1", pods=["pod1"], has_address=True), Eni("eth2", pods=["pod2"], has_address=True)
NODE_PORT = 30080
ROLE = {
    "layout": "aws_vpc_cni",
    "mode": "image",
    "primary_interface": "eth0",
    "pod_interfaces": ["veth-*"],
    "interface_marks": [{"name": "eth1", "mark": "0x2"}, {"name": "eth2", "mark": "0x4"}],
}


def test_each_eni_answers_its_requests_after_a_boot_and_when_it_comes_again(tmp_path: Path) -> None:
    """A request that arrives by one ENI is for the other ENI's pod, and the cloud checks sources."""
    with EniLab("marks", [FIRST, SECOND], system="bookworm") as lab:
        node: EniSystemdNode = lab.node("node1")
        nics = [
            Nic(node.place.mac(eni.number), (eni.address,), (), f"10.0.{eni.number}.0/24", device_number=eni.number)
            for eni in (PRIMARY, FIRST, SECOND)
        ]

        def are_answered(*enis: Eni) -> bool:
            return all(lab.client.fetch(eni.address, NODE_PORT + eni.number, timeout=0.5) for eni in enis)

        def serve() -> None:
            for eni, pod in ((FIRST, "pod2"), (SECOND, "pod1")):
                node.service(NODE_PORT + eni.number, [lab.pod(pod).address], "Local", backend="iptables")

        with MetadataServer(lab.router, Aws(), tuple(nics)):
            serve()
            assert not are_answered(FIRST) and not are_answered(SECOND)
            node.write("/etc/sysctl.d/10-hardening.conf", "-net.ipv4.conf.eth*.rp_filter = 1\n")
            given = {f"eni_policy_routing_{name}": value for name, value in ROLE.items()}
            inventory = lab.write_inventory(tmp_path / "inventory.json")
            playbook.play(inventory, "kubenode.datapath.eni_policy_routing", variables=given).well()
            node.reboot()
            serve()
            until("both ENIs are answered", lambda: are_answered(FIRST, SECOND), node)
            lab.unplug("eth2")
            assert are_answered(FIRST) and not are_answered(SECOND)
            lab.plug("eth2")
            node.ip(["link set eth2 up", f"address add {SECOND.address}/24 dev eth2 noprefixroute"])
            until("both ENIs are answered", lambda: are_answered(FIRST, SECOND), node)


def remove_all(rack: Rack, bare: dict[str, int]) -> None:
    for changed in (True, False):
        for module in ("rp_filter", "nftables_connmark"):
            assert rack.run(module, state="absent")["changed"] is changed
    assert rack.values() == bare
    assert not rack.node.exists(PATH) and not rack.node.exists("/run/kubenode")
