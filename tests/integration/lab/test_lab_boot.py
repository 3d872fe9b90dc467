# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that runs systemd has the cloud's links, metadata and programs, after each of its boots."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from lab import Lab, Node
from lab.container import SystemdNode
from lab.metadata import WELL, Behaviour
from lab.node import POD_PORT
from lab.prober import Prober

UNIT = """
[Unit]
DefaultDependencies=no
Before=sysinit.target
{more}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}
[Install]
WantedBy=sysinit.target
"""
# Asks once, as early as a unit can, and records the answer.
ASK = """
import urllib.request
url = "http://169.254.169.254/metadata/instance/network/interface?api-version=2021-02-01"
try:
    heard = urllib.request.urlopen(urllib.request.Request(url, headers={"Metadata": "true"}), timeout=2).read().decode()
except OSError as error:
    heard = str(error)
open("/etc/heard", "w").write(heard)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    """A node that boots and one that does not, side by side."""
    nodes = [Node("node1", pods=["pod1", "pod2"], system="bookworm"), Node("node2", pods=["pod3"])]
    with Lab("boot", nodes=nodes, metadata=True) as lab:
        yield lab


@pytest.fixture
def node(running: Lab) -> Iterator[SystemdNode]:
    node: SystemdNode = running.node("node1")
    yield node
    running.metadata.change(WELL)
    node.forget_services()
    node.run(["sh", "-c", "systemctl disable --quiet early kubelet; rm -f /etc/systemd/system/early.service"], check=False)
    node.run_from_host(["nft", "flush", "ruleset"])


def enable(node: SystemdNode, command: str, more: str = "") -> None:
    node.write("/etc/systemd/system/early.service", UNIT.format(command=command, more=more))
    node.run(["systemctl", "enable", "--quiet", "early.service"])


def is_answered(lab: Lab) -> bool:
    answers = {lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=0.5) for pod in lab.node("node1").pods}
    assert len(answers) == 1
    return answers.pop()


def reboot_from_inside(node: SystemdNode) -> None:
    before = node.pid
    node.run(["systemctl", "reboot"], check=False)  # the command's own end is part of the reboot
    node.follow_reboot(before)


def test_it_is_connected_as_any_other(running: Lab, node: SystemdNode) -> None:
    for machine in [node, running.node("node2"), *running.pods]:
        for pod in running.pods:
            assert Prober(machine).icmp(pod.address, timeout=1.0, tries=1), (machine, pod)
    assert running.load_balancer.probe_icmp(node.address)
    assert "default via fe80::1234:5678:9abc dev eth0" in node.run(["ip", "-6", "route"]).stdout


def test_a_probe_is_answered_through_it_when_the_table_is_loaded(running: Lab, node: SystemdNode) -> None:
    assert not is_answered(running)
    assert node.module("nftables_probe_snat", {"permanent": False})["changed"]
    assert is_answered(running)
    assert node.module("nftables_probe_snat", {"permanent": False, "state": "absent"})["changed"]
    assert not is_answered(running)


@pytest.mark.parametrize("reboot", [SystemdNode.reboot, reboot_from_inside], ids=["by the lab", "by itself"])
def test_a_reboot_loses_tables_and_listeners_and_brings_the_network_back(
    running: Lab, node: SystemdNode, reboot: Callable[[SystemdNode], None]
) -> None:
    before = node.snapshot()
    endpoints = [pod.address for pod in node.pods]
    node.module("nftables_probe_snat", {"permanent": False})
    node.ip(["rule add priority 77 table 77"])
    node.service(30080, endpoints, health_check_node_port=32000)
    assert node.snapshot() != before
    with node.socket(socket.AF_INET6, socket.SOCK_DGRAM):  # a process still holds the network of the boot before
        reboot(node)
    assert node.snapshot() == before
    assert not is_answered(running)
    for pod in running.pods:
        assert Prober(node).icmp(pod.address, timeout=1.0, tries=1)
    assert running.client.fetch(node.address, 32000, timeout=0.3) is None
    node.service(30081, endpoints, health_check_node_port=32000)
    assert running.client.fetch(node.address, 32000) is not None
    assert running.client.fetch(node.address, 30081) is not None
    assert running.client.fetch(node.address, 30080, timeout=0.3) is None


CHANGES = [
    ("files", "touch /etc/new"),
    ("files", "touch /var/lib/new"),
    ("files", "chmod 0700 /etc/default"),
    ("files", "systemctl mask --runtime --quiet systemd-pstore"),
    ("packages", "dpkg --remove --force-depends libjansson4"),
    ("rules -4", "ip rule add priority 9 lookup 99"),
    ("sysctls", "sysctl -q -w net.ipv4.conf.eth0.log_martians=1"),
]


@pytest.mark.parametrize("part, change", CHANGES)
def test_a_snapshot_tells_each_change(part: str, change: str) -> None:
    with Lab("snapshot", nodes=[Node("node1", system="bookworm")]) as lab:
        node = lab.node("node1")
        if part == "packages":
            node.run(["apt-mark", "manual", "libjansson4"])
        before = node.snapshot()
        assert node.snapshot() == before
        node.run(["sh", "-c", change])
        after = node.snapshot()
        assert [key for key in before if before[key] != after[key]][-1] == part


def test_a_module_is_run_by_ansible_itself(node: SystemdNode) -> None:
    predicted = node.module("nftables_probe_snat", {"permanent": False}, check=True)
    assert node.run(["nft", "list", "tables"]).stdout == ""
    with node.count_processes() as calls:
        done = node.module("nftables_probe_snat", {"permanent": False})
    assert predicted == done
    assert done["changed"] and done["diff"] and (done["failed"], done["rc"]) == (False, 0)
    assert ["/usr/sbin/nft", "-f", "-"] in calls
    assert "diff" not in node.module("nftables_probe_snat", {"permanent": False}, diff=False)
    failed = node.module("nftables_probe_snat", {"priority": "soon"})
    assert (failed["failed"], failed["rc"]) == (True, 1)
    assert "soon" in failed["msg"]


# Metadata


def test_metadata_is_there_from_the_first_moment_of_a_boot(running: Lab, node: SystemdNode) -> None:
    node.write("/etc/ask.py", ASK)
    enable(node, "/usr/bin/python3 /etc/ask.py")
    running.metadata.requests.clear()
    node.reboot()
    (interface,) = json.loads(node.read("/etc/heard"))
    assert interface["macAddress"] == node.place.mac().replace(":", "").upper()
    assert interface["ipv6"] == {"ipAddress": [{"privateIpAddress": node.address}]}
    assert len(running.metadata.requests) == 1


def test_metadata_changes_between_boots(running: Lab, node: SystemdNode) -> None:
    node.write("/etc/ask.py", ASK)
    enable(node, "/usr/bin/python3 /etc/ask.py")
    known = running.metadata.own[node.ipv4]
    running.metadata.own[node.ipv4] = tuple(dataclasses.replace(nic, ipv6=()) for nic in known)
    node.reboot()
    assert json.loads(node.read("/etc/heard"))[0]["ipv6"] == {"ipAddress": []}
    running.metadata.own[node.ipv4] = known
    running.metadata.change(Behaviour(fault="refused"))
    node.reboot()
    assert "refused" in node.read("/etc/heard")


# Kubelet's stand-in


def test_kubelets_stand_in_tells_whether_the_table_was_there_before_it(node: SystemdNode) -> None:
    node.place_kubelet_stand_in()
    assert node.kubelet_starts() == []
    node.reboot()
    load = "/usr/sbin/nft add table ip6 early"
    enable(node, f"/bin/sh -c 'sleep 0.3; {load}'", more="Before=kubelet.service")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.reboot()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    without, with_table = node.kubelet_starts()
    assert without.tables == ()
    assert with_table.tables == ("ip6 early",)
    assert without.clock < before < with_table.clock < after
    assert node.run(["systemctl", "is-active", "kubelet"]).stdout == "active\n"


# Packages


def test_what_a_node_is_without_its_apt_can_install() -> None:
    with Lab("bare", nodes=[Node("node1", system="bookworm", without=["nftables"])]) as lab:
        node = lab.node("node1")
        assert not node.exists("/usr/sbin/nft")
        assert node.run(["apt-get", "install", "--yes", "nftables"], check=False).returncode != 0  # no index yet
        node.run(["apt-get", "update"])
        node.run(["apt-get", "install", "--yes", "nftables"])
        assert "v1.0.6" in node.run(["nft", "--version"]).stdout
