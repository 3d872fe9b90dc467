# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules and routes in the running kernel that carry our protocol."""

from __future__ import annotations

import collections
import itertools
import operator
import typing as t

from .._core import fields
from .._core.converge import Backend, Plan, Plane, Step
from .._core.errors import Invalid, Refusal
from . import policy, rt_names, rule_order
from .gateways import Gateways, resolved
from .policy import Policy
from .route import LOCAL, Route
from .routing_backend import ADD, CHANGE, DELETE, Apply, Arrange, Change, Netlink, Owned
from .rule import GOTO, Rule
from .rule_order import Order, Place

PLACE = operator.itemgetter(0, 1)  # of a rule: family and priority
MOST_PAIRS = 200_000  # of rules that are compared for overlaps; a tenth of a second


class Observed(t.NamedTuple):
    """rules, routes: what the kernel holds, in its order; empty for a list that is not managed. links: their names."""

    rules: t.Sequence[Owned]
    routes: t.Sequence[Owned]
    links: frozenset[str]


class Changes(t.NamedTuple):
    """What a plan does to one of the two lists.

    added, removed: a rule that moves is in both, as it is added at its new place and removed from the former.
    kept: how many of ours stay. satisfied: desired objects that another protocol's equal object fulfils, with its protocols.
    orders: what becomes of rules, place by place.
    """

    added: t.Sequence[t.Any] = ()
    removed: t.Sequence[t.Any] = ()
    kept: int = 0
    satisfied: t.Sequence[tuple[t.Any, t.Collection[int]]] = ()
    orders: tuple[Order, ...] = ()

    def report(self) -> dict[str, t.Any]:
        """The module's result."""
        return {
            "added": [str(item) for item in self.added],
            "removed": [str(item) for item in self.removed],
            "kept": self.kept,
            "satisfied_by": [f"{item} ({rt_names.owner(protocols)})" for item, protocols in self.satisfied],
        }


class Report(t.NamedTuple):
    """What a plan does to both lists."""

    rules: Changes = Changes()
    routes: Changes = Changes()


