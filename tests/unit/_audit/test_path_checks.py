# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packets a node is built for, and which rules are there to stop packets. The twins are in tests/integration."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import path_checks, purpose
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import Node
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import Suspicion, Trial, Unobserved
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import values
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Met, Way
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.culprit import ChainRule, Setting, VirtualServer
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.frame import Frame
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.lookup import Query
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import Packet

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


def test_a_network_of_pods_that_is_led_to_the_link_of_a_pod_is_of_another_node() -> None:
    found = paths(routes=[*SNAPSHOT["routes"], {**route("10.60.3.0/24", "cali2"), "table": "7"}])
    assert any("the pod 10.60.3.1 of another node" in path for path in found)


def test_the_network_of_the_nodes_own_pods_is_of_no_other_node() -> None:
    """Cilium has such a route, by the node's address among its pods."""
    own = {"name": "cilium_host", "kind": "veth", "flags": UP, "addresses": [{"address": "10.60.1.1/32"}]}
    found = paths(
        links=[*SNAPSHOT["links"], own], routes=[*SNAPSHOT["routes"], route("10.60.1.0/24", "cilium_host", via="10.60.1.1")]
    )
    assert [path for path in found if "of another node" in path] == [path for path in paths() if "of another node" in path]


def test_a_node_whose_interface_is_down_has_lost_its_default_routes() -> None:
    down = [{**link, "flags": []} if link["name"] == "eth0" else link for link in SNAPSHOT["links"]]
    routes = [entry for entry in SNAPSHOT["routes"] if entry["to"] != "default"]
    assert "error the pod 10.60.1.5 to the outside by eth0, which is down," in paths(links=[down[0], *down[2:]], routes=routes)
    # Beside one that is up, it may be one that is not used.
    assert "note the pod 10.60.1.5 to the outside" in paths(links=down, routes=routes)


def test_a_pod_that_has_lost_its_address_is_known_by_its_neighbour() -> None:
    gone = [
        {**link, "peer": {**link["peer"], "addresses": []}} if link["name"] == "cali1" else link for link in SNAPSHOT["links"]
    ]
    routes = [entry for entry in SNAPSHOT["routes"] if entry["to"] != "10.60.1.5"]
    neighbour = {"address": "10.60.1.5", "dev": "cali1", "mac": "02:00:00:00:01:01", "state": "STALE"}
    assert "error the node to the pod 10.60.1.5" not in paths(links=gone, routes=routes)
    assert "error the node to the pod 10.60.1.5" in paths(links=gone, routes=routes, neighbors=[neighbour])


def test_a_pod_that_has_lost_its_address_is_known_by_the_record_of_its_runtime() -> None:
    """Without another address of the same interface, the pod has ended."""
    records = [
        {"pod": "default/a", "interface": "eth0", "addresses": each} for each in (["10.60.1.5", "fd00:60::5"], ["10.60.1.7"])
    ]
    added = [path for path in paths(pod_addresses=records) if path not in paths()]
    assert "error the node to the pod fd00:60::5" in added and not any("10.60.1.7" in path for path in added)


def test_a_route_to_a_pod_with_another_address_is_left_by_one_that_has_ended() -> None:
    assert paths(routes=[*SNAPSHOT["routes"], route("10.60.1.9", "cali1")]) == paths()


@pytest.mark.parametrize(("nat", "severity"), [([], "note"), (["-A POSTROUTING -s 172.19.0.0/16 -j MASQUERADE"], "error")])
def test_containers_of_a_bridge_without_any_default_route_need_not_reach_the_outside(nat: list[str], severity: str) -> None:
    bridge = {"name": "br0", "kind": "bridge", "flags": UP, "addresses": [{"address": "172.19.0.1/16"}]}
    links = [*SNAPSHOT["links"], bridge, {**pod(3, "172.19.0.2"), "master": "br0"}]
    save = "\n".join(["*nat", ":POSTROUTING ACCEPT [0:0]", *nat, "COMMIT"])
    further = {"pods": [{"namespace": "pod3", "routes": []}], "iptables": [{**SNAPSHOT["iptables"][0], "save": save}]}
    found = paths(links=links, routes=[*SNAPSHOT["routes"], route("172.19.0.0/16", "br0")], **further)
    assert f"{severity} the pod 172.19.0.2 to the outside" in found


