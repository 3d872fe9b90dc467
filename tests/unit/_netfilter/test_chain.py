# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of iptables, and rules of a chain that are removed and restored."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import chain, iptables
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, Place, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Rule, TableRemoval
from unit.swift_chain import DNS, NAT, SAVED, taken

# Removed rules are restored at their former positions


PLACE = Place("nft", "nat", "PREROUTING")


def removal(rules: list[str], gone: set[int]) -> RemovedRules:
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
    merge = chain.merge([ListedRule(text) for text in now], removal(list(before), gone))
    assert ("".join(rule.text for rule in merge.rules), merge.moved) == (after, moved)
    back = sorted(merge.rules[position].text for position in merge.added)
    assert sorted([*back, *merge.present]) == sorted(before[number] for number in gone)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("abcdefgh")))
def test_removed_and_merged_the_chain_is_what_it_was(texts: list[str], doomed: set[str]) -> None:
    """Rules with equal texts are removed together, because they get the same verdict."""
    removed = removal(texts, {number for number, text in enumerate(texts) if text in doomed})
    merge = chain.merge([ListedRule(text) for text in removed.remaining], removed)
    assert ([rule.text for rule in merge.rules], merge.moved, merge.present) == (texts, False, ())


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdXYZ")), st.lists(st.sampled_from("abcdef")))
def test_the_present_rules_stay_in_their_order(texts: list[str], now: list[str]) -> None:
    removed = removal(texts, {number for number, text in enumerate(texts) if text in "XYZ"})
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
    removed = removal(list("aXbYc"), {1, 3})
    merge = chain.merge([ListedRule(text) for text in "abc"], removed)
    assert merge.texts == {"X", "Y"}
    rules = [ListedRule(text) for text in now]
    assert (chain.is_merged(rules, removed, merge), chain.has_each_once(rules, merge)) == (is_right, is_once)


def test_a_rule_that_another_program_had_added_is_not_asked_for_again() -> None:
    removed = removal(list("aXbYc"), {1, 3})
    merge = chain.merge([ListedRule(text) for text in "Yabc"], removed)
    assert merge.texts == {"X"} and chain.is_merged([ListedRule(text) for text in "YaXbc"], removed, merge)


def test_a_rule_taken_from_what_was_removed_is_as_if_it_had_not_been_there() -> None:
    removed = removal(list("aXbYc"), {1, 3})
    assert removed.without([]) == removed
    assert removed.without({0, 3}) == removal(list("Xbc"), {0})
    assert removed.without({1, 3}) == removal(list("abc"), set())


def test_a_merge_of_many_rules_takes_time_in_proportion() -> None:
    """Each former neighbour is sought among the current rules, also those that stand in another order now."""
    texts = [str(number) for number in range(20_000)]
    removed = removal(texts, {*range(0, 20_000, 2)})
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
    taken_of = [removal(list(text), {number for number, one in enumerate(text) if one in gone}) for text, gone in removals]
    rules = {PLACE: tuple(map(ListedRule, now))}
    back = chain.restoration(taken_of, rules, lambda place, rule: "because" * (rule.text == "N"))
    for one in back.removed:
        rules[PLACE] = chain.merge(rules[PLACE], one).rules
    assert "".join(rule.text for rule in rules[PLACE]) == after
    assert sorted(text for one in back.removed for text in one.texts) == [text for text in "XY" if text in after]
    barred = [one.rules[number].text for one, numbers in back.barred.items() for number in numbers]
    assert barred == ["N"] * ("N" in removals[0][0]) and all("because" in one for one in back.differences if "N" in one)


# Rules of iptables: read as iptables-save prints them, removed by text, and restored by a script


def test_scripts_remove_by_text_and_restore_by_position() -> None:
    assert iptables.removal_script(taken(), iptables.chains(SAVED)).splitlines() == [
        *("*nat", "-D POSTROUTING -j SWIFT", f"-D SWIFT {DNS}", "-X SWIFT", "COMMIT"),
    ]
    now = iptables.chains("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j NEW\n-A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE\n")
    assert iptables.restoration_script(taken(), now).splitlines() == [
        *("*nat", "-N SWIFT", "-I POSTROUTING 3 -j SWIFT", f"-I SWIFT 1 {DNS}", "COMMIT"),
    ]
    assert iptables.restoration_script(taken(), iptables.chains(SAVED)) == ""


def test_a_rule_that_is_gone_is_not_removed_and_a_chain_with_other_rules_stays() -> None:
    now = iptables.chains("*nat\n:POSTROUTING ACCEPT [0:0]\n:SWIFT - [0:0]\n-A POSTROUTING -j SWIFT\n-A SWIFT -j RETURN\n")
    assert iptables.removal_script(taken(), now).splitlines() == ["*nat", "-D POSTROUTING -j SWIFT", "COMMIT"]
    assert iptables.removal_script(taken(), {"POSTROUTING": ()}) == ""


def test_two_runs_on_one_chain_are_put_back_in_one_script() -> None:
    """The position of the second rule counts the first."""
    rules = tuple(map(ListedRule, ("-j A", "-j SWIFT", "-j SWIFT-POSTROUTING")))
    newest = RemovedRules(NAT.at("POSTROUTING"), rules[::2], frozenset({1}))
    oldest = RemovedRules(NAT.at("POSTROUTING"), rules, frozenset({1}))
    assert iptables.restoration_script(TableRemoval(NAT, (newest, oldest)), {"POSTROUTING": rules[:1]}).splitlines() == [
        *("*nat", "-I POSTROUTING 2 -j SWIFT-POSTROUTING", "-I POSTROUTING 2 -j SWIFT", "COMMIT"),
    ]


@pytest.mark.parametrize("place", ["inet nat (nft)", "ip kube-proxy (nft)", "ip nat", "bridge nat (nft)"])
def test_a_table_that_iptables_does_not_have_is_none(place: str) -> None:
    assert iptables.table_at(place) is None


def test_the_rules_of_a_table_are_read_in_order() -> None:
    saved = (
        "# by iptables\n*nat\n:POSTROUTING ACCEPT [0:0]\n:SWIFT - [0:0]\n-A POSTROUTING -j SWIFT\n-A SWIFT -j RETURN\nCOMMIT\n"
    )
    assert iptables.rules(NAT, saved) == [Rule(NAT, "POSTROUTING", "-j SWIFT"), Rule(NAT, "SWIFT", "-j RETURN")]
    assert iptables.table_at(str(NAT)) == NAT


def test_a_rule_is_removed_by_the_text_that_iptables_save_shows() -> None:
    """It writes quotes and backslashes in a comment with a backslash, and $ as it is."""
    text = r"""-m comment --comment "it\'s \"a\" \\ $(id)" -j REJECT"""
    rule = Rule(iptables.Table("ip", "filter", "nft"), "FORWARD", text)
    words = ["-D", "FORWARD", "-m", "comment", "--comment", 'it\'s "a" \\ $(id)', "-j", "REJECT"]
    assert shlex.split(rule.deletion)[-len(words) :] == words
