# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of kind, whose nodes are containers of docker. Needs docker, kind and kubectl on the machine, and helm for Cilium.

with KindCluster("kindest/node:v1.37.0", "nftables", folder) as cluster:
    cluster.apply(manifests.server("web"), manifests.service("web", "NodePort"))
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import host
from lab.entering import LabError
from lab.kubernetes import agent_image, pod_images
from lab.kubernetes.client import PATIENCE, Client
from lab.machine import Machine

NAME = "kubenode"
NEWEST = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""The newest image of nodes, of the release notes of kind 0.33.0."""
CILIUM = "1.20.0"
PROXIES = ("iptables", "nftables", "ipvs", "none")
"""Modes of kube-proxy. With ``none``, Cilium serves Services and pods."""

NODE_IMAGE, AGENT_IMAGE = "localhost/lab/kind-node:1", "localhost/kubenode-agent:kind"

# A node has Python, which kind's own image lacks, and nft, which the profiles would install.
_NODE = """\
FROM @NODE@
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends nftables python3
"""


def configuration(node: str, proxy: str) -> dict[str, Any]:
    """The configuration of a dual-stack cluster of two nodes (kind.x-k8s.io/v1alpha4)."""
    if proxy not in PROXIES:
        raise LabError(f"PROXY is {proxy}; it must be one of {', '.join(PROXIES)}")
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"ipFamily": "dual", "kubeProxyMode": proxy, "disableDefaultCNI": proxy == "none"},
        "nodes": [{"role": role, "image": node} for role in ("control-plane", "worker")],
    }


class KindNode(Machine):
    """A node, entered by docker: a run of the tests has a PID namespace of its own, without docker's containers."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0)

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        variables = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        return ["docker", "exec", "--interactive", *variables, self.name, *argv]

    def last_lines(self) -> str:
        return self.run(["journalctl", "--no-pager", "--lines=30"], check=False).stdout


class KindCluster(Client):
    """A running cluster; ``with`` ends it, and the next one removes what a killed run has left.

    node: the image of its nodes. proxy: one of PROXIES. folder: for its files.
    """

    def __init__(self, node: str, proxy: str, folder: Path) -> None:
        self._configuration = configuration(NODE_IMAGE, proxy)
        self._base, self._proxy, self._folder = node, proxy, folder
        self._kubeconfig = folder / "kubeconfig"
        self.kustomizer = Path(shutil.which("kubectl") or "kubectl")

    def __enter__(self) -> KindCluster:
        self._delete()
        host.output(["docker", "build", f"--tag={NODE_IMAGE}", "-"], _NODE.replace("@NODE@", self._base).encode())
        path = self._folder / "cluster.json"
        path.write_text(json.dumps(self._configuration))
        self._kind("create", "cluster", f"--config={path}", f"--kubeconfig={self._kubeconfig}")
        if self._proxy == "none":
            self._install_cilium()
        self.wait_for("condition=Ready", "nodes", "--all")
        self.minor = int(json.loads(self.kubectl("version", "--output=json"))["serverVersion"]["minor"])
        self._build(pod_images.SERVER, pod_images.write_context)
        self._build(AGENT_IMAGE, agent_image.write_context)
        return self

    def __exit__(self, *_error: object) -> None:
        self._delete()

    def kubectl(self, *words: str, input: str | None = None, timeout: float = PATIENCE) -> str:
        argv = ["kubectl", f"--kubeconfig={self._kubeconfig}", *words]
        result = subprocess.run(argv, input=input or "", capture_output=True, text=True, check=False, timeout=timeout)
        if result.returncode != 0:
            raise LabError(f"kubectl {' '.join(words)} answered {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def load_image(self, name: str, folder: Path) -> None:
        self._kind("load", "docker-image", name)

    @property
    def workers(self) -> list[Machine]:
        return [KindNode(name) for name in sorted(self._kind("get", "nodes").split())]

    def last_lines(self) -> str:
        pods = self.kubectl("get", "pods", "--all-namespaces", "--output=wide")
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp").splitlines()
        return "\n".join([pods, *events[-20:]])

    def _build(self, name: str, write_context: Any) -> None:
        context = self._folder / name.rpartition("/")[2].partition(":")[0]
        version = write_context(context)
        file = context / "Containerfile"
        host.run(["docker", "build", f"--file={file}", f"--build-arg=VERSION={version}", f"--tag={name}", context])
        self.load_image(name, self._folder)

    def _install_cilium(self) -> None:
        values = {
            "kubeProxyReplacement": "true",
            "k8sServiceHost": f"{NAME}-control-plane",
            "k8sServicePort": "6443",
            "ipam.mode": "kubernetes",
            "ipv6.enabled": "true",
            "operator.replicas": "1",
        }
        chart = ["cilium", "--repo=https://helm.cilium.io", f"--version={CILIUM}", "--namespace=kube-system"]
        settings = [f"--set={name}={value}" for name, value in values.items()]
        host.run(["helm", f"--kubeconfig={self._kubeconfig}", "install", "cilium", *chart, *settings, "--wait"])

    def _delete(self) -> None:
        self._kind("delete", "cluster")

    def _kind(self, *words: str) -> str:
        return host.run(["kind", *words, f"--name={NAME}"])
