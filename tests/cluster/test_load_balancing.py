# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's load balancer on Services of a real Kubernetes: addresses, nodes that get traffic, and the client that a pod sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from lab import place
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.client import PATIENCE
from lab.kubernetes.forwarding import AWS, AZURE, FAMILIES, Balancer
from lab.kubernetes.manifests import IpFamily
from lab.service import IPV4

CLIENTS: dict[IpFamily, str] = {"IPv4": place.CLIENT_IPV4, "IPv6": place.CLIENT}
BOTH_NODES = {"node1", "node2"}
_COUNT = "table inet arrivals { chain count { type filter hook prerouting priority -400; %s counter; }; }"


@pytest.fixture(autouse=True, scope="module")
def probe_table(cluster: Cluster) -> Iterator[None]:
    """Loads the table with which IPv6 probes reach pods on the node."""
    for node in cluster.nodes:
        node.module("nftables_probe_snat", timeout=PATIENCE)
    yield
    for node in cluster.nodes:
        node.module("nftables_probe_snat", {"state": "absent"}, timeout=PATIENCE)


@contextlib.contextmanager
def applied(cluster: Cluster, *objects: dict[str, Any]) -> Iterator[None]:
    """The workload, created first and running, and the Service exist during the block."""
    cluster.apply(*objects)
    try:
        cluster.wait_for_rollout(f"{objects[0]['kind'].lower()}/{objects[0]['metadata']['name']}")
        yield
    finally:
        cluster.delete(*objects)


@contextlib.contextmanager
def counted(cluster: Cluster, family: IpFamily) -> Iterator[dict[str, int]]:
    """How many packets of the client each node has got during the block, filled at its end."""
    arrivals: dict[str, int] = {}
    for node in cluster.nodes:
        node.run_from_host(["nft", "-f", "-"], _COUNT % f"{FAMILIES[family].nft} saddr {CLIENTS[family]}")
    try:
        yield arrivals
        for node in cluster.nodes:
            listing = node.run_from_host(["nft", "list", "table", "inet", "arrivals"])
            arrivals[node.name] = int(listing.partition("packets ")[2].split()[0])
    finally:
        for node in cluster.nodes:
            node.run_from_host(["nft", "delete", "table", "inet", "arrivals"])


def ingress(cluster: Cluster, name: str) -> Any:
    return cluster.get("service", name)["status"]["loadBalancer"].get("ingress")


@pytest.mark.parametrize("families", [("IPv4",), ("IPv6",), ("IPv4", "IPv6")], ids="+".join)
def test_a_client_reaches_pods_by_each_address_of_the_service(cluster: Cluster, families: tuple[IpFamily, ...]) -> None:
    with applied(cluster, manifests.server("web"), manifests.service("web", families=families)):
        for family in families:
            cluster.load_balancing.wait_for("default/web", FAMILIES[family], BOTH_NODES)
            address = cluster.load_balancing.address("default/web", FAMILIES[family])
            with counted(cluster, family) as arrivals:
                for _each_node in cluster.nodes:
                    answer = cluster.client.fetch(address, 80)
                    assert answer and answer.status == 200
            assert all(arrivals[node] for node in BOTH_NODES)
        addresses = [cluster.load_balancing.address("default/web", FAMILIES[family]) for family in families]
        expected = [{"ip": address} for address in addresses]
        cluster.until("the Service shows its addresses", lambda: ingress(cluster, "web"), expected=expected)


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@pytest.mark.parametrize("cloud", [AZURE, AWS], ids=["azure", "aws"])
def test_with_local_only_the_pods_node_gets_traffic_and_the_pod_sees_the_client(
    cluster: Cluster, cloud: Balancer, family: IpFamily
) -> None:
    balancing = cluster.balance_as(cloud)
    objects = manifests.server("web", "Deployment", nodeName="node1"), manifests.service("web", policy="Local")
    try:
        with applied(cluster, *objects):
            balancing.wait_for("default/web", FAMILIES[family], {"node1"})
            address = balancing.address("default/web", FAMILIES[family])
            (pod,) = cluster.pods_of("app=web")
            with counted(cluster, family) as arrivals:
                for _try in range(4):
                    answer = cluster.client.fetch(address, 80)
                    assert answer and (answer.peer, answer.host) == (CLIENTS[family], pod.name)
            assert arrivals["node1"] and not arrivals["node2"]
            assert not balancing.record("default/web", FAMILIES[family], "node2").answered
    finally:
        cluster.balance_as(AZURE)


def test_traffic_follows_the_pods_of_a_local_service(cluster: Cluster) -> None:
    where = {node: manifests.server("web", "Deployment", nodeName=node) for node in sorted(BOTH_NODES)}
    with applied(cluster, where["node1"], manifests.service("web", policy="Local")):
        cluster.load_balancing.wait_for("default/web", IPV4, {"node1"})
        cluster.apply(where["node2"])
        cluster.load_balancing.wait_for("default/web", IPV4, {"node2"})


def test_a_service_that_is_deleted_or_of_another_type_is_forgotten(cluster: Cluster) -> None:
    with applied(cluster, manifests.server("web"), manifests.service("web")):
        cluster.load_balancing.wait_for("default/web", IPV4, BOTH_NODES)
        address = cluster.load_balancing.address("default/web", IPV4)
        cluster.until("the Service shows an address", lambda: ingress(cluster, "web"))
        cluster.apply(manifests.service("web", "NodePort"))
        cluster.until("the Service has no front end", lambda: not cluster.load_balancing.knows("default/web"))
        cluster.until("the Service shows no address", lambda: not ingress(cluster, "web"))
        cluster.apply(manifests.service("web"))
        cluster.until("the Service has a front end", lambda: cluster.load_balancing.knows("default/web"))
    cluster.until("the Service has no front end", lambda: not cluster.load_balancing.knows("default/web"))
    assert not cluster.client.fetch(address, 80)
    assert address not in cluster.load_balancer.run_from_host(["nft", "list", "ruleset"])
