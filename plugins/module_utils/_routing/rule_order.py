# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of the rules of one family and priority, and the netlink messages that change it.

The kernel adds a rule behind all others of its priority. It deletes the first rule that has all the fields that the message
names (net/core/fib_rules.c, fib_newrule and rule_find). It has no message that moves a rule. It accepts an equal rule a second
time, unless the message forbids that (NLM_F_EXCL). So a rule moves to the end in two messages: one adds it once more, and one
deletes the first copy.

Let O be the current list and N the desired list. The longest beginning of N that stands in O in this order stays. The rest of N
is added behind O, in its order. Then all other rules of O are deleted, the last one first. No packet takes a wrong path
meanwhile:

- While rules are added, a packet that a rule of O decides is still decided by that rule. Any other packet is decided by the
  first rule of N that decides it; before that rule is added, no rule of this priority decides it, as before the change.
- While rules are deleted from the end of O, a packet that a remaining rule of O decides is decided as by O. For any other
  packet, the remaining rules of O do not matter, and behind them stand the other rules of N in their order: it is decided as
  by N.

Deleting from the end is not always possible. The message that deletes a rule with few fields (``from all lookup 7``) also fits a
rule with the same fields and more. If such an own rule stands first, the kernel deletes that one instead. So a rule with few
fields is deleted only after the rules before it that its message fits, in the same send. Between two of these messages, a packet
that the deleted rules decided may meet a rule that stands between them and the rule with few fields. This is the only gap, and
the kernel offers no way around it.

Foreign rules do not move. Own rules that are added stand behind them.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .rule import UNNAMED, Rule

Place = tuple[int, int]  # family and priority
Owned = tuple[Rule, int]  # a rule and its protocol

AS_MANY_AS_POSSIBLE = -1
_NOT_COMPARED = {Rule._fields.index(name) for name in ("invert", "goto", "opaque")}  # by the kernel, to find a rule to delete


class Order(t.NamedTuple):
    """The own rules at one place before and after a change, from the first rule that is added, removed or moved.

    stay: how many rules at the beginning of ``after`` stay where they are.
    overtaken: pairs of an own rule that is removed or moved, and a foreign rule behind it that decides differently for packets
        that both select. If the own rule is added again, the kernel puts it behind the foreign rule.
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
    """The rules to add, each behind all others of its priority; then the rules to delete, each the first that equals it."""

    added: tuple[Rule, ...] = ()
    deleted: tuple[Rule, ...] = ()


def counts(rules: t.Collection[Rule]) -> bool:
    """Return whether a packet may match two of these rules of one place, so that their order matters.

    The order does not matter if all rules name the same fields with different values, and prefixes have one length: for example
    the rules for pods, each with its own source address.
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
    """Return whether the kernel might delete one of these rules instead of another, because they name different fields."""
    return len({_named(rule) for rule in rules}) > 1


def conflict(rule: Rule, other: Rule) -> bool:
    """Return whether a packet may match both rules, and the order of the two makes a difference to it."""
    if rule.place != other.place or _verdict(rule) == _verdict(other):
        return False
    if rule.invert or other.invert:
        return True
    if any(mine and theirs and mine != theirs for mine, theirs in zip(_exact(rule), _exact(other))):
        return False
    if (rule.fwmark ^ other.fwmark) & rule.fwmask & other.fwmask:
        return False
    spans = zip((rule.sport, rule.dport, rule.uidrange), (other.sport, other.dport, other.uidrange))
    if any(mine and theirs and (mine[0] > theirs[1] or theirs[0] > mine[1]) for mine, theirs in spans):
        return False
    return all(_meet(mine, theirs) for mine, theirs in ((rule.src, other.src), (rule.dst, other.dst)))


def _exact(rule: Rule) -> tuple[t.Any, ...]:
    return rule.iif, rule.oif, rule.tos, rule.ipproto


def _verdict(rule: Rule) -> tuple[t.Any, ...]:
    return rule.action, rule.table, rule.goto, rule.suppress_prefixlength, rule.l3mdev, rule.opaque


def _meet(prefix: fields.Prefix, other: fields.Prefix) -> bool:
    wide, narrow = sorted((prefix, other), key=lambda prefix: prefix[1])
    return not wide[0] or fields.network(narrow[0], wide[1]) == wide


