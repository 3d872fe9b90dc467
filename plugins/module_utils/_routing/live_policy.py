# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules and routes of one protocol in the running kernel."""

from __future__ import annotations

import collections
import itertools
import operator
import typing as t

from .._core import fields
from .._core.errors import Invalid, Refusal
from .._core.plan import Backend, Plan, Plane, Step, whole
from . import known_programs, policy, rt_names, rule_order
from .gateways import Gateways, resolved
from .policy import Policy
from .route import LOCAL, Route
from .routing_backend import ADD, CHANGE, DELETE, Apply, Arrange, Change, Netlink, Owned
from .rule import GOTO, Rule
from .rule_order import Order, Place

PLACE = operator.itemgetter(0, 1)  # of a rule: family and priority
MOST_PAIRS = 200_000  # of rules to compare for overlaps; this many take a tenth of a second


class ObservedPolicy(t.NamedTuple):
    """rules, routes: those of the kernel, in its order; empty for a list that is not managed. links: the names of the links."""

    rules: t.Sequence[Owned]
    routes: t.Sequence[Owned]
    links: frozenset[str]


class Changes(t.NamedTuple):
    """The changes that a plan makes to one of the two lists.

    added, removed: a rule that moves is in both, because it is added at its new place and removed from the old one.
    kept: how many objects of the policy's protocol stay.
    satisfied: desired objects that a foreign object satisfies, because it is equal or does the same in another way, each with the
        protocols of the foreign objects.
    orders: the orders of the rules that change, one for each place.
    """

    added: t.Sequence[t.Any] = ()
    removed: t.Sequence[t.Any] = ()
    kept: int = 0
    satisfied: t.Sequence[tuple[t.Any, t.Collection[int]]] = ()
    orders: tuple[Order, ...] = ()

    def report(self) -> dict[str, t.Any]:
        """Return the value of ``rules`` or ``routes`` in the module's result."""
        return {
            "added": [str(item) for item in self.added],
            "removed": [str(item) for item in self.removed],
            "kept": self.kept,
            "satisfied_by": [
                {"object": str(item), "owner": known_programs.owner(item, protocols), "protocol": rt_names.protocols(protocols)}
                for item, protocols in self.satisfied
            ],
        }


class Report(t.NamedTuple):
    """The changes that a plan makes to both lists."""

    rules: Changes = Changes()
    routes: Changes = Changes()


