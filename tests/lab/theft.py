# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trouble of a migration from azure-vnet to Cilium, with packets: a node with a pod of each CNI, and a second node that
sends.

node2 (sends) ---- eth0  node1: bridge azure0 ---- azv...  kept: azure-vnet still serves it
                                \\-- routes to --- lxc...  moved: Cilium's, with an address that azure-vnet gave before
"""

from __future__ import annotations

import json

from lab import azure_bridge, azure_vnet, inner_pods, place
from lab.azure_vnet import BRIDGE
from lab.inner_pods import InnerPod
from lab.node import ClusterNode, NamespaceNode
from lab.prober import Prober

DEAD_MAC = "8a:93:40:b3:c8:0a"
"""Of the pod that had the moved one's address under azure-vnet."""


class Theft:
    """Moves the node's address to the bridge. There are no rules yet."""

    def __init__(self, node: ClusterNode, sender: NamespaceNode) -> None:
        self.node = node
        self.sender = sender
        azure_bridge.enslave(node)
        kept, moved = f"{place.NODES_IPV4}129", f"{place.NODES_IPV4}130"
        self.kept = inner_pods.bridged(node, "kept", kept, "a2:96:88:20:00:01", "azv00000000001", BRIDGE)
        self.moved = inner_pods.routed(node, "moved", moved, "a2:96:88:20:00:02", "lxc000000000002", BRIDGE)
        self.live = azure_vnet.pod_rules(kept, self.kept.mac)
        self.stale = azure_vnet.pod_rules(moved, DEAD_MAC)

    def reaches(self, pod: InnerPod) -> bool:
        """Whether the pod answers the sender, which first asks for the pod's MAC."""
        self.sender.ip(["neighbour flush dev eth0"])
        return Prober(self.sender).icmp(pod.address, timeout=0.5, tries=3)

    def resolved(self, pod: InnerPod) -> str | None:
        """The MAC that the sender has received for the pod's address."""
        output = self.sender.run_from_host(["ip", "-json", "neighbour", "show", pod.address, "dev", "eth0"])
        return next((entry.get("lladdr") for entry in json.loads(output)), None)

    def happens(self, ebtables: str) -> None:
        """Assert that the trouble occurs with the rules of this ``ebtables``, and not without the stale ones. No rule is left."""
        assert self.reaches(self.moved) and self.resolved(self.moved) == self.node.place.mac()
        azure_vnet.ebtables(self.node, self.live + self.stale, ebtables)
        assert not self.reaches(self.moved) and self.resolved(self.moved) == DEAD_MAC
        assert self.reaches(self.kept) and self.resolved(self.kept) == self.kept.mac
        azure_vnet.ebtables(self.node, _deleted(self.stale), ebtables)
        assert self.reaches(self.moved) and self.resolved(self.moved) == self.node.place.mac()
        assert self.reaches(self.kept) and self.resolved(self.kept) == self.kept.mac
        azure_vnet.ebtables(self.node, _deleted(self.live), ebtables)


def _deleted(rules: list[str]) -> list[str]:
    return [rule.replace(" -A ", " -D ", 1) for rule in rules]
