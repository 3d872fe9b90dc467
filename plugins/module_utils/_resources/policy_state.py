# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules and routes in the running kernel that carry our protocol."""

from __future__ import annotations

import typing as t

from .._converge import Plan, Plane, Step
from .._model import rt_names
from .._model.fields import IPV6, Prefix, contains
from .._model.policy import Policy
from .._model.problem import Invalid, Refusal
from .._model.route import Hop, Route
from .._model.rule import GOTO, Rule
from .._system.netlink import ADD, CHANGE, DELETE, Apply, Change, Held, Netlink

Item = t.TypeVar("Item", Rule, Route)


class Observed(t.NamedTuple):
    """rules, routes: what the kernel holds, in its order; empty for a list that is not managed. links: their names."""

    rules: t.Sequence[Held]
    routes: t.Sequence[Held]
    links: frozenset[str]


class Changes(t.NamedTuple):
    """What a plan does to one of the two lists.

    kept: how many of ours stay. satisfied: wishes that another protocol's equal object fulfils, with its protocols.
    """

    added: t.Sequence[t.Any] = ()
    removed: t.Sequence[t.Any] = ()
    kept: int = 0
    satisfied: t.Sequence[tuple[t.Any, t.Collection[int]]] = ()

    def report(self) -> dict[str, t.Any]:
        """The module's result."""
        return {
            "added": [str(item) for item in self.added],
            "removed": [str(item) for item in self.removed],
            "kept": self.kept,
            "satisfied_by": [f"{item} ({rt_names.owner(protocols)})" for item, protocols in self.satisfied],
        }


class PolicyState:
    """Holds what carries the policy's protocol as wished; a list that is None is not looked at.

    rules, routes: what the run does, or would do, for the module's result.

    With ``wish`` false the listed go, or, where both lists are None, all that carry the protocol.
    """

    plane = Plane.IMMEDIATE

    def __init__(self, edge: Netlink, policy: Policy, wish: bool = True) -> None:
        self.name = f"rules and routes of protocol {policy.protocol}"
        self.rules = self.routes = Changes()
        self._edge = edge
        self._policy = policy
        self._wish = wish
        self._is_planned = False
        self._manages_all = not wish and policy.rules is None and policy.routes is None

    def observe(self) -> Observed:
        # A rule may go to another's priority, and a gateway be reached by another's route: neither needs the other list.
        has_rules, has_routes = (
            self._manages_all or items is not None for items in (self._policy.rules, self._policy.routes)
        )
        return Observed(
            self._edge.rules() if has_rules else (),
            self._edge.routes() if has_routes else (),
            frozenset(self._edge.links().values()) if has_routes else frozenset(),
        )

    def plan(self, observed: Observed) -> Plan:
        rules = self._changes(self._policy.rules, observed.rules)
        routes = self._changes(self._policy.routes, observed.routes)
        if rules.added:
            _refuse_conflicts(rules.added, observed.rules, self._policy.protocol)
            _check_targets(rules.added, self._policy.rules or (), observed.rules)
        if routes.added:
            _refuse_conflicts(routes.added, observed.routes, self._policy.protocol)
            _check_links(self._policy.routes or (), routes.added, observed)
        steps = tuple(self._steps(observed, rules, routes))
        if steps or not self._is_planned:  # the proof of a run plans once more, and that is not what the run did
            self.rules, self.routes, self._is_planned = rules, routes, True
        before, after = (
            "".join(f"{item}\n" for item in (*of_rules, *of_routes))
            for of_rules, of_routes in ((rules.removed, routes.removed), (rules.added, routes.added))
        )
        return Plan(steps, before, after)

    def _changes(self, wishes: t.Sequence[Item] | None, held: t.Sequence[Held]) -> Changes:
        if wishes is None and not self._manages_all:
            return Changes()
        ours = {item: None for item, protocol in held if protocol == self._policy.protocol}
        if not self._wish:
            listed = ours if wishes is None else set(wishes)
            removed = [item for item in ours if item in listed]
            return Changes((), removed, len(ours) - len(removed))
        wished = {wish: None for wish in wishes or ()}
        missing = [wish for wish in wished if wish not in ours]
        theirs = _owners(missing, held)
        removed = [item for item in ours if item not in wished]
        return Changes(
            [wish for wish in missing if wish not in theirs],
            removed,
            len(ours) - len(removed),
            [(wish, theirs[wish]) for wish in missing if wish in theirs],
        )

    def _steps(self, observed: Observed, rules: Changes, routes: Changes) -> t.Iterator[Step]:
        """Routes in, rules in, rules out, routes out: a packet never meets a rule whose table is not filled yet."""
        routes_in, routes_out = _route_changes(routes, observed.routes, self._policy.protocol)
        rules_in, rules_out = (
            [Change(ADD, rule) for rule in rules.added],
            [Change(DELETE, rule) for rule in rules.removed],
        )
        phases = (
            ("add", "routes", routes_in),
            ("add", "rules", rules_in),
            ("remove", "rules", rules_out),
            ("remove", "routes", routes_out),
        )
        for verb, noun, changes in phases:
            if changes:
                inverse = tuple(change.inverse() for change in reversed(changes))
                summary = f"{verb} {len(changes)} {noun}" if len(changes) > 1 else f"{verb} {changes[0].item}"
                yield Step(summary, self._apply(changes), self._apply(inverse))

    def _apply(self, changes: t.Iterable[Change]) -> Apply:
        return Apply(self._policy.protocol, tuple(changes))

    def perform(self, operation: Apply) -> None:
        self._edge.perform(operation)


