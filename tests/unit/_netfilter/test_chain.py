# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removed rules are restored at their former positions."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import chain
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, Place, RemovedRules

PLACE = Place("nft", "nat", "PREROUTING")


def taken(rules: list[str], gone: set[int]) -> RemovedRules:
    return RemovedRules(PLACE, tuple(map(ListedRule, rules)), frozenset(gone))


BACK = {
    "nothing else has changed": ("aXbYc", {1, 3}, "abc", "aXbYc", False),
    "all went": ("XY", {0, 1}, "", "XY", False),
    "one came at the end": ("aXbYc", {1, 3}, "abcd", "aXbYcd", True),
    "one came between": ("aXbYc", {1, 3}, "adbc", "aXdbYc", True),
    "one neighbour went": ("aXbYc", {1, 3}, "ac", "aXYc", True),
    "one is there again": ("aXbYc", {1, 3}, "aXbc", "aXbYc", True),
    "neighbours changed places": ("aXbYc", {1, 3}, "cba", "cbaXY", True),
    "the same rule stayed as well": ("XaX", {0}, "aX", "XaX", False),
}


@pytest.mark.parametrize(("before", "gone", "now", "after", "moved"), BACK.values(), ids=BACK.keys())
def test_rules_come_back_beside_their_neighbours(before: str, gone: set[int], now: str, after: str, moved: bool) -> None:
    merge = chain.merge([ListedRule(text) for text in now], taken(list(before), gone))
    assert ("".join(rule.text for rule in merge.rules), merge.moved) == (after, moved)
    back = sorted(merge.rules[position].text for position in merge.added)
    assert sorted([*back, *merge.present]) == sorted(before[number] for number in gone)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("abcdefgh")))
def test_removed_and_merged_the_chain_is_what_it_was(texts: list[str], doomed: set[str]) -> None:
    """Rules with equal texts are removed together, because they get the same verdict."""
    removed = taken(texts, {number for number, text in enumerate(texts) if text in doomed})
    merge = chain.merge([ListedRule(text) for text in removed.remaining], removed)
    assert ([rule.text for rule in merge.rules], merge.moved, merge.present) == (texts, False, ())


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdXYZ")), st.lists(st.sampled_from("abcdef")))
def test_the_present_rules_stay_in_their_order(texts: list[str], now: list[str]) -> None:
    removed = taken(texts, {number for number, text in enumerate(texts) if text in "XYZ"})
    merge = chain.merge([ListedRule(text) for text in now], removed)
    stayed = [rule.text for position, rule in enumerate(merge.rules) if position not in merge.added]
    assert stayed == now
    assert [merge.rules[position].text for position in merge.added] == [text for text in texts if text in "XYZ"]


RESTORED = {  # the chain was aXbYc, and X and Y were removed: whether the chain is right, and whether each rule is in it once
    "as it was": ("aXbYc", True, True),
    "among other rules": ("1aX2b3Yc4", True, True),
    "beside other rules": ("a1Xb2Yc", True, True),
    "without a neighbour": ("aXYc", True, True),
    "not all": ("aXbc", False, False),
    "twice": ("aXbYYc", False, False),
    "twice, apart": ("XaXbYc", False, False),
    "before its neighbour": ("XabYc", False, True),
    "in another order": ("aYbXc", False, True),
}


@pytest.mark.parametrize(("now", "is_right", "is_once"), RESTORED.values(), ids=RESTORED)
def test_a_rule_is_restored_once_and_beside_its_neighbours(now: str, is_right: bool, is_once: bool) -> None:
    removed = taken(list("aXbYc"), {1, 3})
    merge = chain.merge([ListedRule(text) for text in "abc"], removed)
    assert merge.texts == {"X", "Y"}
    rules = [ListedRule(text) for text in now]
    assert (chain.is_merged(rules, removed, merge), chain.has_each_once(rules, merge)) == (is_right, is_once)


def test_a_rule_that_another_program_had_added_is_not_asked_for_again() -> None:
    removed = taken(list("aXbYc"), {1, 3})
    merge = chain.merge([ListedRule(text) for text in "Yabc"], removed)
    assert merge.texts == {"X"} and chain.is_merged([ListedRule(text) for text in "YaXbc"], removed, merge)


def test_a_rule_taken_from_what_was_removed_is_as_if_it_had_not_been_there() -> None:
    removed = taken(list("aXbYc"), {1, 3})
    assert removed.without([]) == removed
    assert removed.without({0, 3}) == taken(list("Xbc"), {0})
    assert removed.without({1, 3}) == taken(list("abc"), set())


def test_a_merge_of_many_rules_takes_time_in_proportion() -> None:
    """Each former neighbour is sought among the current rules, also those that stand in another order now."""
    texts = [str(number) for number in range(20_000)]
    removed = taken(texts, {*range(0, 20_000, 2)})
    seconds = []
    for count in (2_000, 20_000):
        few = removed.without({*range(count, 20_000)})
        now = [ListedRule(text) for text in few.remaining[::-1]]
        begin = time.process_time()
        merged = chain.merge(now, few)
        assert chain.is_merged(merged.rules, few, merged) and len(merged.added) == count // 2
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 40 * seconds[0] + 0.2, seconds


REMOVALS = {  # removals, newest first: a chain before, and the rules removed; then the current chain, and the desired one
    "one run": ([("aXb", "X")], "ab", "aXb"),
    "two runs of different rules": ([("aYb", "Y"), ("aXYb", "X")], "ab", "aXYb"),
    "the oldest run tells the position": ([("abX", "X"), ("aXb", "X")], "ab", "aXb"),
    "a rule with an obstacle": ([("aNXb", "NX")], "ab", "aXb"),
}


@pytest.mark.parametrize(("removals", "now", "after"), REMOVALS.values(), ids=REMOVALS)
def test_runs_are_undone_from_the_newest_to_the_oldest(removals: list[tuple[str, str]], now: str, after: str) -> None:
    taken_of = [taken(list(text), {number for number, one in enumerate(text) if one in gone}) for text, gone in removals]
    rules = {PLACE: tuple(map(ListedRule, now))}
    back = chain.restoration(taken_of, rules, lambda place, rule: "because" * (rule.text == "N"))
    for one in back.removed:
        rules[PLACE] = chain.merge(rules[PLACE], one).rules
    assert "".join(rule.text for rule in rules[PLACE]) == after
    assert sorted(text for one in back.removed for text in one.texts) == [text for text in "XY" if text in after]
    barred = [one.rules[number].text for one, numbers in back.barred.items() for number in numbers]
    assert barred == ["N"] * ("N" in removals[0][0]) and all("because" in one for one in back.differences if "N" in one)
