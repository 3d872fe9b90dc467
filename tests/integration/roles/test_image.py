# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All profiles in one image: built in a chroot on this machine, whose state does not change, and then booted."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml

from lab import Lab, Node, apt, azure_vnet, cilium, collection, images, kubelet, playbook, snapshot
from lab.booting import BootingNode
from lab.build import Build
from lab.chroot import ImagePlay
from lab.container import SystemdNode
from lab.machine import ThisMachine
from lab.playbook import Played
from lab.waiting import until

ROLES = ("aks_dual_stack", "eni_policy_routing", "cilium_migration")
TABLES = {"ip6 azureSLBProbe", "inet kubenodeReturnPath"}
CHECK = "kubenode-cni-check.service"
ENI_GATEWAY, POD = "10.0.1.1", "10.0.1.20"
PACKAGES = images.NODE_PACKAGES

# Every variable of the roles as Packer gives it: text.
VARIABLES = {
    "aks_dual_stack_state": "present",
    "aks_dual_stack_ipv6": "imds",
    "aks_dual_stack_mode": "auto",
    "aks_dual_stack_table": "azureSLBProbe",
    "aks_dual_stack_interface": "eth0",
    "aks_dual_stack_priority": "-300",
    "aks_dual_stack_comment": "by-the-image-builder",
    "aks_dual_stack_probes": '[{"source":"fe80::1234:5678:9abc","translated":"2603:1062:0:1:fe80:1234:5678:9abc"}]',
    "aks_dual_stack_path": "/etc/kubenode/probe-snat.nft",
    "aks_dual_stack_nftables_minimum_version": "0.9.8",
    "aks_dual_stack_nftables_service": "ignore",
    "aks_dual_stack_nftables_lock_timeout": "300",
    "aks_dual_stack_before": '["starter.service"]',
    "aks_dual_stack_agentbaker": "report",
    "aks_dual_stack_backend": "auto",
    "aks_dual_stack_later_interfaces": "false",
    "aks_dual_stack_audit": "no",
    "aks_dual_stack_rehearse": "true",
    "aks_dual_stack_rehearse_packets": '[{"destination":"192.0.2.1","protocol":"icmp"}]',
    "eni_policy_routing_state": "present",
    "eni_policy_routing_manage": '["daemons","filters","own_addresses","mark_rule","tables","connmark"]',
    "eni_policy_routing_remedy": "loose",
    "eni_policy_routing_mode": "auto",
    "eni_policy_routing_layout": "custom",
    "eni_policy_routing_enis": json.dumps(
        [
            {"name": "eth0", "primary": True, "ipv4": ["192.0.2.17"], "subnets": ["192.0.2.0/24"]},
            {"name": "eth1", "gateway": {"ipv4": ENI_GATEWAY}, "table": 1101, "pods": [POD]},
        ],
        separators=(",", ":"),
    ),
    "eni_policy_routing_cloud": "auto",
    "eni_policy_routing_primary_interface": "eth0",
    "eni_policy_routing_pod_interfaces": '["veth-*"]',
    "eni_policy_routing_service_addresses": "[]",
    "eni_policy_routing_interface_marks": "[]",
    "eni_policy_routing_mark": "0x80/0x80",
    "eni_policy_routing_priorities": '{"from_pod":1350}',
    "eni_policy_routing_connmark": "always",
    "eni_policy_routing_raise_all": "false",
    "eni_policy_routing_protocol": "75",
    "eni_policy_routing_restart_networkd": "true",
    "eni_policy_routing_nftables": "true",
    "eni_policy_routing_checkpoint": "60",
    "eni_policy_routing_checkpoint_command": "true",
    "eni_policy_routing_before": '["starter.service"]',
    "eni_policy_routing_later_interfaces": "false",
    "eni_policy_routing_audit": "no",
    "eni_policy_routing_rehearse": "true",
    "eni_policy_routing_rehearse_packets": '[{"destination":"192.0.2.1","protocol":"icmp"}]',
    "cilium_migration_state": "absent",
    "cilium_migration_mode": "auto",
    "cilium_migration_addresses": '["10.240.0.4"]',
    "cilium_migration_backend": "auto",
    "cilium_migration_neighbors": "true",
    "cilium_migration_routes": "true",
    "cilium_migration_iptables": "true",
    "cilium_migration_links": "true",
    "cilium_migration_backup": "/var/lib/kubenode/backup",
    "cilium_migration_checkpoint": "0",
    "cilium_migration_checkpoint_command": "",
    "cilium_migration_bridge": "false",
    "cilium_migration_bridge_name": "",
    "cilium_migration_bridge_interface": "",
    "cilium_migration_bridge_checkpoint": "60",
    "cilium_migration_bridge_checkpoint_command": "",
    "cilium_migration_audit": "no",
    "cilium_migration_rehearse": "false",
    "cilium_migration_rehearse_packets": "[]",
    "cilium_migration_cordon": "false",
    "cilium_migration_drain": "false",
    "cilium_migration_drain_options": '["--ignore-daemonsets"]',
    "cilium_migration_restart_daemonset_pods": "false",
    "cilium_migration_restart_timeout": "60",
    "cilium_migration_kubectl": '["kubectl","--context","pool"]',
    "cilium_migration_node_name": "node1",
    "cilium_migration_grace": "1",
    "cilium_migration_verify": '[{"address":"127.0.0.1","port":"22"}]',
    "cilium_migration_verify_from": "node1",
    "cilium_migration_verify_command": '["true"]',
}
WORDS = [word for name, value in VARIABLES.items() for word in ("-e", f"{name}={value}")]

