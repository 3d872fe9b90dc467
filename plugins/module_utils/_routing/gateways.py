# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether a gateway is a neighbour, and on which link, and whether a source is an address of this node."""

from __future__ import annotations

import functools
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import IPV4, IPV6, Prefix
from . import rt_names
from .policy import Policy
from .route import BROADCAST, LINK, LOCAL, NOTHING, UNICAST, Hop, Route

LOCAL_TABLE = rt_names.TABLES["local"]
LIMITED_BROADCAST = b"\xff" * 4
LOOPBACK = bytes(15) + b"\1"  # ::1


class Gateways:
    """Looks up gateways and sources in ``routes``. Each index is built on first use."""

    def __init__(self, routes: t.Iterable[Route]) -> None:
        self._listed = routes
        self._tables: dict[tuple[int, int], t.Mapping[Prefix, list[Route]]] = {}
        self.links = functools.lru_cache(maxsize=None)(self._links)  # many pods share a gateway

    @functools.cached_property
    def _routes(self) -> tuple[Route, ...]:
        return tuple(self._listed)

    @functools.cached_property
    def _connected(self) -> dict[tuple[int, Prefix], list[Route]]:
        connected: dict[tuple[int, Prefix], list[Route]] = {}
        for route in self._routes:
            if route.is_connected and route.beside == NOTHING:
                connected.setdefault((route.family, route.dst), []).append(route)
        return connected

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return sorted({prefix[1] for _family, prefix in self._connected}, reverse=True)

    def lack(self, route: Route, hop: Hop) -> str:
        """Return what a next hop's gateway must be, as the end of "must be ..."; empty if the gateway is valid.

        Reports a gateway only if the kernel is certain to refuse it (net/ipv4/fib_semantics.c, fib_check_nh_v4_gw;
        net/ipv6/route.c, ip6_validate_gw).
        """
        if not hop.via:
            return ""
        allowed = "an address of another node; it is an address of this node"
        if route.family == IPV6:
            if self._is_address(hop.via, hop.dev if fields.is_link_local(hop.via) else ""):
                return allowed
            if hop.onlink and self._is_elsewhere(hop):
                return f"a neighbour on {hop.dev}; table main reaches it over another link"
        elif hop.onlink:
            kind = self._kind(LOCAL_TABLE, hop.via)
            if kind == LOCAL:
                return allowed
            if kind == BROADCAST or hop.via == LIMITED_BROADCAST or hop.via[0] & 0xF0 == 0xE0:
                return "a unicast address; it is a broadcast or multicast address"
        elif self._is_broadcast(route.table, hop):
            return f"a unicast address; it is a broadcast address of {hop.dev}"
        if hop.onlink or self.include(route.family, hop):
            return ""
        return f"a neighbour on {hop.dev} by a connected route, or onlink must be true"

    def include(self, family: int, hop: Hop) -> bool:
        """Return whether a hop's gateway is a neighbour on its link. Link-local addresses are neighbours on every link."""
        if family == IPV6 and fields.is_link_local(hop.via):
            return True
        return any(hop.dev in _links([route]) for route in self._leading_to(family, hop.via))

    def lack_of_source(self, route: Route) -> str:
        """Return what a route's preferred source must be, as the end of "must be ..."; empty if the source is valid.

        The checks are the kernel's: net/ipv4/fib_semantics.c, fib_valid_prefsrc; net/ipv6/route.c, ip6_route_info_create, by
        ipv6_chk_addr.
        """
        if not route.src or not route.hops or (route.type == LOCAL and route.dst == (route.src, len(route.src) * 8)):
            return ""
        if route.family == IPV4:
            tables = {LOCAL_TABLE if route.table == rt_names.MAIN else route.table, LOCAL_TABLE}
            return "" if any(self._kind(table, route.src) == LOCAL for table in tables) else "an address of this node"
        is_narrow = fields.is_link_local(route.src) or route.src == LOOPBACK
        devs = sorted({hop.dev if is_narrow else "" for hop in route.hops})
        if all(self._is_address(route.src, dev) for dev in devs):
            return ""
        return f"an address of this node{' on ' + ' and on '.join(devs) if is_narrow else ''}"

    def _is_broadcast(self, table: int, hop: Hop) -> bool:
        """Return whether a gateway is a broadcast address to the kernel, which looks in the route's own table and then in
        local."""
        for searched in (table, LOCAL_TABLE):
            if searched != rt_names.MAIN:
                best = self._best(searched, hop.via, hop.dev)
                if best and (searched == LOCAL_TABLE or best.type in (UNICAST, LOCAL)):
                    return best.type == BROADCAST
        return False

    def _is_elsewhere(self, hop: Hop) -> bool:
        """Return whether main reaches an IPv6 gateway, but not over the hop's link (net/ipv6/route.c,
        ip6_route_check_nh_onlink)."""
        best = self._longest(IPV6, rt_names.MAIN, hop.via, lambda route: route.type in (UNICAST, LOCAL))
        return bool(best) and best[0].dst != fields.ANY and not any(hop.dev in route.links for route in best)

    def _kind(self, table: int, address: bytes) -> int | None:
        """Return the type of the route that an IPv4 address takes in a table; None if there is no route."""
        best = self._best(table, address)
        return best.type if best else None

    def _best(self, table: int, address: bytes, dev: str = "") -> Route | None:
        """Return the IPv4 route that an address takes in a table. dev: only routes over this link count."""

        def leads(route: Route) -> bool:
            return not dev or (route.scope >= LINK and dev in route.links)

        return min(self._longest(IPV4, table, address, leads), key=lambda route: route.metric, default=None)

    def _longest(self, family: int, table: int, address: bytes, fits: t.Callable[[Route], bool]) -> t.Sequence[Route]:
        """Return the routes of a table that ``fits`` accepts, with the longest prefix that contains an address."""
        by_prefix = self._in_table(family, table)
        for length in range(fields.BITS[family], -1, -1):
            routes = [route for route in by_prefix.get(fields.network(address, length), ()) if fits(route)]
            if routes:
                return routes
        return ()

    def _in_table(self, family: int, table: int) -> t.Mapping[Prefix, list[Route]]:
        if (family, table) not in self._tables:
            routes: dict[Prefix, list[Route]] = {}
            for route in self._routes:
                if route.table == table and route.family == family and route.beside == NOTHING:
                    routes.setdefault(route.dst, []).append(route)
            self._tables[family, table] = routes
        return self._tables[family, table]

    def _is_address(self, address: bytes, dev: str) -> bool:
        """Return whether an IPv6 address is an address of this node, on ``dev`` if that is given.

        For each address, the kernel keeps a route in table local or in the table of a VRF.
        """
        return any(not dev or dev in links for links in self._addresses.get(address, ()))

    @functools.cached_property
    def _addresses(self) -> dict[bytes, list[frozenset[str]]]:
        links_of: dict[bytes, list[frozenset[str]]] = {}
        for route in self._routes:
            if route.type == LOCAL and route.family == IPV6 and route.dst[1] == 128:
                links_of.setdefault(route.dst[0], []).append(route.links)
        return links_of

    def _links(self, family: int, table: int, gateway: bytes) -> list[str]:
        """Return the links on which a route of ``table`` finds its gateway: none if no route covers it, several if it is
        ambiguous.

        The kernel searches the route's own table first, and then follows the node's rules (net/ipv4/fib_semantics.c,
        fib_check_nh_v4_gw; net/ipv6/route.c, ip6_route_check_nh), for which table main is searched here. The longest prefix
        wins, and among equal prefixes the lowest metric.
        """
        for searched in (table, rt_names.MAIN):
            routes = [route for route in self._leading_to(family, gateway) if route.table == searched]
            if routes:
                best = min(routes, key=lambda route: (-route.dst[1], route.metric))
                return _links(route for route in routes if (route.dst, route.metric) == (best.dst, best.metric))
        return []

    def _leading_to(self, family: int, address: bytes) -> t.Iterator[Route]:
        for length in self._lengths:
            if length <= fields.BITS[family]:
                yield from self._connected.get((family, fields.network(address, length)), ())


