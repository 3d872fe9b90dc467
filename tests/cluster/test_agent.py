# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DaemonSet on a real Kubernetes: nodes are converged before their first ordinary pod, kept so, and restored in the end."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import collection, snapshot
from lab.container import SystemdNode
from lab.delivered import TAINT
from lab.kubernetes import Cluster, agent_image, manifests
from lab.kubernetes.delivery import Delivery
from lab.probing import Probing

PROBES = 5000
IDLE = 60.0  # seconds
LARGEST = 60.0  # MiB of an idle agent
LABEL = "kubenode.datapath/aks-dual-stack"
TABLE = "azureSLBProbe"
MANIFEST = collection.CHECKOUT / "deploy/kustomize/base/daemonset.yaml"
FILE = "variables.yaml"  # the ConfigMap's key
Plugin = Callable[..., Any]  # as of conftest.py
WRITTEN = ("/etc/systemd", "/etc/kubenode")  # folders in which a profile writes


@pytest.fixture(scope="module")
def delivery(cluster: Cluster, agent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    """Afterwards the profile is undone, and the nodes are as before.

    An agent looks again after ten minutes: it completes a run before its pod ends, and each run costs seconds.
    """
    folder, before = tmp_path_factory.mktemp("delivery"), states(cluster)
    with Delivery(cluster, agent, folder, "aks-dual-stack", interval=10, aks_dual_stack_ipv6="address") as running:
        yield running
        running.apply_absent()
        assert states(cluster) == before
        assert all(LABEL not in cluster.get("node", node.name)["metadata"]["labels"] for node in cluster.workers)


@pytest.fixture
def often(delivery: Delivery) -> Iterator[None]:
    """From the next apply() on, an agent looks again after six seconds."""
    usual, delivery.interval = delivery.interval, 0.1
    yield
    delivery.interval = usual


looks_often = pytest.mark.usefixtures("often")


def tables(node: SystemdNode) -> list[str]:
    return sorted(node.run(["nft", "list", "tables"]).stdout.splitlines())


def has_table(node: SystemdNode) -> bool:
    return f"table ip6 {TABLE}" in tables(node)


def states(cluster: Cluster) -> list[dict[str, Any]]:
    """The state that a profile may change, of each node."""
    nodes: list[Any] = cluster.workers
    return [{"tables": tables(node), **snapshot.tree(Path(f"/proc/{node.pid}/root"), WRITTEN)} for node in nodes]


@pytest.mark.sample
def test_nodes_that_join_are_converged_before_their_first_ordinary_pod(cluster: Cluster, delivery: Delivery) -> None:
    nodes: list[Any] = cluster.workers
    for node in nodes:
        cluster.remove_node(node)
    ordinary = [manifests.server("each"), manifests.server("waiting", "Deployment")]
    cluster.apply(*ordinary)
    delivery.apply()
    cluster.until("the pod of the Deployment waits, and a DaemonSet has none", lambda: phases(cluster), expected=["Pending"])
    for node in nodes:
        cluster.join(node, f"{TAINT}=:NoSchedule")
        assert TAINT in str(cluster.get("node", node.name)["spec"]["taints"])
    for workload in ("daemonset/each", "deployment/waiting"):
        cluster.wait_for_rollout(workload)
    delivery.wait()
    pods = cluster.api.items("/api/v1/namespaces/default/pods")
    assert {pod["spec"]["nodeName"] for pod in pods} == {node.name for node in nodes} and len(pods) == len(nodes) + 1
    applied = {
        event["involvedObject"]["name"]: event["firstTimestamp"]
        for event in cluster.api.items("/api/v1/namespaces/default/events")
        if event["reason"] == "Applied" and "changed nftables_probe_snat" in event["message"]
    }
    for pod in pods:
        (scheduled,) = (found for found in pod["status"]["conditions"] if found["type"] == "PodScheduled")
        assert applied[pod["spec"]["nodeName"]] <= scheduled["lastTransitionTime"] <= pod["status"]["startTime"]
    for node in nodes:
        assert has_table(node)
        found = cluster.get("node", node.name)
        assert found["metadata"]["labels"][LABEL] and TAINT not in str(found["spec"].get("taints"))
    cluster.delete(*ordinary)


@pytest.mark.sample
def test_kubectl_datapath_reads_a_node_from_the_agents_pod(cluster: Cluster, delivery: Delivery, plugin: Plugin) -> None:
    delivery.apply()
    delivery.wait()
    node: SystemdNode = cluster.node("node1")
    completed = plugin("snapshot", "--node", node.name)
    assert completed.returncode == 0, completed.stderr
    read = json.loads(completed.stdout)
    assert {entry["table"]["name"] for entry in read["nftables"] if "table" in entry} >= {TABLE}
    assert "eth0" in {link["name"] for link in read["links"]} and read["versions"]["collection"]
    assert not cluster.debug_pods(), "no pod was needed"


def phases(cluster: Cluster) -> list[str]:
    return [pod["status"]["phase"] for pod in cluster.api.items("/api/v1/namespaces/default/pods")]


@looks_often
def test_nodes_are_held_bad_variables_change_nothing_and_a_deletion_leaves_them(cluster: Cluster, delivery: Delivery) -> None:
    nodes: list[Any] = cluster.workers
    first = nodes[0]
    delivery.apply()
    delivery.wait()
    first.run(["nft", "delete", "table", "ip6", TABLE])
    delivery.until("the table is back", lambda: has_table(first))
    drift = 'kubenode_drift_total{module="nftables_probe_snat"} 1.0'
    delivery.until(f"the metrics have {drift}", lambda: drift in delivery.metrics(first))
    assert "Corrected" in delivery.events(first.name)
    assert "kubenode_runs_total" in delivery.metrics(first, f"[{first.address}]"), "by IPv6 too"

    converged = states(cluster)
    delivery.apply(aks_dual_stack_table="{{ lookup('pipe', 'touch /run/evaluated') }}")
    refused = "aks_dual_stack_table must be a value, not a template"
    delivery.until("a pod shows the refusal", lambda: refused in delivery.pods())
    assert delivery.ready == len(nodes) - 1 and refused in "".join(delivery.events(node.name) for node in nodes)
    assert states(cluster) == converged and not any(node.exists("/run/evaluated") for node in nodes)
    delivery.apply(aks_dual_stack_table="accept")
    delivery.until("a pod shows the error of the role", lambda: "'accept' was given" in delivery.pods())
    delivery.apply(aks_dual_stack_ipv6="always", aks_dual_stack_interface="eth9")  # a right name, of no interface of the node
    delivery.until("a pod shows the error of the module", lambda: "eth9" in delivery.pods())
    failed = re.compile(r'kubenode_failures_total\{module="(\w+)"\} 1')
    assert any(found[1] != "none" for node in nodes for found in failed.finditer(delivery.metrics(node)))
    assert states(cluster) == converged

    delivery.apply()
    delivery.wait()
    delivery.delete()
    assert states(cluster) == converged


LIES: list[tuple[dict[str, Any], str]] = [
    ({"data": None}, "The ConfigMap must have the key variables.yaml"),
    ({"data": {FILE: "<html>502 Bad Gateway</html>"}}, "must be a dictionary of variables; str was given"),
    ({"data": {FILE: "eni_policy_routing_state: absent"}}, "only variables that begin with aks_dual_stack_"),
    (
        {
            "data": {
                FILE: yaml.safe_dump({"aks_dual_stack_table": "#jinja2:variable_start_string:'[%'\n[% lookup('pipe', 'id') %]"})
            }
        },
        "#jinja2:variable_start_string",
    ),
    ({"data": {FILE: "aks_dual_stack_path: /etc/cron.d/x"}}, "aks_dual_stack_path is not accepted from a ConfigMap"),
    ({"data": {FILE: "aks_dual_stack_a: &a [1]\naks_dual_stack_b: [*a, *a]"}}, "an alias is not allowed"),
    ({"data": {FILE: "#" * 1040000 + "\naks_dual_stack_ipv6: address"}}, ""),  # valid; the API accepts no larger object
    ({"data": None, "binaryData": {FILE: base64.b64encode(b"\xff\xfe").decode()}}, "cannot be read"),
]


def is_said_by_all(delivery: Delivery, said: str) -> bool:
    """Reads events of nodes: kubelet limits a pod's events to 25, and then one each five minutes."""
    return delivery.ready == 0 and all(said in delivery.events(node.name) for node in delivery.cluster.workers)


@looks_often
def test_whatever_the_configmap_is_said_to_have_the_nodes_stay_as_they_are(cluster: Cluster, delivery: Delivery) -> None:
    """An agent sees the ConfigMap only as kubelet writes it, so a wrong object is as good as an API that lies."""
    delivery.apply()
    delivery.wait()
    converged = states(cluster)
    for content, said in LIES:
        delivery.edit(**content)
        if said:
            delivery.until(f"each node has an event with {said}", partial(is_said_by_all, delivery, said))
        else:
            delivery.wait()
        assert states(cluster) == converged, said
    delivery.edit(data={FILE: "aks_dual_stack_ipv6: address"}, binaryData=None)
    delivery.wait()
    assert states(cluster) == converged


@looks_often
def test_two_profiles_have_their_own_pods_and_the_deletion_of_one_leaves_the_other(
    cluster: Cluster, delivery: Delivery, agent: str, tmp_path: Path
) -> None:
    node: SystemdNode = cluster.node("node1")
    delivery.apply()
    delivery.wait()
    with contextlib.ExitStack() as afterwards:
        other = Delivery(cluster, agent, tmp_path, "cilium-migration", interval=10)
        afterwards.callback(other.delete)
        other.apply()
        other.until("the pods of the second profile show its refusal", lambda: "Cilium does not serve" in other.pods())
        assert 'profile="cilium_migration"' in other.metrics(node, port=9465)
        assert 'profile="aks_dual_stack"' in delivery.metrics(node)
    assert delivery.ready == len(cluster.workers)
    node.run(["nft", "delete", "table", "ip6", TABLE])
    delivery.until("the table is back", lambda: has_table(node))


@pytest.fixture
def held(cluster: Cluster, delivery: Delivery) -> Iterator[int]:
    """Both nodes are converged; returns the node port of a Service with a pod on each node."""
    objects = [manifests.server("held"), manifests.service("held", policy="Local")]
    cluster.apply(*objects)
    delivery.apply()
    delivery.wait()
    cluster.wait_for_rollout("daemonset/held")
    yield cluster.node_port("held")
    cluster.delete(*objects)


@looks_often
def test_an_upgrade_of_the_image_loses_no_probe(cluster: Cluster, delivery: Delivery, held: int) -> None:
    """Probes of the load balancer come from a link-local address: each needs the table."""
    targets = [node.address for node in cluster.workers]
    assert all(cluster.load_balancer.probe_tcp(target, held, tries=5) for target in targets)

    def probing(target: str) -> Probing:
        return Probing(lambda: cluster.load_balancer.probe_tcp(target, held, 2.0), 0.005)

    running = [probing(target) for target in targets]
    delivery.image = agent_image.retag(delivery.image, "2")
    delivery.load()
    delivery.apply()
    delivery.wait()
    assert delivery.pods().count(f"Image:          {delivery.image}") == len(targets)
    for one in running:
        cluster.until(f"{PROBES} probes are sent", partial(has_sent, one))
        one.close()
    assert [len(one.record.lost) for one in running] == [0, 0]


def has_sent(probing: Probing) -> bool:
    return probing.record.sent >= PROBES


def test_an_idle_agent_needs_little(cluster: Cluster, delivery: Delivery, held: int) -> None:
    process = agent_on(cluster.node("node1"))
    before = ticks(process)
    time.sleep(IDLE)
    used = (ticks(process) - before) / os.sysconf("SC_CLK_TCK") / IDLE
    assert used < 0.01
    assert resident(process) < min(requested(), LARGEST)


def requested() -> float:
    """MiB of memory that the manifest requests for the pod."""
    (container,) = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["containers"]
    return float(container["resources"]["requests"]["memory"].removesuffix("Mi"))


def agent_on(node: SystemdNode) -> Path:
    """The agent's process: its pod has the process IDs of its node, which no other cluster on this machine has."""
    namespace = os.readlink(f"/proc/{node.pid}/ns/pid")
    agents = [path for path in Path("/proc").glob("[0-9]*") if command_of(path)[1:3] == [b"-m", b"kubenode_agent"]]
    (process,) = (path for path in agents if os.readlink(path / "ns/pid") == namespace)
    return process


def resident(process: Path) -> float:
    """MiB of memory that a process has, with its pages of files (proc_pid_status(5))."""
    (pages,) = re.findall(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
    return int(pages) / 1024


def command_of(process: Path) -> list[bytes]:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().split(b"\0")
    return []


def ticks(process: Path) -> int:
    """The processor time of a process and of the children that it has waited for (proc_pid_stat(5))."""
    return sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))


