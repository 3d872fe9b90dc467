# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which links of a snapshot lead to pods, and which ones out of the node."""

from __future__ import annotations

import ipaddress
import typing as t

from .._snapshot.tunnels import POINT_TO_POINT
from .._snapshot.values import Entry, entries, has_interface_name

TAP, VETH, ETHERNET = "tun", "veth", 1  # kinds; a type of hardware (include/uapi/linux/if_arp.h)
Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


def uplinks(snapshot: Entry) -> set[str]:
    """Return the names of the links by which a default route of any table leads."""
    return {
        str(hop.get("dev"))
        for route in entries(snapshot, "routes")
        if route.get("to") == "default"
        for hop in (route, *(route.get("nexthops") or ()))
        if hop.get("dev")
    }


def networks(link: Entry) -> list[Network]:
    """Return the networks of a link's addresses, without those of a host alone, such as that of a link to one pod."""
    return [network for address in link.get("addresses") or () if (network := _network(address))]


def _network(address: Entry) -> Network | None:
    try:
        interface = ipaddress.ip_interface(str(address.get("address")))
    except ValueError:
        return None
    is_alone = bool(address.get("peer")) or interface.network.num_addresses == 1 or interface.ip.is_link_local
    return None if is_alone else interface.network


def is_machine(link: Entry) -> bool:
    """Return whether a pod or a virtual machine may be at the other end of a link: not of a tun, which has no MAC addresses."""
    is_tap = (
        link.get("kind") == TAP and link.get("type", ETHERNET) == ETHERNET and POINT_TO_POINT.isdisjoint(link.get("flags") or ())
    )
    return link.get("kind") == VETH or is_tap


def pod_links(snapshot: Entry) -> set[str]:
    """Return the names of the links at whose other end is a pod, a virtual machine, or another network namespace of the node.

    A network interface of a node that runs in a container is a veth, too. It has a default route, an address in a network, or the
    name of an interface.
    """
    outside = uplinks(snapshot)
    ends = (link for link in entries(snapshot, "links") if is_machine(link) and not networks(link))
    return {name for link in ends if (name := str(link["name"])) not in outside and not has_interface_name(name)}


def by_namespace(snapshot: Entry) -> dict[str, list[Entry]]:
    """Return the links to pods by the names of the pods' namespaces, as far as these are known.

    A namespace with the other end of a network interface as well is no pod, but what is around the node.
    """
    inner = pod_links(snapshot)
    links: dict[str, list[Entry]] = {}
    for link in entries(snapshot, "links"):
        namespace = str((link.get("peer") or {}).get("namespace") or "")
        if namespace:
            links.setdefault(namespace, []).append(link)
    return {namespace: group for namespace, group in links.items() if all(str(link["name"]) in inner for link in group)}