@pytest.mark.parametrize(
    ("others", "is_restriction"),
    [
        ([("10.60.1.5", "198.51.100.7"), ("10.60.1.6", "198.51.100.7")], True),
        ([("198.51.100.7", "10.60.1.5")], True),
        ([("10.60.1.5", "10.60.1.6"), ("10.60.1.6", "10.60.1.5")], True),
        ([("10.60.1.5", "198.51.100.7"), ("10.60.1.5", "10.60.1.6")], False),  # cut off
        ([("", "10.60.1.5")], False),  # a probe of kubelet
    ],
)
def test_a_rule_that_keeps_pods_from_some_ends_alone_may_be_meant(others: list[tuple[str, str]], is_restriction: bool) -> None:
    packets = [Trial({"source": source, "destination": to} if source else {"destination": to}) for source, to in others]
    suspicions = [Suspicion("", "", (), trial=trial) for trial in packets]
    rule = ChainRule("ip", "filter", "FORWARD", "-A FORWARD -j DROP", 7)
    assert path_checks.restricts(rule, suspicions) is is_restriction
    # A policy is no rule, and what a CNI or kube-proxy adds has its own meaning.
    assert not path_checks.restricts(rule._replace(handle=0), suspicions)
    assert not path_checks.restricts(rule._replace(chain="KUBE-FORWARD"), suspicions)
    of_service = [Suspicion("", "", (), trial=trial._replace(missed=lambda _way: None)) for trial in packets]
    assert not path_checks.restricts(rule, of_service)


@pytest.mark.parametrize(("link", "size"), [("cali1", 1400), ("cali1", 1500), ("cali1", 1600), ("eth0", 1600)])
def test_a_full_packet_is_tried_where_the_other_end_of_a_link_sends_larger_ones_than_the_link_takes(link: str, size: int) -> None:
    sizes = {link: size}
    links: list[Any] = [
        {**each, "mtu": 1500, "peer": {**each.get("peer", {}), "mtu": sizes.get(each["name"], 1500)}}
        for each in SNAPSHOT["links"]
    ]
    look = path_checks.paths.look(Node({**SNAPSHOT, "links": links}, Context()))
    packets = [each.trial.packet for each in look if each.trial and "length" in each.trial.packet]
    # A client sends no larger packets than the pods take.
    expected = [(link, size)] if link == "cali1" and size > 1500 else []
    assert [(packet["interface"], packet["length"]) for packet in packets] == expected


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


NODE, CLIENT, POD, CLUSTER_IP = (
    ipaddress.ip_address(each).packed for each in ("192.0.2.11", "10.60.1.6", "10.60.1.5", "10.96.0.10")
)
DEFAULT = values.routes(SNAPSHOT)[0].parsed("routes")
OF_SERVICES = ("ip nat PREROUTING", "ip nat KUBE-SERVICES", "ip nat POSTROUTING")


def missed(way: Way, destination: str, **changes: Any) -> str:
    """Return the object that keeps a packet of a pod from where it must get; empty if it gets there."""
    for each in path_checks.paths.look(Node({**SNAPSHOT, **changes}, Context())):
        trial = each.trial
        if trial and trial.packet["destination"] == destination and trial.packet.get("source") == "10.60.1.5" and trial.missed:
            miss = trial.missed(way)
            return miss.subject if miss else ""
    raise AssertionError(destination)


def left(destination: bytes, port: int, **met: Any) -> Way:
    packet = Packet(CLIENT, destination, 6, 40000, port)
    return Way("forwarded", "eth0", None, "", None, met=Met(Frame(packet, b"", b""), Query(CLIENT, destination), **met))


def test_a_packet_to_a_service_that_nothing_translates_names_the_last_chain_of_services_that_it_enters() -> None:
    jumps = (OF_SERVICES[:2],)
    assert missed(left(CLUSTER_IP, 53, chains=OF_SERVICES, jumps=jumps), "10.96.0.10") == "ip nat KUBE-SERVICES"
    assert missed(left(CLUSTER_IP, 53, chains=OF_SERVICES[::2]), "10.96.0.10") == "ip nat PREROUTING"
    assert missed(left(POD, 53, chains=OF_SERVICES, jumps=jumps), "10.96.0.10") == ""
    assert missed(left(CLUSTER_IP, 53)._replace(verdict="dropped"), "10.96.0.10") == ""  # by what the trace names


