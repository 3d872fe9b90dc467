# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rulesets in parts: both backends of iptables, tables that two programs fill, and chains that are pasted alone."""

from __future__ import annotations

import json
import random
import shlex
import sys
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend
from lab import Lab, network
from lab.collection import CHECKOUT
from lab.node import NamespaceNode
from lab.steps import Steps

from .._audit.layouts import Calico
from . import random_nodes
from .test_against_the_kernel import ARRIVED, SNAPSHOT, answered

# With rules in both backends of iptables, the trace is certain only of what the node's own kernel does with packets


VERDICTS = ("-j DROP", "-j ACCEPT", "-j RETURN", "-j REJECT", "-j OWN", "-g OWN")
PACKETS = 8


def half(chance: random.Random, addresses: list[str]) -> str:
    """Return a table whose chains have the same names in both backends, but for the verdicts."""
    policies = [f":{chain} {chance.choice(['ACCEPT', 'ACCEPT', 'ACCEPT', 'DROP'])} [0:0]" for chain in ("FORWARD", "INPUT")]
    rules = ["-A FORWARD -j OWN", "-A INPUT -j OWN"][: chance.randint(0, 2)]
    for _rule in range(3):
        verdict = chance.choice(VERDICTS[:4])
        rules.append(f"-A OWN -{chance.choice('sd')} {chance.choice(addresses)} {verdict}")
        rules.append(f"-A {chance.choice(['FORWARD', 'INPUT'])} -s {chance.choice(addresses)} {chance.choice(VERDICTS)}")
    established = ["-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"] * chance.randint(0, 1)
    return "\n".join(["*filter", *policies, ":OUTPUT ACCEPT [0:0]", ":OWN - [0:0]", *established, *rules, "COMMIT", ""])


@pytest.mark.parametrize("seed", range(8))
def test_a_packet_passes_both_halves_as_in_the_kernel(seed: int) -> None:
    chance = random.Random(seed)
    layout = Calico()
    addresses = [*(pod[4] for pod in layout.pods.values()), layout.own[4], "198.51.100.7"]
    layout.saves = {"iptables-nft-restore": half(chance, addresses), "iptables-legacy-restore": half(chance, addresses)}
    of_ipv4 = [each for each in layout.connections() if ":" not in each.destination and each.port == network.PORT]
    connections = chance.sample(of_ipv4, PACKETS)
    with network.built(layout) as machines, network.listening(machines):
        snapshot = json.loads(machines["node"].run([sys.executable, "-c", SNAPSHOT, str(CHECKOUT)]).stdout)
        truth = network.connect(machines, connections)
    backends = [entry["backend"] for entry in snapshot["iptables"] if (entry["family"], entry["table"]) == ("ip", "filter")]
    assert sorted(backends) == ["legacy", "nft"]
    wrong = []
    for connection, is_made in truth.items():
        found = answered(snapshot, connection)
        arrives = found["verdict"] in ARRIVED and (found["reply"] or {}).get("verdict") in ARRIVED
        # Nothing but the network beyond the node is open, where pods are not masqueraded.
        is_open = {entry["fact"].partition(":")[0] for entry in found["depends_on"]} - {"answer"}
        if is_open or arrives is not is_made:
            wrong.append((connection, is_made, found["verdict"], found["reason"], found["depends_on"]))
    assert not wrong


# A table of iptables in which another program has base chains, which iptables-save leaves out (Debian 12)


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


# A chain or a map that is pasted alone counts, if it has what may stop the packet, and so does each half of iptables


