# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which sizes and rules of a node let large packets be lost."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS, Node

POD, POD6 = "10.244.1.5", "fd00:2::5"
FAMILIES = (("ipv4", "10.0.0.5/24", "10.0.0.1", POD), ("ipv6", "fd00::5/64", "fd00::1", POD6))


def link(name: str, kind: str = "", mtu: int = 1500, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "mtu": mtu, "flags": ["UP"], **more}


def route(family: str, to: str, dev: str, **more: Any) -> dict[str, Any]:
    return {"family": family, "to": to, "dev": dev, "table": "254", **more}


def node(*links: dict[str, Any], mtu: int = 1500, pod_mtu: int = 1500, **subsets: Any) -> Node:
    """A node with an uplink and a pod, of both families."""
    addresses = [{"address": address} for _family, address, *_rest in FAMILIES]
    peer = {"namespace": "p", "name": "eth0", "mac": "", "addresses": [POD, POD6]}
    uplink, pod = link("eth0", mtu=mtu, addresses=addresses), link("veth1", "veth", pod_mtu, peer=peer)
    defaults = [route(family, "default", "eth0", via=via) for family, _address, via, _pod in FAMILIES]
    hosts = [route(family, pod, "veth1") for family, _address, _via, pod in FAMILIES]
    base = {**{name: [] for name in (*SUBSETS, "nftables_text")}, "links": [uplink, pod, *links]}
    return Node({**base, "routes": [*defaults, *hosts, *subsets.pop("routes", [])], **subsets}, Context())


def found(check: str, looked: Node) -> list[tuple[str, str, bool]]:
    """The subject and the severity of each suspicion, and whether a packet has to show it."""
    (each,) = catalogue.chosen([check])
    return [(one.subject, one.severity or each.severity, one.trial is not None) for one in each.look(looked)]


OVER_IPV6: dict[str, Any] = {"local": "fd00::5", "parent": "eth0"}


@pytest.mark.parametrize(
    ("tunnel", "largest"),
    [
        (link("v", "vxlan"), 1450), (link("v", "vxlan", **OVER_IPV6), 1430), (link("g", "geneve"), 1450),
        (link("w", "wireguard"), 1440), (link("i", "ipip"), 1480), (link("s", "sit"), 1480), (link("t", "ip6tnl"), 1460),
        (link("r", "gre"), 1476), (link("v", "vxlan", parent="eth1"), 8950), (link("v", "vxlan", remote="10.9.0.7"), 8950),
    ],
)  # fmt: skip
def test_a_tunnel_and_its_head_fit_into_the_link_that_carries_it(tunnel: dict[str, Any], largest: int) -> None:
    routes = [route("ipv4", "10.9.0.0/16", "eth1"), route("ipv4", "10.0.0.0/8", "eth0")]
    for mtu, findings in ((largest, []), (largest + 1, [(tunnel["name"], "note", False)])):
        assert found("tunnel-mtu", node({**tunnel, "mtu": mtu}, link("eth1", mtu=9000), routes=routes)) == findings


def iptables(name: str, *rules: str, family: str = "ip") -> dict[str, Any]:
    save = "\n".join([f"*{name}", *(f":{chain} ACCEPT" for chain in ("INPUT", "FORWARD", "OUTPUT")), *rules, "COMMIT", ""])
    return {"family": family, "table": name, "backend": "nft", "save": save}


CLAMP = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu"
BY_NFT = {"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": {"rt": {"key": "mtu"}}}}
NFT = [
    {"table": {"family": "inet", "name": "t"}},
    {"chain": {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "forward", "policy": "accept"}},
    {"rule": {"family": "inet", "table": "t", "chain": "c", "expr": [BY_NFT]}},
]
NO_ERRORS = iptables("filter", "-A OUTPUT -p icmp -j DROP")
BOTH = [("ipv4 eth0", "note", True), ("ipv6 eth0", "note", True)]


@pytest.mark.parametrize(
    ("looked", "findings"),
    [
        (node(), []),
        (node(mtu=1400), BOTH),
        (node(mtu=1400, pod_mtu=1400), []),
        (node(mtu=1400, pods=[{"namespace": "p", "routes": [route("ipv4", "default", "eth0", mtu=1400)]}]), []),
        (node(mtu=1400, iptables=[iptables("mangle", CLAMP)]), BOTH[1:]),
        (node(mtu=1400, nftables=NFT), []),
        (node(mtu=1400, iptables=[NO_ERRORS]), [("ipv4 eth0", "error", True), BOTH[1]]),
        (node(link("v", "vxlan", 1450), routes=[route("ipv4", "10.244.2.0/24", "v")]), [("ipv4 v", "note", True)]),
        (node(link("eth1", mtu=1400), routes=[route("ipv4", "default", "eth1", metric=500)]), []),
    ],
    ids=["even", "a small uplink", "small pods", "a small route", "TCPMSS", "maxseg", "no errors", "a tunnel", "unused"],
)  # fmt: skip
def test_the_largest_packet_of_a_pod_leaves_or_its_connections_are_clamped(looked: Node, findings: list[Any]) -> None:
    assert found("mtu-of-paths", looked) == findings


@pytest.mark.parametrize(
    ("family", "rule", "subjects"),
    [
        ("ip", "-A INPUT -p icmp -m icmp --icmp-type 3/4 -j DROP", ["ipv4 input"]),
        ("ip", "-A INPUT -p icmp -m icmp --icmp-type 8 -j DROP", []),
        ("ip", "-A FORWARD -i eth0 -p icmp -j REJECT", ["ipv4 forward"]),
        ("ip", "-A FORWARD -i veth1 -p icmp -j REJECT", []),
        ("ip", "-A FORWARD -d 10.244.0.0/16 -o veth1 -p icmp -j DROP", ["ipv4 forward"]),
        ("ip", "-A OUTPUT -p icmp -j DROP", ["ipv4 output"]),
        ("ip6", "-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 2 -j DROP", ["ipv6 forward"]),
        ("ip6", "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j DROP", []),
    ],
)
def test_the_errors_of_path_mtu_discovery_pass(family: str, rule: str, subjects: list[str]) -> None:
    looked = node(iptables=[iptables("filter", rule, family=family)])
    assert found("pmtu-filtered", looked) == [(subject, "note", False) for subject in subjects]
