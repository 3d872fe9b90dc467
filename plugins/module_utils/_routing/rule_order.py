# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The order of rules of one family and priority, and the messages that bring about another one.

The kernel adds a rule behind all others of its priority, and deletes the first that has all the fields that the message
names (net/core/fib_rules.c, fib_newrule and rule_find). It has no message to move one. It takes a rule twice, unless it is
told not to (NLM_F_EXCL). So a rule moves to the end by being added once more and then deleted once, where it stood.

Let O be the present list, and N the desired one. The longest beginning of N that stands in O in this order stays. The rest of
N is added behind O, in its order; then everything else of O is deleted, the last one first. No packet takes a wrong path
meanwhile:

- While rules are added, a packet that a rule of O decides is decided so. Any other is decided by the first rule of N that
  does, or by none of this priority, as before.
- While rules are deleted from the end of O, a packet that the rest of O decides is decided as by O. For any other, all of N
  still stands in its order, but for rules that stand in O's rest and do not decide it: it is decided as by N.

Deleting from the end is not always possible. A rule that names less (``from all lookup 7``) may be deleted only when no other of
ours that names more and does the same stands before it, because the kernel would take that one. Such a rule goes as soon as
those before it have gone, in the same send. Between two messages, a packet that those have decided may then meet a rule
which stood between the two. This is the only gap, and the kernel leaves no way around it.

A foreign rule does not move. Our rules that are added stand behind it.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .rule import UNNAMED, Rule

Place = tuple[int, int]  # family and priority
Owned = tuple[Rule, int]  # a rule and its protocol

AS_MANY_AS_POSSIBLE = -1
_NOT_COMPARED = {Rule._fields.index(name) for name in ("invert", "goto", "opaque")}  # when the kernel looks for a rule


class Order(t.NamedTuple):
    """Our rules at one place, from the first that comes, goes or moves on the way: as they were, and as they shall be.

    stay: how many of ``after``, from its beginning, stay where they are.
    overtaken: pairs of a rule of ours that goes or moves, and a foreign rule behind it that means something else for packets
        that both select. Who adds ours again can only add it behind the other.
    """

    before: tuple[Rule, ...]
    after: tuple[Rule, ...]
    stay: int = AS_MANY_AS_POSSIBLE
    overtaken: tuple[tuple[Rule, Rule], ...] = ()

    @property
    def place(self) -> Place:
        return (self.before or self.after)[0].place

    def inverse(self) -> Order:
        return Order(self.after, self.before, AS_MANY_AS_POSSIBLE, self.overtaken)


class Messages(t.NamedTuple):
    """What is added, each behind all of its priority; and then what is deleted, each the first like it."""

    added: tuple[Rule, ...] = ()
    deleted: tuple[Rule, ...] = ()


def counts(rules: t.Collection[Rule]) -> bool:
    """Whether some packet may meet two of these rules of one place, so that their order matters.

    None does where they name the same fields, exactly or by prefixes of one length, with different values: as the rules for
    pods, each from another address.
    """
    frames = {
        (
            *(
                rule.src[1],
                rule.dst[1],
                rule.fwmask,
                rule.l3mdev,
                not rule.iif,
                not rule.oif,
                not rule.tos,
                not rule.ipproto,
            ),
            *(rule.invert, rule.sport, rule.dport, rule.uidrange),
        )
        for rule in rules
    }
    return len(frames) > 1 or any(any(frame[-4:]) for frame in frames)


def may_be_mistaken(rules: t.Iterable[Rule]) -> bool:
    """Whether the kernel might delete one of these in place of another: they do not all name the same fields."""
    return len({_named(rule) for rule in rules}) > 1


def conflict(one: Rule, other: Rule) -> bool:
    """Whether some packet may meet both, and which one it meets first makes a difference."""
    if one.place != other.place or _verdict(one) == _verdict(other):
        return False
    if one.invert or other.invert:
        return True
    if any(mine and theirs and mine != theirs for mine, theirs in zip(_exact(one), _exact(other))):
        return False
    if (one.fwmark ^ other.fwmark) & one.fwmask & other.fwmask:
        return False
    spans = zip((one.sport, one.dport, one.uidrange), (other.sport, other.dport, other.uidrange))
    if any(mine and theirs and (mine[0] > theirs[1] or theirs[0] > mine[1]) for mine, theirs in spans):
        return False
    return all(_meet(mine, theirs) for mine, theirs in ((one.src, other.src), (one.dst, other.dst)))


def _exact(rule: Rule) -> tuple[t.Any, ...]:
    return rule.iif, rule.oif, rule.tos, rule.ipproto


def _verdict(rule: Rule) -> tuple[t.Any, ...]:
    return rule.action, rule.table, rule.goto, rule.suppress_prefixlength, rule.l3mdev, rule.opaque


def _meet(one: fields.Prefix, other: fields.Prefix) -> bool:
    wide, narrow = sorted((one, other), key=lambda prefix: prefix[1])
    return not wide[0] or fields.network(narrow[0], wide[1]) == wide


def staying(desired: t.Sequence[Rule], places: t.Mapping[Rule, int], foreign: t.Mapping[Rule, int]) -> int:
    """How many of ours, from the beginning of ``desired``, can stay. Ours that follows a foreign rule has to stand behind it.

    places: where our rules stand, by the last of each. foreign: where the desired rules stand that are foreign.
    """
    count, last = 0, -1
    for rule in desired:
        if rule in foreign:
            last = max(last, foreign[rule])
            continue
        at = places.get(rule, -1)
        if at <= last:
            break
        count, last = count + 1, at
    return count