@looks_often
def test_by_an_api_that_is_slow_a_rollout_comes_to_its_end(cluster: Cluster, delivery: Delivery) -> None:
    node: SystemdNode = cluster.node("node1")
    delivery.apply()
    delivery.wait()
    with cluster.control_plane.slow():
        cluster.kubectl("label", "node", node.name, f"{LABEL}-")
        node.run(["nft", "delete", "table", "ip6", TABLE])
        delivery.until("the table is back", lambda: has_table(node))
        delivery.until("the node has its label again", lambda: LABEL in cluster.get("node", node.name)["metadata"]["labels"])
        delivery.apply(aks_dual_stack_priority=-290)
        delivery.wait()
    assert "priority raw + 10" in node.run(["nft", "list", "table", "ip6", TABLE]).stdout  # nft's words for -290
    delivery.apply()
    delivery.wait()


@looks_often
def test_without_an_answer_of_the_api_the_node_is_held_and_survives_its_reboot(
    cluster: Cluster, delivery: Delivery, held: int
) -> None:
    node: SystemdNode = cluster.node("node1")
    with cluster.control_plane.silent():
        node.run(["nft", "delete", "table", "ip6", TABLE])
        delivery.until("the table is back", lambda: has_table(node))
        node.reboot()
        assert has_table(node)
    cluster.wait_until_ready()
    delivery.wait()
    assert has_table(node)
