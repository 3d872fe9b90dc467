# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that runs systemd has the links of the lab and its own programs after each of its boots."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from lab import Lab, Node
from lab.container import SystemdNode
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


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    """A node that boots and one that does not, side by side."""
    nodes = [Node("node1", pods=["pod1", "pod2"], system="bookworm"), Node("node2", pods=["pod3"])]
    with Lab("boot", nodes=nodes) as lab:
        yield lab


@pytest.fixture
def node(running: Lab) -> Iterator[SystemdNode]:
    node: SystemdNode = running.node("node1")
    yield node
    node.forget_services()
    node.run(["sh", "-c", "systemctl disable --quiet early kubelet; rm -f /etc/systemd/system/early.service"], check=False)
    node.run_from_host(["nft", "flush", "ruleset"])


def enable(node: SystemdNode, command: str, more: str = "") -> None:
    node.write("/etc/systemd/system/early.service", UNIT.format(command=command, more=more))
    node.run(["systemctl", "enable", "--quiet", "early.service"])


def reboot_from_inside(node: SystemdNode) -> None:
    before = node.pid
    node.run(["systemctl", "reboot"], check=False)  # the command's own end is part of the reboot
    node.follow_reboot(before)


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


def test_a_snapshot_tells_each_change() -> None:
    with Lab("snapshot", nodes=[Node("node1", system="bookworm")]) as lab:
        node = lab.node("node1")
        node.run(["apt-mark", "manual", "libjansson4"])
        before = node.snapshot()
        assert node.snapshot() == before
        for part, change in CHANGES:
            node.run(["sh", "-c", change])
            after = node.snapshot()
            assert [key for key in before if before[key] != after[key]][-1] == part, change
            before = after


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
