# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster: the lab's cloud, with a control plane on its network and Kubernetes on its nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab import collection, metadata_replies
from lab.booting import BootingNode
from lab.cloud import Lab, Node
from lab.container import SystemdNode
from lab.kubernetes import agent_image, binaries, pod_images, worker
from lab.kubernetes.api import MERGE_PATCH, Api
from lab.kubernetes.client import PATIENCE, Client
from lab.kubernetes.control_plane import ControlPlane
from lab.kubernetes.pod_network import PodNetwork, PointToPoint
from lab.machine import Machine
from lab.namespace import Namespace
from lab.node import ClusterNode
from lab.prober import Answer, Prober
from lab.waiting import until


class RunningPod(Machine):
    """The network of a pod of Kubernetes, from which it can be asked and probed; ``node`` is the node's name."""

    def __init__(self, name: str, pid: int, node: str, addresses: Sequence[str]) -> None:
        super().__init__(name, pid)
        self.node = node
        self.address = next((address for address in addresses if ":" in address), "")
        self.ipv4 = next((address for address in addresses if ":" not in address), "")

    def fetch(self, address: str, port: int, timeout: float = 1.0, tries: int = 1) -> Answer | None:
        """HTTP GET by the pod; None without an answer."""
        return Prober(self).http(address, port, timeout, tries)


