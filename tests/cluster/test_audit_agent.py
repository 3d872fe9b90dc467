# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits, on a real Kubernetes: a node made wrong has a metric and one event, until it is mended.

Its API is too old for the policy of the component condition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.cluster import RunningPod
from lab.kubernetes.delivery import Delivery

PORT = 9466
ACCOUNT = "--as=system:serviceaccount:kubenode-datapath:kubenode-agent-audit"
RULE = "from 198.51.100.77 lookup 777"
CHECK, REASON = "rule-to-empty-table", "RuleToEmptyTable"
Plugin = Callable[..., Any]  # as of conftest.py


@pytest.fixture(scope="module")
def delivery(cluster: Cluster, agent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    with Delivery(cluster, agent, tmp_path_factory.mktemp("delivery"), "audit") as running:
        running.component = "condition"
        running.apply()
        running.wait()
        yield running


def samples(delivery: Delivery, node: SystemdNode, name: str) -> list[str]:
    return re.findall(rf"^{name}[ {{].*", delivery.metrics(node, port=PORT), re.MULTILINE)


def finding(delivery: Delivery, node: SystemdNode) -> list[str]:
    return [sample for sample in samples(delivery, node, "kubenode_datapath_finding") if CHECK in sample]


def audits(delivery: Delivery, node: SystemdNode) -> float:
    """How many audits have succeeded."""
    (sample,) = samples(delivery, node, 'kubenode_runs_total{result="ok"}')
    return float(sample.split()[-1])


def events(cluster: Cluster, reason: str = REASON) -> list[dict[str, Any]]:
    listed = cluster.api.items("/api/v1/namespaces/default/events")
    return [event for event in listed if event["reason"] == reason]


def test_a_node_made_wrong_has_a_metric_and_one_event_until_it_is_mended(cluster: Cluster, delivery: Delivery) -> None:
    first: SystemdNode = cluster.node("node1")
    second: SystemdNode = cluster.node("node2")
    before = first.run(["ip", "rule"]).stdout
    assert finding(delivery, first) == [] and samples(delivery, first, "kubenode_datapath_audit_timestamp_seconds")
    first.run(["ip", "rule", "add", *RULE.split()])
    delivery.until("the metric is there", lambda: len(finding(delivery, first)), expected=1)
    assert 'severity="note"' in finding(delivery, first)[0] and finding(delivery, second) == []
    delivery.until("the event is there", lambda: len(events(cluster)), expected=1)
    since = audits(delivery, first)
    delivery.until("two more audits have succeeded", lambda: audits(delivery, first) >= since + 2)
    (event,) = events(cluster)
    assert (event["type"], event["involvedObject"]["name"]) == ("Normal", first.name)
    assert REASON in delivery.events(first.name)
    first.run(["ip", "rule", "del", *RULE.split()])
    delivery.until("the metric is gone", lambda: finding(delivery, first), expected=[])
    assert first.run(["ip", "rule"]).stdout == before and delivery.ready == len(cluster.workers)


def condition(cluster: Cluster, node: str) -> dict[str, Any]:
    conditions = cluster.get("node", node)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == "KubenodeDatapathHealthy"), {})


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[RunningPod]:
    """A pod on node1."""
    server = manifests.server("web")
    cluster.apply(server)
    cluster.wait_for_rollout("daemonset/web")
    pods = [pod for pod in cluster.pods_of("app=web") if pod.node == "node1"]
    yield pods[0]
    cluster.delete(server)


def test_a_pods_route_that_is_deleted_is_a_condition_and_an_event_with_the_program_until_it_is_restored(
    cluster: Cluster, delivery: Delivery, pod: RunningPod
) -> None:
    """kubelet writes the status of its node every few seconds, and leaves the condition as it is."""
    node: SystemdNode = cluster.node("node1")
    delivery.until("no error is certain", lambda: condition(cluster, node.name).get("status", "False") != "False", expected=True)
    before = condition(cluster, node.name)
    route = node.run(["ip", "route", "show", pod.ipv4]).stdout.strip()
    node.run(["sh", "-c", f"(echo route del {route}; sleep 3) | ip -batch - > /dev/null 2>&1 &"])
    delivery.until("it is False", lambda: condition(cluster, node.name)["status"], expected="False")
    during = condition(cluster, node.name)
    assert during["reason"] == "PathLost" and during["lastTransitionTime"] > before["lastTransitionTime"]
    delivery.until("the event is there", lambda: len(events(cluster, "PathLost")), expected=1)
    (event,) = events(cluster, "PathLost")
    assert re.search(rf" after ip route {re.escape(pod.ipv4)} dev .* removed by process \d+ \(ip\)", event["message"])
    node.run(["ip", "route", "add", *route.split()])
    delivery.until("it is False no more", lambda: condition(cluster, node.name)["status"] != "False", expected=True)


def test_kubectl_datapath_audits_a_node_from_the_agents_pod(cluster: Cluster, delivery: Delivery, plugin: Plugin) -> None:
    """The pod may read all that a check needs. The other end of eth0 is outside the node, where no process of the node is."""
    node: SystemdNode = cluster.node("node1")
    node.run(["ip", "rule", "add", *RULE.split()])
    result = plugin("audit", "--node", node.name, "--json")
    node.run(["ip", "rule", "del", *RULE.split()])
    assert CHECK in [entry["id"] for entry in json.loads(result.stdout)["findings"] if entry["state"] == "present"], result.stderr
    read = json.loads(plugin("snapshot", "--node", node.name).stdout)
    assert [(entry["subset"], entry["object"]) for entry in read["unread"]] == [("links", "eth0")]
    assert read["iptables"] and read["cni"], "the rules of kube-proxy, and a file of the node"
    assert not cluster.debug_pods(), "no pod was needed"


@pytest.mark.parametrize(
    ("verb", "kind", "is_allowed"),
    [
        *(("create", "events", True), ("patch", "nodes/status", True)),
        *(("get", "nodes", False), ("patch", "nodes", False), ("list", "pods", False)),
    ],
)
def test_the_agent_that_audits_may_create_events_and_patch_a_status_and_nothing_else(
    cluster: Cluster, delivery: Delivery, verb: str, kind: str, is_allowed: bool
) -> None:
    assert delivery.ready
    rules = cluster.kubectl("auth", "can-i", "--list", ACCOUNT)
    assert bool(re.search(rf"^{kind} .*\[.*{verb}.*\]", rules, re.MULTILINE)) is is_allowed, rules
