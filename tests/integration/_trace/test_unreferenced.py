# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A chain or a map that is pasted alone counts, if it has what may stop the packet, and so does each half of iptables."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend

from . import random_nodes

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