class LivePolicy:
    """Holds what carries the policy's protocol as desired; a list that is None is not looked at. Reports a Report.

    With ``desired`` false the listed go, or, where both lists are None, all that carry the protocol.
    """

    plane = Plane.IMMEDIATE

    def __init__(self, backend: Netlink, policy: Policy, desired: bool = True) -> None:
        self.name = f"rules and routes of protocol {policy.protocol}"
        self._backend = backend
        self._policy = policy
        self._desired = desired
        self._manages_all = not desired and policy.rules is None and policy.routes is None

    def observe(self) -> Observed:
        # A rule may go to another's priority, and a gateway be reached by another's route: neither needs the other list.
        has_rules, has_routes = (
            self._manages_all or items is not None for items in (self._policy.rules, self._policy.routes)
        )
        return Observed(
            self._backend.rules() if has_rules else (),
            self._backend.routes() if has_routes else (),
            frozenset(self._backend.links().values()) if has_routes else frozenset(),
        )

    def plan(self, observed: Observed) -> Plan:
        # Gateways are resolved against the desired routes, not against routes about to be removed.
        theirs = (route for route, protocol in observed.routes if protocol != self._policy.protocol or route.unread)
        neighbours = Gateways(itertools.chain(self._policy.routes or (), theirs))
        desired = resolved(self._policy, neighbours) if self._desired else self._policy
        rules = self._rule_changes(desired.rules, observed.rules)
        routes = self._route_changes(desired.routes, observed.routes)
        if rules.added:
            ours = {rule for rule, protocol in observed.rules if protocol == desired.protocol}
            new = [rule for rule in rules.added if rule not in ours]
            _refuse_conflicts(desired, new, observed.rules)
            _check_targets(desired, new, observed.rules)
        if 0 < len(rules.satisfied) < len(desired.rules or ()):
            _refuse_misplaced(desired, _moved(observed.rules, rules.orders, desired.protocol))
        if routes.added:
            _refuse_conflicts(desired, routes.added, observed.routes)
            _check_routes(desired, routes.added, observed.links, neighbours)
        steps = tuple(self._steps(observed, rules, routes))
        before, after = _shown(rules)
        return Plan(
            steps,
            "".join(f"{item}\n" for item in (*before, *routes.removed)),
            "".join(f"{item}\n" for item in (*after, *routes.added)),
            Report(rules, routes),
        )

    def _route_changes(self, listed: t.Sequence[Route] | None, current: t.Sequence[Owned]) -> Changes:
        if listed is None and not self._manages_all:
            return Changes()
        ours = {route: None for route, protocol in current if protocol == self._policy.protocol and not route.unread}
        if not self._desired:
            removed = list(ours) if listed is None else policy.taken(ours, listed)
            return Changes((), removed, len(ours) - len(removed))
        desired = {route: None for route in listed or ()}
        missing = [route for route in desired if route not in ours]
        theirs = _owners(missing, current)
        kept = len(desired) - len(missing)
        return Changes(
            [route for route in missing if route not in theirs],
            [item for item in ours if item not in desired] if len(ours) > kept else [],
            kept,
            [(route, theirs[route]) for route in missing if route in theirs],
        )

    def _rule_changes(self, listed: t.Sequence[Rule] | None, current: t.Sequence[Owned]) -> Changes:
        if listed is None and not self._manages_all:
            return Changes()
        ours = [rule for rule, protocol in current if protocol == self._policy.protocol and not rule.opaque]
        if not self._desired:
            gone = set(ours) if listed is None else set(policy.taken(ours, listed))
            last = dict.fromkeys(rule for rule in reversed(ours) if rule not in gone)
            return _arranged(list(reversed(last)), {}, current, self._policy.protocol, is_free=True)
        in_order = sorted(listed or (), key=PLACE)
        if ours == in_order:  # as in nearly every run
            return Changes(kept=len(ours))
        there, desired = set(ours), list(dict.fromkeys(listed or ()))
        missing = [rule for rule in desired if rule not in there]
        theirs = _owners(missing, current)
        is_whole = len(theirs) == len(missing) and len(ours) == len(there) == len(desired) - len(missing)
        if is_whole and not _is_out_of_order(ours, in_order, theirs):
            return Changes(kept=len(ours), satisfied=[(rule, theirs[rule]) for rule in missing])
        return _arranged(desired, theirs, current, self._policy.protocol)

    def _steps(self, observed: Observed, rules: Changes, routes: Changes) -> t.Iterator[Step]:
        """Routes in, rules in, rules out, routes out: a packet never meets a rule whose table is not filled yet."""
        routes_in, routes_out = _messages(routes, observed.routes, self._policy.protocol)
        if routes_in:
            yield self._route_step("add", routes_in)
        if rules.orders:
            step = Arrange(self._policy.protocol, rules.orders)
            parts = (("add", rules.added), ("remove", rules.removed))
            summary = " and ".join(f"{verb} {_few(items, 'rules')}" for verb, items in parts if items)
            yield Step(summary, step, step.inverse())
        if routes_out:
            yield self._route_step("remove", routes_out)

    def _route_step(self, verb: str, changes: t.Sequence[Change]) -> Step:
        step = Apply(self._policy.protocol, tuple(changes))
        return Step(f"{verb} {_few([change.item for change in changes], 'routes')}", step, step.inverse())

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend,)


def _few(items: t.Sequence[t.Any], noun: str) -> str:
    return f"{len(items)} {noun}" if len(items) > 1 else str(items[0])


def _is_out_of_order(ours: t.Sequence[Rule], in_order: t.Sequence[Rule], theirs: t.Collection[Rule]) -> bool:
    """Whether a packet could tell the order of ours, or of ours among foreign rules that are desired, from ``in_order``."""
    own = [rule for rule in in_order if rule not in theirs] if theirs else in_order
    places = {PLACE(rule) for rule, other in zip(ours, own) if rule != other}
    if theirs:
        places |= set(map(PLACE, own)).intersection(map(PLACE, theirs))
    lists: dict[Place, list[Rule]] = {place: [] for place in places}
    for rule in in_order if places else ():
        if PLACE(rule) in lists:
            lists[PLACE(rule)].append(rule)
    return any(map(rule_order.counts, lists.values()))


def _arranged(
    desired: t.Sequence[Rule],
    theirs: t.Mapping[Rule, t.Collection[int]],
    current: t.Sequence[Owned],
    protocol: int,
    is_free: bool = False,
) -> Changes:
    """From the rules that the kernel holds to ``desired``. theirs: those of the desired rules that are foreign.

    is_free: their order does not matter, none of them is new.
    """
    standing: dict[Place, list[tuple[int, Rule]]] = {}
    foreign: dict[Place, list[tuple[int, Rule]]] = {}
    for index, (rule, owner) in enumerate(current):
        (standing if owner == protocol and not rule.opaque else foreign).setdefault(rule.place, []).append(
            (index, rule)
        )
    lists: dict[Place, list[Rule]] = {}
    for rule in desired:
        lists.setdefault(rule.place, []).append(rule)
    parts = [
        _Arranged(standing.get(place, []), foreign.get(place, []), lists.get(place, []), theirs, is_free)
        for place in sorted({*standing, *lists})
    ]
    added = {rule for part in parts for rule in part.added}
    return Changes(
        [rule for rule in desired if rule in added],
        [rule for part in parts for rule in part.removed],
        sum(part.kept for part in parts),
        [(rule, theirs[rule]) for rule in desired if rule in theirs],
        tuple(part.order for part in parts if part.order),
    )


