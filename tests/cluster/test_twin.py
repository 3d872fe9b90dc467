# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The twin of a node with the rules of kube-proxy for 2,000 Services, against the packets of that node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab import place
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.prober import Prober
from lab.waiting import eventually

SERVICES = 2000
TRIES = 20  # requests by which each of two endpoints is met, but for one time in a million
SLOW = 300.0  # seconds; for a busy machine, and thousands of Services


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[str]:
    """A server on each node, and on node1 alone one more; Services in front of them, and many that nobody uses."""
    here = manifests.server("here", nodeSelector={"kubernetes.io/hostname": "node1"})
    own = [
        manifests.server("web"),
        here,
        manifests.service("web", "NodePort", families=["IPv4"]),
        manifests.service("local", "NodePort", "Local", families=["IPv4"], selector={"app": "here"}),
        manifests.service("cluster", "NodePort", "Cluster", families=["IPv4"], selector={"app": "here"}),
        manifests.service("none", "NodePort", families=["IPv4"], selector={"app": "nothing"}),
    ]
    many = [
        manifests.service(f"many{number}", "ClusterIP", families=["IPv4"], selector={"app": "web"}) for number in range(SERVICES)
    ]
    cluster.apply(*own)
    for first in range(0, SERVICES, 500):
        cluster.create(many[first : first + 500], SLOW)
    for workload in ("daemonset/web", "daemonset/here"):
        cluster.wait_for_rollout(workload, SLOW)
    node: SystemdNode = cluster.node("node1")
    assert eventually(lambda: node.run(["iptables-save", "-t", "nat"]).stdout.count("/many") >= 3 * SERVICES, SLOW)
    yield "web"
    cluster.kubectl("delete", "services", "--all", "--namespace=default", timeout=SLOW)
    cluster.delete(*own)


def trace(node: SystemdNode, **packet: Any) -> dict[str, Any]:
    found: dict[str, Any] = node.module("datapath_trace", {"packet": packet}, timeout=SLOW)
    assert not found["failed"], found
    return found


def arrives(found: dict[str, Any]) -> bool:
    well = ("delivered", "forwarded")
    return found["verdict"] in well and (found["reply"] or {}).get("verdict") in well


def endpoints(found: dict[str, Any]) -> set[str]:
    return {one["packet"]["destination"] for one in found["branches"] or [found]}


def test_the_endpoints_of_a_service_are_those_that_answer(cluster: Cluster, web: str) -> None:
    node: SystemdNode = cluster.node("node1")
    address = cluster.get("service", "many1999")["spec"]["clusterIP"]
    found = trace(node, destination=address, destination_port=80)
    answers = [Prober(node).http(address, 80, 2.0, 1) for _number in range(TRIES)]
    pods = {pod.name: pod.ipv4 for pod in cluster.pods_of("app=web")}
    assert arrives(found) and all(answers)
    assert endpoints(found) == {pods[answer.host] for answer in answers if answer} == set(pods.values())
    assert [one["share"] for one in found["branches"]] == [0.5, 0.5]


@pytest.mark.parametrize("service", ["web", "local", "cluster", "none"])
@pytest.mark.parametrize("name", ["node1", "node2"])
def test_a_node_port_answers_the_client_where_the_twin_says_so(cluster: Cluster, web: str, service: str, name: str) -> None:
    node: SystemdNode = cluster.node(name)
    port = cluster.node_port(service)
    found = trace(node, source=place.CLIENT_IPV4, destination=node.ipv4, destination_port=port, interface="eth0")
    answered = cluster.client.fetch(node.ipv4, port, timeout=2.0)
    assert arrives(found) is (answered is not None), (found["reason"], answered)
    assert arrives(found) is (service in ("web", "cluster") or (service, name) == ("local", "node1"))


def test_the_twin_is_quick(cluster: Cluster, web: str) -> None:
    node: SystemdNode = cluster.node("node1")
    began = time.monotonic()
    trace(node, destination=cluster.get("service", "many7")["spec"]["clusterIP"], destination_port=80)
    assert time.monotonic() - began < 60
