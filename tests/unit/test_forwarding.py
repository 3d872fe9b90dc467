# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's load balancer: Services, Nodes and verdicts of probes in, forwarding rules out."""

from __future__ import annotations

import typing as t

import pytest

from lab.kubernetes import forwarding
from lab.kubernetes.forwarding import AWS, AZURE, Balancer, Forwarding, Port, Target
from lab.service import IPV4, IPV6

WEB = Port("tcp", 80, 30080)
DNS = Port("udp", 53, 30053)


def service(
    name: str = "web",
    families: tuple[str, ...] = ("IPv4", "IPv6"),
    kind: str = "LoadBalancer",
    ports: tuple[Port, ...] = (WEB,),
    health: int = 0,
    **metadata: str,
) -> dict[str, t.Any]:
    spec: dict[str, t.Any] = {
        "type": kind,
        "ipFamilies": list(families),
        "ports": [{"protocol": port.protocol.upper(), "port": port.port, "nodePort": port.node_port} for port in ports],
    }
    if health:
        spec |= {"externalTrafficPolicy": "Local", "healthCheckNodePort": health}
    return {"metadata": {"namespace": "default", "name": name, **metadata}, "spec": spec, "status": {"loadBalancer": {}}}


def node(number: int, ready: str = "True", families: str = "46", **labels: str) -> dict[str, t.Any]:
    addresses = [f"192.0.2.{number}"] * ("4" in families) + [f"2001:db8:0:1::{number}"] * ("6" in families)
    entries = [{"type": "Hostname", "address": f"node{number}"}]
    entries += [{"type": "InternalIP", "address": address} for address in addresses]
    return {
        "metadata": {"name": f"node{number}", "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "addresses": entries},
    }


def forwarded(
    *services: dict[str, t.Any], nodes: tuple[dict[str, t.Any], ...] = (node(1), node(2)), cloud: Balancer = AZURE
) -> Forwarding:
    return Forwarding(cloud, forwarding.frontends(services, {}), forwarding.nodes(nodes, {}))


def names(found: Forwarding, healthy: set[Target], frontend: int = 0, port: int = 0) -> list[str]:
    chosen = found.frontends[frontend]
    return [one.name for one in found.backends(chosen, chosen.ports[port], healthy)]


@pytest.mark.parametrize(
    "wanted, before, numbers",
    [
        ("", {}, {}),
        ("ab", {}, {"a": 1, "b": 2}),
        ("ab", {"b": 1}, {"a": 2, "b": 1}),
        ("abc", {"a": 3, "gone": 1}, {"a": 3, "b": 1, "c": 2}),
    ],
)
def test_a_number_stays_while_its_key_does_and_is_free_again_afterwards(
    wanted: str, before: dict[str, int], numbers: dict[str, int]
) -> None:
    assert forwarding.numbered(wanted, before) == numbers


@pytest.mark.parametrize(
    "given, addresses",
    [
        (service(), ["203.0.113.1", "2001:db8:fffe::1"]),
        (service(families=("IPv6", "IPv4")), ["2001:db8:fffe::1", "203.0.113.1"]),
        (service(families=("IPv6",)), ["2001:db8:fffe::1"]),
        (service(kind="NodePort"), []),
        (service(kind="ClusterIP"), []),
        (service(deletionTimestamp="2026-01-01T00:00:00Z"), []),
    ],
)
def test_each_family_of_a_balanced_service_has_a_front_end(given: dict[str, t.Any], addresses: list[str]) -> None:
    found = forwarded(given)
    assert [frontend.address for frontend in found.frontends] == addresses
    assert found.ingress("default/web") == [{"ip": address} for address in addresses]


def test_a_service_keeps_its_address_when_another_goes() -> None:
    before = {"default/gone": 1, "default/web": 2}
    first, second = forwarding.frontends([service("new", ("IPv4",)), service("web", ("IPv4",))], before)
    assert (first.address, second.address) == ("203.0.113.1", "203.0.113.2")


def test_each_service_shows_its_own_addresses() -> None:
    found = forwarded(service("web", ("IPv4",)), service("api", ("IPv4",)))
    assert [found.ingress(f"default/{name}") for name in ("web", "api")] == [[{"ip": "203.0.113.1"}], [{"ip": "203.0.113.2"}]]


@pytest.mark.parametrize(
    "families, ingress",
    [(("IPv4", "IPv6"), [{"hostname": "web.default.elb.example"}]), ((), [])],
)
def test_aws_shows_one_name_for_all_families(families: tuple[str, ...], ingress: list[dict[str, str]]) -> None:
    assert forwarded(service(families=families), cloud=AWS).ingress("default/web") == ingress


@pytest.mark.parametrize(
    "given, is_candidate",
    [
        (node(1), True),
        (node(1, ready="False"), False),
        (node(1, ready="Unknown"), False),
        (node(1, **{"node.kubernetes.io/exclude-from-external-load-balancers": ""}), False),
        ({"metadata": {"name": "new"}, "status": {}}, False),
    ],
)
def test_a_node_is_a_candidate_if_it_is_ready_and_not_excluded(given: dict[str, t.Any], is_candidate: bool) -> None:
    assert bool(forwarding.nodes([given], {})) == is_candidate


def test_a_node_without_an_address_of_the_family_is_no_candidate() -> None:
    found = forwarded(service(), nodes=(node(1, families="4"), node(2, families="6")))
    assert [[one.name for one in found.candidates(frontend)] for frontend in found.frontends] == [["node1"], ["node2"]]


@pytest.mark.parametrize(
    "given, probed",
    [
        (service(families=("IPv4",)), {("192.0.2.1", 30080, False), ("192.0.2.2", 30080, False)}),
        (service(families=("IPv6",)), {("2001:db8:0:1::1", 30080, False), ("2001:db8:0:1::2", 30080, False)}),
        (service(families=("IPv4",), ports=(DNS,)), set()),
        (service(families=("IPv4",), ports=(WEB, DNS), health=32000), {("192.0.2.1", 32000, True), ("192.0.2.2", 32000, True)}),
    ],
)
def test_the_node_port_is_probed_and_with_local_the_health_check_port(
    given: dict[str, t.Any], probed: set[tuple[str, int, bool]]
) -> None:
    assert {(target.address, target.port, target.http) for target in forwarded(given).targets()} == probed


def test_nodes_whose_probe_is_answered_get_traffic() -> None:
    found = forwarded(service(families=("IPv4",), ports=(WEB, DNS)))
    assert names(found, set()) == []
    assert names(found, {Target("node2", "192.0.2.2", 30080, http=False)}) == ["node2"]
    assert names(found, found.targets()) == ["node1", "node2"]


def test_a_port_that_no_probe_covers_goes_to_all_nodes() -> None:
    assert names(forwarded(service(families=("IPv4",), ports=(WEB, DNS))), set(), port=1) == ["node1", "node2"]


def test_with_local_all_ports_go_to_the_nodes_with_an_endpoint() -> None:
    found = forwarded(service(families=("IPv4",), ports=(WEB, DNS), health=32000))
    healthy = {Target("node1", "192.0.2.1", 32000, http=True)}
    assert [names(found, healthy, port=port) for port in (0, 1)] == [["node1"], ["node1"]]


def test_azure_sends_packets_as_they_are_by_a_table_of_the_node() -> None:
    found = forwarded(service(families=("IPv6",)))
    rule = "ct state new ip6 daddr 2001:db8:fffe::1 tcp dport 80 ct mark set numgen inc mod 2 map { 0 : 1, 1 : 2 }"
    assert rule in found.ruleset(found.targets()).splitlines()
    assert "dnat" not in found.ruleset(found.targets())
    routes = ["route replace default via 2001:db8:0:1::1 table 1", "route replace default via 2001:db8:0:1::2 table 2"]
    assert found.routes(IPV6) == routes


def test_aws_translates_to_the_node_port_and_leaves_the_source() -> None:
    found = forwarded(service(families=("IPv4",)), cloud=AWS)
    rule = "ip daddr 203.0.113.1 tcp dport 80 dnat ip to numgen inc mod 1 map { 0 : 192.0.2.2 } : 30080"
    ruleset = found.ruleset({Target("node2", "192.0.2.2", 30080, http=False)})
    assert rule in ruleset.splitlines()
    assert not [word for word in ("mark set", "masquerade", "snat") if word in ruleset]


@pytest.mark.parametrize("cloud", [AZURE, AWS], ids=["azure", "aws"])
def test_packets_for_a_front_end_without_a_healthy_node_are_dropped(cloud: Balancer) -> None:
    lines = forwarded(service(), cloud=cloud).ruleset(set()).splitlines()
    assert not [line for line in lines if "dport" in line]
    assert {f"meta mark 0 {family.nft} daddr {forwarding.FRONTEND_SUBNETS[family]} drop" for family in (IPV4, IPV6)} <= {*lines}
