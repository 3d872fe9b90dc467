# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the links of a node are for: networks around it, pods of other nodes, or another network, with the evidence."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import typing as t

from .._cni import cni
from .._snapshot import tunnels
from .._snapshot.values import MAIN, Link, Neighbour, Route, has_interface_name, is_host, network
from .._twin.blueprint import LOOPBACK
from .._twin.pod_links import Network
from .node import IPV4, IPV6, Node
from .suspicion import Unobserved

CARDS = ("", "bond", "team", "vlan")  # kinds of links
TUNNELS = ("vxlan", "geneve", "ipip", "ip6tnl")  # kinds of links by which a CNI may reach the pods of other nodes
# The beginnings of the names that flannel, Calico, Cilium, Antrea and kube-router give to tunnels.
NAMES = ("flannel", "vxlan.calico", "vxlan-v6.calico", "cilium_", "antrea-", "tun-")
# The names of the tunnels of Calico and flannel that have an address, by their family; flannel numbers its own by the VNI.
OF_IPV4 = re.compile(r"vxlan\.calico|wireguard\.cali|flannel\.\d+")
OF_IPV6 = re.compile(r"vxlan-v6\.calico|wireguard-v6\.cali|flannel-v6\.\d+")
PROTOCOLS = ("bird", "17", "80")  # of the routes of Calico's BIRD, kube-router and Calico's Felix
CLUSTER = {IPV4: 16, IPV6: 48}  # bits that the networks of a cluster's pods have in common, in the defaults of installers


class PodNetwork(t.NamedTuple):
    """A network of pods on other nodes. reason: by which it is one; empty if that is open, because it is guessed."""

    network: Network
    route: str = ""
    reason: str = ""


def cards(node: Node) -> list[Link]:
    """Return the links of networks around the node: network interfaces, and bonds and VLANs of these."""
    return [link for link in node.all_links() if link.name != LOOPBACK and (link.kind in CARDS or has_interface_name(link.name))]


def is_tunnel(node: Node, name: str) -> bool:
    return tunnels.is_tunnel(node.link(name))


def _is_of_pods(node: Node, name: str) -> bool:
    """Return whether a link is a tunnel, and not one of a CNI in whose place the configuration has another one."""
    plugins, own, further = set[str](), set[str](), {cni.CILIUM_PLUGIN}
    with contextlib.suppress(Unobserved):
        plugins = node.plugins()
    for owner in cni.OTHERS:
        (own if owner.has_link(name) else further).update(owner.plugins)
    is_replaced = bool(own) and plugins.isdisjoint(own) and not plugins.isdisjoint(further)
    return is_tunnel(node, name) and not is_replaced


def with_heads(node: Node) -> list[Link]:
    """Return the links that put a head before each packet. An output without kinds may hide one, unless names tell."""
    links = [link._replace(kind=link.kind or tunnels.kind_by_name(link.name)) for link in node.all_links()]
    for link in links if "open" in node.snapshot else ():
        if not (link.kind or link.name == LOOPBACK or has_interface_name(link.name)):
            raise Unobserved(f"The kind of {link.name} is open.", "ip -d link")
    return [link for link in links if link.kind in tunnels.HEADS]


def family_of_tunnel(link: str) -> str:
    """Return the family whose pods a tunnel of Calico or flannel reaches, by its name; empty for another link."""
    return IPV4 if OF_IPV4.fullmatch(link) else IPV6 if OF_IPV6.fullmatch(link) else ""


def pod_networks(node: Node, family: str) -> list[PodNetwork]:
    """Return the networks of pods on other nodes: those of the context, otherwise those to which tunnels of pods lead."""
    version = 6 if family == IPV6 else 4
    if node.context.pod_ranges:
        return [PodNetwork(each, reason="context") for each in node.context.pod_ranges if each.version == version]
    leading = {link.name: link for link in node.all_links() if link.kind in TUNNELS}
    routes = [route for route in node.routes(family) if route.dev in leading and route.to != "default"]
    networks = [_of_route(node, family, leading[route.dev], route) for route in routes]
    return sorted(filter(None, networks), key=lambda each: not each.reason)


def _of_route(node: Node, family: str, tunnel: Link, route: Route) -> PodNetwork | None:
    """Return the network of a route by a tunnel; None if nothing tells that it has pods, as of a tunnel to an office."""
    destination = ipaddress.ip_network(route.to)
    pods = [ipaddress.ip_address(pod) for pod in node.pods_of(family)]
    if tunnel.name.startswith(NAMES) or route.protocol in PROTOCOLS or any(pod in destination for pod in pods):
        return PodNetwork(destination, str(route), "CNI")
    is_like = destination.prefixlen >= CLUSTER[family] and any(destination[0] in near for near in _clusters(node, family))
    return PodNetwork(destination, str(route)) if is_like else None


def cluster_of(pod: str, family: str) -> Network:
    """Return the network of the pods of all nodes, as far as that of one pod tells."""
    return ipaddress.ip_network(f"{pod}/{CLUSTER[family]}", strict=False)


def _clusters(node: Node, family: str) -> set[Network]:
    return {cluster_of(pod, family) for pod in node.pods_of(family)}


def remote_pods(node: Node, family: str) -> dict[str, Route]:
    """Return an address of each network that is like those of this node's pods and of another node, with the route to it: by
    a gateway, or of any table by a tunnel or, wrongly, to the link of a pod, or of a further table to nowhere. First are
    those without one, which a CNI made a neighbour of a tunnel.
    """
    own, to_pods, near = node.links_by_address(family), {*node.pods.values()}, _clusters(node, family)
    routes = (each for each in node.every_route() if each.family == family and each.to != "default" and not is_host(each.to))
    # In table main, a CNI stops packets to what it has of the networks of its pods and no pod has.
    leading = (
        each
        for each in routes
        if (each.table != MAIN if each.is_blocking else each.via and each.table == MAIN)
        or each.dev in to_pods
        or is_tunnel(node, each.dev)
    )
    networks = ((network(route.to), route) for route in leading if route.is_blocking or not route.plain.get("type"))
    remote = {str(net[1]): route for net, route in networks if net and any(net[1] in cluster for cluster in near)}
    led = [destination for route in remote.values() if (destination := network(route.to))]
    lost = {
        pod: Route.of({"family": family, "to": pod, "dev": link, "table": MAIN})
        for pod, link in behind_tunnels(node, family).items()
        if not any(ipaddress.ip_address(pod) in destination for destination in led)
    }
    return {address: route for address, route in {**lost, **remote}.items() if address not in own}


def behind_tunnels(node: Node, family: str) -> dict[str, str]:
    """Return an address of each network whose first one a CNI made a neighbour of a tunnel, and the tunnel."""
    near = _clusters(node, family)
    entries = (entry for entry in _neighbors(node) if entry.state == "PERMANENT" and _is_of_pods(node, entry.dev))
    ends = ((host[0], entry.dev) for entry in entries if (host := network(entry.address)))
    return {
        str(end + 1): link for end, link in ends if any(end in cluster and end != cluster.broadcast_address for cluster in near)
    }


def _neighbors(node: Node) -> list[Neighbour]:
    """Return the neighbours, as far as they are known."""
    with contextlib.suppress(Unobserved):
        return node.neighbors()
    return []