@pytest.mark.parametrize(("ports", "subject"), [([53], ""), ([8080], "10.96.0.10"), ([], ""), (None, "")])
def test_a_service_leads_to_a_port_at_which_its_pod_listens_as_far_as_that_is_known(
    ports: list[int] | None, subject: str
) -> None:
    listeners: list[Any] | None = None if ports is None else [{"address": "::", "port": port} for port in ports]
    side = {"namespace": "pod1", "listeners": listeners}
    assert missed(left(POD, 53), "10.96.0.10", pods=[side]) == subject


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ([], "table 7"),
        ([{"priority": 99, "family": "ipv4", "table": "7"}], ""),
        ([{"priority": 99, "family": "ipv4", "table": "8"}], "ipv4 rule 99: from all lookup 8"),
        ([{"priority": 99, "family": "ipv6", "table": "7"}], "ipv6 rule 99: from all lookup 7"),
    ],
)
def test_a_packet_for_pods_behind_a_tunnel_may_not_leave_by_a_default_route(rules: list[dict[str, Any]], subject: str) -> None:
    tunnel = {"name": "tunnel", "kind": "wireguard", "flags": [*UP, "NOARP"], "addresses": []}
    routes = [*SNAPSHOT["routes"], {**route("10.60.3.0/24", "tunnel"), "table": "7"}]
    way = left(ipaddress.ip_address("10.60.3.1").packed, 8080, route=DEFAULT)
    changes = {"links": [*SNAPSHOT["links"], tunnel], "routes": routes, "rules": [*rules, *SNAPSHOT["rules"]]}
    assert missed(way._replace(interface="tunnel"), "10.60.3.1", **changes) == ""
    assert missed(way, "10.60.3.1", **changes) == subject


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
    assert path_checks.is_meant(node, ChainRule("ip", "filter", chain, "-j DROP"), Met(chains=(*entered,))) is is_meant


@pytest.mark.parametrize(("eth0", "whole"), [(0, "net.ipv4.ip_forward = 0"), (1, "")])
def test_what_no_link_forwards_is_by_the_setting_of_the_node(eth0: int, whole: str) -> None:
    links = {str(link["name"]): {"forwarding": eth0 if link["name"] == "eth0" else 0} for link in SNAPSHOT["links"]}
    node = Node({**SNAPSHOT, "settings": {"node": {"net.ipv4.ip_forward": 0}, "ipv4": links}}, Context())
    assert path_checks.of_all_links(node, Setting("net/ipv4/conf/cali1/forwarding", 0)) == whole
    assert path_checks.of_all_links(node, Setting("net/ipv4/conf/cali1/rp_filter", 1)) == ""


def test_a_virtual_server_stops_packets_only_without_an_endpoint_which_is_meant() -> None:
    assert path_checks.is_meant(Node(SNAPSHOT, Context()), VirtualServer("TCP  10.96.0.10:80 rr"), Met())


@pytest.mark.parametrize(
    ("plugins", "is_of_pods"), [([], True), (["flannel"], True), (["bridge", "portmap"], True), (["calico", "bandwidth"], False)]
)
def test_a_tunnel_leads_to_pods_unless_another_cni_is_configured_alone(plugins: list[str], is_of_pods: bool) -> None:
    """The configuration of Podman, for example, is beside that of a node's CNI, or on a machine without any."""
    tunnel = {"name": "flannel.1", "kind": "vxlan", "flags": UP, "addresses": [{"address": "10.60.1.0/32"}]}
    end = {"address": "10.60.7.0", "dev": "flannel.1", "mac": "02:00:00:00:07:00", "state": "PERMANENT"}
    configured = [{"path": "/etc/cni/net.d/10.conflist", "plugins": plugins}] if plugins else []
    node = Node({**SNAPSHOT, "links": [*SNAPSHOT["links"], tunnel], "neighbors": [end], "cni": configured}, Context())
    assert ("10.60.7.1" in purpose.remote_pods(node, "ipv4")) is is_of_pods
