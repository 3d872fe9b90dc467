# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other end of a link: a pod, the port of a bridge, or the network behind that bridge."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.lookup import Tables
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.topology import Topology
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint

PORT = {"mac": "1a:00:00:00:00:01", "addresses": ["fe80::1800:ff:fe00:1"]}
POD = {"mac": "0a:00:00:00:00:05", "addresses": ["10.240.0.5", "fe80::800:ff:fe00:5"]}


def link(name: str, index: int, kind: str = "veth", **more: Any) -> dict[str, Any]:
    return {"name": name, "index": index, "kind": kind, "mac": f"02:00:00:00:00:0{index}", "flags": ["UP", "LOWER_UP"], **more}


def of(snapshot: dict[str, Any]) -> Topology:
    read = Snapshot.of(snapshot)
    return Topology(read, blueprint.draw(read), [])


def around(*links: dict[str, Any], uplink: str = "eth0") -> Topology:
    routes = [{"table": "254", "family": "ipv4", "to": "default", "via": "10.240.0.1", "dev": uplink}]
    snapshot = {"links": list(links), "routes": routes}
    return of(snapshot)


def answers(topology: Topology, name: str, address: str) -> bool:
    return topology.neighbour(name, ipaddress.ip_address(address).packed) is not None


def test_behind_the_port_of_a_bridge_anyone_may_answer_and_a_pod_answers_for_itself() -> None:
    """As on a node in a container: the other end of its uplink is a bridge port with only a link-local address."""
    topology = around(link("eth0", 2, peer=PORT), link("veth1", 3, peer=POD))
    assert answers(topology, "eth0", "10.240.0.1") and answers(topology, "eth0", PORT["addresses"][0])
    assert answers(topology, "veth1", "10.240.0.5") and not answers(topology, "veth1", "10.240.0.6")


@pytest.mark.parametrize("ports", [["eth0", "veth1"], ["veth1", "eth0"]])
@pytest.mark.parametrize("kind", ["", "veth"], ids=["hardware", "veth"])
def test_packets_for_a_bridge_come_in_by_the_port_without_a_pod(kind: str, ports: list[str]) -> None:
    members = {
        "eth0": link("eth0", 2, kind, master="azure0", peer=PORT if kind else None),
        "veth1": link("veth1", 3, master="azure0", peer=POD),
    }
    topology = around(link("azure0", 4, "bridge"), *(members[name] for name in ports), uplink="azure0")
    assert [topology.entrance(name) for name in ("azure0", "eth0", "veth1", "none")] == ["eth0", "eth0", "veth1", "none"]


@pytest.mark.parametrize("kind", ["bridge", "openvswitch", "bond", ""])
def test_the_port_of_another_link_than_a_bridge_is_none_of_a_bridge(kind: str) -> None:
    topology = around(link("eth0", 2, ""), link("ovs-system", 4, kind), link("web", 5, master="ovs-system", peer=POD))
    assert topology.bridge("web") == ("ovs-system" if kind == "bridge" else "")


def test_another_pod_of_a_bridge_is_not_behind_the_port_by_which_a_packet_came() -> None:
    """Frames do not leave by the port that they came in by, so the packet would seem to be lost."""
    ports = [link(name, index, master="cni0") for name, index in (("veth1", 3), ("veth2", 5))]
    source, other = "10.244.0.6", "10.244.0.5"
    sent = packet.from_options({"source": source, "destination": other, "protocol": "icmp", "interface": "veth2"})
    for known, port in ((ports, "veth1"), (ports[1:], "veth2")):
        topology = around(link("cni0", 4, "bridge"), *known)
        topology.learn(sent)
        assert answers(topology, "veth2", source) and answers(topology, port, other)
        assert answers(topology, "veth2", other) == (port == "veth2")


def test_a_pod_whose_addresses_are_not_known_does_not_answer_where_a_port_leads_outside() -> None:
    members = (link("eth0", 2, "", master="azure0"), link("veth1", 3, master="azure0"))
    outside = around(link("azure0", 4, "bridge"), *members, uplink="azure0")
    assert answers(outside, "eth0", "10.240.0.1") and not answers(outside, "veth1", "10.240.0.1")
    inside = around(link("cni0", 4, "bridge"), link("veth1", 3, master="cni0"))
    assert answers(inside, "veth1", "10.244.0.5")


@pytest.mark.parametrize(
    ("name", "is_pod"),
    [("eth1", False), ("ens6", False), ("enp0s8", False), ("eni7c22dbae71f", True), ("veth1", True), ("ethpod", True)],
)
def test_a_veth_with_the_name_of_a_network_interface_leads_to_no_pod(name: str, is_pod: bool) -> None:
    """The second interface of a node in a container, before it has an address or a route."""
    assert around(link("eth0", 2), link(name, 3)).is_pod(name) == is_pod


