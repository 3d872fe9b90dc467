# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's load balancer for Services on a real kernel: probes, packets, and clean-up.

The API is a stand-in here; tests/cluster has the real one.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from lab import Lab
from lab.kubernetes.forwarding import AWS, AZURE
from lab.kubernetes.load_balancing import LoadBalancing
from lab.prober import Prober
from lab.service import IPV4, IPV6
from lab.waiting import until

NODE_PORT, HEALTH_PORT, WEB = 30080, 32000, "default/web"


class StoredObjects:
    """Services and Nodes as the API returns them. Each request ends in an error while ``is_down``."""

    def __init__(self, lab: Lab) -> None:
        self.services: list[dict[str, Any]] = []
        self.is_down = False
        self._nodes = [
            {
                "metadata": {"name": node.name},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": address} for address in (node.ipv4, node.address)],
                },
            }
            for node in lab.nodes
        ]

    def items(self, path: str) -> list[dict[str, Any]]:
        if self.is_down:
            raise ConnectionRefusedError("the API server restarts")
        return {"/api/v1/services": self.services, "/api/v1/nodes": self._nodes}[path]

    def request(self, path: str, method: str, body: dict[str, Any], content: str) -> None:
        assert (method, path) == ("PATCH", "/api/v1/namespaces/default/services/web/status")
        self.services[0]["status"] = body["status"]

    def add(self, policy: str = "Cluster", families: tuple[str, ...] = ("IPv6",)) -> None:
        health = {"healthCheckNodePort": HEALTH_PORT} if policy == "Local" else {}
        ports = [{"protocol": protocol, "port": 80, "nodePort": NODE_PORT} for protocol in ("TCP", "UDP")]
        spec = {"type": "LoadBalancer", "ipFamilies": list(families), "ports": ports, **health}
        self.services.append({"metadata": {"namespace": "default", "name": "web"}, "spec": spec, "status": {"loadBalancer": {}}})

    def ingress(self) -> Any:
        return self.services[0]["status"]["loadBalancer"].get("ingress")


@pytest.fixture
def api(lab: Lab) -> StoredObjects:
    return StoredObjects(lab)


def serve_on_nodes(lab: Lab, policy: Any = "Cluster") -> None:
    """Let kube-proxy's stand-in on each node serve the Service, whose only pod is on node1."""
    for node in lab.nodes:
        node.service(NODE_PORT, [lab.pod("pod1").address], policy, load_balancer_ip="2001:db8:fffe::1")
        if policy == "Local":  # the health check node port
            node.serve(HEALTH_PORT, status=200 if node.pods[0].name == "pod1" else 503)


def state(lab: Lab) -> list[str]:
    listings = (["nft", "list", "ruleset"], ["ip", "rule"], ["ip", "-6", "rule"], ["ip", "address"])
    tables = [["ip", family, "route", "show", "table", "all"] for family in ("-4", "-6")]
    return [lab.load_balancer.run_from_host(listing) for listing in (*listings, *tables)]


def test_azures_probe_reaches_a_pod_on_the_node_only_with_the_probe_table(lab: Lab, api: StoredObjects) -> None:
    serve_on_nodes(lab)
    api.add()
    with LoadBalancing(lab.load_balancer, api, AZURE) as balancing:
        balancing.wait_for(WEB, IPV6, {"node2"})
        lab.node("node1").module("nftables_probe_snat")
        balancing.wait_for(WEB, IPV6, {"node1", "node2"})


@pytest.mark.parametrize("cloud", [AZURE, AWS], ids=["azure", "aws"])
def test_a_client_reaches_the_pod_by_the_front_end(cloud: Any, lab: Lab, api: StoredObjects) -> None:
    for node in lab.nodes:
        node.module("nftables_probe_snat")
    serve_on_nodes(lab)
    api.add()
    with LoadBalancing(lab.load_balancer, api, cloud) as balancing:
        balancing.wait_for(WEB, IPV6, {"node1", "node2"})
        address = balancing.address(WEB, IPV6)
        for _each_node in lab.nodes:
            assert lab.client.fetch(address, 80)
            assert Prober(lab.client).udp(address, 80, timeout=1, tries=1)
        assert not lab.client.fetch(address, 81)
        shown = {"ip": address} if cloud is AZURE else {"hostname": "web.default.elb.example"}
        until("the Service shows its address", api.ingress, expected=[shown])


@pytest.mark.parametrize("cloud", [AZURE, AWS], ids=["azure", "aws"])
def test_with_local_the_pod_sees_the_client(cloud: Any, lab: Lab, api: StoredObjects) -> None:
    serve_on_nodes(lab, "Local")
    api.add("Local")
    with LoadBalancing(lab.load_balancer, api, cloud) as balancing:
        balancing.wait_for(WEB, IPV6, {"node1"})
        for _try in range(4):
            answer = lab.client.fetch(balancing.address(WEB, IPV6), 80)
            assert answer and answer.peer == lab.client.address
        assert not balancing.record(WEB, IPV6, "node2").answered


def test_probes_are_recorded_at_any_rate(lab: Lab, api: StoredObjects) -> None:
    for node in lab.nodes:
        node.serve(NODE_PORT)
    api.add(families=("IPv4", "IPv6"))
    with LoadBalancing(lab.load_balancer, api, AZURE, interval=0.01) as balancing:
        for family in (IPV4, IPV6):
            balancing.wait_for(WEB, family, {"node1", "node2"})
        start = time.time()
        until("100 probes are sent", lambda: balancing.record(WEB, IPV4, "node1").since(start).sent >= 100, balancing)
        for family in (IPV4, IPV6):
            record = balancing.record(WEB, family, "node1").since(start)
            assert record.sent == record.answered
        lab.node("node1").forget_services()
        for family in (IPV4, IPV6):
            balancing.wait_for(WEB, family, {"node2"})
            assert all(sent > start for sent in balancing.record(WEB, family, "node1").since(start).lost)
            assert not balancing.record(WEB, family, "node2").since(start).lost


def test_an_api_that_is_away_changes_nothing_of_what_is_forwarded(lab: Lab, api: StoredObjects) -> None:
    lab.node("node1").serve(NODE_PORT)
    api.add()
    with LoadBalancing(lab.load_balancer, api, AZURE, interval=0.05) as balancing:
        balancing.wait_for(WEB, IPV6, {"node1"})
        api.is_down = True
        lab.node("node1").forget_services()
        balancing.wait_for(WEB, IPV6, set())
        assert balancing.knows(WEB)


def test_a_deleted_service_is_forgotten_and_close_leaves_nothing(lab: Lab, api: StoredObjects) -> None:
    before = state(lab)
    for node in lab.nodes:
        node.serve(NODE_PORT)
    api.add()
    with LoadBalancing(lab.load_balancer, api, AZURE) as balancing:
        balancing.wait_for(WEB, IPV6, {"node1", "node2"})
        assert state(lab) != before
        api.services.clear()
        until("the Service has no front end", lambda: not balancing.knows(WEB), balancing)
        assert "dport" not in lab.load_balancer.run_from_host(["nft", "list", "ruleset"])
    assert state(lab) == before
