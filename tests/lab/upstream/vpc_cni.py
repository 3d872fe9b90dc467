# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code of amazon-vpc-cni-k8s that configures a node, in a program around it; see docs/testing-on-kubernetes.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import links
from lab.eni import PRIMARY, Eni, EniNamespaceNode
from lab.node import Pod

PREFIX = "eni"
"""Of the node's ends of pods' links (AWS_VPC_K8S_CNI_VETHPREFIX)."""


class VpcCni:
    """The program on a node. ``settings``: variables of the DaemonSet aws-node."""

    def __init__(self, binary: Path, node: EniNamespaceNode, settings: Mapping[str, str]) -> None:
        self._binary, self._node = binary, node
        self._environment = {"AWS_VPC_K8S_CNI_LOG_FILE": "stderr", "AWS_VPC_ENI_MTU": "1500", **settings}

    def start(self) -> None:
        """Configure the node, as aws-node does at each start."""
        self._call(
            "start",
            vpc=["10.0.0.0/16"],
            primary=self._eni(PRIMARY),
            enis=[self._eni(eni) for eni in self._node.enis],
            pods=[{"address": pod.address} for pod in self._node.pods],
        )

    def add(self, pod: Pod) -> None:
        """Connect the pod, in place of the lab's own link."""
        pod.ip(["link delete eth0"])
        (eni,) = (eni for eni in self._node.enis if pod.address in eni.owned())
        link = f"{PREFIX}{pod.name}"
        self._call("add", address=pod.address, table=table(eni), link=link, namespace=f"/proc/{pod.pid}/ns/net")
        links.compute_checksums(pod, ["eth0"])
        links.compute_checksums(self._node, [link])

    def _eni(self, eni: Eni) -> dict[str, Any]:
        subnet = eni.address.rpartition(".")[0] + ".0/24"
        return {"mac": self._node.place.mac(eni.number), "address": eni.address, "subnet": subnet, "device": eni.number}

    def _call(self, action: str, **parameters: Any) -> None:
        self._node.run([str(self._binary), action], json.dumps(parameters), environment=self._environment)


def table(eni: Eni) -> int:
    return eni.number + 1
