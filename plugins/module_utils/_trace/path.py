# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The objects of a node that a packet and its reply met, or may have met."""

from __future__ import annotations

import ipaddress
import typing as t

from .._core import fields
from .._routing.route import LOCAL
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
    SET,
    SETTING,
    TABLE,
    Concern,
)
from .._twin import lacking
from .._twin.assumptions import FORWARDING
from .answer import DELIVERED, Answer, Way
from .culprit import NoRoute
from .packet import Packet

# Clusters take the addresses of Services from private networks (RFC 1918, RFC 6598, RFC 4193).
PRIVATE = [*map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))]
NODE_PORTS = range(30000, 32768)  # the default of kube-apiserver's --service-node-port-range


class Path(t.NamedTuple):
    """entrances: links by which packets came in, and bridges of these. links: all that packets used, or that their routes name.

    chains, ended: families, tables and chains that were entered, and those of which the end was reached. jumps: each with the
    chain that was left, and the one that was entered. sets, records: that rules there match. searched: routing tables.
    """

    entrances: frozenset[str]
    links: frozenset[str]
    chains: frozenset[str]
    ended: frozenset[str]
    jumps: frozenset[tuple[str, str]]
    sets: frozenset[str]
    records: frozenset[str]
    searched: frozenset[str]
    addresses: frozenset[str]
    is_forwarded: bool


def of(answer: Answer) -> Path:
    """Return the path of the packet and its reply, on each of the ways that they take by chance."""
    ways = [way for first in answer.every_way for way in first.both]
    entrances = frozenset(link for way in ways for link in (way.came_in_by, way.met.bridge)) - {""}
    return Path(
        entrances,
        entrances.union(*(way.met.links for way in ways)),
        frozenset(chain for way in ways for chain in way.met.chains),
        frozenset(chain for way in ways for chain in way.met.ended),
        frozenset(jump for way in ways for jump in way.met.jumps),
        frozenset(name for way in ways for name in way.met.sets),
        frozenset(name for way in ways for name in way.met.records),
        frozenset(table for way in ways for table in way.met.searched),
        frozenset(end for way in ways for end in way.met.addresses),
        any(way.came_in_by and not (way.met.route and way.met.route.type == LOCAL) for way in ways),
    )


def met(answer: Answer, family: str) -> frozenset[Concern]:
    """Return the objects that may be of concern to an assumption. family: of the packet."""
    path = of(answer)
    prefixes = {prefix for address in path.addresses for prefix in lacking.prefixes(address)}
    names: dict[str, t.Iterable[str]] = {
        LINK: path.links,
        ADDRESS: path.addresses,
        FAMILY: [family],
        SETTING: [key for key, of_family in FORWARDING if of_family == family and path.is_forwarded],
        CHAIN: path.chains,
        JUMP: {f"{chain} {target.split(' ', 2)[2]}" for chain, target in path.jumps},
        POLICY: path.ended,
        TABLE: {chain.rpartition(" ")[0] for chain in path.chains},
        SET: path.sets,
        ROUTES: path.searched,
        PREFIX: prefixes,
        ROUTE: {f"{table} {prefix}" for table in path.searched for prefix in prefixes},
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
    address = ipaddress.ip_address(fields.show(sent.destination))
    has_no_route = way.culprit is not None and isinstance(way.culprit.object, NoRoute)
    leads_anywhere = way.met.has_default_route if way.has_arrived else has_no_route
    return leads_anywhere and any(address in network for network in PRIVATE)
