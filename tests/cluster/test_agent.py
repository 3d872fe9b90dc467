# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DaemonSet on a real Kubernetes: nodes are converged before their first ordinary pod, held there, and left as they were."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import apt, collection
from lab.container import SystemdNode
from lab.entering import LabError
from lab.kubernetes import Cluster, agent_image, manifests
from lab.probing import Probing
from lab.waiting import eventually

SLOW = 120.0  # seconds; a busy machine takes its time
NAMESPACE, DAEMONSET = "kubenode-datapath", "daemonset/kubenode-agent-aks-dual-stack"
PROBES = 5000
IDLE = 60.0  # seconds
TAINT = "kubenode.datapath/not-ready"
LABEL = "kubenode.datapath/aks-dual-stack"
VARIABLES = {"aks_dual_stack_ipv6": "address"}
PODS = (f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=kubenode-agent")
TABLE = "azureSLBProbe"


class Delivery:
    """The kustomize files, as a user has edited them."""

    def __init__(self, cluster: Cluster, image: str, folder: Path) -> None:
        self.cluster = cluster
        self.image = image
        self._folder = folder / "kustomize"
        shutil.copytree(collection.CHECKOUT / "deploy/kustomize", self._folder)
        apt.unpack("trixie", "kubectl", folder)
        self._kubectl = folder / "usr/bin/kubectl"  # 1.20's own kustomize is too old
        self.edit("nodes.yaml", 'value: "10"', 'value: "0.1"')

    def edit(self, name: str, old: str, new: str) -> None:
        path = self._folder / "overlays/aks-dual-stack" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def apply(self, overlay: str = "aks-dual-stack", **variables: Any) -> None:
        own = self._folder / "overlays/aks-dual-stack"
        (own / "variables.yaml").write_text(yaml.safe_dump({**VARIABLES, **variables}))
        kustomization = yaml.safe_load((own / "kustomization.yaml").read_text())
        name, _colon, tag = self.image.rpartition(":")
        kustomization["images"] = [{"name": "kubenode-agent", "newName": name, "newTag": tag}]
        (own / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.cluster.kubectl("apply", "--filename=-", input=self.built(overlay))

    def delete(self, *options: str) -> None:
        objects = self.built("aks-dual-stack")
        self.cluster.kubectl("delete", "--ignore-not-found", "--filename=-", *options, input=objects, timeout=SLOW)

    def built(self, overlay: str) -> str:
        command = [str(self._kubectl), "kustomize", str(self._folder / "overlays" / overlay)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def wait(self) -> None:
        """Until all pods are those of the last apply(), and ready."""
        try:
            self.cluster.kubectl(
                *("rollout", "status", DAEMONSET, f"--namespace={NAMESPACE}", f"--timeout={SLOW:g}s"), timeout=SLOW + 10
            )
        except LabError as error:
            raise AssertionError(f"{error}\n{self.pods()}\n{self.logs()}") from error

    def pods(self) -> str:
        """What kubectl tells of them to a person."""
        return self.cluster.kubectl("describe", "pods", *PODS)

    def events(self, node: str) -> str:
        return self.cluster.kubectl("describe", "node", node)

    def logs(self) -> str:
        return self.cluster.kubectl("logs", *PODS, "--tail=50")

    def metrics(self, node: SystemdNode) -> str:
        return node.run(["python3", "-c", FETCH]).stdout


FETCH = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9463/metrics').read().decode())"


def load(cluster: Cluster, image: str, folder: Path) -> None:
    """Puts the image on all nodes, as there is no registry."""
    agent_image.save(image, folder / "agent.tar")
    for node in cluster.workers:
        assert isinstance(node, SystemdNode)
        node.copy_in(folder / "agent.tar", "/tmp/agent.tar")
        node.run(["ctr", "--namespace=k8s.io", "images", "import", "/tmp/agent.tar"])
        node.remove("/tmp/agent.tar")


@pytest.fixture(scope="module")
def delivery(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    folder = tmp_path_factory.mktemp("delivery")
    image = agent_image.build("1")
    load(cluster, image, folder)
    running = Delivery(cluster, image, folder)
    yield running
    running.delete("--wait=false")


def tables(node: SystemdNode) -> str:
    return node.run(["nft", "list", "tables"]).stdout


def state(node: SystemdNode) -> dict[str, Any]:
    """What a profile may change."""
    files = {path: what for path, what in node.snapshot()["files"].items() if path.startswith(("/etc/systemd", "/etc/kubenode"))}
    return {"tables": tables(node), "files": files}


@pytest.mark.sample
def test_nodes_are_converged_before_their_first_ordinary_pod_and_held_there(cluster: Cluster, delivery: Delivery) -> None:
    nodes: list[Any] = cluster.workers
    before = [state(node) for node in nodes]
    for node in nodes:
        cluster.kubectl("taint", "node", node.name, f"{TAINT}=:NoSchedule")
    web = manifests.server("first")
    cluster.apply(web)
    assert all(pod["status"]["phase"] == "Pending" for pod in cluster.api.items("/api/v1/namespaces/default/pods"))
    delivery.apply()
    delivery.wait()
    cluster.wait_for_rollout("daemonset/first", SLOW)
    for node in nodes:
        assert TABLE in tables(node)
        found = cluster.get("node", node.name)
        assert found["metadata"]["labels"][LABEL] and TAINT not in str(found["spec"].get("taints"))
        assert "changed nftables_probe_snat" in delivery.events(node.name)
    cluster.delete(web)

    first = nodes[0]
    first.run(["nft", "delete", "table", "ip6", TABLE])
    assert eventually(lambda: TABLE in tables(first), SLOW), delivery.logs()
    assert eventually(lambda: 'kubenode_drift_total{module="nftables_probe_snat"} 1.0' in delivery.metrics(first), SLOW)
    assert "Corrected" in delivery.events(first.name)

    converged = [state(node) for node in nodes]
    delivery.apply(aks_dual_stack_table="{{ lookup('pipe', 'touch /run/evaluated') }}")
    refused = "aks_dual_stack_table must be a value, not a template"
    assert eventually(lambda: refused in delivery.pods(), SLOW), delivery.logs()
    ready = cluster.api.request(f"/apis/apps/v1/namespaces/{NAMESPACE}/{DAEMONSET.replace('/', 's/')}")["status"]["numberReady"]
    assert ready == len(nodes) - 1 and refused in "".join(delivery.events(node.name) for node in nodes)
    assert [state(node) for node in nodes] == converged and not any(node.exists("/run/evaluated") for node in nodes)
    delivery.apply(aks_dual_stack_table="accept")
    assert eventually(lambda: "aks_dual_stack_table must be" in delivery.pods(), SLOW), delivery.logs()
    assert [state(node) for node in nodes] == converged

    delivery.apply()
    delivery.wait()
    delivery.delete()
    assert [state(node) for node in nodes] == converged
    delivery.apply("absent")
    delivery.wait()
    assert [state(node) for node in nodes] == before
    assert LABEL not in cluster.get("node", first.name)["metadata"]["labels"]


@pytest.fixture
def held(cluster: Cluster, delivery: Delivery) -> Iterator[int]:
    """Both nodes are converged; the node port of a Service behind which each node has a pod."""
    objects = [manifests.server("held"), manifests.service("held", policy="Local")]
    cluster.apply(*objects)
    delivery.apply()
    delivery.wait()
    cluster.wait_for_rollout("daemonset/held", SLOW)
    yield cluster.node_port("held")
    cluster.delete(*objects)
    delivery.apply("absent")
    delivery.wait()
    delivery.delete()


def test_an_upgrade_of_the_image_loses_no_probe(cluster: Cluster, delivery: Delivery, held: int, tmp_path: Path) -> None:
    """Probes of the load balancer come from a link-local address: each needs the table."""
    targets = [node.address for node in cluster.workers]
    assert all(cluster.load_balancer.probe_tcp(target, held, tries=5) for target in targets)

    def probing(target: str) -> Probing:
        return Probing(lambda: cluster.load_balancer.probe_tcp(target, held, 2.0), lambda: 0.005, lambda: None)

    running = [probing(target) for target in targets]
    delivery.image = agent_image.retag(delivery.image, "2")
    load(cluster, delivery.image, tmp_path)
    delivery.apply()
    delivery.wait()
    assert delivery.pods().count(f"Image:          {delivery.image}") == len(targets)
    assert eventually(lambda: all(one.record.sent >= PROBES for one in running), SLOW)
    for one in running:
        one.close()
    assert [len(one.record.lost) for one in running] == [0, 0]


def test_an_idle_agent_needs_little(cluster: Cluster, delivery: Delivery, held: int) -> None:
    delivery.edit("nodes.yaml", 'value: "0.1"', 'value: "10"')
    delivery.apply()
    delivery.wait()
    delivery.edit("nodes.yaml", 'value: "10"', 'value: "0.1"')
    (process, _other) = [path for path in Path("/proc").glob("[0-9]*") if b"kubenode_agent" in command_of(path)]
    before = ticks(process)
    time.sleep(IDLE)
    used = (ticks(process) - before) / os.sysconf("SC_CLK_TCK") / IDLE
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    assert used < 0.01 and int(status["VmRSS"].split()[0]) < 150 * 1024, (used, status["VmRSS"])


def command_of(process: Path) -> bytes:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""


def ticks(process: Path) -> int:
    """The processor time of a process and of the children that it has waited for (proc_pid_stat(5))."""
    return sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))


def test_without_an_answer_of_the_api_the_node_is_held_and_survives_its_reboot(
    cluster: Cluster, delivery: Delivery, held: int
) -> None:
    node: SystemdNode = cluster.node("node1")
    with cluster.control_plane.silent():
        node.run(["nft", "delete", "table", "ip6", TABLE])
        assert eventually(lambda: TABLE in tables(node), SLOW), delivery.logs()
        node.reboot()
        assert TABLE in tables(node)
    cluster.wait_until_ready()
    delivery.wait()
    assert TABLE in tables(node)
