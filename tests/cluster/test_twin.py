# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The twin of a node with kube-proxy's rules for 2,000 Services, against connections through that node.

Each case is a packet that `datapath_trace` follows on the node, and connections of the same machine to the same address: both
must name the same pods, and the same source addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import pytest
from sampling import marked

from lab import place
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.client import PATIENCE
from lab.kubernetes.cluster import RunningPod
from lab.kubernetes.manifests import IpFamily
from lab.kubernetes.pod_images import SERVER_PORT
from lab.machine import Machine
from lab.prober import Prober

SERVICES = range(2000)
SAMPLE = SERVICES[9::10]  # what a sample creates of them
USED = (0, 1, 999, 1999)  # some of the Services, with the first and the last in kube-proxy's chain
TRIES = 20  # connections after which both of two endpoints were reached, except once in a million times
SILENCE = 0.5  # seconds to wait for an answer that does not come
SLICES = "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"


def sampled(*cases: Any, sample: Any) -> list[Any]:
    """The cases, of which one is in the sample."""
    return marked(cases, lambda case: case == sample, pytest.mark.sample)


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
        (self.here,) = cluster.pods_of("app=here")
        self.names = {address: pod.name for pod in (*self.web, self.here) for address in (pod.ipv4, pod.address)}

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


def arrives(found: dict[str, Any]) -> bool:
    well = ("delivered", "forwarded")
    return found["verdict"] in well and (found["reply"] or {}).get("verdict") in well


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A cluster for this file alone: deleting 2,000 Services takes longer than making a cluster."""
    with Cluster("twin") as cluster:
        cluster.apply(
            manifests.server("web"),
            manifests.server("here", "Deployment", nodeName="node1"),
            manifests.service("web", "NodePort"),
            manifests.service("local", "NodePort", "Local", selector={"app": "here"}),
            manifests.service("cluster", "NodePort", "Cluster", selector={"app": "here"}),
            manifests.service("none", "NodePort", selector={"app": "nothing"}),
        )
        for workload in ("daemonset/web", "deployment/here"):
            cluster.wait_for_rollout(workload)
        made = Site(cluster)
        with ThreadPoolExecutor(4) as pool:
            services = SAMPLE if request.config.getoption("markexpr") == "sample" else SERVICES
            list(pool.map(lambda number: create(cluster, f"many{number}", made.web), services))
        for node in cluster.workers:
            cluster.until(
                f"kube-proxy has written the Services of {node.name}", partial(written, node), expected=len(services), pause=1
            )
        yield made


def create(cluster: Cluster, name: str, pods: Sequence[RunningPod]) -> None:
    """A Service with its endpoints, created by the API, because the controller of endpoints takes minutes for 2,000."""
    service = manifests.service(name, "ClusterIP", families=["IPv4"])
    del service["spec"]["selector"]
    cluster.api.request("/api/v1/namespaces/default/services", "POST", service)
    endpoints = [{"addresses": [pod.ipv4], "conditions": {"ready": True}} for pod in pods]
    endpoint_slice = {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": SERVER_PORT, "protocol": "TCP"}],
        "endpoints": endpoints,
    }
    cluster.api.request(SLICES, "POST", endpoint_slice)


def written(node: Machine) -> int:
    """The number of test Services for which kube-proxy has rules: above 1,000 endpoints it names each once, else in each rule."""
    return len(set(re.findall(r"default/many\d+", node.run(["iptables-save", "--table=nat"]).stdout)))


@pytest.mark.parametrize("number", sampled(*USED, sample=USED[-1]))
def test_the_node_reaches_the_endpoints_of_a_service_that_its_twin_names(site: Site, number: int) -> None:
    address = site.address(f"many{number}")
    traced = site.traced(site.node, destination=address, destination_port=80)
    assert traced == site.answered(site.node, address, 80)
    assert {met.pod for met in traced} == {pod.name for pod in site.web}


@pytest.mark.parametrize("family", manifests.BOTH)
@pytest.mark.parametrize("name", sampled("web", "cluster", "none", sample="web"))
def test_a_pod_reaches_them_too_and_itself_by_another_source(site: Site, name: str, family: IpFamily) -> None:
    """A pod whose request returns to itself is masqueraded; another pod that calls the same Service is not."""
    pod = next(pod for pod in site.web if pod.node == site.node.name)
    own = pod.ipv4 if family == "IPv4" else pod.address
    address = site.address(name, family)
    traced = site.traced(site.node, source=f"default/{pod.name}", destination=address, destination_port=80)
    assert traced == site.answered(pod, address, 80)
    if name == "web":
        assert {met.pod: met.peer == own for met in traced} == {one.name: one is not pod for one in site.web}
    else:
        assert {met.pod for met in traced} == ({site.here.name} if name == "cluster" else set())


@pytest.mark.sample
def test_names_lead_to_the_endpoints_that_a_pod_reaches(site: Site) -> None:
    pod = next(pod for pod in site.web if pod.node == site.node.name)
    name = f"many{USED[-1]}"
    traced = site.traced(site.node, source=pod.name, destination=f"default/{name}", destination_port=80)
    assert traced == site.answered(pod, site.address(name), 80)
    assert {met.pod for met in traced} == {pod.name for pod in site.web}


@pytest.mark.parametrize("family", manifests.BOTH)
@pytest.mark.parametrize("service", sampled("web", "local", "cluster", "none", sample="local"))
@pytest.mark.parametrize("name", ["node1", "node2"])
def test_a_node_port_answers_a_client_where_the_twin_says_so(site: Site, service: str, name: str, family: IpFamily) -> None:
    node: SystemdNode = site.cluster.node(name)
    port = site.cluster.node_port(service)
    to, source = (node.ipv4, place.CLIENT_IPV4) if family == "IPv4" else (node.address, place.CLIENT)
    traced = site.traced(node, source=source, destination=to, destination_port=port, interface="eth0")
    assert traced == site.answered(site.cluster.client, to, port)
    assert bool(traced) is (service in ("web", "cluster") or (service, name) == ("local", "node1"))
    if service == "local" and traced:
        assert {met.peer for met in traced} == {source}
