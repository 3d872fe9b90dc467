# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dissolving a bridge that took a network interface's addresses and routes, as azure-vnet's does in bridge mode.

azure-vnet moves addresses and routes to the bridge that it creates (azure-container-networking, network/network_linux.go,
connectExternalInterface). While they are moved back, both links have them: the kernel uses the bridge's until the network
interface has all of them.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core.errors import Invalid, Refusal
from .._core.fields import IPV6, Prefix
from .._interfaces.link_message import APPEND, NODAD, NUD_PERMANENT, NUD_STALE, Address, Link, Message, Route, Scene
from . import judge

POD = re.compile(rf"{judge.HOST_LINK.pattern}|veth.*")


def bridge_of(links: t.Iterable[Link], name: str | None, configured: t.Collection[str] = ()) -> Link | None:
    """Return the bridge with this name or, without a name, azure-vnet's; None if there is none.

    configured: the names that CNI configurations give azure-vnet's bridge. Raises Invalid if the name is that of a link that
        is not a bridge, or if azure-vnet has several bridges.
    """
    if name is None:
        bridges = [link for link in links if judge.BRIDGE.fullmatch(link.name) or link.name in configured]
        matches = [link for link in bridges if link.kind == "bridge"]
    else:
        matches = [link for link in links if link.name == name]
    if len(matches) > 1:
        raise Invalid("bridge", name, f"given: {' and '.join(link.name for link in matches)} are bridges of azure-vnet")
    if matches and matches[0].kind != "bridge":
        raise Invalid("bridge", name, f"a bridge; {name} is a link of kind {matches[0].kind or 'hardware'}")
    return matches[0] if matches else None


class Dissolution(t.NamedTuple):
    """The messages that dissolve a bridge, in three batches.

    nic: the network interface that gets the bridge's addresses and routes; None if there is nothing to move.
    addresses, routes: those that nic gets; routes as commands of iproute2, without those that the kernel adds with an address.
    arriving: adds addresses, neighbours and routes to the network interface, beside the bridge's.
    leaving: removes the bridge's routes, and takes the network interface out of the bridge.
    removal: removes the bridge's permanent neighbours and addresses, then the bridge.
    ending: the bridge's addresses that the network interface does not get.
    """

    bridge: Link
    nic: Link | None
    addresses: tuple[Address, ...]
    routes: tuple[str, ...]
    arriving: tuple[Message, ...]
    leaving: tuple[Message, ...]
    removal: tuple[Message, ...]
    ending: tuple[Address, ...] = ()


def settings_of(link: str) -> list[str]:
    """Return the keys below /proc/sys that undo restores: azure-vnet sets some of its bridges', and an operator may have set
    others."""
    return [
        *(f"net/ipv6/conf/{link}/{name}" for name in ("accept_ra", "forwarding", "proxy_ndp")),
        *(f"net/ipv4/conf/{link}/{name}" for name in ("rp_filter", "forwarding", "proxy_arp")),
    ]


def nic_of(scene: Scene, bridge: Link, name: str | None, gateways: t.Collection[str] = ()) -> Link | None:
    """Return the link that gets the bridge's addresses and routes; None if the bridge has neither ports nor addresses.

    name: of the link; None to find it. gateways: as for dissolution(). Raises Refusal if other links are in the bridge, and
        Invalid if the name is unknown or no single link can be chosen.
    """
    ports = [link for link in scene.links if link.master == bridge.number]
    of_that_name = [link for link in scene.links if link.name == name]
    candidates = of_that_name if name else [link for link in ports if not POD.fullmatch(link.name)] or ports
    if name and not of_that_name:
        raise Invalid("interface", name, f"a link of this node: {', '.join(link.name for link in scene.links)}")
    if len(candidates) > 1:
        choices = " and ".join(link.name for link in candidates)
        raise Invalid("interface", name, f"given: {choices} are ports of {bridge.name}, and only one can get its addresses")
    pod_links = [link.name for link in ports if link not in candidates]
    if pod_links:
        raise Refusal(
            f"bridge {bridge.name} still serves {', '.join(pod_links)}. Nothing was changed. First restart or move the pods"
            " behind these links, for example by draining the node, and remove links that are no longer used"
        )
    addresses = {address.key for address in _addresses(scene, bridge) if str(address) not in gateways}
    if not candidates and addresses:
        candidates = [link for link in scene.links if link is not bridge and addresses <= _keys(scene, link)]
        if len(candidates) != 1:
            raise Invalid("interface", name, f"given: no link is in bridge {bridge.name}, and its addresses must move to one")
    return candidates[0] if candidates else None


def _keys(scene: Scene, link: Link) -> set[t.Any]:
    """Return the keys of the link's addresses.

    A link that a killed run took out of the bridge already has all of the bridge's.
    """
    return {address.key for address in scene.addresses if address.link == link.number}


def _addresses(scene: Scene, link: Link) -> list[Address]:
    return [address for address in scene.addresses if address.link == link.number and not address.is_links_own]