class _Arranged:
    """The rules of one place."""

    def __init__(
        self,
        standing: t.Sequence[tuple[int, Rule]],
        foreign: t.Sequence[tuple[int, Rule]],
        desired: list[Rule],
        theirs: t.Container[Rule],
        is_free: bool,
    ) -> None:
        self.order: Order | None = None
        former = [rule for _index, rule in standing]
        if former == desired:
            self.added, self.removed, self.kept = [], [], len(former)
            return
        last = {rule: index for index, rule in standing}
        own = [rule for rule in desired if rule not in theirs]
        if is_free or not rule_order.counts(desired):
            there = sorted((rule for rule in own if rule in last), key=last.__getitem__)
            own = [*there, *(rule for rule in own if rule not in last)]
            self.kept = sum(rule in last for rule in own)
        else:
            first = {rule: index for index, rule in reversed(foreign) if rule in theirs}
            self.kept = rule_order.staying(desired, last, first)
        staying = {last[rule] for rule in own[: self.kept]}
        going = [(index, rule) for index, rule in standing if index not in staying]
        self.added = own[self.kept :]
        self.removed = [rule for _index, rule in going]
        if self.added or going:
            same = 0 if rule_order.may_be_mistaken(former) else _same(former, own[: self.kept])
            overtaken = _overtaken(going, foreign)
            self.order = Order(tuple(former[same:]), tuple(own[same:]), self.kept - same, overtaken)


def _same(former: t.Sequence[Rule], own: t.Sequence[Rule]) -> int:
    """How many rules stay at the beginning, which need not be named; none where one stands twice."""
    if len(set(former)) < len(former):
        return 0
    pairs = enumerate(zip(former, own))
    return next((index for index, (one, other) in pairs if one != other), min(len(former), len(own)))


def _overtaken(
    going: t.Sequence[tuple[int, Rule]], foreign: t.Sequence[tuple[int, Rule]]
) -> tuple[tuple[Rule, Rule], ...]:
    """See rule_order.Order. Where thousands of ours stand among thousands of others, these are not compared one by one."""
    if len(going) * len(foreign) > MOST_PAIRS or not rule_order.counts([rule for _index, rule in (*going, *foreign)]):
        return ()
    return tuple(
        (rule, other)
        for index, rule in going
        for at, other in foreign
        if at > index and rule_order.conflict(rule, other)
    )


def _shown(rules: Changes) -> tuple[list[Rule], list[Rule]]:
    """What the diff shows. Where a rule moves, those are shown as well that it steps over."""
    moving = set(rules.added).intersection(rules.removed)
    moved = [order for order in rules.orders if moving.intersection(order.after)]
    places = {order.place for order in moved}
    before = [rule for rule in rules.removed if rule.place not in places]
    after = [rule for rule in rules.added if rule.place not in places]
    return (
        [*before, *(rule for order in moved for rule in order.before)],
        [*after, *(rule for order in moved for rule in order.after)],
    )


def _owners(items: t.Collection[t.Any], current: t.Sequence[Owned]) -> dict[t.Any, set[int]]:
    """Under which protocols the kernel holds the very same."""
    wanted = set(items)
    found: dict[t.Any, set[int]] = {}
    if wanted:
        for item, protocol in current:
            if item in wanted:
                found.setdefault(item, set()).add(protocol)
    return found


def _refuse_conflicts(desired: Policy, added: t.Sequence[t.Any], current: t.Sequence[Owned]) -> None:
    """Another's object with our key and another meaning stays: two programs would fight, and ours might come second.

    What we can not read is not ours, whatever it carries.
    """
    keys = {item.key: item for item in added}
    if not keys:
        return
    for item, protocol in current:
        if item.key in keys and (protocol != desired.protocol or _is_unread(item)):
            ours = keys[item.key]
            choice = "priority" if isinstance(ours, Rule) else "metric or table"
            raise Refusal(
                f"{desired.option(ours)} can not be added: it is {ours}, and {item} is there and belongs to"
                f" {rt_names.owner([protocol])}. Nothing was changed. Choose another {choice}, or have its owner remove it"
            )


