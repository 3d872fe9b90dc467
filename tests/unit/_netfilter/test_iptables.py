# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of iptables: read as iptables-save prints them, removed by text, and restored by a script."""

from __future__ import annotations

import shlex

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import iptables
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Rule, TableRemoval
from unit.swift_chain import DNS, NAT, SAVED, taken


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