def dissolution(scene: Scene, bridge: Link, nic: Link | None, gateways: t.Collection[str] = ()) -> Dissolution:
    """Plan the messages; pure. Raises Refusal if a route of the bridge cannot be moved.

    gateways: addresses with their lengths that end with the bridge, because they served azure-vnet's pods.
    """
    of_bridge = _addresses(scene, bridge)
    addresses = [address for address in of_bridge if str(address) not in gateways]
    ending = {_prefix(address) for address in of_bridge} - {
        _prefix(address) for address in addresses
    }  # the kernel removes their routes with them
    routes = [
        route
        for route in scene.routes
        if any(index == bridge.number for index, _via in route.hops)
        and not (route.is_links_own or route.is_of_address and route.dst in ending)
    ]
    for route in routes:
        if route.has_nexthop_object:
            raise Refusal(
                f"{route} leads over bridge {bridge.name} by a nexthop object (ip nexthop), which other routes may share."
                " Nothing was changed. Have the owner of the nexthop object move it"
            )
    removal = tuple(_removal(scene, bridge, of_bridge))
    if nic is None:
        return Dissolution(bridge, nic, (), (), (), (), removal, tuple(of_bridge))
    # The kernel resolves a gateway when it adds the route, so routes without a gateway come first.
    routes.sort(key=lambda route: route.has_gateway)
    return Dissolution(
        bridge,
        nic,
        tuple(addresses),
        tuple(str(route) for route in routes if not route.is_of_address),
        tuple(_arriving(scene, bridge, nic, addresses, routes)),
        tuple(_leaving(bridge, nic, routes[::-1])),
        removal,
        tuple(address for address in of_bridge if address not in addresses),
    )


def _prefix(address: Address) -> Prefix:
    network = ipaddress.ip_network((address.local, address.length), strict=False)
    return network.network_address.packed, network.prefixlen


def _arriving(
    scene: Scene, bridge: Link, nic: Link, addresses: t.Sequence[Address], routes: t.Sequence[Route]
) -> t.Iterator[Message]:
    """Add the addresses, neighbours and routes that the network interface does not have yet.

    IPv6 addresses are added without duplicate address detection, which would find the bridge's. Learned neighbours are copied,
    because a port learns none: the answers go to the bridge. Routes are appended, so that the kernel keeps using the bridge's.
    """
    present = {route.key(nic, nic) for route in scene.routes}
    coming = [route for route in routes if route.key(nic, bridge) not in present and not _has_both(route, bridge, nic)]
    for route in coming:
        # The kernel adds such a route with its address, but keeps that of a temporary IPv6 address after the address.
        if route.is_of_address:
            yield Message(f"add {route} over {nic.name}", None, route.delete(nic, bridge))
    current = {address.key for address in scene.addresses if address.link == nic.number}
    for address in _in_order(addresses):
        if address.key not in current:
            do = address.add(nic, bridge, NODAD if address.family == IPV6 else 0)
            yield Message(f"add {address} to {nic.name}", do, address.delete(nic))
    for neighbour in scene.neighbours:
        if neighbour.link == bridge.number and neighbour.is_learned:
            yield Message(f"add {neighbour} on {nic.name}", neighbour.add(nic, NUD_STALE), neighbour.delete(nic))
    for route in coming:
        if not route.is_of_address:
            summary = f"add {route} over {nic.name}"
            yield Message(summary, route.add(nic, bridge, APPEND), route.delete(nic, bridge))


def _has_both(route: Route, bridge: Link, nic: Link) -> bool:
    """Return whether a killed run has added the IPv6 route: the kernel lists it as one more hop of the bridge's route."""
    moved = {(nic.number, via) for index, via in route.hops if index == bridge.number}
    return route.family == IPV6 and moved <= {*route.hops}


def _in_order(addresses: t.Sequence[Address]) -> list[Address]:
    """Return addresses in the order in which they were added.

    The kernel lists the newest IPv6 address of a scope first, and the newest IPv4 address last.
    """
    newest_first = [address for address in addresses if address.family == IPV6]
    return [address for address in addresses if address.family != IPV6] + newest_first[::-1]


def _leaving(bridge: Link, nic: Link, routes: t.Sequence[Route]) -> t.Iterator[Message]:
    for route in routes:
        summary = f"remove {route} over {bridge.name}"
        yield Message(summary, route.delete(bridge, bridge), route.add(bridge, bridge, 0))
    if nic.master == bridge.number:
        yield Message(f"restore the bridge port settings of {nic.name}", None, nic.set_as_port())
        yield Message(f"take {nic.name} out of {bridge.name}", nic.set_master(0), nic.set_master(bridge.number))


def _removal(scene: Scene, bridge: Link, addresses: t.Sequence[Address]) -> t.Iterator[Message]:
    for neighbour in scene.neighbours:
        if neighbour.link == bridge.number and neighbour.is_permanent:
            summary = f"remove {neighbour} on {bridge.name}"
            yield Message(summary, neighbour.delete(bridge), neighbour.add(bridge, NUD_PERMANENT))
    for address in _in_order(addresses)[::-1]:
        summary = f"remove {address} from {bridge.name}"
        yield Message(summary, address.delete(bridge), address.add(bridge, bridge))
    yield Message(f"remove {bridge.name}", bridge.delete(), bridge.make())