def _is_unread(item: Rule | Route) -> bool:
    return bool(item.opaque if isinstance(item, Rule) else item.unread)


def _moved(current: t.Sequence[Owned], orders: t.Sequence[Order], protocol: int) -> list[Owned]:
    """The rules as the orders leave them, in order within a place. A rule that was to stay may have to step behind."""
    messages = rule_order.messages([rule for rule, owner in current if owner == protocol], orders)
    going = collections.Counter(messages.deleted)
    moved: list[Owned] = []
    for rule, owner in (*current, *((rule, protocol) for rule in messages.added)):
        if owner == protocol and going[rule] > 0:
            going[rule] -= 1  # of several that are alike the kernel deletes the first
        else:
            moved.append((rule, owner))
    return moved


def _refuse_misplaced(desired: Policy, current: t.Sequence[Owned]) -> None:
    """A foreign rule that does the work of one of ours does not, where it stands before one that has to come before it.

    held: the rules as the run leaves them.
    """
    for rule, (other, protocol) in rule_order.misplaced(desired.rules or (), current, desired.protocol).items():
        raise Refusal(
            f"{desired.option(rule)} can not stand before {desired.option(other)}, as it is listed: it is {rule}, and {other} is"
            f" there and belongs to {rt_names.owner([protocol])}; the kernel adds a rule behind those of its priority. Nothing"
            " was changed. Give it a lower priority, or have the owner remove the other"
        )


def _check_targets(desired: Policy, added: t.Sequence[Rule], current: t.Sequence[Owned]) -> None:
    jumps = [rule for rule in added if rule.action == GOTO]
    if jumps:
        there = {rule.place for rule in (*(desired.rules or ()), *(item for item, _protocol in current))}
        for jump in jumps:
            if (jump.family, jump.goto) not in there:
                allowed = f"the priority of a rule that is listed or there, of the same family, for {jump}"
                raise Invalid(f"{desired.option(jump)}.goto", jump.goto, allowed)


def _check_routes(desired: Policy, added: t.Sequence[Route], links: t.Collection[str], neighbours: Gateways) -> None:
    """Links, gateways and sources of what is to be added. The kernel has the last word; this is so that it need not be asked."""
    for route in _with_different(
        lambda route: (route.family, route.table, route.hops), added
    ):  # pods share their gateways
        for hop in route.hops:
            if hop.dev not in links:
                raise Invalid(f"{desired.option(route, hop)}.dev", hop.dev, f"a link of this node, for {route}")
            allowed = neighbours.lack(route, hop)
            if allowed:
                raise Invalid(f"{desired.option(route, hop)}.via", fields.show(hop.via), f"{allowed}, for {route}")
    for route in _with_different(lambda route: (route.table, route.src, route.hops), (one for one in added if one.src)):
        allowed = neighbours.lack_of_source(route)
        if allowed:
            raise Invalid(f"{desired.option(route)}.src", fields.show(route.src), f"{allowed}, for {route}")


def _with_different(what: t.Callable[[Route], t.Any], routes: t.Iterable[Route]) -> t.Iterable[Route]:
    """The first of those that have something in common."""
    found: dict[t.Any, Route] = {}
    for route in routes:
        found.setdefault(what(route), route)
    return found.values()


def _messages(changes: Changes, current: t.Sequence[Owned], ours: int) -> tuple[list[Change], list[Change]]:
    """A route of ours at the key of a new one is changed in one message: the key is never without a route.

    Of several at one key, which somebody appended, the kernel takes the first (fib_table_insert).
    """
    if not changes.added:
        return [], [Change(DELETE, route) for route in reversed(changes.removed)]
    first: dict[t.Any, Route] = {}
    for item, protocol in current:
        if protocol == ours and not item.unread:
            first.setdefault(item.key, item)
    removed = set(changes.removed)
    coming, taken = [], set()
    # A gateway and a source are looked up when a route with it is added, so that their own routes come first.
    for route in sorted(changes.added, key=lambda route: (route.type != LOCAL, not route.is_connected)):
        former = first.get(route.key)
        if former in removed:
            coming.append(Change(CHANGE, route, former))
            taken.add(former)
        else:
            coming.append(Change(ADD, route))
    return coming, [Change(DELETE, route) for route in reversed(changes.removed) if route not in taken]