ROUTES = """\
node7:~# ip route
default via 10.9.1.1 dev eth0
10.9.1.0/24 dev eth0 proto kernel scope link src 10.9.1.49
10.244.1.5 dev azv01 scope link
10.244.1.6 dev azv02 scope link
"""
CHAIN = """\
node7:~# iptables -nvL {chain}
Chain {chain} (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 RETURN     all  --  !tailscale0 *       100.115.92.0/23      0.0.0.0/0
  {count} 13422 DROP       all  --  !tailscale0 *       100.64.0.0/10        0.0.0.0/0
"""
MAP = """\
node7:~# nft list map ip kube-proxy no-endpoint-services
table ip kube-proxy {
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 203.0.113.10 . tcp . 80 comment "shop/front:http" : drop }
	}
}
"""
NFT_CHAIN = """\
node7:~# nft list chain inet fw guard
table inet fw {
	chain guard {
		ip daddr 203.0.113.10 tcp dport 80 counter packets 9 bytes 540 drop
	}
}
"""
HALVES = """\
node7:~# iptables-nft-save
*filter
:FORWARD ACCEPT [0:0]
:AZURE-NPM - [0:0]
-A FORWARD -j AZURE-NPM
-A AZURE-NPM -s 10.244.0.0/16 -j RETURN
COMMIT
node7:~# iptables-legacy-save
*filter
:FORWARD ACCEPT [0:0]
:AZURE-NPM - [0:0]
-A FORWARD -j AZURE-NPM
-A AZURE-NPM -d 10.244.1.6/32 -j DROP
COMMIT
"""


def answer(text: str, destination: str, port: int, **further: Any) -> dict[str, Any]:
    sent = packet.from_options({"destination": destination, "destination_port": port, **further})
    snapshot = pastes.read({"report.txt": ROUTES + text}).snapshot
    return trace_backend.judge(trace_backend.Question(snapshot, sent, {}), random_nodes.run).with_likelihood().answer.plain()


@pytest.mark.parametrize(
    ("text", "destination", "port", "likely"),
    [
        (
            CHAIN.format(chain="ts-input", count=137),
            "100.100.2.136",
            53,
            "its reply is dropped (ip filter: -A ts-input -s 100.64.0.0",
        ),
        (
            CHAIN.format(chain="guard", count=137),
            "100.100.2.136",
            53,
            "-A guard -s 100.64.0.0/10 ! -i tailscale0 -j DROP has 137 packets",
        ),
        (MAP, "203.0.113.10", 80, "which has 203.0.113.10 . tcp . 80 : drop"),
        (NFT_CHAIN, "203.0.113.10", 80, "the packet is dropped (inet fw guard: ip daddr 203.0.113.10 tcp dport 80"),
    ],
)
def test_what_is_pasted_alone_is_likely_guilty(text: str, destination: str, port: int, likely: str) -> None:
    found = answer(text, destination, port)
    assert found["verdict"] == "unknown" and not found["certain"]
    assert found["reason"].startswith("It is likely that the packet is ") and likely in found["reason"].partition(" is open.")[0]
    assert found["depends_on"][0]["fact"].startswith("jump:")


@pytest.mark.parametrize(
    ("text", "destination", "port"),
    [
        (CHAIN.format(chain="ts-input", count=137), "198.51.100.7", 53),
        (MAP, "203.0.113.11", 80),
        (NFT_CHAIN, "203.0.113.11", 80),
    ],
)
def test_what_cannot_stop_the_packet_changes_nothing(text: str, destination: str, port: int) -> None:
    found = answer(text, destination, port)
    assert (found["verdict"], found["reply"]["verdict"]) == ("forwarded", "delivered"), found["reason"]


def test_two_halves_of_iptables_in_one_text_are_one_node() -> None:
    found = answer(HALVES, "10.244.1.6", 80, source="10.244.1.5", interface="azv01")
    assert (found["verdict"], found["culprit"]["text"]) == (
        "dropped",
        "ip filter: -A AZURE-NPM.legacy -d 10.244.1.6/32 -j DROP",
    )
    assert found["culprit"]["kind"] == "rule" and not found["certain"]


def test_rules_that_label_packets_are_no_rules_that_a_twin_lacks() -> None:
    rules = "-A FORWARD -j CONNSECMARK --save\n-A FORWARD -p tcp -j ECN --ecn-tcp-remove\n"
    rules += "-A FORWARD -p tcp -j TCPOPTSTRIP --strip-options sack-permitted\n"
    found = answer(f"node7:~# iptables-save\n*mangle\n:FORWARD ACCEPT [0:0]\n{rules}COMMIT\n", "8.8.8.8", 80)
    assert found["verdict"] == "forwarded"
    assert not [entry for entry in found["depends_on"] if entry["fact"].startswith(("chain:", "line"))]
