# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rp_filter where azure-vnet sends packets between pods of a node out by eth0 and takes them back (mode transparent-tunnel)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Eni, EniLab
from lab.eni import PRIMARY, EniNamespaceNode
from lab.node import POD_PORT
from lab.steps import Steps

OFF, STRICT, LOOSE = 0, 1, 2
# As pull request 4319 of azure-container-networking writes them: a mark without a mask, and a rule without a priority.
TUNNEL = (
    "iptables-nft -t mangle -A PREROUTING -i veth-pod1 -j MARK --set-mark 3",
    "iptables-nft -t mangle -A PREROUTING -i veth-pod2 -j MARK --set-mark 3",
    f"ip route add default via {PRIMARY.gateway} dev eth0 table 101",
    "ip rule add fwmark 3 lookup 101",
)


@pytest.fixture
def lab() -> Iterator[EniLab]:
    """Two pods of a node, whose addresses the cloud knows on eth0."""
    with EniLab("tunnel", [Eni("eth1", pods=["pod1", "pod2"])], source_check=False) as running:
        node: EniNamespaceNode = running.node("node1")
        for priority in (512, 2048):
            node.run(["sh", "-c", f"while ip rule del priority {priority} 2> /dev/null; do :; done"])
        for command in TUNNEL:
            node.run(command.split())
        running.router.ip([f"route add {running.pod(pod).address}/32 via {PRIMARY.address}" for pod in ("pod1", "pod2")])
        yield running


def answers(lab: EniLab) -> bool:
    return lab.fetch_from("pod1", lab.pod("pod2").address, POD_PORT, 0.3) is not None


@pytest.mark.parametrize(("every", "eth0"), [(STRICT, STRICT), (STRICT, OFF), (OFF, STRICT)])
def test_pods_of_a_node_reach_each_other_with_a_loose_filter_on_eth0(
    lab: EniLab, node: EniNamespaceNode, every: int, eth0: int
) -> None:
    node.filter_reverse_path(OFF, all=every, eth0=eth0)
    before, dropped = node.snapshot(), node.dropped_by_reverse_path()
    assert not answers(lab) and node.dropped_by_reverse_path() > dropped
    steps = Steps(node, "rp_filter", {"interfaces": ["eth0"], "mode": "loose"})
    steps.four()
    assert answers(lab)
    steps.run(state="absent")
    assert node.snapshot() == before and not answers(lab)


def test_without_a_strict_filter_nothing_is_dropped(lab: EniLab) -> None:
    lab.node("node1").filter_reverse_path(OFF)
    assert answers(lab)
