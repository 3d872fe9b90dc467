# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup under a checkpoint: its changes in both states are rolled back, or confirmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node, azure_vnet
from lab.azure_vnet import AzurePod
from lab.controller import Controller
from lab.node import ClusterNode

GONE = [AzurePod(1), AzurePod(2)]
FOLDER = "/run/kubenode-checkpoint"
SWIFT = ["-A POSTROUTING -s 10.9.0.0/16 -j RETURN", "-N SWIFT", "-I POSTROUTING 1 -j SWIFT"]


def state(node: ClusterNode) -> dict[str, Any]:
    """All that the module changes, without the report of a roll-back and without counters."""
    found: dict[str, Any] = node.snapshot()
    found["files"] = {path: kind_of_file for path, kind_of_file in found["files"].items() if not path.startswith(FOLDER)}
    found["neighbours"] = node.run(["ip", "neighbour", "show", "nud", "permanent"]).stdout
    found["ebtables"] = azure_vnet.listing(node)
    return found


def clean(**options: Any) -> dict[str, Any]:
    return {"kubenode.datapath.ebtables_cleanup": {"iptables": True, "links": True, "checkpoint": 20, **options}}


@pytest.mark.parametrize("backend", sampled(["nft", "legacy"], lambda backend: backend == "nft"))
def test_both_states_are_rolled_back_and_confirmed(tmp_path: Path, backend: str) -> None:
    with Lab("cleanup", nodes=[Node("node1")]) as lab:
        controller = Controller(lab.load_balancer, tmp_path, lab.nodes)
        (node,) = lab.nodes
        node.remove("/etc/cni/net.d")
        azure_vnet.past(node, node.place.mac(), GONE)
        # azure-vnet moves the node's address to the bridge, over which the controller then connects.
        node.ip([f"address del {node.ipv4}/24 dev eth0", f"address add {node.ipv4}/24 dev {azure_vnet.BRIDGE}"])
        node.ip([f"route add {pod.address}/32 dev {azure_vnet.BRIDGE}" for pod in GONE])
        for words in SWIFT:
            node.run([f"iptables-{backend}", "-w", "-t", "nat", *words.split()])

        node.ip(["link add azSnatbr address 02:00:00:00:aa:01 type bridge", "address add 169.254.128.1/17 dev azSnatbr"])

        def play(command: str, **options: Any) -> dict[str, Any]:
            return controller.play([clean(checkpoint_command=command, **options)])["node1"]

        dirty = state(node)
        for desired in ("absent", "restored"):
            before = state(node)
            refused = play("false", state=desired)
            assert refused["failed"] and "was rolled back at " in refused["msg"] and "answered 1" in refused["msg"], refused
            assert "not undone" not in refused["msg"] and state(node) == before
            played = play("true", state=desired)
            assert played["changed"] and not played["failed"], played
            assert state(node) != before and not play("true", state=desired)["changed"]
        assert state(node) == dirty
