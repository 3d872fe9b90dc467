# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that live on the node's own kernel, as the node's CNI made them: in a VM too, and with a MAC that the node can find.

All are IPv4, with addresses of the nodes' link: as in Azure, each node on it asks for them by ARP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab import place
from lab.entering import LabError
from lab.machine import Machine
from lab.node import ClusterNode

_GATEWAY = "169.254.1.1"  # no host has it: the node answers ARP for it on the pod's link


class InnerPod(Machine):
    """A named network namespace of the node (``ip netns``). ``link`` is the node's end of its eth0."""

    def __init__(self, node: ClusterNode, name: str, address: str, mac: str, link: str) -> None:
        super().__init__(name, 0)
        self.node = node
        self.address = address
        self.mac = mac
        self.link = link
        batch(node, [f"netns add {name}", f"link add {link} type veth peer name eth0 address {mac} netns {name}"])

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        return self.node.command(["ip", "netns", "exec", self.name, *argv], environment=environment)

    def _enter_network(self) -> None:
        raise LabError(f"{self.name} lives inside {self.node.name}: the lab cannot open a socket there")


def bridged(node: ClusterNode, name: str, address: str, mac: str, link: str, bridge: str) -> InnerPod:
    """A pod as azure-vnet makes one in bridge mode: the node's end is a port of the bridge, and the pod is on the nodes' link."""
    pod = InnerPod(node, name, address, mac, link)
    batch(node, [f"link set {link} master {bridge} up"])
    pod.ip(
        [
            *("link set lo up", "link set eth0 up"),
            f"address add {address}/24 dev eth0",
            f"route add default via {place.ROUTER_IPV4}",
        ]
    )
    return pod


def routed(node: ClusterNode, name: str, address: str, mac: str, link: str, uplink: str) -> InnerPod:
    """A pod as Cilium makes one: the node routes to the pod, and answers for it on ``uplink`` as Azure's network would."""
    pod = InnerPod(node, name, address, mac, link)
    batch(node, [f"link set {link} up", f"route add {address}/32 dev {link}"])
    for interface in (link, uplink):
        # At once: by default the kernel answers for another at some time within 0.8 s, here twice on the way to one answer.
        node.set_sysctls({f"net.ipv4.conf.{interface}.proxy_arp": 1, f"net.ipv4.neigh.{interface}.proxy_delay": 0})
    pod.ip(
        [
            *("link set lo up", "link set eth0 up"),
            f"address add {address}/32 dev eth0",
            f"route add {_GATEWAY} dev eth0 scope link",
            f"route add default via {_GATEWAY}",
        ]
    )
    return pod


def remove(pod: InnerPod) -> None:
    """Removes the pod's namespace, and its interface with it."""
    batch(pod.node, [f"link delete {pod.link}", f"netns delete {pod.name}"])


def batch(node: ClusterNode, lines: Sequence[str]) -> None:
    """Run ``ip`` commands on the node itself: names of namespaces are files of its own /run."""
    node.run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
