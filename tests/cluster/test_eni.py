# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role eni_policy_routing on a real Kubernetes whose pods share ENIs; its links are described in lab.kubernetes.eni.

kube-proxy's mode is iptables. The pods that get requests are on node1, one behind each ENI; another pod is on node2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import place
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.delivery import Delivery
from lab.kubernetes.eni import SharedInterfaces, filter_strictly
from lab.metadata_replies import Aws
from lab.prober import Answer

QUICK = 0.4  # seconds to wait for an answer that must not come
TRIES = 12  # kube-proxy chooses one of two pods for each connection
OF_ROLE = {"pod_interfaces": ["veth*"], "layout": "aws_vpc_cni", "connmark": "always", "remedy": "strict"}
VARIABLES = {f"eni_policy_routing_{name}": value for name, value in OF_ROLE.items()}

ADDRESSES = {"far": "203.0.113.1", "near-local": "203.0.113.2"}
"""Of the load balancer, by the names of Services. It forwards the second to the node port of node1."""

Call = Callable[[float], Answer | None]


class Site:
    """The cluster and its services."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node = cluster.node("node1")

    def near(self) -> set[str]:
        """The names of the pods on node1."""
        return {pod.name for pod in self.cluster.pods_of("app=near")}

    def troubled(self) -> dict[str, Call]:
        """The calls that get no answer without the role."""
        fetch = self.cluster.client.fetch
        ports = {name: self.cluster.node_port(name) for name in ("near", "near-local")}
        return {
            "a pod behind eth1, to the load balancer's address": lambda limit: self.call_from("10.1.1.", limit),
            "a client, to the node port, policy Cluster": lambda limit: fetch(self.node.ipv4, ports["near"], limit),
            "a client, to the node port, policy Local": lambda limit: fetch(self.node.ipv4, ports["near-local"], limit),
            "a client, to the load balancer's address": lambda limit: fetch(ADDRESSES["near-local"], 80, limit),
        }

    def call_from(self, prefix: str, limit: float = 1.0) -> Answer | None:
        """A pod on node1, with an address of the prefix, calls the load balancer's address of the pod on node2."""
        (pod,) = (pod for pod in self.cluster.pods_of("app=near") if pod.ipv4.startswith(prefix))
        return pod.fetch(ADDRESSES["far"], 80, limit)

    def hanging(self) -> list[str]:
        """The names of the calls that get no answer."""
        return [name for name, call in self.troubled().items() if not call(QUICK)]

    def assert_answered(self) -> None:
        """Every try is answered, by all pods. kube-proxy masquerades the pod; with policy Local it keeps the client's address."""
        for name, call in self.troubled().items():
            answers = [answer for _try in range(TRIES) if (answer := call(1.0))]
            assert len(answers) == TRIES, name
            hosts, peers = {answer.host for answer in answers}, {answer.peer for answer in answers}
            if name.startswith("a pod"):
                assert peers == {self.node.ipv4}
            else:
                assert hosts == self.near(), name
                assert peers == {place.CLIENT_IPV4} or "Cluster" in name, name

    def state(self) -> dict[str, Any]:
        """The node's state that the role changes, without lines about pods."""
        snapshot = self.node.snapshot()
        without_counters = {kind: snapshot[kind] for kind in ("rules -4", "routes -4", "addresses", "sysctls")}
        files = [f"{path}: {what}" for path, what in snapshot["files"].items() if path.startswith("/etc/")]
        return {
            "files": files,
            **{kind: [line for line in lines if "veth" not in line] for kind, lines in without_counters.items()},
        }


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    near, far = manifests.server("near", "Deployment", nodeName="node1"), manifests.server("far", "Deployment", nodeName="node2")
    near["spec"]["replicas"] = 2
    local = manifests.service("near-local", policy="Local", families=["IPv4"], selector={"app": "near"})
    services = [local, *(manifests.service(name, families=["IPv4"]) for name in ("near", "far"))]
    with Cluster("eni", network=SharedInterfaces(), metadata=Aws()) as cluster:
        cluster.apply(near, far, *services)
        for name in ("near", "far"):
            cluster.wait_for_rollout(f"deployment/{name}")
        for node in cluster.nodes:
            filter_strictly(node)
        balance(cluster)
        yield Site(cluster)


def balance(cluster: Cluster) -> None:
    node = cluster.node("node1")
    for service, address in ADDRESSES.items():
        cluster.balance(service, address)
    target = f"ip daddr {ADDRESSES['near-local']} tcp dport 80 dnat to {node.ipv4}:{cluster.node_port('near-local')}"
    chain = f"chain prerouting {{ type nat hook prerouting priority dstnat; {target}; }}"
    cluster.load_balancer.run_from_host(["nft", "-f", "-"], f"table ip balancer {{ {chain}\n}}\n")

    def served() -> set[str]:
        rules = node.run(["iptables-save", "--table=nat"]).stdout
        return {address for address in ADDRESSES.values() if f"-d {address}/32" in rules}

    cluster.until("kube-proxy serves the addresses of the load balancer", served, expected={*ADDRESSES.values()})


def test_a_pod_whose_eni_has_an_address_of_its_own_needs_no_role(site: Site) -> None:
    answer = site.call_from("10.1.2.")
    assert answer and answer.peer == "10.1.2.10"
    assert not site.call_from("10.1.1.", QUICK)


def test_the_daemonset_delivers_the_profile_the_listener_restores_a_rule_and_a_node_that_restarts_answers(
    site: Site, agent: str, tmp_path: Path
) -> None:
    """The agent checks every ten minutes, so a rule that is restored at once was restored by the listener on the node."""
    before, near = site.state(), site.near()
    assert site.hanging() == list(site.troubled())
    with Delivery(site.cluster, agent, tmp_path, "eni-policy-routing", interval=10, **VARIABLES) as delivery:
        delivery.apply()
        delivery.wait()
        site.assert_answered()
        assert "changed" in delivery.events(site.node.name) and site.node.name in site.cluster.kubectl(
            "get", "nodes", "--selector=kubenode.datapath/eni-policy-routing", "--output=name"
        )
        rules = site.node.run(["ip", "rule"]).stdout.splitlines()
        (marked,) = (line for line in rules if "fwmark" in line and "lookup main" in line)
        site.node.ip([f"rule delete priority {marked.partition(':')[0]}"])
        # The listener restores it in milliseconds, and the agent not at all: its interval is ten minutes.
        delivery.until("the listener has restored the rule", lambda: marked in site.node.run(["ip", "rule"]).stdout)
        site.assert_answered()
        state = site.state()
        site.node.reboot()
        site.cluster.wait_until_ready()
        site.cluster.wait_for_rollout("deployment/near")
        site.cluster.until("no request hangs", site.hanging, expected=[])
        site.assert_answered()
        assert (site.state(), site.near()) == (state, near)
        delivery.apply_absent()
        assert site.hanging() == list(site.troubled()) and site.state() == before