class LivePolicy:
    """Makes the rules and routes of the policy's protocol equal to its lists. A list that is None is not managed.

    With ``desired`` false, the listed objects are removed, or, if both lists are None, all objects of the protocol. Plans carry a
    Report.
    """

    plane = Plane.IMMEDIATE

    def __init__(self, backend: Netlink, policy: Policy, desired: bool = True) -> None:
        self.name = f"rules and routes of protocol {policy.protocol}"
        self._backend = backend
        self._policy = policy
        self._desired = desired
        self._manages_all = not desired and policy.rules is None and policy.routes is None

    def observe(self) -> ObservedPolicy:
        # A goto may target a foreign rule, and a foreign route may reach a gateway, so both lists include foreign objects. But
        # rules do not depend on routes, nor routes on rules: a list that is not managed is not read.
        has_rules, has_routes = (self._manages_all or items is not None for items in (self._policy.rules, self._policy.routes))
        return ObservedPolicy(
            self._backend.rules() if has_rules else (),
            self._backend.routes() if has_routes else (),
            frozenset(self._backend.links().values()) if has_routes else frozenset(),
        )

    def changes(self, observed: ObservedPolicy) -> tuple[Policy, Report]:
        """Return what the policy lacks or has too much, and the policy with its gateways, without the rules that others serve."""
        # Gateways are resolved against the desired routes, not against routes about to be removed.
        desired = resolved(self._policy, self._neighbours(observed)) if self._desired else self._policy
        rules = self._rule_changes(desired.rules, observed.rules)
        served = policy.served_by_equivalent_tables(desired, rules.added, *observed[:2]) if self._desired else {}
        if served:
            desired = desired.without_rules(served)
            rules = self._rule_changes(desired.rules, observed.rules)
            further = [(other, [protocol]) for other, protocol in served.values()]
            rules = rules._replace(satisfied=[*rules.satisfied, *further])
        return desired, Report(rules, self._route_changes(desired.routes, observed.routes))

    def _neighbours(self, observed: ObservedPolicy) -> Gateways:
        foreign = (route for route, protocol in observed.routes if protocol != self._policy.protocol or route.unread)
        return Gateways(itertools.chain(self._policy.routes or (), foreign))

    def plan(self, observed: ObservedPolicy) -> Plan:
        desired, (rules, routes) = self.changes(observed)
        if rules.added:
            own_rules = {rule for rule, protocol in observed.rules if protocol == desired.protocol}
            new = [rule for rule in rules.added if rule not in own_rules]
            _refuse_conflicts(desired, new, observed.rules)
            _check_targets(desired, new, observed.rules)
        if 0 < len(rules.satisfied) < len(desired.rules or ()):
            _refuse_misplaced(desired, _moved(observed.rules, rules.orders, desired.protocol))
        if routes.added:
            _refuse_conflicts(desired, routes.added, observed.routes)
            _check_routes(desired, routes.added, observed.links, self._neighbours(observed))
        steps = tuple(self._steps(observed, rules, routes))
        before, after = _both_lists(rules)
        texts = whole(
            "".join(f"{item}\n" for item in (*before, *routes.removed)),
            "".join(f"{item}\n" for item in (*after, *routes.added)),
        )
        return Plan(steps, texts, Report(rules, routes))

    def _route_changes(self, listed: t.Sequence[Route] | None, current: t.Sequence[Owned]) -> Changes:
        if listed is None and not self._manages_all:
            return Changes()
        own_routes = {route: None for route, protocol in current if protocol == self._policy.protocol and not route.unread}
        if not self._desired:
            removed = list(own_routes) if listed is None else policy.taken(own_routes, listed)
            return Changes((), removed, len(own_routes) - len(removed))
        desired = {route: None for route in listed or ()}
        missing = [route for route in desired if route not in own_routes]
        paths = {route.path: route for route in missing}
        foreign = [(route, owner) for route, owner in current if paths and owner != self._policy.protocol and route.path in paths]
        satisfied = {
            paths[path]: owners for path, owners in _owners(paths, ((route.path, owner) for route, owner in foreign)).items()
        }
        unread_at = {paths[route.path]: route for route, _owner in foreign if route.unread}
        unchanged = len(desired) - len(missing)
        return Changes(
            [route for route in missing if route not in satisfied],
            [item for item in own_routes if item not in desired] if len(own_routes) > unchanged else [],
            unchanged,
            [(unread_at.get(route, route), satisfied[route]) for route in missing if route in satisfied],
        )

    def _rule_changes(self, listed: t.Sequence[Rule] | None, current: t.Sequence[Owned]) -> Changes:
        if listed is None and not self._manages_all:
            return Changes()
        own_protocol = self._policy.protocol
        own_rules = [rule for rule, protocol in current if protocol == own_protocol and not rule.opaque]
        if not self._desired:
            gone = set(own_rules) if listed is None else set(policy.taken(own_rules, listed))
            last = dict.fromkeys(rule for rule in reversed(own_rules) if rule not in gone)
            return _arranged(list(reversed(last)), {}, current, self._policy.protocol, is_free=True)
        in_order = sorted(listed or (), key=PLACE)
        if own_rules == in_order:  # as in nearly every run
            return Changes(kept=len(own_rules))
        distinct, desired = set(own_rules), list(dict.fromkeys(listed or ()))
        missing = [rule for rule in desired if rule not in distinct]
        satisfied = _owners(missing, current)
        is_whole = len(satisfied) == len(missing) and len(own_rules) == len(distinct) == len(desired) - len(missing)
        if is_whole and not _is_out_of_order(own_rules, in_order, satisfied):
            return Changes(kept=len(own_rules), satisfied=[(rule, satisfied[rule]) for rule in missing])
        return _arranged(desired, satisfied, current, self._policy.protocol)

    def _steps(self, observed: ObservedPolicy, rules: Changes, routes: Changes) -> t.Iterator[Step]:
        """Add routes, add rules, remove rules, remove routes: a packet never meets a rule whose table lacks its routes."""
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


