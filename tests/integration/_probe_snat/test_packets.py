# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table's effect on packets: probes are answered, and other packets are not changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from lab import Lab, Node, agentbaker
from lab.load_balancer import LINK, PROBE_MAC, PROBE_SOURCE, PROBE_TRANSLATED, dhcpv6_source
from lab.machine import Machine
from lab.node import POD_PORT, ClusterNode, NamespaceNode

QUICK = 0.3  # seconds to wait for an answer that must not come; one that comes takes a millisecond
NODE_PORT = 30080
KINDS = ("tcp", "udp", "icmp")
LIFETIME = 2  # seconds; Azure advertises 9000

# AgentBaker's table as a template without its exception for neighbour discovery and its first translation.
TABLE = """
table ip6 azureSLBProbe {{
  chain prerouting {{
    type filter hook prerouting priority -300;
    {exception}
    iifname eth0 ip6 saddr {source} {translation}
  }}
  chain postrouting {{
    type filter hook postrouting priority -300;
    oifname eth0 ip6 daddr {translated} ip6 daddr set {source}
  }}
}}
"""
RIGHT_TRANSLATION = f"ip6 saddr set {PROBE_TRANSLATED}"
# Written as raw bits (128 of them, 64 into the IPv6 header), nft does not correct the checksum.
TRANSLATION_WITHOUT_CHECKSUM = "@nh,64,128 set 0x2603106200000001fe80123456789abc"


def load_by_module(*nodes: ClusterNode) -> None:
    for node in nodes:
        result = node.module("nftables_probe_snat", {"interface": "eth0", "permanent": False})
        assert not result["failed"], result
        assert result["changed"]


def load_sabotaged(node: ClusterNode, exception: str = "", translation: str = RIGHT_TRANSLATION) -> None:
    values = {"exception": exception, "translation": translation}
    node.run(["nft", "-f", "-"], TABLE.format(source=PROBE_SOURCE, translated=PROBE_TRANSLATED, **values))


def probe(lab: Lab, kind: str, address: str, port: int = POD_PORT, timeout: float = 1.0) -> bool:
    if kind == "icmp":
        return lab.load_balancer.probe_icmp(address, timeout=timeout)
    send = {"tcp": lab.load_balancer.probe_tcp, "udp": lab.load_balancer.probe_udp}[kind]
    return send(address, port, timeout=timeout)


def wrong_checksums(machine: Machine) -> int:
    """How many packets the machine's network has dropped for their checksum."""
    counters = machine.run_from_host(["cat", "/proc/net/snmp6", "/proc/net/snmp"])
    rows = [line.split() for line in counters.splitlines()]
    ipv6 = sum(int(value) for name, value in (row for row in rows if len(row) == 2) if name.endswith("InCsumErrors"))
    names, values = (row for row in rows if row[0] == "Tcp:")  # TCP has one set of counters for both families
    return ipv6 + int(values[names.index("InCsumErrors")])


# Probes


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_to_a_pod_on_the_node_is_answered_with_the_table_only(lab: Lab, kind: str) -> None:
    pod = lab.pod("pod1")
    assert not probe(lab, kind, pod.address, timeout=QUICK)
    load_by_module(pod.node)
    assert probe(lab, kind, pod.address)


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_to_a_pod_behind_another_node_is_answered_with_the_table_only(lab: Lab, kind: str) -> None:
    pod = lab.pod("pod2")
    lab.load_balancer.route(pod.address, via=lab.node("node1").address)
    assert not probe(lab, kind, pod.address, timeout=QUICK)
    load_by_module(*lab.nodes)
    assert probe(lab, kind, pod.address)


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_node_port_under_policy_cluster_is_probed_with_the_table_only(lab: Lab, node: NamespaceNode, kind: str) -> None:
    """With the rules of kube-proxy's nftables mode. tests/cluster has kube-proxy itself, in its iptables mode."""
    node.service(NODE_PORT, [lab.pod("pod1").address], policy="Cluster")
    assert lab.client.fetch(node.address, NODE_PORT), "the service itself works"
    assert not probe(lab, kind, node.address, NODE_PORT, timeout=QUICK)
    load_by_module(node)
    assert probe(lab, kind, node.address, NODE_PORT)


