# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azure-vnet itself, as it is released, called on a node of namespaces as a container runtime calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from lab.azure_vnet import BRIDGE
from lab.node import NamespaceNode, Pod

Mode = Literal["bridge", "tunnel"]

FOLDER = "/run/azure-vnet-program"
_PROGRAM = f"{FOLDER}/azure-vnet"


class AzureVnet:
    """azure-vnet in a mode with a bridge. An IPAM plugin of the lab gives each pod the address that the test names."""

    def __init__(self, binary: Path, node: NamespaceNode, mode: Mode) -> None:
        self.node = node
        self._configuration = {
            **{"cniVersion": "0.3.0", "name": "azure", "type": "azure-vnet", "mode": mode, "bridge": BRIDGE},
            "disableHairpinOnHostInterface": True,  # see lab.azure_bridge.enslave
            "ipam": {"type": "ipam"},
        }
        node.run(["mkdir", "-p", FOLDER])
        node.run(["mount", "-t", "tmpfs", "lab", "/var/log"])  # the log, which is the host's otherwise
        node.run(["ln", "-sf", str(binary), _PROGRAM])

    def add(self, pod: Pod, address: str) -> None:
        """Connect the pod, in place of the lab's own link."""
        pod.run(["ip", "link", "delete", "eth0"], check=False)
        gateway = f"{address.rpartition('.')[0]}.1"
        addresses = {"cniVersion": "0.3.0", "ips": [{"version": "4", "address": f"{address}/24", "gateway": gateway}]}
        answer = json.dumps({**addresses, "routes": [{"dst": "0.0.0.0/0", "gw": gateway}]})
        self.node.write(f"{FOLDER}/ipam", f"#!/bin/sh\n[ $CNI_COMMAND != ADD ] || echo '{answer}'\n", 0o755)
        self._call("ADD", pod)

    def delete(self, pod: Pod) -> None:
        self._call("DEL", pod)

    def _call(self, command: str, pod: Pod) -> None:
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"{pod.pid:08x}" + "0" * 56,
            "CNI_NETNS": f"/proc/{pod.pid}/ns/net",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": FOLDER,
            "CNI_ARGS": f"K8S_POD_NAME={pod.name};K8S_POD_NAMESPACE=default",
            "TMPDIR": FOLDER,
        }
        self.node.run([_PROGRAM], json.dumps(self._configuration), environment=environment)