def _is_out_of_order(own_rules: t.Sequence[Rule], in_order: t.Sequence[Rule], satisfied: t.Collection[Rule]) -> bool:
    """Return whether a packet could tell the current order of the rules from ``in_order``, the desired one.

    own_rules: the current rules of the policy's protocol. satisfied: the desired rules that foreign rules satisfy. Where both
    have one priority, their order is not compared, and counts as wrong if order matters there at all.
    """
    unsatisfied = [rule for rule in in_order if rule not in satisfied] if satisfied else in_order
    places = {PLACE(rule) for rule, other in zip(own_rules, unsatisfied) if rule != other}
    if satisfied:
        places |= set(map(PLACE, unsatisfied)).intersection(map(PLACE, satisfied))
    lists: dict[Place, list[Rule]] = {place: [] for place in places}
    for rule in in_order if places else ():
        if PLACE(rule) in lists:
            lists[PLACE(rule)].append(rule)
    return any(map(rule_order.counts, lists.values()))


def _arranged(
    desired: t.Sequence[Rule],
    satisfied: t.Mapping[Rule, t.Collection[int]],
    current: t.Sequence[Owned],
    protocol: int,
    is_free: bool = False,
) -> Changes:
    """Return the changes that lead from the current rules to ``desired``.

    satisfied: the desired rules that foreign rules satisfy, with the protocols of these.
    is_free: the order does not matter, and no rule is new.
    """
    standing: dict[Place, list[tuple[int, Rule]]] = {}
    foreign: dict[Place, list[tuple[int, Rule]]] = {}
    for index, (rule, owner) in enumerate(current):
        (standing if owner == protocol and not rule.opaque else foreign).setdefault(rule.place, []).append((index, rule))
    lists: dict[Place, list[Rule]] = {}
    for rule in desired:
        lists.setdefault(rule.place, []).append(rule)
    parts = [
        _Arranged(standing.get(place, []), foreign.get(place, []), lists.get(place, []), satisfied, is_free)
        for place in sorted({*standing, *lists})
    ]
    added = {rule for part in parts for rule in part.added}
    return Changes(
        [rule for rule in desired if rule in added],
        [rule for part in parts for rule in part.removed],
        sum(part.kept for part in parts),
        [(rule, satisfied[rule]) for rule in desired if rule in satisfied],
        tuple(part.order for part in parts if part.order),
    )


class _Arranged:
    """The changes to the rules of one place. The lists hold rules with their positions among all rules of the kernel."""

    def __init__(
        self,
        standing: t.Sequence[tuple[int, Rule]],
        foreign: t.Sequence[tuple[int, Rule]],
        desired: list[Rule],
        satisfied: t.Container[Rule],
        is_free: bool,
    ) -> None:
        self.order: Order | None = None
        former = [rule for _index, rule in standing]
        if former == desired:
            self.added, self.removed, self.kept = [], [], len(former)
            return
        last = {rule: index for index, rule in standing}
        own_rules = [rule for rule in desired if rule not in satisfied]
        if is_free or not rule_order.counts(desired):
            standing_own = sorted((rule for rule in own_rules if rule in last), key=last.__getitem__)
            own_rules = [*standing_own, *(rule for rule in own_rules if rule not in last)]
            self.kept = sum(rule in last for rule in own_rules)
        else:
            first = {rule: index for index, rule in reversed(foreign) if rule in satisfied}
            self.kept = rule_order.staying(desired, last, first)
        staying = {last[rule] for rule in own_rules[: self.kept]}
        going = [(index, rule) for index, rule in standing if index not in staying]
        self.added = own_rules[self.kept :]
        self.removed = [rule for _index, rule in going]
        if self.added or going:
            same = 0 if rule_order.may_be_mistaken(former) else _same(former, own_rules[: self.kept])
            overtaken = _overtaken(going, foreign)
            self.order = Order(tuple(former[same:]), tuple(own_rules[same:]), self.kept - same, overtaken)


