# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A table of iptables in which another program has base chains, which iptables-save leaves out (Debian 12)."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps

PEER, OTHER = "192.0.2.1", "192.0.2.9"  # of the same network
OF_OPERATOR = f"""
table ip filter {{
    set blocked {{ type ipv4_addr; elements = {{ {PEER} }}; }}
    chain helper {{ ip saddr @blocked drop; }}
    chain input {{ type filter hook input priority 10; policy accept; tcp dport 80 drop; jump helper; }}
}}
"""
NAT = f"table ip nat {{ chain pre {{ type nat hook prerouting priority -110; tcp dport 81 dnat to {PEER}:8080; }}; }}\n"
# An extension of iptables in the same table, so that neither program prints all of it.
OF_IPTABLES = "iptables-nft -A INPUT -p tcp -m tcp --dport 90 -m comment --comment own -j DROP"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    node.run(shlex.split(OF_IPTABLES))
    node.run(["iptables-nft", "-t", "nat", "-A", "OUTPUT", "-j", "RETURN"])
    node.run(["nft", "-f", "-"], OF_OPERATOR + NAT)
    return node


def trace(node: NamespaceNode, source: str, port: int) -> dict[str, Any]:
    packet = {"source": source, "destination": node.ipv4, "destination_port": port, "interface": "eth0"}
    return dict(Steps(node, "datapath_trace", {"packet": packet, "reply": False}).run())


@pytest.mark.parametrize(
    ("source", "port", "verdict", "culprit"),
    [
        (OTHER, 443, "delivered", ""),
        (OTHER, 80, "dropped", "tcp dport 80 drop"),
        (PEER, 443, "dropped", "ip saddr @blocked drop"),
        (OTHER, 90, "dropped", "dport 90"),
    ],
)
def test_the_chains_of_both_programs_count(node: NamespaceNode, source: str, port: int, verdict: str, culprit: str) -> None:
    result = trace(node, source, port)
    assert result["verdict"] == verdict and culprit in (result["culprit"] or {"text": ""})["text"], result["reason"]
    assert result["certain"], result["depends_on"]


def test_a_translation_in_a_chain_of_its_own_counts(node: NamespaceNode) -> None:
    assert trace(node, OTHER, 81)["packet"]["destination"] == PEER