@pytest.mark.parametrize(
    ("more", "is_pod"),
    [({}, True), ({"type": 65534}, False), ({"flags": ["UP", "POINTOPOINT", "NOARP"]}, False), ({"kind": "wireguard"}, False)],
    ids=["a tap", "a tun", "a tun by its flags", "a tunnel of another kind"],
)
def test_a_tap_leads_to_a_machine_and_a_tunnel_does_not(more: dict[str, Any], is_pod: bool) -> None:
    assert around(link("eth0", 2), {**link("t0", 3, "tun"), **more}).is_pod("t0") == is_pod


@pytest.mark.parametrize(
    ("states", "most", "is_full"),
    [(["REACHABLE", "FAILED"], 2, True), (["REACHABLE", "PERMANENT"], 2, False), (["REACHABLE"], None, False)],
    ids=["full", "a permanent entry does not count", "no limit is known"],
)
def test_a_full_table_of_neighbours_has_no_place_for_another_one(states: list[str], most: int | None, is_full: bool) -> None:
    entries = [
        {"address": f"10.240.0.{number}", "dev": "eth0", "mac": f"0a:00:00:00:01:0{number}", "state": state}
        for number, state in enumerate(states, 1)
    ]
    limits = {} if most is None else {"net.ipv4.neigh.default.gc_thresh3": most}
    snapshot = {"links": [link("eth0", 2)], "neighbors": entries, "settings": {"node": limits}}
    topology = of(snapshot)
    full = [topology.is_table_full("eth0", ipaddress.ip_address(address).packed) for address in ("10.240.0.9", "10.240.0.1")]
    assert full == [is_full, False]


@pytest.mark.parametrize(("addresses", "owner"), [([], "u1"), (["10.9.0.1/24"], "b1")], ids=["no address", "an address"])
def test_a_bridge_without_an_address_is_no_gateway(addresses: list[str], owner: str) -> None:
    own = [{"address": address} for address in addresses]
    links = [link("b1", 2, "bridge", addresses=own), link("u1", 3, "", master="b1"), link("t7", 4, "tun", master="b1")]
    uplink = link("eth0", 5, "", addresses=[{"address": "10.240.0.4/24"}])
    snapshot = {"links": [uplink, *links]}
    drawn = blueprint.draw(Snapshot.of(snapshot))
    topology = Topology(Snapshot.of(snapshot), drawn, [])
    sent = packet.from_options({"source": "10.9.0.2", "destination": "198.51.100.7", "protocol": "icmp", "interface": "t7"})
    expected = topology.world_mac("u1") if owner == "u1" else topology.own_mac("t7")
    assert topology.macs(sent)[1] == expected


@pytest.mark.parametrize("address", ["10.0.0.300", "", {}, "10.0.0.5/8"])
def test_an_address_of_a_pod_that_is_none_is_refused(address: Any) -> None:
    snapshot = {
        "links": [link("veth1", 3, peer={**POD, "namespace": "p", "name": "eth0"})],
        "pods": [{"namespace": "p", "addresses": [address]}],
    }
    topology = of(snapshot)
    with pytest.raises(Invalid, match="snapshot.pods.addresses"):
        topology.pod_sides.has("veth1", b"\n\0\0\5")


@pytest.mark.parametrize(
    ("kind", "address", "via", "is_foreign"),
    [
        ("veth", "10.0.1.10/24", "10.0.1.1", True),
        ("", "10.0.1.10/24", "10.0.1.1", True),
        ("", "10.244.1.0/32", "10.244.2.0", False),
        ("vxlan", "10.0.1.10/24", "10.0.1.1", False),
        ("veth", "10.0.1.10/24", "", False),
    ],
)
def test_a_source_is_foreign_behind_a_link_that_leads_to_a_gateway_but_not_in_a_tunnel(
    kind: str, address: str, via: str, is_foreign: bool
) -> None:
    links = [
        link("eth0", 2, "", addresses=[{"address": "10.0.0.10/24"}]),
        link("eth1", 3, kind, addresses=[{"address": address}]),
    ]
    routes = [{"to": "default", "via": "10.0.0.1", "dev": "eth0"}, {"to": "10.9.0.0/16", "via": via, "dev": "eth1"}]
    snapshot = {
        "links": links,
        "routes": [
            {"table": "254", "family": "ipv4", **{key: value for key, value in route.items() if value}} for route in routes
        ],
    }
    topology = of(snapshot)
    sent = packet.from_options({"source": "10.0.0.10", "destination": "10.9.0.1", "protocol": "icmp"})
    told = topology.foreign_source(sent, "eth1", Tables([], []))
    assert told == (("eth0", "is an address of eth0") if is_foreign else ("", ""))
    answer = packet.from_options({"source": "203.0.113.80", "destination": "10.9.0.1", "protocol": "icmp"})
    assert topology.is_elsewhere(answer.source, "eth0", "eth1", Tables([], [])) == is_foreign
    assert not topology.is_elsewhere(answer.source, "eth1", "eth1", Tables([], []))