class Cluster(Lab, Client):
    """A running cluster, in every respect a Lab; its nodes run Debian 12 with systemd, and kubelet as a unit.

    ``network`` connects the pods. ``without`` and ``besides`` are packages of the nodes, as of Node. ``others`` are further nodes
    of the lab, on which nothing of Kubernetes runs until ``start_proxy()``.
    """

    minor = 20  # its kubectl is too old for the kustomize files

    def __init__(
        self,
        name: str = "cluster",
        nodes: Sequence[str] = ("node1", "node2"),
        network: PodNetwork | None = None,
        without: Sequence[str] = (),
        besides: Sequence[str] = (),
        metadata: bool | metadata_replies.Cloud = False,
        others: Sequence[Node] = (),
    ) -> None:
        self.network = network or PointToPoint()
        packages = (*worker.PACKAGES, *besides)
        workers = [Node(node, (), "bookworm", without, packages) for node in nodes]
        self._own = tuple(nodes)
        super().__init__(name, [*workers, *others], metadata=metadata)

    # The API

    @property
    def api(self) -> Api:
        """The API by HTTP, where kubectl is too slow."""
        return self.control_plane.api

    def kubectl(self, *words: str, input: str | None = None, timeout: float = PATIENCE) -> str:
        return self.api.kubectl(*words, input=input, timeout=timeout)

    def wait_until_ready(self, timeout: float = PATIENCE) -> None:
        """Wait until kubelet of each node reports that it is ready; reports from before this call do not count."""
        since = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=1)

        def unready() -> list[str]:
            return [name for name, heard in self._ready().items() if heard is None or heard < since]

        until("each node is ready; these are not", unready, self, expected=[], limit=timeout, pause=0.1)

    def last_lines(self) -> str:
        """The pods, the last events, and the end of each node's journal, for the message of a wait that failed."""
        pods = self.kubectl("get", "pods", "--all-namespaces", "--output=wide", timeout=20)
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp", timeout=20)
        shown = [f"the pods:\n{pods}", "the last events:", *events.splitlines()[-20:]]
        return "\n".join([*shown, *(node.last_lines() for node in self.workers)])

    def _ready(self) -> dict[str, datetime | None]:
        """When each node last reported that it is ready; None if its last report is another."""
        said: dict[str, datetime | None] = {node.name: None for node in self.workers}
        for node in self.api.items("/api/v1/nodes"):
            for condition in node["status"].get("conditions", ()):
                if condition["type"] == "Ready" and condition["status"] == "True":
                    said[node["metadata"]["name"]] = datetime.fromisoformat(condition["lastHeartbeatTime"].replace("Z", "+00:00"))
        return said

    # Pods and services

    def pods_of(self, selector: str, namespace: str = "default") -> list[RunningPod]:
        """The pods with labels such as ``app=web`` that run, by the names of their nodes.

        The API may name a pod that has ended with its node; it is not among them.
        """
        items = self.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}")
        pods = [_running_pod(pod) for pod in items if "deletionTimestamp" not in pod["metadata"]]
        return sorted((pod for pod in pods if pod), key=lambda pod: (pod.node, pod.name))

    def balance(self, service: str, address: str) -> None:
        """Give a Service of type LoadBalancer its IPv4 address, which kube-proxy then serves on each node."""
        body = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
        self.api.request(f"/api/v1/namespaces/default/services/{service}/status", "PATCH", body, MERGE_PATCH)

    def debug_pods(self) -> list[str]:
        """The names of the pods that kubectl debug has started on nodes."""
        names = (str(pod["metadata"]["name"]) for pod in self.api.items("/api/v1/namespaces/default/pods"))
        return [name for name in names if name.startswith("node-debugger-")]

    @property
    def workers(self) -> list[ClusterNode]:
        """The nodes with a kubelet."""
        return [node for node in self.nodes if node.name in self._own]

    def load_image(self, name: str, folder: Path) -> None:
        archive = folder / "image.tar"
        agent_image.save(name, archive)
        self._import(archive)

    def _import(self, archive: Path) -> None:
        for node in self.workers:
            assert isinstance(node, SystemdNode)
            node.copy_in(archive, "/tmp/images.tar")
            node.run(["ctr", "--namespace=k8s.io", "images", "import", "/tmp/images.tar"])
            node.remove("/tmp/images.tar")

    def remove_node(self, node: ClusterNode) -> None:
        """Take a node out of the cluster: kubelet stops, and the API forgets the node. ``join()`` brings it back."""
        node.run(["systemctl", "stop", "kubelet"])
        self.kubectl("delete", "node", node.name)

    def join(self, node: SystemdNode, taint: str = "") -> None:
        """Boot a node that the API does not know: kubelet registers it, with a taint such as ``key=value:NoSchedule``.

        Returns when the API knows it, long before it is ready.
        """
        node.write(worker.EXTRA, f"KUBELET_EXTRA_ARGS=--register-with-taints={taint}\n" if taint else "")
        node.reboot()

        def is_registered() -> bool:
            return node.name in {known["metadata"]["name"] for known in self.api.items("/api/v1/nodes")}

        until(f"{node.name} is registered", is_registered, node, self.control_plane, limit=PATIENCE)
        subnets = {"spec": self._registration(node)["spec"]}
        self.api.request(f"/api/v1/nodes/{node.name}", "PATCH", subnets, MERGE_PATCH)

    def start_proxy(self, node: BootingNode, mode: worker.ProxyMode) -> None:
        """Let kube-proxy run on one of ``others``, which the API then knows as a node."""
        addresses = [{"type": "InternalIP", "address": address} for address in (node.ipv4, node.address)]
        self.apply(self._registration(node))
        self.api.request(f"/api/v1/nodes/{node.name}/status", "PATCH", {"status": {"addresses": addresses}}, MERGE_PATCH)
        node.copy_in(binaries.folder() / "kube-proxy", f"{worker.PROGRAMS}/kube-proxy")
        node.write(f"{worker.SETTINGS}/kubeconfig.json", self.api.configuration.read_text())
        node.write(f"{worker.UNITS}/kube-proxy.service", worker.proxy_unit(mode))
        node.run(["systemctl", "daemon-reload"])
        node.run(["systemctl", "start", "kube-proxy"])

    def write_kubectl(self, path: Path) -> None:
        """Write a program that a person runs as kubectl, for as long as the cluster lives."""
        self.api.write_wrapper(path)

    # Building

    def _start_machines(self, declared: Sequence[Node]) -> None:
        network = self._start_namespace(Namespace.network, "control-plane")  # super() waits for it too
        super()._start_machines(declared)
        self._folder.mkdir(exist_ok=True)
        logs = collection.CHECKOUT / ".build/logs" / self.name
        self.control_plane = ControlPlane(network, self._folder / "control-plane", logs)
        self._endings.callback(self.control_plane.stop)

    @property
    def _folder(self) -> Path:
        """Made below the containers' folder, with which it is removed, however the lab ends."""
        return self.podman.folder / "kubernetes"

    def _folders(self, declared: Node) -> dict[str, Path]:
        return worker.folders(self._folder / declared.name, binaries.folder())

    def _start_nodes(self, declared: Sequence[Node]) -> None:
        self.control_plane.connect(self.load_balancer)
        self.control_plane.start()
        config = self.api.configuration.read_text()
        for node in self.workers:
            worker.prepare(self._folder / node.name, config, (node.ipv4, node.address))
        self.apply(*(self._registration(node) for node in self.workers))
        super()._start_nodes(declared)
        images = self._folder / "images.tar"
        pod_images.write(images)
        self._import(images)
        for node in self.workers:
            node.write("/etc/cni/net.d/10-lab.conflist", json.dumps(self.network.configuration(node), indent=2))
        self.wait_until_ready()

    def _registration(self, node: ClusterNode) -> dict[str, Any]:
        """The node as kubelet finds it: the subnets of its pods can be set only once."""
        subnets = list(self.network.pod_subnets(node))
        spec = {"podCIDR": subnets[0], "podCIDRs": subnets} if subnets else {}
        resources = {"cpu": "1"}  # until kubelet reports the capacity; without one, it crashes because of a nil map
        status = {"capacity": resources, "allocatable": resources}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": spec, "status": status}

    def _connect(self, node: ClusterNode) -> None:
        super()._connect(node)
        if node in self.workers:
            self.network.connect(node, self)


def _running_pod(pod: dict[str, Any]) -> RunningPod | None:
    status = pod["status"]
    containers = [entry.get("containerID", "").rpartition("/")[2] for entry in status.get("containerStatuses", ())]
    addresses = [entry["ip"] for entry in status.get("podIPs", ())]
    process = _process(containers[0]) if containers and containers[0] else None
    return RunningPod(pod["metadata"]["name"], process, pod["spec"]["nodeName"], addresses) if process else None


def _process(container: str) -> int | None:
    """A process of the container, by its cgroup, whose name holds the container's."""
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container in path.read_text():
                return int(path.parent.name)
        except OSError:  # ended meanwhile
            continue
    return None