SYSTEM = "/etc/systemd/system"
WANTS = f"{SYSTEM}/multi-user.target.wants"
PROBE, RETURN, ROUTES = (
    "kubenode-nft-ip6-azureSLBProbe.service",
    "kubenode-nft-inet-kubenodeReturnPath.service",
    "kubenode-policy-routes-75.service",
)
TIMER = "kubenode-nft-ip6-azureSLBProbe.timer"
FOLDERS = (
    *("/etc/kubenode", "/etc/systemd/networkd.conf.d", "/var/lib/kubenode"),
    *(f"{SYSTEM}/nftables.service.d", f"{SYSTEM}/{PROBE}.wants"),
)
DROP_INS = [f"{SYSTEM}/nftables.service.d/{unit.removesuffix('.service')}.conf" for unit in (PROBE, RETURN)]
FILES = (
    *(f"{folder}/.kubenode" for folder in FOLDERS),
    *(f"/etc/kubenode/probe-snat.nft{end}" for end in ("", ".pyz")),
    *(f"/etc/kubenode/policy-routes-75.json{end}" for end in ("", ".pyz")),
    "/etc/kubenode/return-path.nft",
    "/etc/kubenode/owned-by-eni_policy_routing",
    "/etc/sysctl.d/90-kubenode-rp-filter.conf",
    "/etc/systemd/networkd.conf.d/90-kubenode.conf",
    "/var/lib/kubenode/nftables-package",
    *(f"{SYSTEM}/{unit}" for unit in (PROBE, TIMER, RETURN, ROUTES, CHECK)),
    *DROP_INS,
)
# All files that the roles add. Each is root's.
NEW = {
    **dict.fromkeys(FOLDERS, "drwxr-xr-x 0:0"),
    **dict.fromkeys(FILES, "-rw-r--r-- 0:0"),
    **{f"{WANTS}/{unit}": f"lrwxrwxrwx 0:0 -> {SYSTEM}/{unit}" for unit in (PROBE, RETURN, ROUTES, CHECK)},
    f"{SYSTEM}/{PROBE}.wants/{TIMER}": f"lrwxrwxrwx 0:0 -> {SYSTEM}/{TIMER}",
    azure_vnet.CONFLIST: "absent",
    f"{azure_vnet.CONFLIST}.kubenode_bak": "-rw------- 0:0",
    "/var/lib/kubenode/lib": "drwx------ 0:0",
}
# Needed by the unit for routes, and by runs after the boot.
CARRIED = ("/var/lib/kubenode/lib/pyroute2-", "/var/lib/kubenode/lib/kubenode-")
# A package manager's own records.
NOTES = (
    "/etc/ld.so.cache", "/var/cache/apt/", "/var/cache/ldconfig/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/log/",
    "/var/lib/systemd/deb-systemd-helper-enabled",
)  # fmt: skip

# Programs that change a kernel or its systemd.
ACTS = re.compile(r"bridge|conntrack|ip|modprobe|nsenter|sysctl|systemctl|tc|udevadm|(arp|eb|ip6?)tables.*")