def _same(former: t.Sequence[Rule], desired: t.Sequence[Rule]) -> int:
    """Return how many rules at the beginning stay, so that the order need not name them; 0 if a rule occurs twice."""
    if len(set(former)) < len(former):
        return 0
    pairs = enumerate(zip(former, desired))
    return next((index for index, (before, after) in pairs if before != after), min(len(former), len(desired)))


def _overtaken(going: t.Sequence[tuple[int, Rule]], foreign: t.Sequence[tuple[int, Rule]]) -> tuple[tuple[Rule, Rule], ...]:
    """Return the ``overtaken`` of a rule_order.Order.

    Empty for more than MOST_PAIRS pairs, whose comparison would take too long.
    """
    if len(going) * len(foreign) > MOST_PAIRS or not rule_order.counts([rule for _index, rule in (*going, *foreign)]):
        return ()
    return tuple(
        (rule, other) for index, rule in going for at, other in foreign if at > index and rule_order.conflict(rule, other)
    )


def _both_lists(rules: Changes) -> tuple[list[Rule], list[Rule]]:
    """Return the rules before and after, for the diff. If a rule moves, the diff includes the rules that it passes."""
    moving = set(rules.added).intersection(rules.removed)
    moved = [order for order in rules.orders if moving.intersection(order.after)]
    places = {order.place for order in moved}
    before = [rule for rule in rules.removed if rule.place not in places]
    after = [rule for rule in rules.added if rule.place not in places]
    return (
        [*before, *(rule for order in moved for rule in order.before)],
        [*after, *(rule for order in moved for rule in order.after)],
    )


def _owners(items: t.Collection[t.Any], current: t.Iterable[Owned]) -> dict[t.Any, set[int]]:
    """Return the protocols under which the kernel has an equal object, for each item that it has."""
    wanted = set(items)
    owners: dict[t.Any, set[int]] = {}
    if wanted:
        for item, protocol in current:
            if item in wanted:
                owners.setdefault(item, set()).add(protocol)
    return owners


def _refuse_conflicts(desired: Policy, added: t.Sequence[t.Any], current: t.Sequence[Owned]) -> None:
    """Raise Refusal if a foreign object has the key of an object to add, with another meaning.

    The foreign object stays: if it were replaced, its owner might restore it. If the own object were added beside it, the foreign
    object might come first. An object with attributes that cannot be read is foreign, whatever its protocol.
    """
    keys = {item.key: item for item in added}
    if not keys:
        return
    for item, protocol in current:
        if item.key in keys and (protocol != desired.protocol or _is_unread(item)):
            desired_item = keys[item.key]
            choice = "priority" if isinstance(desired_item, Rule) else "metric or table"
            raise Refusal(
                f"{desired.option(desired_item)} cannot be added: it is {desired_item}, but {item} is there and belongs to"
                f" {known_programs.owner(item, [protocol])}. Nothing was changed. Choose another {choice}, or have the owner"
                " remove the existing one"
            )


def _is_unread(item: Rule | Route) -> bool:
    return bool(item.opaque if isinstance(item, Rule) else item.unread)


def _moved(current: t.Sequence[Owned], orders: t.Sequence[Order], protocol: int) -> list[Owned]:
    """Return the rules after ``orders``, in order within a place. A rule that was to stay may have to move as well."""
    messages = rule_order.messages([rule for rule, owner in current if owner == protocol], orders)
    going = collections.Counter(messages.deleted)
    moved: list[Owned] = []
    for rule, owner in (*current, *((rule, protocol) for rule in messages.added)):
        if owner == protocol and going[rule] > 0:
            going[rule] -= 1  # the kernel deletes the first of several equal rules
        else:
            moved.append((rule, owner))
    return moved


