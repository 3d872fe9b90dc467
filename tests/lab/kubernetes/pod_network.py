# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection of pods to a node, and of nodes to each other's pods."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.cloud import Lab
    from lab.node import ClusterNode

PLUGINS = "/usr/lib/cni"
"""Where Debian's containernetworking-plugins has them: ptp, host-local, portmap, bandwidth, bridge, ipvlan and others."""


class PodNetwork(abc.ABC):
    """The interface by which a cluster connects a node, which has eth0 and its addresses already, as in every Lab."""

    @abc.abstractmethod
    def connect(self, node: ClusterNode, lab: Lab) -> None:
        """Give a node further links, and the machines around it routes to its pods.

        It is called for each boot, when the node's network is there and process 1 waits to be started.
        """

    @abc.abstractmethod
    def configuration(self, node: ClusterNode) -> dict[str, Any]:
        """The CNI network configuration list of the node, written to /etc/cni/net.d once the node has booted."""

    def pod_subnets(self, node: ClusterNode) -> Sequence[str]:
        """``spec.podCIDRs`` of the node, IPv4 first; none where pods share the subnet of the node's interfaces."""
        return ()


class PointToPoint(PodNetwork):
    """A veth for each pod (ptp) with an address of each family out of the node's own subnets (host-local)."""

    def connect(self, node: ClusterNode, lab: Lab) -> None:
        """Routes of IPv4; those of IPv6 are part of every Lab."""
        other_nodes = [other for other in lab.nodes if other is not node]
        lab.load_balancer.route(node.place.pod_subnet_ipv4, node.ipv4)
        node.ip([f"route replace {other.place.pod_subnet_ipv4} via {other.ipv4}" for other in other_nodes])

    def configuration(self, node: ClusterNode) -> dict[str, Any]:
        subnets = [[{"subnet": subnet}] for subnet in self.pod_subnets(node)]
        routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
        # Leases are in /run: pods do not survive a boot.
        addresses = {"type": "host-local", "ranges": subnets, "routes": routes, "dataDir": "/run/cni"}
        return {
            "cniVersion": "0.3.1",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }

    def pod_subnets(self, node: ClusterNode) -> Sequence[str]:
        return (node.place.pod_subnet_ipv4, node.pod_subnet)
