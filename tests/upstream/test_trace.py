# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What datapath_trace says of a packet to a Service is what the node does with it, for each kind of verdict of kube-proxy."""

from __future__ import annotations

import dataclasses
import re
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from lab import Lab, place
from lab.machine import Machine
from lab.node import NamespaceNode
from lab.prober import Prober
from lab.steps import Steps
from lab.upstream import Endpoint, KubeProxy, Service
from lab.upstream.services import PORT

QUICK = 0.5  # seconds for an answer that must not come
BALANCERS = ("203.0.113.1", "2001:db8:fffe::1")


class Addresses(NamedTuple):
    """Of one IP version. here, elsewhere: of pods on node1, where kube-proxy is, and on node2."""

    here: str
    elsewhere: str
    node: str
    client: str
    balancer: str
    cluster: int  # the place of the version among a Service's addresses


IPV4 = Addresses("10.244.1.17", "10.244.2.17", "192.0.2.17", place.CLIENT_IPV4, BALANCERS[0], 0)
IPV6 = Addresses("2001:db8:1::11", "2001:db8:2::11", "2001:db8:0:1::11", place.CLIENT, BALANCERS[1], 1)
HERE = [Endpoint(version.here, "node1") for version in (IPV4, IPV6)]
ELSEWHERE = [Endpoint(version.elsewhere, "node2") for version in (IPV4, IPV6)]
EACH_VERSION = pytest.mark.parametrize("version", [IPV4, IPV6], ids=["IPv4", "IPv6"])

PLAIN = Service(1, HERE, 30001)
REMOTE = Service(2, ELSEWHERE, 30002)
NO_LOCAL = Service(3, ELSEWHERE, 30003, policy="Local", health_port=32003)
LOCAL = Service(4, [*HERE, *ELSEWHERE], 30004, policy="Local", health_port=32004)
UNSERVED = Service(5, [], 30005)


def balanced(service: Service, ranges: Sequence[str] = ()) -> Service:
    """Return the Service with the addresses of a load balancer, of which only sources in ``ranges`` may call."""
    return dataclasses.replace(service, balancers=BALANCERS, ranges=ranges)


@pytest.fixture
def dual(lab: Lab) -> Lab:
    """The lab, in which each pod has an address of IPv4 as well. The load balancer sends its addresses to node1."""
    for number, pod in enumerate(lab.pods):
        gateway, address = f"10.244.{number + 1}.1", f"10.244.{number + 1}.17"
        pod.node.ip([f"address add {gateway}/32 dev {pod.link}", f"route add {address}/32 dev {pod.link}"])
        pod.ip([f"address add {address}/32 dev eth0", f"route add {gateway} dev eth0", f"route add default via {gateway}"])
        lab.load_balancer.ip([f"route add {address}/32 via {pod.node.ipv4}"])
    first, second = lab.nodes
    first.ip([f"route add 10.244.2.0/24 via {second.ipv4}"])
    second.ip([f"route add 10.244.1.0/24 via {first.ipv4}"])
    for balancer, address in zip(BALANCERS, (first.ipv4, first.address), strict=True):
        lab.load_balancer.ip([f"route add {balancer} via {address}"])
    return lab


class Fate(NamedTuple):
    """What became of a packet: "answered", "refused" or "lost"; and for an answer the client as the endpoint sees it."""

    outcome: str
    peer: str = ""


def real(machine: Machine, address: str, port: int) -> Fate:
    """Return the fate of a connection from a machine.

    Linux 6.18 lets a connection of IPv6 wait in spite of an ICMPv6 error, so such errors are counted.
    """
    errors = _errors(machine)
    with machine.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(QUICK)
        try:
            connection.connect((address, port))
        except TimeoutError:
            return Fate("refused" if _errors(machine) > errors else "lost")
        except OSError:
            return Fate("refused")
    answer = Prober(machine).http(address, port, 1.0, 1)
    assert answer
    return Fate("answered", answer.peer)


def _errors(machine: Machine) -> int:
    """Return how many ICMPv6 errors of an unreachable destination a machine has received."""
    counters = dict(line.split() for line in machine.run_from_host(["cat", "/proc/net/snmp6"]).splitlines())
    return int(counters["Icmp6InDestUnreachs"])


_OUTCOMES = {"dropped": "lost", "rejected": "refused", "delivered": "answered", "forwarded": "answered"}


def traced(node: NamespaceNode, packet: dict[str, Any]) -> tuple[Fate, dict[str, Any]]:
    """Return the fate as the trace foretells it, and the result of the module."""
    result = Steps(node, "datapath_trace", {"packet": packet}).run()
    outcome = _OUTCOMES.get(result["verdict"], result["verdict"])
    if outcome != "answered":
        return Fate(outcome), result
    assert result["reply"] and result["reply"]["verdict"] in ("delivered", "forwarded"), result["reason"]
    return Fate(outcome, result["packet"]["source"]), result


