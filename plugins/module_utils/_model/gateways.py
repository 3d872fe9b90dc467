# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which addresses are neighbours of the node, and on which link: what a gateway must be."""

from __future__ import annotations

import functools
import typing as t

from . import fields, rt_names
from .fields import IPV6, Prefix
from .policy import Policy
from .problem import Invalid
from .route import Hop, Route


class Gateways:
    """What the connected among ``routes`` say. Nothing is made of these before it is asked for."""

    def __init__(self, routes: t.Iterable[Route]) -> None:
        self._routes = routes
        self.links = functools.lru_cache(maxsize=None)(self._links)  # pods share their gateways

    @functools.cached_property
    def _connected(self) -> dict[tuple[int, Prefix], list[Route]]:
        connected: dict[tuple[int, Prefix], list[Route]] = {}
        for route in self._routes:
            if route.is_connected:
                connected.setdefault((route.family, route.dst), []).append(route)
        return connected

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return sorted({prefix[1] for _family, prefix in self._connected}, reverse=True)

    def include(self, family: int, hop: Hop) -> bool:
        """Whether a hop's gateway is on its link. Link-local addresses are on every one."""
        if family == IPV6 and fields.is_link_local(hop.via):
            return True
        return any(hop.dev in _links([route]) for route in self._leading_to(family, hop.via))

    def _links(self, family: int, table: int, gateway: bytes) -> list[str]:
        """On which link a route of ``table`` finds its gateway: none where nobody says, several where it can not be told.

        The kernel asks the route's own table first and then all, by the node's rules (net/ipv4/fib_semantics.c,
        fib_check_nh_v4_gw; net/ipv6/route.c, ip6_route_check_nh); these lead to main. The longest prefix wins, and among
        equals the lowest metric.
        """
        for asked in (table, rt_names.MAIN):
            found = [route for route in self._leading_to(family, gateway) if route.table == asked]
            if found:
                best = min(found, key=lambda route: (-route.dst[1], route.metric))
                return _links(route for route in found if (route.dst, route.metric) == (best.dst, best.metric))
        return []

    def _leading_to(self, family: int, address: bytes) -> t.Iterator[Route]:
        for length in self._lengths:
            if length <= fields.BITS[family]:
                yield from self._connected.get((family, fields.network(address, length)), ())


def resolved(wish: Policy, neighbours: Gateways) -> Policy:
    """The wish with the links that it leaves to the node. Raises Invalid where the node has none, or several."""
    if not any(route.is_bare for route in wish.routes or ()):
        return wish
    routes = (_over_links(wish, route, neighbours) if route.is_bare else route for route in wish.routes or ())
    return wish._replace(routes=tuple(routes))


def _over_links(wish: Policy, route: Route, neighbours: Gateways) -> Route:
    found = {hop: neighbours.links(route.family, route.table, hop.via) for hop in route.hops if not hop.dev}
    for hop, links in found.items():
        if len(links) != 1:
            said = f"routes say that it is one on {' and on '.join(links)}" if links else "no route says that it is one"
            allowed = f"a neighbour on one link, by a route of its own table or of main, or come with dev; {said}"
            raise Invalid(f"{wish.option(route, hop)}.via", fields.show(hop.via), allowed)
    hops = (hop if hop.dev else hop._replace(dev=found[hop][0]) for hop in route.hops)
    return route._replace(hops=tuple(sorted(hops)))


def _links(routes: t.Iterable[Route]) -> list[str]:
    return sorted({hop.dev for route in routes for hop in route.hops if not hop.via})
