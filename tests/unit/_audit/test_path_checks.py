# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packets a node is built for, and which rules are there to stop packets. The twins are in tests/integration."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import path_checks
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import Node
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import Unobserved
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.culprit import ChainRule, VirtualServer

UP = ["UP", "LOWER_UP"]
NAT = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.60.1.5:53
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.60.1.5:8080
COMMIT
"""


def pod(number: int, *addresses: str) -> dict[str, Any]:
    peer = {"namespace": f"pod{number}", "name": "eth0", "mac": f"02:00:00:00:01:0{number}", "addresses": [*addresses]}
    return {"name": f"cali{number}", "kind": "veth", "flags": UP, "addresses": [], "peer": peer}


def route(to: str, dev: str, **further: str) -> dict[str, Any]:
    return {"table": "254", "family": "ipv6" if ":" in to else "ipv4", "to": to, "dev": dev, **further}


SNAPSHOT: dict[str, Any] = {
    "links": [
        {"name": "eth0", "kind": "", "flags": UP, "addresses": [{"address": "192.0.2.11/24"}]},
        {"name": "eth1", "kind": "", "flags": UP, "addresses": [{"address": "203.0.113.11/24"}]},
        pod(1, "10.60.1.5"),
        pod(2, "10.60.1.6", "fd00:60::6"),
    ],
    "routes": [
        route("default", "eth0", via="192.0.2.1"),
        {**route("default", "eth1", via="203.0.113.1"), "table": "100"},
        route("10.60.1.5", "cali1"),
        route("10.60.1.6", "cali2"),
        route("10.60.2.0/24", "eth0", via="192.0.2.12"),
    ],
    "rules": [{"priority": 32766, "family": family, "table": "254", "action": "lookup"} for family in ("ipv4", "ipv6")],
    "iptables": [{"family": "ip", "table": "nat", "backend": "nft", "save": NAT}],
    **{subset: [] for subset in ("nftables", "ipsets", "ipvs", "neighbors", "cni")},
}


def paths(**changes: Any) -> list[str]:
    """Return the sentences about the paths of a node, each with its severity, without what all of them have."""
    found = path_checks.paths.look(Node({**SNAPSHOT, **changes}, Context()))
    return [f"{each.severity} {each.what.removeprefix('Packets from ').removesuffix(' are lost.')}" for each in found]


def test_each_pod_has_its_paths_and_one_of_each_shape_those_that_all_share() -> None:
    shared = [
        "the node's address 203.0.113.11",
        "the Service 10.96.0.10:53",
        "the pod 10.60.2.1 of another node",
    ]
    found = paths()
    for address, other in (("10.60.1.5", "10.60.1.6"), ("10.60.1.6", "10.60.1.5")):
        own = [f"error the node to the pod {address}"]
        own += [f"error the pod {address} to {there}" for there in ("the outside", f"the pod {other}", "the node")]
        assert [*filter(own.__contains__, found)] == own
    assert [any(f"the pod 10.60.1.5 to {there}" in path for path in found) for there in shared] == [True] * 3
    assert not any(f"the pod 10.60.1.6 to {there}" in path for path in found for there in shared)
    assert "error the outside to the node port 30080" in found and "error the node to the Service 10.96.0.10:53" in found


def test_what_may_be_meant_to_be_so_is_a_note() -> None:
    """IPv6 has no default route, and pods may be meant not to reach the address of another network."""
    found = paths()
    assert "note the pod fd00:60::6 to the outside" in found
    assert "note the pod 10.60.1.5 to the node's address 203.0.113.11" in found


def test_a_node_whose_interface_is_down_has_lost_its_default_routes() -> None:
    down = [{**link, "flags": []} if link["name"] == "eth0" else link for link in SNAPSHOT["links"]]
    found = paths(links=down, routes=[entry for entry in SNAPSHOT["routes"] if entry["to"] != "default"])
    assert "error the pod 10.60.1.5 to the outside by eth0, which is down," in found


def test_a_pod_that_has_lost_its_address_is_known_by_its_neighbour() -> None:
    gone = [
        {**link, "peer": {**link["peer"], "addresses": []}} if link["name"] == "cali1" else link for link in SNAPSHOT["links"]
    ]
    routes = [entry for entry in SNAPSHOT["routes"] if entry["to"] != "10.60.1.5"]
    neighbour = {"address": "10.60.1.5", "dev": "cali1", "mac": "02:00:00:00:01:01", "state": "STALE"}
    assert "error the node to the pod 10.60.1.5" not in paths(links=gone, routes=routes)
    assert "error the node to the pod 10.60.1.5" in paths(links=gone, routes=routes, neighbors=[neighbour])


def test_a_former_address_of_a_pod_that_has_another_is_none_of_its_own() -> None:
    former = {"address": "10.60.1.99", "dev": "cali1", "mac": "02:00:00:00:01:01", "state": "STALE"}
    assert paths(neighbors=[former]) == paths()


def test_a_default_route_by_a_link_behind_which_nothing_is_leads_no_packet_out() -> None:
    """The documentation of K3s has such a route for nodes without a network beyond their own."""
    dummy = {"name": "dummy0", "kind": "dummy", "flags": UP, "addresses": [{"address": "203.0.113.254/31"}]}
    routes = [route("default", "dummy0", via="203.0.113.255"), *SNAPSHOT["routes"][2:]]
    found = paths(links=[*SNAPSHOT["links"], dummy], routes=routes)
    assert "note the pod 10.60.1.5 to the outside" in found and "error the pod 10.60.1.5 to the node" in found
    assert "error the outside to the node port 30080" not in found


def test_pods_whose_ports_are_isolated_from_each_other_need_not_reach_each_other() -> None:
    isolated = [{**link, "settings": {"isolated": 1}} for link in SNAPSHOT["links"]]
    assert "error the pod 10.60.1.5 to the pod 10.60.1.6" in paths()
    assert "error the pod 10.60.1.5 to the pod 10.60.1.6" not in paths(links=isolated)


def test_packets_of_pods_behind_open_vswitch_are_open() -> None:
    switch = {"name": "ovs-system", "kind": "openvswitch", "flags": [], "addresses": []}
    look = path_checks.paths.look(
        Node({**SNAPSHOT, "links": [*SNAPSHOT["links"][:2], {**pod(1, "10.60.1.5"), "master": "ovs-system"}, switch]}, Context())
    )
    with pytest.raises(Unobserved, match="cali1"):
        assert not any("10.60.1.5" in each.what for each in look)


def test_what_is_no_address_is_no_pod_and_no_network() -> None:
    links = [*SNAPSHOT["links"], pod(3, "10.60.1.256", "pod")]
    further = [route(to, "eth0", via="192.0.2.12") for to in ("10.999.0.0/16", "pods")]
    assert paths(links=links, routes=[*SNAPSHOT["routes"], *further]) == paths()


def test_a_node_whose_default_route_says_that_it_has_none_may_be_meant_to_have_none() -> None:
    defaults = [{"table": "254", "family": "ipv6", "to": "default", "type": "unreachable", "metric": 4294967295}]
    assert "note the pod fd00:60::6 to the outside" in paths(routes=[*SNAPSHOT["routes"], *defaults])
    blackhole = [{**defaults[0], "type": "blackhole"}]
    assert "error the pod fd00:60::6 to the outside" in paths(routes=[*SNAPSHOT["routes"], *blackhole])


FIREWALL = """table inet firewall {
 chain of-new {
  type filter hook input priority filter; policy accept;
  jump reject-them
 }
 chain forwarded {
  type filter hook forward priority filter; policy accept;
  jump reject-them
 }
 chain reject-them {
  reject
 }
}
"""


@pytest.mark.parametrize(
    ("chain", "entered", "is_meant"),
    [
        ("KUBE-POD-FW-ABC", [], True),
        ("KUBE-SVC-AAAAAAAAAAAAAAAA", [], True),
        ("cali-FORWARD", [], True),
        ("WEAVE-NPC", [], False),  # of a CNI whose plugin the node does not have
        ("INPUT", ["ip filter INPUT"], True),
        ("INPUT", [], False),  # an answer to the node's own connection
        ("FORWARD", ["ip filter FORWARD"], False),
        ("LOGDROP", ["ip filter INPUT", "ip filter LOGDROP"], True),
        ("LOGDROP", ["ip filter FORWARD", "ip filter LOGDROP"], False),
        ("reject-them", ["inet firewall of-new", "inet firewall reject-them"], True),
        ("reject-them", ["inet firewall forwarded", "inet firewall reject-them"], False),
    ],
)
def test_a_rule_of_a_policy_or_of_a_firewall_for_new_connections_is_meant_to_stop_them(
    chain: str, entered: list[str], is_meant: bool
) -> None:
    plugins = [{"path": "/etc/cni/net.d/10-calico.conflist", "plugins": ["calico", "kube-bridge"]}]
    node = Node({**SNAPSHOT, "cni": plugins, "nftables_text": FIREWALL}, Context())
    assert path_checks.is_meant(node, ChainRule("ip", "filter", chain, "-j DROP"), entered) is is_meant


def test_a_virtual_server_stops_packets_only_without_an_endpoint_which_is_meant() -> None:
    assert path_checks.is_meant(Node(SNAPSHOT, Context()), VirtualServer("TCP  10.96.0.10:80 rr"), [])
