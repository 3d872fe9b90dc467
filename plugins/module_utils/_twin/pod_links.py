# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which links of a snapshot lead to pods, and which ones out of the node."""

from __future__ import annotations

import typing as t

from .._snapshot.tunnels import POINT_TO_POINT
from .._snapshot.values import ETHERNET, Link, Network, Route, has_interface_name

TAP, VETH = "tun", "veth"  # kinds


def uplinks(routes: t.Iterable[Route]) -> set[str]:
    """Return the names of the links by which a default route of any table leads."""
    return {hop.dev for route in routes if route.to == "default" for hop in route.hops if hop.dev}


def networks(link: Link) -> list[Network]:
    """Return the networks of a link's addresses, without those of a host alone, such as that of a link to one pod."""
    every = (address.interface for address in link.address_info if not address.peer)
    wide = (interface for interface in every if interface and not interface.ip.is_link_local)
    return [interface.network for interface in wide if interface.network.num_addresses > 1]


def is_machine(link: Link) -> bool:
    """Return whether a pod or a virtual machine may be at the other end of a link: not of a tun, which has no MAC addresses."""
    return link.kind == VETH or link.kind == TAP and not is_point_to_point(link)


def is_point_to_point(link: Link) -> bool:
    """Return whether a link asks for no MAC address, such as a tunnel."""
    return link.hardware != ETHERNET or not POINT_TO_POINT.isdisjoint(link.flags)


def pod_links(links: t.Iterable[Link], routes: t.Iterable[Route]) -> set[str]:
    """Return the names of the links at whose other end is a pod, a virtual machine, or another network namespace of the node."""
    return divided(links, routes)[0]


def outer_links(links: t.Iterable[Link], routes: t.Iterable[Route]) -> set[str]:
    """Return the names of the links by which a default route of any table leads out of the node, and not to a pod."""
    return divided(links, routes)[1]


def divided(links: t.Iterable[Link], routes: t.Iterable[Route]) -> tuple[set[str], set[str]]:
    """Return what pod_links() and outer_links() return.

    A network interface of a node that runs in a container is a veth, too. It has an address in a network, the name of an
    interface, or a default route. Beside another network interface with one, the route leads to a pod that is a gateway.
    """
    links, outside = [*links], uplinks(routes)
    ends = {link.name for link in links if is_machine(link) and not networks(link) and not has_interface_name(link.name)}
    has_another = any(link.name in outside - ends and not is_point_to_point(link) for link in links)
    pods = ends if has_another else ends - outside
    return pods, outside - pods


def by_namespace(links: t.Sequence[Link], routes: t.Iterable[Route]) -> dict[str, list[Link]]:
    """Return the links to pods by the names of the pods' namespaces, as far as these are known.

    A namespace with the other end of a network interface as well is no pod, but what is around the node.
    """
    inner = pod_links(links, routes)
    groups: dict[str, list[Link]] = {}
    for link in links:
        if link.peer.namespace:
            groups.setdefault(link.peer.namespace, []).append(link)
    return {namespace: group for namespace, group in groups.items() if all(link.name in inner for link in group)}
