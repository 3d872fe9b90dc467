# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules of a chain, whichever tool edits it, and how removed rules are restored in it."""

from __future__ import annotations

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
    def left(self) -> tuple[str, ...]:
        return tuple(rule.text for number, rule in enumerate(self.rules) if number not in self.gone)

    @property
    def uncounted(self) -> RemovedRules:
        """Return the same without counters, which packets change."""
        return self._replace(rules=tuple(ListedRule(rule.text) for rule in self.rules))

    def without(self, numbers: t.Collection[int]) -> RemovedRules:
        """Return the same removal from a chain that never had the rules at these positions."""
        kept = [number for number in range(len(self.rules)) if number not in numbers]
        gone = frozenset(place for place, number in enumerate(kept) if number in self.gone)
        return RemovedRules(self.place, tuple(self.rules[number] for number in kept), gone)


class Merge(t.NamedTuple):
    """A chain in which removed rules are restored.

    rules: the whole chain. added: positions in ``rules`` of the restored rules, in order.
    present: rules that another program has added again, and that are therefore not restored.
    moved: whether the other rules have changed since, so that a restored rule may have other neighbours.
    """

    rules: tuple[ListedRule, ...]
    added: tuple[int, ...]
    present: tuple[str, ...]
    moved: bool

    @property
    def texts(self) -> frozenset[str]:
        """Return the texts of the restored rules."""
        return frozenset(self.rules[position].text for position in self.added)


def put_back(now: t.Sequence[ListedRule], removed: RemovedRules) -> Merge:
    """Insert each removed rule after the nearest earlier rule that is still there in order, or first if there is none."""
    texts, left = [rule.text for rule in now], removed.left
    there, stayed = set(texts), set(left)
    after: dict[int, list[ListedRule]] = {}
    position, present = 0, []
    for number, rule in enumerate(removed.rules):
        if number not in removed.gone:
            position = _behind(texts, rule.text, position) if rule.text in there else position
        elif rule.text in there and rule.text not in stayed:
            present.append(rule.text)
        else:
            after.setdefault(position, []).append(rule)
    rules: list[ListedRule] = []
    added: list[int] = []
    for place in range(len(now) + 1):
        back = after.get(place, [])
        added += range(len(rules), len(rules) + len(back))
        rules += [*back, *now[place : place + 1]]
    return Merge(tuple(rules), tuple(added), tuple(present), tuple(texts) != left)


def is_put_back(now: t.Sequence[ListedRule], removed: RemovedRules, merge: Merge) -> bool:
    """Return whether ``now`` has each rule that the merge restored, once, in order with the rules that were its neighbours."""
    known = {rule.text for rule in removed.rules}
    desired = put_back([rule for rule in now if rule.text not in merge.texts], removed).rules
    return [rule.text for rule in now if rule.text in known] == [rule.text for rule in desired if rule.text in known]


def is_there_once(now: t.Sequence[ListedRule], merge: Merge) -> bool:
    """Return whether ``now`` has each rule that the merge restored as often as the merge, in any order."""
    there, restored = (collections.Counter(rule.text for rule in rules) for rules in (now, merge.rules))
    return all(there[text] == restored[text] for text in merge.texts)


def _behind(texts: t.Sequence[str], text: str, start: int) -> int:
    """Return the position after the next rule with this text; ``start`` if the rule is only before ``start``."""
    try:
        return texts.index(text, start) + 1
    except ValueError:
        return start


class Restoration(t.NamedTuple):
    """The undo of removals.

    rules: each restored rule with its chain. removed: the removals to undo, newest first. differences: a sentence for each
    rule that
        cannot be as it was.
    barred: of a removal, the positions of the rules that must not be restored.
    """

    rules: tuple[tuple[Place, str], ...]
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
    oldest = {(removal.place, removal.rules[number].text): removal for removal in removals for number in removal.gone}
    rules: list[tuple[Place, str]] = []
    removed: list[RemovedRules] = []
    barred: dict[RemovedRules, frozenset[int]] = {}
    differences: list[str] = []
    for taken in removals:
        place = taken.place
        oldest_here = {number for number in taken.gone if oldest[place, taken.rules[number].text] is taken}
        obstacles = {number: obstacle(place, taken.rules[number]) for number in sorted(oldest_here)}
        kept = frozenset(number for number, why in obstacles.items() if why)
        differences += [f"{place}: {taken.rules[number].text}: {obstacles[number]}" for number in sorted(kept)]
        if kept:
            barred[taken] = kept
        removal = taken.without(kept | (taken.gone - oldest_here))
        merge = put_back(now.get(place, ()), removal)
        now[place] = merge.rules
        rules += [(place, merge.rules[position].text) for position in merge.added]
        differences += [f"{place}: {text} exists already" for text in merge.present]
        if merge.moved and merge.added:
            differences.append(f"{place}: other rules were added, removed or moved since, so the order may differ")
        missing = frozenset(number for number in removal.gone if removal.rules[number].text not in merge.present)
        if missing:
            removed.append(removal._replace(gone=missing))
    return Restoration(tuple(rules), tuple(removed), barred, tuple(differences))