def resolved(desired: Policy, neighbours: Gateways) -> Policy:
    """Return the desired policy, with a link for each next hop that names none.

    Raises Invalid if a gateway has no link, or several.
    """
    if not any(route.is_bare for route in desired.routes or ()):
        return desired
    routes = (_over_links(desired, route, neighbours) if route.is_bare else route for route in desired.routes or ())
    return desired._replace(routes=tuple(routes))


def _over_links(desired: Policy, route: Route, neighbours: Gateways) -> Route:
    links_of = {hop: neighbours.links(route.family, route.table, hop.via) for hop in route.hops if not hop.dev}
    for hop, links in links_of.items():
        if len(links) != 1:
            said = f"it is a neighbour on {' and on '.join(links)}" if links else "no connected route covers it"
            allowed = f"a neighbour on one link, by a connected route of its own table or of main, or given with dev; {said}"
            raise Invalid(f"{desired.option(route, hop)}.via", fields.show(hop.via), allowed)
    hops = (hop if hop.dev else hop._replace(dev=links_of[hop][0]) for hop in route.hops)
    return route._replace(hops=tuple(sorted(hops)))


def _links(routes: t.Iterable[Route]) -> list[str]:
    return sorted({hop.dev for route in routes for hop in route.hops if not hop.via})
