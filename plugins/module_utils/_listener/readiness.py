# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a policy that can be loaded on the node in its current state, and the conditions that the rest waits for.

A run loads everything, or fails with the reason. The listener has no operator who reads an error, so it loads what it can.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .._routing import known_programs, rt_names, rule_order
from .._routing.gateways import Gateways
from .._routing.policy import Policy
from .._routing.route import LOCAL, Hop, Route
from .._routing.rule import GOTO, LOOKUP, Rule
from .change_event import ANY_LINK

Owned = tuple[t.Any, int]  # a rule or a route, and its protocol


class Ready(t.NamedTuple):
    """policy: the part that can be loaded. waiting: the other rules and routes, each with the reason."""

    policy: Policy
    waiting: tuple[tuple[Rule | Route, str], ...] = ()


class KernelState(t.NamedTuple):
    """rules, routes: all in the kernel, foreign ones included. links: by name, whether the link is up."""

    rules: t.Sequence[Owned]
    routes: t.Sequence[Owned]
    links: t.Mapping[str, bool]


def split(desired: Policy, kernel: KernelState) -> Ready:
    """Split the desired policy. Rules and routes that the kernel has already never wait, even if their owner is foreign."""
    of_routes = _RouteObstacles(desired, kernel).all()
    of_rules = _rule_obstacles(desired, kernel, of_routes)
    policy = desired._replace(
        rules=None if desired.rules is None else tuple(rule for rule in desired.rules if not of_rules[rule]),
        routes=None if desired.routes is None else tuple(route for route in desired.routes if not of_routes[route]),
    )
    obstacles: list[tuple[Rule | Route, str]] = [*of_routes.items(), *of_rules.items()]
    return Ready(policy, tuple((item, reason) for item, reason in obstacles if reason))


def links(desired: Policy, kernel: KernelState) -> set[str]:
    """Return the links that the desired routes use; ANY_LINK for the link of a gateway that no route reaches yet."""
    neighbours = Gateways([*(desired.routes or ()), *(route for route, _protocol in kernel.routes)])
    names: set[str] = set()
    for route in desired.routes or ():
        for hop in route.hops:
            names.update([hop.dev] if hop.dev else neighbours.links(route.family, route.table, hop.via) or [ANY_LINK])
    return names


class _RouteObstacles:
    def __init__(self, desired: Policy, kernel: KernelState) -> None:
        self._desired = desired.routes or ()
        self._links = kernel.links
        self._current = {route for route, _protocol in kernel.routes}
        if any(route.is_bare for route in self._desired):
            self._current |= set(map(_unbound, self._current))
        theirs = [(route, protocol) for route, protocol in kernel.routes if protocol != desired.protocol or route.unread]
        self._taken = {route.key: (route, protocol) for route, protocol in theirs}
        # Another route that is ready may make a gateway a neighbour, or a source an address of the node.
        self._neighbours = Gateways(route for route, _protocol in theirs)
        leading = (route for route in self._desired if route.is_connected or route.type == LOCAL)
        ready = [route for route in leading if not self._obstacle(route)]
        self._neighbours = Gateways([*(route for route, _protocol in theirs), *ready])

    def all(self) -> dict[Route, str]:
        """Map each route to the reason why it waits; empty if it can be loaded."""
        return {route: "" if route in self._current else self._obstacle(route) for route in self._desired}

    def _obstacle(self, route: Route) -> str:
        if route.key in self._taken:
            return _taken(*self._taken[route.key])
        reasons = [self._of_hop(route, hop) for hop in route.hops]
        return next(filter(None, reasons), "") or self._of_source(route)

    def _of_hop(self, route: Route, hop: Hop) -> str:
        if hop.dev and not self._links.get(hop.dev):
            return f"link {hop.dev} is down" if hop.dev in self._links else f"there is no link {hop.dev}"
        if not hop.via:
            return ""
        if hop.dev:
            is_neighbour = hop.onlink or self._neighbours.include(route.family, hop)
            lack = self._neighbours.lack(route, hop) if is_neighbour else ""
            if lack:
                return f"{fields.show(hop.via)} must be {lack}"
        else:
            is_neighbour = len(self._neighbours.links(route.family, route.table, hop.via)) == 1
        where = f" on {hop.dev}" if hop.dev else ""
        return "" if is_neighbour else f"no route says that {fields.show(hop.via)} is a neighbour{where}"

    def _of_source(self, route: Route) -> str:
        lack = self._neighbours.lack_of_source(route)
        return f"{fields.show(route.src)} is not {lack}" if lack else ""


def _unbound(route: Route) -> Route:
    """Return the route without the links of its gateways, as a desired route that leaves them to the node."""
    return route._replace(hops=tuple(hop._replace(dev="") if hop.via else hop for hop in route.hops))


def _rule_obstacles(desired: Policy, kernel: KernelState, of_routes: t.Mapping[Route, str]) -> dict[Rule, str]:
    """Map each rule to the reason why it waits; empty if it can be loaded.

    A rule waits while its table is empty because the table's routes wait. A goto rule waits for the rule that it leads to.
    """
    current = {rule for rule, _protocol in kernel.rules}
    taken = {rule.key: (rule, protocol) for rule, protocol in kernel.rules if protocol != desired.protocol or rule.opaque}
    filled = {(route.family, route.table) for route, _protocol in kernel.routes}
    filled |= {(route.family, route.table) for route, reason in of_routes.items() if not reason}
    empty = {(route.family, route.table) for route in of_routes} - filled
    places = {rule.place for rule in current}
    reasons: dict[Rule, str] = {}
    for rule in sorted(desired.rules or (), key=lambda rule: -rule.priority):  # a goto leads to a higher priority
        reasons[rule] = ""
        if rule in current:
            continue
        if rule.key in taken:
            reasons[rule] = _taken(*taken[rule.key])
        elif rule.action == LOOKUP and (rule.family, rule.table) in empty:
            reasons[rule] = f"table {rt_names.table(rule.table)} is empty"
        elif rule.action == GOTO and (rule.family, rule.goto) not in places:
            reasons[rule] = f"there is no rule {rule.goto}"
        else:
            places.add(rule.place)
    ready = [rule for rule in desired.rules or () if not reasons[rule]]
    for rule, (other, protocol) in rule_order.misplaced(ready, kernel.rules, desired.protocol).items():
        reasons[rule] = f"{_taken(other, protocol)}; this rule would have to come before it"
    return {rule: reasons[rule] for rule in desired.rules or ()}


def _taken(item: Rule | Route, protocol: int) -> str:
    return f"{item} is there and belongs to {known_programs.owner(item, [protocol])}"