@pytest.mark.parametrize("with_table", [False, True])
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_node_port_whose_endpoint_is_on_another_node_is_probed_in_any_case(
    lab: Lab, node: NamespaceNode, kind: str, with_table: bool
) -> None:
    """Such a packet leaves by the link it came from, and Linux tests a forwarded packet for a link-local source only
    when it leaves by another one (net/ipv6/ip6_output.c, ip6_forward); then it is masqueraded. The table must not
    break what works without it.
    """
    node.service(NODE_PORT, [lab.pod("pod2").address], policy="Cluster")
    if with_table:
        load_by_module(node)
    assert probe(lab, kind, node.address, NODE_PORT)


def test_the_probe_is_answered_whichever_endpoint_it_gets(lab: Lab, node: NamespaceNode) -> None:
    node.service(NODE_PORT, [pod.address for pod in lab.pods])
    load_by_module(node)
    assert all(probe(lab, "tcp", node.address, NODE_PORT) for _connection in range(20))


def test_the_pod_sees_the_translated_source(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_by_module(pod.node)
    answer = lab.load_balancer.probe_http(pod.address, POD_PORT)
    assert answer is not None
    assert answer.peer == PROBE_TRANSLATED


def test_the_table_absent_again_leaves_the_probe_unanswered(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_by_module(pod.node)
    pod.node.module("nftables_probe_snat", {"state": "absent", "permanent": False})
    assert not probe(lab, "tcp", pod.address, timeout=QUICK)


# Packets from the probes' address that are no probes


def load_theirs(node: ClusterNode) -> None:
    node.run(["nft", "-f", "-"], agentbaker.TABLE)


@pytest.mark.parametrize(("load", "seen"), [(load_by_module, PROBE_SOURCE), (load_theirs, PROBE_TRANSLATED)])
@pytest.mark.parametrize("destination", [None, "ff02::1"], ids=["link-local", "multicast"])
def test_what_goes_to_a_link_local_or_multicast_address_keeps_its_source_except_by_agentbakers_table(
    lab: Lab, node: NamespaceNode, destination: str | None, load: Callable[[ClusterNode], None], seen: str
) -> None:
    assert dhcpv6_source(lab.load_balancer, node, destination) == PROBE_SOURCE
    load(node)
    assert dhcpv6_source(lab.load_balancer, node, destination) == seen


# Checksums


def test_every_checksum_is_right_on_both_ways(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_by_module(pod.node)
    assert all(probe(lab, kind, pod.address) for kind in KINDS)
    machines: list[Machine] = [lab.load_balancer, pod.node, pod]
    assert {machine.name: wrong_checksums(machine) for machine in machines} == dict.fromkeys((m.name for m in machines), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_that_leaves_the_checksum_wrong_would_be_noticed(lab: Lab, kind: str) -> None:
    pod = lab.pod("pod1")
    load_sabotaged(pod.node, "icmpv6 type { 134, 135, 136 } accept", TRANSLATION_WITHOUT_CHECKSUM)
    assert not probe(lab, kind, pod.address, timeout=QUICK)
    assert wrong_checksums(pod) > 0


# Packets that must not be changed


@pytest.mark.parametrize("with_table", [False, True])
def test_a_socket_of_the_node_answers_with_and_without_the_table(lab: Lab, node: NamespaceNode, with_table: bool) -> None:
    """Such as a health check node port."""
    node.serve(NODE_PORT)
    if with_table:
        load_by_module(node)
    answer = lab.load_balancer.probe_http(node.address, NODE_PORT)
    assert answer is not None
    assert answer.peer == (PROBE_TRANSLATED if with_table else PROBE_SOURCE)


@pytest.mark.parametrize("with_table", [False, True])
def test_a_clients_source_address_reaches_the_pod_unchanged_under_policy_local(
    lab: Lab, node: NamespaceNode, with_table: bool
) -> None:
    node.service(NODE_PORT, [lab.pod("pod1").address], policy="Local")
    if with_table:
        load_by_module(node)
    answer = lab.client.fetch(node.address, NODE_PORT)
    assert answer is not None
    assert answer.peer == lab.client.address


def test_policy_cluster_hides_the_clients_source_address_so_that_the_proof_above_can_fail(lab: Lab, node: NamespaceNode) -> None:
    node.service(NODE_PORT, [lab.pod("pod1").address], policy="Cluster")
    answer = lab.client.fetch(node.address, NODE_PORT)
    assert answer is not None
    assert answer.peer != lab.client.address


# Neighbour discovery


def forget_neighbours(lab: Lab, node: ClusterNode) -> None:
    lab.load_balancer.ip([f"neigh flush dev {LINK}"])
    node.ip(["neigh flush dev eth0"])


def neighbour(machine: Machine, link: str, address: str) -> str:
    return machine.run_from_host(["ip", "-6", "neigh", "show", "dev", link, "to", address])


def test_neighbours_are_found_anew_from_and_by_the_probes_address(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_by_module(pod.node)
    forget_neighbours(lab, pod.node)
    assert "lladdr" not in neighbour(pod.node, "eth0", PROBE_SOURCE)
    assert probe(lab, "tcp", pod.address)
    assert f"lladdr {PROBE_MAC}" in neighbour(pod.node, "eth0", PROBE_SOURCE)
    assert "lladdr" in neighbour(lab.load_balancer, LINK, pod.node.address)


def test_without_neighbour_discovery_no_probe_arrives_so_that_the_proof_above_can_fail(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_sabotaged(pod.node, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } drop")
    forget_neighbours(lab, pod.node)
    assert not probe(lab, "tcp", pod.address, timeout=QUICK)


# Router advertisements


@pytest.fixture
def advertised() -> Iterator[Lab]:
    """A node whose default route lives LIFETIME seconds after the load balancer's last advertisement."""
    with Lab("advertised", nodes=[Node("node1", pods=["pod1"])], router_advertisements=LIFETIME) as running:
        assert not running.node("node1").run_from_host(["ip", "-6", "route", "show", "default", "proto", "static"])
        yield running


def default_route(node: ClusterNode) -> str:
    """The default route in use; empty for none. A list of routes shows an expired one until the kernel removes it."""
    chosen = node.run(["ip", "-6", "route", "get", PROBE_TRANSLATED], check=False)
    return chosen.stdout if "via" in chosen.stdout else ""


def test_the_default_route_outlives_its_lifetime_because_it_is_renewed_through_the_table(advertised: Lab) -> None:
    pod = advertised.pod("pod1")
    load_by_module(pod.node)
    time.sleep(LIFETIME + 1.5)
    assert f"via {PROBE_SOURCE} dev eth0 proto ra" in default_route(pod.node)
    assert probe(advertised, "tcp", pod.address)


def test_the_default_route_ends_when_the_router_falls_silent(advertised: Lab) -> None:
    pod = advertised.pod("pod1")
    load_by_module(pod.node)
    assert probe(advertised, "tcp", pod.address)
    assert advertised.router_advertisements is not None
    advertised.router_advertisements.stop()
    time.sleep(LIFETIME + 1.5)
    assert not default_route(pod.node)
    assert not probe(advertised, "tcp", pod.address, timeout=QUICK)


def test_the_default_route_ends_by_a_table_without_the_neighbour_discovery_exception(advertised: Lab) -> None:
    pod = advertised.pod("pod1")
    load_sabotaged(pod.node)
    assert probe(advertised, "tcp", pod.address), "the probe works at first: what breaks, breaks later"
    time.sleep(LIFETIME + 1.5)
    assert not default_route(pod.node)
    assert not probe(advertised, "tcp", pod.address, timeout=QUICK)


# Connection tracking


def tracked(node: ClusterNode) -> list[str]:
    return node.run_from_host(["conntrack", "-L", "-f", "ipv6"]).splitlines()


def test_the_table_makes_no_conntrack_entry(lab: Lab) -> None:
    pod = lab.pod("pod1")
    load_by_module(pod.node)
    assert all(probe(lab, kind, pod.address) for kind in KINDS)
    assert tracked(pod.node) == []


def test_beside_a_service_each_probe_is_one_conntrack_entry_with_the_translated_source(lab: Lab, node: NamespaceNode) -> None:
    node.service(NODE_PORT, [lab.pod("pod1").address])
    load_by_module(node)
    assert probe(lab, "tcp", node.address, NODE_PORT)
    entries = tracked(node)
    assert len(entries) == 1
    assert f"src={PROBE_TRANSLATED} " in entries[0]
    assert PROBE_SOURCE not in entries[0]