def misplaced(desired: t.Sequence[Rule], held: t.Sequence[Owned], protocol: int) -> dict[Rule, Owned]:
    """Desired rules of ours that can not stand before a foreign one that does the work of a later one, with that.

    Only where it makes a difference to some packet. held: all rules, in the kernel's order.
    """
    places: dict[Rule, int] = {}
    foreign: dict[Rule, int] = {}
    for index, (rule, owner) in enumerate(held):
        if owner == protocol:
            places[rule] = index
        else:
            foreign.setdefault(rule, index)
    lists: dict[Place, list[Rule]] = {}
    for rule in desired:
        lists.setdefault(rule.place, []).append(rule)
    found: dict[Rule, Owned] = {}
    for rules in lists.values():
        theirs = {rule: foreign[rule] for rule in rules if rule in foreign and rule not in places}
        if theirs and len(theirs) < len(rules) and counts(rules):
            stay = set([rule for rule in rules if rule not in theirs][: staying(rules, places, theirs)])
            for number, rule in enumerate(rules):
                at = places[rule] if rule in stay else len(held)
                behind = (
                    other for other in rules[number + 1 :] if theirs.get(other, at) < at and conflict(rule, other)
                )
                other = next(behind, None) if rule not in theirs else None
                if other:
                    found[rule] = (other, held[theirs[other]][1])
    return found


def messages(current: t.Sequence[Rule], orders: t.Sequence[Order]) -> Messages:
    """From our rules as they are, in the kernel's order, to ``orders``. Rules that these do not mention stay.

    All that is new is added before anything is deleted: at no moment is a packet without a rule for it.
    """
    wanted = {order.place for order in orders}
    at_place: dict[Place, list[Rule]] = {place: [] for place in wanted}
    for rule in current:
        if rule.place in wanted:
            at_place[rule.place].append(rule)
    parts = [_messages(at_place[order.place], order) for order in orders]
    return Messages(
        tuple(rule for part in parts for rule in part.added), tuple(rule for part in parts for rule in part.deleted)
    )


def _messages(current: t.Sequence[Rule], order: Order) -> Messages:
    mentioned = {*order.before, *order.after}
    others = [rule for rule in current if rule not in mentioned]
    if len(set(others)) < len(others):  # a run was killed when these had to step behind as well
        order = Order((*others, *order.before), (*dict.fromkeys(others), *order.after))
        mentioned.update(others)
    last = {rule: index for index, rule in enumerate(current)}
    stay = staying(order.after, last, {})
    if order.stay != AS_MANY_AS_POSSIBLE:
        stay = min(stay, order.stay)
    remaining = {last[rule] for rule in order.after[:stay]}
    remaining |= {index for index, rule in enumerate(current) if rule not in mentioned}
    final = [*(current[index] for index in sorted(remaining)), *order.after[stay:]]
    first_added = len(remaining)
    while True:
        kept = sorted(remaining)[:first_added]
        added = final[first_added:]
        deleted, obstacle = _deletions([*current, *added], set(range(len(current))).difference(kept))
        if obstacle is None:
            return Messages(tuple(added), deleted)
        first_added = kept.index(obstacle)  # it has to step behind as well, and so all that follow it


def _deletions(rules: t.Sequence[Rule], going: set[int]) -> tuple[tuple[Rule, ...], int | None]:
    """Messages that delete what is at these indexes, the last one first as far as possible; or what stands in their way."""
    if not going:
        return (), None
    hits = _Hits(rules)
    deleted: list[Rule] = []
    left = sorted(going, reverse=True)
    while left:
        # Of several that are alike the kernel takes the first.
        hit = next(
            (hit for index in left for hit in [hits.first(index)] if hit in going and rules[hit] == rules[index]), None
        )
        if hit is None:
            return (), hits.first(left[-1])
        deleted.append(rules[hit])
        hits.remove(hit)
        left.remove(hit)
        going.remove(hit)
    return tuple(deleted), None


class _Hits:
    """Which of ``rules`` the kernel deletes when it is told to delete one of them."""

    def __init__(self, rules: t.Sequence[Rule]) -> None:
        self._rules = rules
        self._named = [_named(rule) for rule in rules]
        self._gone: set[int] = set()
        self._by_values: dict[tuple[int, ...], dict[tuple[t.Any, ...], list[int]]] = {}

    def first(self, index: int) -> int:
        """Nothing is known of how the kernel compares what this program can not parse: it is deleted where it is the first."""
        rule, named = self._rules[index], self._named[index]
        if rule.opaque:
            named = ()
        if named not in self._by_values:
            table = self._by_values[named] = {}
            for number in range(len(self._rules) - 1, -1, -1):
                table.setdefault(_values(self._rules[number], named), []).append(number)
        found = self._by_values[named][_values(rule, named)]
        while found[-1] in self._gone:
            found.pop()
        return found[-1]

    def remove(self, index: int) -> None:
        self._gone.add(index)


def _named(rule: Rule) -> tuple[int, ...]:
    return tuple(
        index
        for index, (one, unnamed) in enumerate(zip(rule, UNNAMED))
        if one != unnamed and index not in _NOT_COMPARED
    )


def _values(rule: Rule, named: tuple[int, ...]) -> tuple[t.Any, ...]:
    return tuple(rule[index] for index in named)
