# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What the links of a node are for: networks around it, pods of other nodes, or another network, with the evidence."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._snapshot.values import Link, Route, has_interface_name
from .._twin.blueprint import LOOPBACK
from .._twin.pod_links import Network
from .node import IPV4, IPV6, Node

CARDS = ("", "bond", "team", "vlan")  # kinds of links
TUNNELS = ("vxlan", "geneve", "ipip", "ip6tnl")  # kinds of links by which a CNI may reach the pods of other nodes
# The beginnings of the names that flannel, Calico, Cilium, Antrea and kube-router give to tunnels.
NAMES = ("flannel", "vxlan.calico", "vxlan-v6.calico", "cilium_", "antrea-", "tun-")
# The names of the tunnels of Calico and flannel that have an address, by their family; flannel numbers its own by the VNI.
OF_IPV4 = re.compile(r"vxlan\.calico|wireguard\.cali|flannel\.\d+")
OF_IPV6 = re.compile(r"vxlan-v6\.calico|wireguard-v6\.cali|flannel-v6\.\d+")
PROTOCOLS = ("bird", "17", "80")  # of the routes of Calico's BIRD, kube-router and Calico's Felix
CLUSTER = {4: 16, 6: 48}  # bits that the networks of a cluster's pods have in common, in the defaults of installers


class PodNetwork(t.NamedTuple):
    """A network of pods on other nodes. reason: by which it is one; empty if that is open, because it is guessed."""

    network: Network
    route: str = ""
    reason: str = ""


def cards(node: Node) -> list[Link]:
    """Return the links of networks around the node: network interfaces, and bonds and VLANs of these."""
    return [link for link in node.all_links() if link.name != LOOPBACK and (link.kind in CARDS or has_interface_name(link.name))]


def family_of_tunnel(link: str) -> str:
    """Return the family whose pods a tunnel of Calico or flannel reaches, by its name; empty for another link."""
    return IPV4 if OF_IPV4.fullmatch(link) else IPV6 if OF_IPV6.fullmatch(link) else ""


def pod_networks(node: Node, family: str) -> list[PodNetwork]:
    """Return the networks of pods on other nodes: those of the context, otherwise those to which tunnels of pods lead."""
    version = 6 if family == IPV6 else 4
    if node.context.pod_ranges:
        return [PodNetwork(each, reason="context") for each in node.context.pod_ranges if each.version == version]
    tunnels = {link.name: link for link in node.all_links() if link.kind in TUNNELS}
    routes = [route for route in node.routes(family) if route.dev in tunnels and route.to != "default"]
    networks = [_of_route(node, family, tunnels[route.dev], route) for route in routes]
    return sorted(filter(None, networks), key=lambda each: not each.reason)


def _of_route(node: Node, family: str, tunnel: Link, route: Route) -> PodNetwork | None:
    """Return the network of a route by a tunnel; None if nothing tells that it has pods, as of a tunnel to an office."""
    network = ipaddress.ip_network(route.to)
    pods = [ipaddress.ip_address(pod) for pod in node.pods_of(family)]
    if tunnel.name.startswith(NAMES) or route.protocol in PROTOCOLS or any(pod in network for pod in pods):
        return PodNetwork(network, str(route), "CNI")
    bits = CLUSTER[network.version]
    is_like = network.prefixlen >= bits and any(pod in network.supernet(new_prefix=bits) for pod in pods)
    return PodNetwork(network, str(route)) if is_like else None
