# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which rule and route of a list decide where a packet goes. For quoting: the verdict is the kernel's."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.fields import Prefix
from .._routing.route import THROW, Route
from .._routing.rule import GOTO, LOOKUP, Rule
from .._twin.blueprint import LOOPBACK
from .packet import ICMP, ICMPV6


class Query(t.NamedTuple):
    """The fields by which the kernel looks up a route. iif: the loopback for a packet that the node itself sends."""

    source: bytes
    destination: bytes
    iif: str = LOOPBACK
    mark: int = 0
    protocol: int = 0
    source_port: int = 0
    destination_port: int = 0

    @property
    def answered(self) -> Query:
        """Return the lookup for an answer that the node itself sends."""
        return Query(self.destination, self.source, LOOPBACK, 0, self.protocol, self.destination_port, self.source_port)

    @property
    def refused(self) -> Query:
        """Return the lookup for an error that the node sends back."""
        return Query(b"", self.source, protocol=ICMPV6 if len(self.source) == 16 else ICMP)


class Decision(t.NamedTuple):
    """The rule that decides and the route that it leads to; None for none. tables: those that were searched in vain."""

    rule: Rule | None
    route: Route | None
    tables: tuple[int, ...] = ()


class _Rules:
    """The rules of a family, found by the addresses that they name: of thousands, few are about a packet."""

    def __init__(self, rules: t.Iterable[Rule]) -> None:
        self._of_prefix: dict[tuple[str, Prefix], list[tuple[int, Rule]]] = {}
        self._about_any: list[tuple[int, Rule]] = []
        for numbered in enumerate(rules):
            rule = numbered[1]
            field = "" if rule.invert else "dst" if rule.dst[1] else "src" if rule.src[1] else ""
            of_field = self._of_prefix.setdefault((field, getattr(rule, field)), []) if field else self._about_any
            of_field.append(numbered)
        self._lengths = sorted({(field, prefix[1]) for field, prefix in self._of_prefix})

    def about(self, query: Query) -> t.Iterator[Rule]:
        """Yield the rules in the kernel's order, without those about other addresses."""
        ends = {"dst": query.destination, "src": query.source}
        places = ((field, fields.network(ends[field], length)) for field, length in self._lengths if ends[field])
        numbered = [*self._about_any, *(each for place in places for each in self._of_prefix.get(place, ()))]
        return (rule for _number, rule in sorted(numbered, key=lambda each: each[0]))


class Tables:
    """The rules in the kernel's order, and the routes, of a node."""

    def __init__(self, rules: t.Iterable[Rule], routes: t.Iterable[Route]) -> None:
        self.rules = list(rules)
        self._rules = {
            family: _Rules(rule for rule in self.rules if rule.family == family) for family in (fields.IPV4, fields.IPV6)
        }
        self._routes: dict[tuple[int, int], dict[Prefix, list[Route]]] = {}
        for route in routes:
            self._routes.setdefault((route.family, route.table), {}).setdefault(route.dst, []).append(route)
        self._lengths = {place: sorted({length for _address, length in of}, reverse=True) for place, of in self._routes.items()}

    def decide(self, query: Query) -> Decision:
        family = fields.IPV6 if len(query.destination) == 16 else fields.IPV4
        searched: list[int] = []
        least = 0
        for rule in self._rules[family].about(query):
            if rule.priority < least or not _selects(rule, query):
                continue
            if rule.action == GOTO:
                least = rule.goto
            elif rule.action != LOOKUP:
                return Decision(rule, None, tuple(searched))
            else:
                route = self._longest(family, rule, query)
                if route:
                    return Decision(rule, route, tuple(searched))
                searched.append(rule.table)
        return Decision(None, None, tuple(searched))

    def _longest(self, family: int, rule: Rule, query: Query) -> Route | None:
        """Return the route of the rule's table for an address; None without one, or if the lookup goes on with the next rule.

        Of IPv6's with one metric, that of the link by which the packet came in (net/ipv6/route.c, rt6_score_route).
        """
        routes = next(self._fitting((family, rule.table), query.destination), [])
        is_ipv6 = family == fields.IPV6
        best = min(routes, key=lambda route: (route.metric, is_ipv6 and query.iif not in route.links), default=None)
        return None if not best or best.type == THROW or best.dst[1] <= rule.suppress_prefixlength else best

    def _fitting(self, table: tuple[int, int], destination: bytes) -> t.Iterator[list[Route]]:
        """Yield the routes of a table whose prefixes contain an address, those of the longest prefix first."""
        by_prefix = self._routes.get(table, {})
        prefixes = (fields.network(destination, length) for length in self._lengths.get(table, ()))
        return (by_prefix[prefix] for prefix in prefixes if prefix in by_prefix)

    def leads_to(self, destination: bytes, link: str) -> bool:
        """Return whether a route of any table leads to an address by a link, whatever the rules."""
        family = fields.IPV6 if len(destination) == 16 else fields.IPV4
        tables = (table for table in self._routes if table[0] == family)
        return any(link in route.links for table in tables for routes in self._fitting(table, destination) for route in routes)

    def has_default(self, family: int) -> bool:
        """Return whether any table has a default route of a family."""
        return any(0 in lengths for table, lengths in self._lengths.items() if table[0] == family)

    def of_table(self, family: int, table: int) -> list[Route]:
        return [route for routes in self._routes.get((family, table), {}).values() for route in routes]


def shown_rule(rule: Rule | None) -> str:
    """Return a rule as ``ip rule`` prints it."""
    return str(rule).partition(" rule ")[2] if rule else "no rule"


def _selects(rule: Rule, query: Query) -> bool:
    is_selected = (
        _contains(rule.src, query.source)
        and _contains(rule.dst, query.destination)
        and rule.iif in ("", query.iif)
        and not rule.oif
        and (query.mark ^ rule.fwmark) & rule.fwmask == 0
        and rule.ipproto in (0, query.protocol)
        and _in_range(rule.sport, query.source_port)
        and _in_range(rule.dport, query.destination_port)
        and not rule.tos
    )
    return is_selected != rule.invert and not rule.l3mdev


def _contains(prefix: Prefix, address: bytes) -> bool:
    return not prefix[1] or (len(address) == len(prefix[0]) and fields.contains(prefix, address))


def _in_range(limits: tuple[()] | tuple[int, int], value: int) -> bool:
    return not limits or limits[0] <= value <= limits[1]