def _owners(items: t.Collection[t.Any], held: t.Sequence[Held]) -> dict[t.Any, set[int]]:
    """Under which protocols the kernel holds the very same."""
    wanted = set(items)
    found: dict[t.Any, set[int]] = {}
    if wanted:
        for item, protocol in held:
            if item in wanted:
                found.setdefault(item, set()).add(protocol)
    return found


def _refuse_conflicts(added: t.Sequence[t.Any], held: t.Sequence[Held], ours: int) -> None:
    """Another's object with our key and another meaning stays: two programs would fight, and ours might come second."""
    keys = {item.key: item for item in added}
    for item, protocol in held:
        if protocol != ours and item.key in keys:
            wish = keys[item.key]
            choice = "priority" if isinstance(wish, Rule) else "metric or table"
            raise Refusal(
                f"{wish} can not be added: {item} is there and belongs to {rt_names.owner([protocol])}. Nothing was changed."
                f" Choose another {choice}, or have its owner remove it"
            )


def _check_targets(added: t.Sequence[Rule], wishes: t.Sequence[Rule], held: t.Sequence[Held]) -> None:
    jumps = [rule for rule in added if rule.action == GOTO]
    if jumps:
        there = {(rule.family, rule.priority) for rule in (*wishes, *(item for item, _protocol in held))}
        for jump in jumps:
            if (jump.family, jump.goto) not in there:
                raise Invalid("rules", str(jump), f"without a goto to {jump.goto}, where no rule is or will be")


def _check_links(wishes: t.Sequence[Route], added: t.Sequence[Route], observed: Observed) -> None:
    """Links and gateways of what is to be added. The kernel has the last word; this is so that it need not be asked."""
    connected = [route for route in (*wishes, *(item for item, _protocol in observed.routes)) if route.is_connected]
    neighbours = {(hop.dev, route.family, route.dst) for route in connected for hop in route.hops if not hop.via}
    hops = {(route.family, hop): route for route in added for hop in route.hops}  # pods share their gateways
    for (family, hop), route in hops.items():
        if hop.dev not in observed.links:
            raise Invalid("routes", str(route), f"over a link of this node; {hop.dev} is none")
        if hop.via and not hop.onlink and not _is_neighbour(family, hop, neighbours):
            allowed = f"by a neighbour: no route says that its gateway is on {hop.dev}; set onlink if it is"
            raise Invalid("routes", str(route), allowed)


def _is_neighbour(family: int, hop: Hop, neighbours: t.Collection[tuple[str, int, Prefix]]) -> bool:
    if family == IPV6 and hop.via[0] == 0xFE and hop.via[1] & 0xC0 == 0x80:  # link-local, RFC 4291 section 2.5.6
        return True
    return any((dev, of) == (hop.dev, family) and contains(prefix, hop.via) for dev, of, prefix in neighbours)


def _route_changes(changes: Changes, held: t.Sequence[Held], ours: int) -> tuple[list[Change], list[Change]]:
    """A route of ours at the key of a new one is changed in one message: the key is never without a route.

    Of several at one key, which somebody appended, the kernel takes the first (fib_table_insert).
    """
    if not changes.added:
        return [], [Change(DELETE, route) for route in reversed(changes.removed)]
    first: dict[t.Any, Route] = {}
    for item, protocol in held:
        if protocol == ours:
            first.setdefault(item.key, item)
    removed = set(changes.removed)
    coming, taken = [], set()
    # A gateway is looked up when a route by it is added, so that its own route comes first.
    for route in sorted(changes.added, key=lambda route: not route.is_connected):
        former = first.get(route.key)
        if former in removed:
            coming.append(Change(CHANGE, route, former))
            taken.add(former)
        else:
            coming.append(Change(ADD, route))
    return coming, [Change(DELETE, route) for route in reversed(changes.removed) if route not in taken]