def staying(desired: t.Sequence[Rule], places: t.Mapping[Rule, int], foreign: t.Mapping[Rule, int]) -> int:
    """Return how many own rules at the beginning of ``desired`` can stay where they are.

    An own rule that ``desired`` lists after a foreign rule must stand behind that rule.

    places: the positions of the own rules, for a rule with several copies that of the last.
    foreign: the positions of the foreign rules that satisfy desired rules.
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
    """Return the desired own rules that should stand before a foreign rule and cannot, each with that rule and its protocol.

    The foreign rule satisfies a desired rule that is listed later. Only pairs whose order makes a difference to a packet count.

    held: all rules with their protocols, in the kernel's order.
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
    satisfying: dict[Rule, Owned] = {}
    for rules in lists.values():
        satisfied = {rule: foreign[rule] for rule in rules if rule in foreign and rule not in places}
        if satisfied and len(satisfied) < len(rules) and counts(rules):
            stay = set([rule for rule in rules if rule not in satisfied][: staying(rules, places, satisfied)])
            for number, rule in enumerate(rules):
                at = places[rule] if rule in stay else len(held)
                behind = (other for other in rules[number + 1 :] if satisfied.get(other, at) < at and conflict(rule, other))
                other = next(behind, None) if rule not in satisfied else None
                if other:
                    satisfying[rule] = (other, held[satisfied[other]][1])
    return satisfying


def messages(current: t.Sequence[Rule], orders: t.Sequence[Order]) -> Messages:
    """Return the messages that lead from the own ``current`` rules, in the kernel's order, to ``orders``.

    Rules not in ``orders`` stay.

    All additions come before the first deletion, so that every packet has a rule at any moment.
    """
    wanted = {order.place for order in orders}
    at_place: dict[Place, list[Rule]] = {place: [] for place in wanted}
    for rule in current:
        if rule.place in wanted:
            at_place[rule.place].append(rule)
    parts = [_messages(at_place[order.place], order) for order in orders]
    return Messages(tuple(rule for part in parts for rule in part.added), tuple(rule for part in parts for rule in part.deleted))


def _messages(current: t.Sequence[Rule], order: Order) -> Messages:
    mentioned = {*order.before, *order.after}
    unmentioned = [rule for rule in current if rule not in mentioned]
    if len(set(unmentioned)) < len(unmentioned):  # a run was killed while it moved these to the end as well
        order = Order((*unmentioned, *order.before), (*dict.fromkeys(unmentioned), *order.after))
        mentioned.update(unmentioned)
    last = {rule: index for index, rule in enumerate(current)}
    stay = staying(order.after, last, {})
    if order.stay != AS_MANY_AS_POSSIBLE:
        stay = min(stay, order.stay)
    remaining = {last[rule] for rule in order.after[:stay]}
    remaining |= {index for index, rule in enumerate(current) if rule not in mentioned}
    final = [*(current[index] for index in sorted(remaining)), *order.after[stay:]]
    first_added = len(remaining)
    while True:
        unmoved = sorted(remaining)[:first_added]
        added = final[first_added:]
        deleted, obstacle = _deletions([*current, *added], set(range(len(current))).difference(unmoved))
        if obstacle is None:
            return Messages(tuple(added), deleted)
        first_added = unmoved.index(obstacle)  # this rule must move to the end as well, with all rules behind it


def _deletions(rules: t.Sequence[Rule], going: set[int]) -> tuple[tuple[Rule, ...], int | None]:
    """Return the deletions of the rules at these indexes, the last one first if possible; or the index of a rule that prevents
    them."""
    if not going:
        return (), None
    hits = _Hits(rules)
    deleted: list[Rule] = []
    indexes = sorted(going, reverse=True)
    while indexes:
        # The kernel deletes the first of several equal rules.
        hit = next((hit for index in indexes for hit in [hits.first(index)] if hit in going and rules[hit] == rules[index]), None)
        if hit is None:
            return (), hits.first(indexes[-1])
        deleted.append(rules[hit])
        hits.remove(hit)
        indexes.remove(hit)
        going.remove(hit)
    return tuple(deleted), None


class _Hits:
    """Finds the rule that the kernel deletes when a message tells it to delete one of ``rules``."""

    def __init__(self, rules: t.Sequence[Rule]) -> None:
        self._rules = rules
        self._named = [_named(rule) for rule in rules]
        self._gone: set[int] = set()
        self._by_values: dict[tuple[int, ...], dict[tuple[t.Any, ...], list[int]]] = {}

    def first(self, index: int) -> int:
        """Return the index of that rule.

        How the kernel compares an opaque rule is unknown, so only the first rule left is certain.
        """
        rule, fields_given = self._rules[index], self._named[index]
        if rule.opaque:
            fields_given = ()
        if fields_given not in self._by_values:
            table = self._by_values[fields_given] = {}
            for number in range(len(self._rules) - 1, -1, -1):
                table.setdefault(_values(self._rules[number], fields_given), []).append(number)
        indexes = self._by_values[fields_given][_values(rule, fields_given)]
        while indexes[-1] in self._gone:
            indexes.pop()
        return indexes[-1]

    def remove(self, index: int) -> None:
        self._gone.add(index)


def _named(rule: Rule) -> tuple[int, ...]:
    return tuple(
        index for index, (value, unnamed) in enumerate(zip(rule, UNNAMED)) if value != unnamed and index not in _NOT_COMPARED
    )


def _values(rule: Rule, indexes: tuple[int, ...]) -> tuple[t.Any, ...]:
    return tuple(rule[index] for index in indexes)
