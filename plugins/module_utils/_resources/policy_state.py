# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules and routes in the running kernel that carry our protocol."""

from __future__ import annotations

import itertools
import typing as t

from .._converge import Plan, Plane, Step
from .._model import fields, policy, rt_names
from .._model.gateways import Gateways, resolved
from .._model.policy import Policy
from .._model.problem import Invalid, Refusal
from .._model.route import Hop, Route
from .._model.rule import GOTO, Rule
from .._system import netlink
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
        # What is to be there decides which gateways are near, and not what is to go.
        theirs = (route for route, protocol in observed.routes if protocol != self._policy.protocol)
        neighbours = Gateways(itertools.chain(self._policy.routes or (), theirs))
        wish = resolved(self._policy, neighbours) if self._wish else self._policy
        rules = self._changes(wish.rules, observed.rules)
        routes = self._changes(wish.routes, observed.routes)
        if rules.added:
            _refuse_conflicts(wish, rules.added, observed.rules)
            _check_targets(wish, rules.added, observed.rules)
        if routes.added:
            _refuse_conflicts(wish, routes.added, observed.routes)
            _check_hops(wish, routes.added, observed.links, neighbours)
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
            removed = list(ours) if wishes is None else policy.taken(ours, wishes)
            return Changes((), removed, len(ours) - len(removed))
        wished = {wish: None for wish in wishes or ()}
        missing = [wish for wish in wished if wish not in ours]
        theirs = _owners(missing, held)
        kept = len(wished) - len(missing)
        return Changes(
            [wish for wish in missing if wish not in theirs],
            [item for item in ours if item not in wished] if len(ours) > kept else [],
            kept,
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
                step = Apply(self._policy.protocol, tuple(changes))
                summary = f"{verb} {len(changes)} {noun}" if len(changes) > 1 else f"{verb} {changes[0].item}"
                yield Step(summary, step, step.inverse())

    def perform(self, operation: netlink.Operation) -> None:
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


def _refuse_conflicts(wish: Policy, added: t.Sequence[t.Any], held: t.Sequence[Held]) -> None:
    """Another's object with our key and another meaning stays: two programs would fight, and ours might come second."""
    keys = {item.key: item for item in added}
    for item, protocol in held:
        if protocol != wish.protocol and item.key in keys:
            ours = keys[item.key]
            choice = "priority" if isinstance(ours, Rule) else "metric or table"
            raise Refusal(
                f"{wish.option(ours)} can not be added: it is {ours}, and {item} is there and belongs to"
                f" {rt_names.owner([protocol])}. Nothing was changed. Choose another {choice}, or have its owner remove it"
            )


def _check_targets(wish: Policy, added: t.Sequence[Rule], held: t.Sequence[Held]) -> None:
    jumps = [rule for rule in added if rule.action == GOTO]
    if jumps:
        there = {rule.place for rule in (*(wish.rules or ()), *(item for item, _protocol in held))}
        for jump in jumps:
            if (jump.family, jump.goto) not in there:
                allowed = f"the priority of a rule that is listed or there, of the same family, for {jump}"
                raise Invalid(f"{wish.option(jump)}.goto", jump.goto, allowed)


def _check_hops(wish: Policy, added: t.Sequence[Route], links: t.Collection[str], neighbours: Gateways) -> None:
    """Links and gateways of what is to be added. The kernel has the last word; this is so that it need not be asked."""
    hops: dict[tuple[int, Hop], Route] = {}  # pods share their gateways
    for route in added:
        for hop in route.hops:
            hops.setdefault((route.family, hop), route)
    for (family, hop), route in hops.items():
        if hop.dev not in links:
            raise Invalid(f"{wish.option(route, hop)}.dev", hop.dev, f"a link of this node, for {route}")
        if hop.via and not hop.onlink and not neighbours.include(family, hop):
            allowed = f"a neighbour on {hop.dev} by another route, or onlink be true, for {route}"
            raise Invalid(f"{wish.option(route, hop)}.via", fields.show(hop.via), allowed)


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