def _refuse_misplaced(desired: Policy, current: t.Sequence[Owned]) -> None:
    """Raise Refusal if a foreign rule that satisfies a desired rule stands before an own rule that must come first.

    current: the rules after the run.
    """
    for rule, (other, protocol) in rule_order.misplaced(desired.rules or (), current, desired.protocol).items():
        raise Refusal(
            f"{desired.option(rule)} cannot be placed before {desired.option(other)}, as listed: it is {rule}, but {other} is"
            f" there and belongs to {known_programs.owner(other, [protocol])}; the kernel adds a rule behind the others of its"
            f" priority. Nothing was changed. Give {desired.option(rule)} a smaller priority number, or have the owner remove the"
            " existing rule"
        )


def _check_targets(desired: Policy, added: t.Sequence[Rule], current: t.Sequence[Owned]) -> None:
    jumps = [rule for rule in added if rule.action == GOTO]
    if jumps:
        targets = {rule.place for rule in (*(desired.rules or ()), *(item for item, _protocol in current))}
        for jump in jumps:
            if (jump.family, jump.goto) not in targets:
                allowed = f"the priority of a listed or existing rule of the same family (for {jump})"
                raise Invalid(f"{desired.option(jump)}.goto", jump.goto, allowed)


def _check_routes(desired: Policy, added: t.Sequence[Route], links: t.Collection[str], neighbours: Gateways) -> None:
    """Raise Invalid for a link, gateway or source that the kernel would refuse, so that check mode finds it too."""
    # Many pods share a gateway: each combination is checked once.
    for route in _with_different(lambda route: (route.family, route.table, route.hops), added):
        for hop in route.hops:
            if hop.dev not in links:
                raise Invalid(f"{desired.option(route, hop)}.dev", hop.dev, f"a link of this node (for {route})")
            allowed = neighbours.lack(route, hop)
            if allowed:
                raise Invalid(f"{desired.option(route, hop)}.via", fields.show(hop.via), f"{allowed} (for {route})")
    for route in _with_different(lambda route: (route.table, route.src, route.hops), (new for new in added if new.src)):
        allowed = neighbours.lack_of_source(route)
        if allowed:
            raise Invalid(f"{desired.option(route)}.src", fields.show(route.src), f"{allowed} (for {route})")


def _with_different(key: t.Callable[[Route], t.Any], routes: t.Iterable[Route]) -> t.Iterable[Route]:
    """Return the first route for each value of ``key``."""
    first_of: dict[t.Any, Route] = {}
    for route in routes:
        first_of.setdefault(key(route), route)
    return first_of.values()


def _messages(changes: Changes, current: t.Sequence[Owned], own_protocol: int) -> tuple[list[Change], list[Change]]:
    """Return the messages that add or change routes, and those that delete routes.

    If an own route has the key of a new one, one message changes it, so that the key is never without a route. If the key has
    several routes, because a program appended one, the kernel changes the first (fib_table_insert).
    """
    if not changes.added:
        return [], [Change(DELETE, route) for route in reversed(changes.removed)]
    first: dict[t.Any, Route] = {}
    for item, protocol in current:
        if protocol == own_protocol and not item.unread:
            first.setdefault(item.key, item)
    removed = set(changes.removed)
    coming, taken = [], set()
    # The kernel looks up the gateway and the source of a route when it is added: the routes to them are added first.
    for route in sorted(changes.added, key=lambda route: (route.type != LOCAL, not route.is_connected)):
        former = first.get(route.key)
        if former in removed:
            coming.append(Change(CHANGE, route, former))
            taken.add(former)
        else:
            coming.append(Change(ADD, route))
    return coming, [Change(DELETE, route) for route in reversed(changes.removed) if route not in taken]