def expect(lab: Lab, proxy: KubeProxy, source: str, version: Addresses, address: str, port: int, outcome: str) -> None:
    """Expect this outcome for a packet of the client, of pod1 ("pod") or of the node itself, and the same of the trace.

    While mode nftables was alpha, it had no source ranges, and dropped more with the policy Local.
    """
    node: NamespaceNode = lab.node("node1")
    machine, packet = {
        "client": (lab.client, {"source": version.client, "interface": "eth0"}),
        "pod": (lab.pod("pod1"), {"source": version.here, "interface": lab.pod("pod1").link}),
        "node": (node, {}),
    }[source]
    fate = real(machine, address, port)
    foretold, result = traced(node, {**packet, "destination": address, "destination_port": str(port)})
    assert fate.outcome == outcome or proxy.is_alpha
    assert foretold == fate, (source, address, port, result["verdict"], result["reason"])
    assert result["certain"], result["depends_on"]
    assert bool(result["culprit"]) == (fate.outcome != "answered"), result["culprit"]


@EACH_VERSION
@pytest.mark.parametrize("source", ["client", "pod", "node"])
def test_a_cluster_ip_and_a_node_port(dual: Lab, proxy: KubeProxy, version: Addresses, source: str) -> None:
    proxy.serve(PLAIN, REMOTE, LOCAL)
    for service in (PLAIN, REMOTE):  # for pod1, PLAIN is a hairpin
        expect(dual, proxy, source, version, version.node, service.node_port, "answered")
        if source != "client":  # which has no route to a cluster IP
            expect(dual, proxy, source, version, service.addresses[version.cluster], PORT, "answered")
    if source == "client":  # others may get each endpoint
        expect(dual, proxy, source, version, version.node, LOCAL.node_port, "answered")


@EACH_VERSION
def test_a_service_without_endpoints(dual: Lab, proxy: KubeProxy, version: Addresses) -> None:
    proxy.serve(balanced(UNSERVED))
    address = UNSERVED.addresses[version.cluster]
    expect(dual, proxy, "pod", version, address, PORT, "refused")
    expect(dual, proxy, "node", version, address, PORT, "refused")
    for source in ("client", "pod"):
        expect(dual, proxy, source, version, version.node, UNSERVED.node_port, "refused")
        expect(dual, proxy, source, version, version.balancer, PORT, "refused")


@EACH_VERSION
def test_the_policy_local_without_an_endpoint_on_the_node(dual: Lab, proxy: KubeProxy, version: Addresses) -> None:
    proxy.serve(balanced(NO_LOCAL))
    expect(dual, proxy, "client", version, version.node, NO_LOCAL.node_port, "lost")
    expect(dual, proxy, "client", version, version.balancer, PORT, "lost")
    for source in ("pod", "node"):
        expect(dual, proxy, source, version, NO_LOCAL.addresses[version.cluster], PORT, "answered")
        expect(dual, proxy, source, version, version.node, NO_LOCAL.node_port, "answered")


@EACH_VERSION
@pytest.mark.parametrize(
    ("ranges", "outcome"),
    [((f"{place.CLIENT_IPV4}/32", f"{place.CLIENT}/128"), "answered"), (("192.0.2.128/25", "2001:db8:5::/64"), "lost")],
    ids=["inside", "outside"],
)
def test_source_ranges(dual: Lab, proxy: KubeProxy, version: Addresses, ranges: Sequence[str], outcome: str) -> None:
    proxy.serve(balanced(PLAIN, ranges))
    expect(dual, proxy, "client", version, version.balancer, PORT, outcome)
    expect(dual, proxy, "client", version, version.node, PLAIN.node_port, "answered")


AFFINE = Service(6, [*HERE, *ELSEWHERE], 30006, affinity=True)


def called(lab: Lab, version: Addresses, times: int) -> set[str]:
    """Return the endpoints that answer a client's calls of AFFINE, by the connections that the node tracks."""
    node: NamespaceNode = lab.node("node1")
    node.run_from_host(["conntrack", "-F"])
    for _time in range(times):
        assert real(lab.client, version.node, AFFINE.node_port).outcome == "answered"
    family = "ipv6" if version is IPV6 else "ipv4"
    tracked = node.run_from_host(["conntrack", "-L", "-f", family, "-p", "tcp", "--orig-port-dst", str(AFFINE.node_port)])
    return set(re.findall(r" dport=30006 src=(\S+) ", tracked))


@EACH_VERSION
def test_affinity_without_and_with_a_record_of_the_client(dual: Lab, proxy: KubeProxy, version: Addresses) -> None:
    proxy.serve(AFFINE)
    node: NamespaceNode = dual.node("node1")
    packet = {"source": version.client, "interface": "eth0", "destination": version.node, "destination_port": "30006"}
    _fate, result = traced(node, packet)
    shares = {branch["packet"]["destination"]: branch["share"] for branch in result["branches"]}
    assert shares == pytest.approx({version.here: 0.5, version.elsewhere: 0.5})
    endpoints = called(dual, version, 1)
    _fate, result = traced(node, packet)
    likely = {branch["packet"]["destination"] for branch in result["branches"]} or {result["packet"]["destination"]}
    assert likely == endpoints if proxy.mode == "nftables" else likely >= endpoints  # a record of iptables may be too old
    assert called(dual, version, 10) == endpoints
