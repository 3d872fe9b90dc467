# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The twin of a node with kube-proxy's rules, against connections through that node.

Each case is a packet that `datapath_trace` follows on the node, and connections of the same machine to the same address: both
must name the same pods, and the same source addresses. Services of each kind and by the thousand are in tests/upstream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from lab import place
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.client import PATIENCE
from lab.kubernetes.manifests import IpFamily
from lab.kubernetes.pod_images import SERVER_PORT
from lab.machine import Machine
from lab.prober import Prober

pytestmark = pytest.mark.sample
TRIES = 20  # connections after which both of two endpoints were reached, except once in a million times
SILENCE = 0.5  # seconds to wait for an answer that does not come
SERVERS = [manifests.server("web"), manifests.server("here", "Deployment", nodeName="node1")]
SERVICES = [
    manifests.service("web", "NodePort"),
    manifests.service("local", "NodePort", "Local", selector={"app": "here"}),
    manifests.service("named", "ClusterIP", families=["IPv4"], selector={"app": "web"}),
]


class Met(NamedTuple):
    """An endpoint that a connection reaches, and the source address that the endpoint sees."""

    pod: str
    peer: str


class Site:
    """A cluster of two nodes with a pod ``web`` on each, and ``here`` on node1 alone."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node: SystemdNode = cluster.node("node1")
        self.web = cluster.pods_of("app=web")
        self.pods = [*self.web, *cluster.pods_of("app=here")]
        self.names = {address: pod.name for pod in self.pods for address in (pod.ipv4, pod.address)}

    def address(self, service: str, family: IpFamily = "IPv4") -> str:
        """Its cluster IP of this family."""
        addresses: Sequence[str] = self.cluster.get("service", service)["spec"]["clusterIPs"]
        return next(address for address in addresses if (":" in address) is (family == "IPv6"))

    def answered(self, machine: Machine, address: str, port: int) -> set[Met]:
        """The endpoints that answer a machine's connections."""
        if not (first := Prober(machine).http(address, port, SILENCE, 1)):
            return set()
        answers = [first, *(Prober(machine).http(address, port, 2.0, 1) for _number in range(TRIES - 1))]
        return {Met(answer.host, answer.peer) for answer in answers if answer}

    def traced(self, node: SystemdNode, **packet: Any) -> set[Met]:
        """The endpoints that answer according to the node's twin."""
        found: dict[str, Any] = node.module("datapath_trace", {"packet": packet}, timeout=PATIENCE)
        assert not found["failed"], found
        branches = found["branches"] or [found]
        if found["branches"]:
            assert abs(sum(branch["share"] for branch in branches) - 1) < 0.01
        well = [branch for branch in branches if arrives(branch)]
        assert len(well) in (0, len(branches)), branches
        return {Met(self.names[branch["packet"]["destination"]], branch["packet"]["source"]) for branch in well}


def is_served(site: Site, node: Machine) -> bool:
    """Whether kube-proxy of the node leads to each pod."""
    rules = "".join(node.run([program, "--table=nat"]).stdout for program in ("iptables-save", "ip6tables-save"))
    return all(f"--to-destination {end}:{SERVER_PORT}" in rules for pod in site.pods for end in (pod.ipv4, f"[{pod.address}]"))


def arrives(found: dict[str, Any]) -> bool:
    well = ("delivered", "forwarded")
    return found["verdict"] in well and (found["reply"] or {}).get("verdict") in well


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    cluster.apply(*SERVERS, *SERVICES)
    for workload in ("daemonset/web", "deployment/here"):
        cluster.wait_for_rollout(workload)
    made = Site(cluster)
    for node in cluster.workers:
        cluster.until(f"kube-proxy of {node.name} leads to each pod", partial(is_served, made, node), pause=1)
    yield made
    cluster.delete(*SERVERS, *SERVICES)


@pytest.mark.parametrize("family", manifests.BOTH)
def test_a_pod_reaches_the_endpoints_that_its_twin_names_and_itself_by_another_source(site: Site, family: IpFamily) -> None:
    """A pod whose request returns to itself is masqueraded; another pod that calls the same Service is not."""
    pod = next(pod for pod in site.web if pod.node == site.node.name)
    own = pod.ipv4 if family == "IPv4" else pod.address
    address = site.address("web", family)
    traced = site.traced(site.node, source=f"default/{pod.name}", destination=address, destination_port=80)
    assert traced == site.answered(pod, address, 80)
    assert {met.pod: met.peer == own for met in traced} == {one.name: one is not pod for one in site.web}


def test_names_lead_to_the_endpoints_that_a_pod_reaches(site: Site) -> None:
    pod = next(pod for pod in site.web if pod.node == site.node.name)
    traced = site.traced(site.node, source=pod.name, destination="default/named", destination_port=80)
    assert traced == site.answered(pod, site.address("named"), 80)
    assert {met.pod for met in traced} == {pod.name for pod in site.web}


@pytest.mark.parametrize("family", manifests.BOTH)
@pytest.mark.parametrize("name", ["node1", "node2"])
def test_a_node_port_answers_a_client_where_the_twin_says_so(site: Site, name: str, family: IpFamily) -> None:
    node: SystemdNode = site.cluster.node(name)
    port = site.cluster.node_port("local")
    to, source = (node.ipv4, place.CLIENT_IPV4) if family == "IPv4" else (node.address, place.CLIENT)
    traced = site.traced(node, source=source, destination=to, destination_port=port, interface="eth0")
    assert traced == site.answered(site.cluster.client, to, port)
    assert {met.peer for met in traced} == ({source} if name == "node1" else set())