class Built(NamedTuple):
    """The plays, in order; new files in the root, in the form of snapshot.describe; and the programs that the build started."""

    predicted: Played
    done: Played
    again: Played
    new: dict[str, str]
    started: list[list[str]]


class Builder(ThisMachine):
    def snapshot(self) -> dict[str, Any]:
        """The machine's network and files, without podman's records, which another lab may write meanwhile."""
        files = {path: found for path, found in snapshot.tree(Path("/")).items() if "/containers/" not in path}
        return {**snapshot.network(self), **files}


class Image:
    """The root, and the play of all roles that is run against it."""

    def __init__(self, folder: Path) -> None:
        self.build = Build(images.root("bookworm", PACKAGES), folder)
        self._roles = ImagePlay(self.build, folder, {"roles": [{"role": f"kubenode.datapath.{role}"} for role in ROLES]})

    def play(self, *arguments: str, through: tuple[str, ...] = ()) -> Played:
        return self._roles.run(*WORDS, *arguments, through=through).well()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image before the build: it has a kubelet, azure-vnet's configuration and Cilium's, and no nftables."""
    image = Image(tmp_path_factory.mktemp("image"))
    apt.publish(cast(BootingNode, image.build), apt.packages("bookworm", ["nftables"], PACKAGES))
    kubelet.place(cast(BootingNode, image.build))
    image.build.write(azure_vnet.CONFLIST, azure_vnet.conflist("azure-vnet", "portmap"), 0o600)
    image.build.write(azure_vnet.CILIUM, azure_vnet.conflist("cilium-cni"), 0o600)
    return image


@pytest.fixture(scope="module")
def built(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Checked, built with a record of each started program, and built again."""
    builder, log = Builder(), tmp_path_factory.mktemp("log") / "started"
    machine, begin = builder.snapshot(), image.build.tree()
    predicted = image.play("--check", "--diff")
    assert image.build.tree() == begin
    trace = ("strace", "-f", "--seccomp-bpf", "-qq", "-s", "200", "-e", "trace=execve", "-e", "status=successful")
    played = image.play("--diff", through=(*trace, "-o", str(log)))
    end = image.build.tree()
    again = image.play()
    assert image.build.tree() == end
    new = {path: found for path, found in end.items() if begin.get(path) != found}
    new |= {path: "absent" for path in begin.keys() - end.keys()}
    after = builder.snapshot()
    assert {key for key in machine.keys() | after.keys() if machine.get(key) != after.get(key)} == set()
    return Built(predicted, played, again, new, list(started(log.read_text())))


def started(log: str) -> Iterator[list[str]]:
    """The arguments of each program in strace's log."""
    for arguments in re.findall(r'execve\("[^"]*", \[(.*)\], ', log):
        yield re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)


def test_every_variable_is_given_as_text() -> None:
    specs = [yaml.safe_load((collection.CHECKOUT / f"roles/{role}/meta/argument_specs.yml").read_text()) for role in ROLES]
    names = {name for spec in specs for name in spec["argument_specs"]["variables"]["options"]}
    assert set(VARIABLES) == names


def test_a_check_tells_what_the_run_does_and_a_second_run_does_nothing(built: Built) -> None:
    assert (built.predicted.changed, built.done.changed, built.again.changed) == (5, 5, 0)
    assert built.done.output.count("An image: the connection is community.general.chroot.") == len(ROLES)
    assert "not checked by nft" not in built.done.output
    assert "Probes are translated by the table: an image does not show whether Cilium takes probes. Set " in built.done.output


def test_no_program_that_was_started_changes_a_kernel(built: Built) -> None:
    names = {os.path.basename(argv[0]) for argv in built.started}
    assert "apt-get" in names
    assert not [name for name in names if ACTS.fullmatch(name)]
    asked = [argv[1:] for argv in built.started if os.path.basename(argv[0]) == "nft"]
    assert [words for words in asked if words != ["--version"]] == [["-c", "-f", "-"]] * 2
    unshared = [argv[1:] for argv in built.started if argv[0].endswith("unshare")]
    assert [words[:2] for words in unshared if words[0] == "--net"] == [["--net", "/usr/sbin/nft"]] * 2
    # The order of a boot is asked behind mounts of its own.
    assert all(words[0] == "--mount" and "systemd-analyze" in " ".join(words) for words in unshared if words[0] != "--net")


