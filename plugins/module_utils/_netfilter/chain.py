# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of a chain, whichever tool edits it, and how removed rules are restored in it."""

from __future__ import annotations

import bisect
import collections
import typing as t

Counters = tuple[int, int]  # packets, bytes


class ListedRule(t.NamedTuple):
    """A rule of a chain: its text after ``-A CHAIN``, as the tool printed it."""

    text: str
    counters: Counters = (0, 0)


class Place(t.NamedTuple):
    """A chain of a backend's table."""

    backend: str
    table: str
    chain: str

    def __str__(self) -> str:
        return f"{self.backend} {self.table} {self.chain}"


Chains = t.Mapping[Place, tuple[ListedRule, ...]]


class RemovedRules(t.NamedTuple):
    """Rules that were removed from a chain. rules: the chain before; gone: the positions of the removed rules in it."""

    place: Place
    rules: tuple[ListedRule, ...]
    gone: frozenset[int]

    @property
    def remaining(self) -> tuple[str, ...]:
        return tuple(rule.text for number, rule in enumerate(self.rules) if number not in self.gone)

    @property
    def texts(self) -> list[str]:
        """Return the texts of the removed rules, in order."""
        return [self.rules[number].text for number in sorted(self.gone)]

    @property
    def uncounted(self) -> RemovedRules:
        """Return the same without counters: packets change them, and a failed run compares its plans before and after."""
        return self._replace(rules=tuple(ListedRule(rule.text) for rule in self.rules))

    def without(self, numbers: t.Collection[int]) -> RemovedRules:
        """Return the same removal from a chain that never had the rules at these positions."""
        numbers_left = [number for number in range(len(self.rules)) if number not in numbers]
        gone = frozenset(place for place, number in enumerate(numbers_left) if number in self.gone)
        return RemovedRules(self.place, tuple(self.rules[number] for number in numbers_left), gone)


def texts_by_place(removed: t.Iterable[RemovedRules]) -> t.Iterator[tuple[Place, str]]:
    """Yield the chain and the text of each removed rule."""
    return ((removal.place, text) for removal in removed for text in removal.texts)


def removals(chains: Chains, doomed: t.Collection[tuple[Place, str]]) -> list[RemovedRules]:
    """Return the removals of the rules that have these places and texts. Rules that stay are without their counters."""
    removed = []
    for place, rules in chains.items():
        gone = frozenset(number for number, rule in enumerate(rules) if (place, rule.text) in doomed)
        if gone:
            marked = (rule if number in gone else ListedRule(rule.text) for number, rule in enumerate(rules))
            removed.append(RemovedRules(place, tuple(marked), gone))
    return removed


class Merge(t.NamedTuple):
    """A chain in which removed rules are restored.

    rules: the whole chain. added: positions in ``rules`` of the restored rules, in order. texts: of the restored rules.
    present: rules that another program has added again, and that are therefore not restored.
    moved: whether the other rules have changed since, so that a restored rule may have other neighbours.
    """

    rules: tuple[ListedRule, ...]
    added: tuple[int, ...]
    texts: frozenset[str]
    present: tuple[str, ...]
    moved: bool


def merge(now: t.Sequence[ListedRule], removed: RemovedRules) -> Merge:
    """Insert each removed rule after the nearest earlier rule that is still there in order, or first if there is none."""
    texts, remaining = tuple(rule.text for rule in now), removed.remaining
    places: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        places.setdefault(text, []).append(place)
    stayed = set(remaining)
    after: dict[int, list[ListedRule]] = {}
    position, present = 0, []
    for number, rule in enumerate(removed.rules):
        if number not in removed.gone:
            position = _behind(places.get(rule.text, ()), position)
        elif rule.text in places and rule.text not in stayed:
            present.append(rule.text)
        else:
            after.setdefault(position, []).append(rule)
    rules: list[ListedRule] = []
    added: list[int] = []
    for place in range(len(now) + 1):
        back = after.get(place, [])
        added += range(len(rules), len(rules) + len(back))
        rules += [*back, *now[place : place + 1]]
    return Merge(
        tuple(rules), tuple(added), frozenset(rules[number].text for number in added), tuple(present), texts != remaining
    )


def _behind(places: t.Sequence[int], start: int) -> int:
    """Return the position after the first of the places that is not before ``start``; ``start`` if there is none."""
    number = bisect.bisect_left(places, start)
    return places[number] + 1 if number < len(places) else start


def is_merged(now: t.Sequence[ListedRule], removed: RemovedRules, merged: Merge) -> bool:
    """Return whether ``now`` has each rule that the merge restored, once, in order with the rules that were its neighbours."""
    texts = {rule.text for rule in removed.rules}
    desired = merge([rule for rule in now if rule.text not in merged.texts], removed).rules
    return [rule.text for rule in now if rule.text in texts] == [rule.text for rule in desired if rule.text in texts]


def has_each_once(now: t.Sequence[ListedRule], merged: Merge) -> bool:
    """Return whether ``now`` has each rule that the merge restored as often as the merge, in any order."""
    current, restored = (collections.Counter(rule.text for rule in rules) for rules in (now, merged.rules))
    return all(current[text] == restored[text] for text in merged.texts)


class Restoration(t.NamedTuple):
    """The undo of removals.

    removed: the removals to undo, newest first. barred: of a removal, the positions of the rules that must not be restored.
    differences: a sentence for each rule that cannot be as it was.
    """

    removed: tuple[RemovedRules, ...]
    barred: t.Mapping[RemovedRules, frozenset[int]]
    differences: tuple[str, ...]


def restoration(
    removals: t.Sequence[RemovedRules], chains: Chains, obstacle: t.Callable[[Place, ListedRule], str]
) -> Restoration:
    """Undo the removals. If several removed the same rule, the oldest determines its position.

    removals: newest first. chains: their rules now. obstacle: tells why a rule must not be restored, or nothing.
    """
    now = dict(chains)
    oldest = {(removal.place, text): number for number, removal in enumerate(removals) for text in removal.texts}
    removed: list[RemovedRules] = []
    barred: dict[RemovedRules, frozenset[int]] = {}
    differences: list[str] = []
    for number, removal in enumerate(removals):
        place, rules = removal.place, removal.rules
        newer = {position for position in removal.gone if oldest[place, rules[position].text] != number}
        obstacles = {position: obstacle(place, rules[position]) for position in sorted(removal.gone - newer)}
        hindered = frozenset(position for position, why in obstacles.items() if why)
        differences += [f"{place}: {rules[position].text}: {obstacles[position]}" for position in sorted(hindered)]
        if hindered:
            barred[removal] = hindered
        permitted = removal.without(hindered | newer)
        merged = merge(now.get(place, ()), permitted)
        now[place] = merged.rules
        differences += [f"{place}: {text} exists already" for text in merged.present]
        if merged.moved and merged.added:
            differences.append(f"{place}: other rules were added, removed or moved since, so the order may differ")
        present = {*merged.present}
        missing = frozenset(position for position in permitted.gone if permitted.rules[position].text not in present)
        if missing:
            removed.append(permitted._replace(gone=missing))
    return Restoration(tuple(removed), barred, tuple(differences))
