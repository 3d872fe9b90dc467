# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of a node that a packet and its reply met, or may have met."""

from __future__ import annotations

import ipaddress
import typing as t

from .._routing.route import LOCAL
from .._snapshot import settings
from .._snapshot.assumption import (
    ADDRESS,
    CHAIN,
    FAMILY,
    JUMP,
    LINK,
    POLICY,
    PREFIX,
    ROUTE,
    ROUTES,
    SENDER,
    SET,
    SETTING,
    TABLE,
    Concern,
)
from .._twin import lacking
from .._twin.worlds import NODE_PORTS
from .answer import DELIVERED, Answer, Met, Way
from .culprit import NoRoute
from .packet import Packet

# Clusters take the addresses of Services from private networks (RFC 1918, RFC 6598, RFC 4193).
PRIVATE = [*map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))]


OBJECTS = ("links", "addresses", "searched", "chains", "ended", "jumps", "sets", "records")


def of(answer: Answer) -> Met:
    """Return the objects that the packet and its reply met, on each of the ways that they take by chance."""
    mets = [way.met for first in answer.every_way for way in first.both]
    objects: dict[str, t.Any] = {
        name: tuple(dict.fromkeys(each for met in mets for each in getattr(met, name))) for name in OBJECTS
    }
    return Met(**objects)


def entrances(answer: Answer) -> set[str]:
    """Return the links by which packets came in, and the bridges of these."""
    return {link for first in answer.every_way for way in first.both for link in (way.came_in_by, way.met.bridge)} - {""}


def _forwarding(answer: Answer, family: str) -> t.Iterator[str]:
    """Yield the settings that count where a packet comes in that is for another node."""
    for way in (way for first in answer.every_way for way in first.both):
        if way.came_in_by and not (way.met.route and way.met.route.type == LOCAL):
            yield settings.forwarding_key(family, way.met.bridge or way.came_in_by)


def _is_of_node(way: Way) -> bool:
    """Return whether the node sent the packet, or answers it."""
    return not way.came_in_by or (way.verdict == DELIVERED and not way.interface)


def met(answer: Answer, family: str) -> frozenset[Concern]:
    """Return the objects that may be of concern to an assumption. family: of the packet."""
    objects = of(answer)
    prefixes = {prefix for address in objects.addresses for prefix in lacking.prefixes(address)}
    names: dict[str, t.Iterable[str]] = {
        LINK: {*objects.links, *entrances(answer)},
        ADDRESS: objects.addresses,
        FAMILY: [family],
        SETTING: _forwarding(answer, family),
        SENDER: [""] if any(_is_of_node(way) for first in answer.every_way for way in first.both) else [],
        CHAIN: objects.chains,
        JUMP: {f"{chain} {target.split(' ', 2)[2]}" for chain, target in objects.jumps},
        POLICY: objects.ended,
        TABLE: {chain.rpartition(" ")[0] for chain in objects.chains},
        SET: objects.sets,
        ROUTES: objects.searched,
        PREFIX: prefixes,
        ROUTE: {f"{table} {prefix}" for table in objects.searched for prefix in prefixes},
    }
    return frozenset(Concern(kind, name) for kind, of_kind in names.items() for name in of_kind)


def may_be_for_service(sent: Packet, way: Way) -> bool:
    """Return whether a rule that the twin lacks may translate the destination: the node takes the packet at a node port, or has
    no route to its private address but a default route.
    """
    if way.met.query is None or way.met.query.destination != sent.destination:
        return False
    if way.verdict == DELIVERED and not way.interface:
        return sent.destination_port in NODE_PORTS
    has_no_route = way.culprit is not None and isinstance(way.culprit.object, NoRoute)
    leads_anywhere = way.met.has_default_route if way.has_arrived else has_no_route
    return leads_anywhere and is_private(sent.destination)


def is_private(address: bytes) -> bool:
    return any(ipaddress.ip_address(address) in network for network in PRIVATE)