def test_nothing_is_left_but_what_the_next_boot_loads(image: Image, built: Built) -> None:
    info = image.build.changes / "var/lib/dpkg/info"
    packaged = {line for listed in info.glob("*.list") for line in listed.read_text().splitlines()}
    packaged |= {f"/usr{path}" for path in packaged}  # merged-usr
    brought = {
        path: found.partition(" sha256 ")[0]
        for path, found in built.new.items()
        if path not in packaged and not path.startswith(NOTES)
    }
    carried = {path: brought.pop(path) for path in list(brought) if path.startswith(CARRIED)}
    assert brought == NEW
    assert set(carried.values()) == {"drwx------ 0:0", "-rw------- 0:0"}
    assert not list((image.build.changes / "var/cache/apt").rglob("*.deb"))
    for path in FILES:
        assert str(image.build.root) not in (image.build.changes / path[1:]).read_text(errors="replace"), path


@pytest.fixture(scope="module")
def booted(image: Image, built: Built) -> Iterator[Lab]:
    """The first boot of the image, with an IPv6 address in the metadata."""
    with Lab("image", nodes=[Node("node1", pods=["pod1"], system="bookworm", build=image.build)], metadata=True) as lab:
        yield lab


def plug_in(lab: Lab) -> None:
    """Adds the ENI, and the link that Cilium makes."""
    node: SystemdNode = lab.node("node1")
    lab.load_balancer.ip([f"link add eni1 type veth peer name eth1 netns {node.pid}", "link set eni1 up"])
    node.ip(["address add 10.0.1.10/24 dev eth1", "link set eth1 up"])
    cilium.start(node)


def test_the_first_boot_brings_it_all_before_kubelet_and_a_run_on_the_node_finds_it(booted: Lab, tmp_path: Path) -> None:
    node: SystemdNode = booted.node("node1")
    assert set(node.kubelet_starts()[0].tables) == TABLES
    assert booted.load_balancer.probe_tcp(booted.pod("pod1").address, 8080)
    assert node.run(["sysctl", "-n", "net.ipv4.conf.eth0.rp_filter"]).stdout == "2\n"
    assert condition(node) == ("no", "inactive")
    plug_in(booted)
    until("the route of the ENI is there", lambda: f"default via {ENI_GATEWAY} dev eth1" in routes(node), node)
    until("the rule of the pod is there", lambda: f"from {POD} lookup 1101" in rules(node), node)
    assert "fwmark 0x80/0x80" in rules(node)
    node.serve(22)
    hosts = booted.write_inventory(tmp_path / "inventory.json")
    names = [f"kubenode.datapath.{role}" for role in ROLES]
    run = playbook.play(hosts, *names, *WORDS).well()
    assert run.changed == 0, run.output
    assert run.output.count("A running node: systemd runs on it.") == len(ROLES)


def test_a_boot_without_ipv6_has_no_table_and_one_that_finds_azure_vnet_says_so(booted: Lab) -> None:
    node: SystemdNode = booted.node("node1")
    nics = booted.metadata.own[node.ipv4]
    booted.metadata.own[node.ipv4] = tuple(dataclasses.replace(nic, ipv6=()) for nic in nics)
    node.write(azure_vnet.CONFLIST, azure_vnet.conflist("azure-vnet"))
    node.stop()
    node.start()
    assert node.wait_until_booted(states=("degraded",)) == "degraded"
    assert condition(node) == ("yes", "failed")
    assert node.run(["systemctl", "--failed", "--no-legend", "--plain"]).stdout.split()[0] == CHECK
    assert set(node.kubelet_starts()[-1].tables) == {"inet kubenodeReturnPath"}


def condition(node: SystemdNode) -> tuple[str, str]:
    """The result of the condition of the unit that checks for azure-vnet, and the unit's state."""
    show = ["systemctl", "show", "--property=ConditionResult", "--property=ActiveState", CHECK]
    told = dict(line.split("=") for line in node.run(show).stdout.split())
    return told["ConditionResult"], told["ActiveState"]


def rules(node: SystemdNode) -> str:
    return node.run(["ip", "rule"]).stdout


def routes(node: SystemdNode) -> str:
    return node.run(["ip", "route", "show", "table", "1101"], check=False).stdout
