# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of what iptables-save prints, and changes of it."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import Selection

FILTER = """\
*filter
:INPUT ACCEPT [3:180]
:A - [0:0]
:B - [0:0]
-A INPUT -j A
-A A -s 192.0.2.1/32 -j B
-A A -s 192.0.2.2/32 -j DROP
[1:60] -A A -j RETURN
-A B -j ACCEPT
COMMIT
"""
NAT = """\
*nat
:POSTROUTING ACCEPT [0:0]
:A - [0:0]
-A POSTROUTING -j A
-A A -j MASQUERADE
COMMIT
"""
OF_A = Selection({"INPUT": None, "A": None}, (), rules={"INPUT": {0}, "A": {1, 2}})
PART = """\
*filter
:INPUT ACCEPT [3:180]
:A - [0:0]
-A INPUT -j A
-A A -s 192.0.2.2/32 -j DROP
[1:60] -A A -j RETURN
COMMIT
"""


def test_selected_chains_and_rules_remain_in_their_order() -> None:
    assert iptables_save.select("ip", FILTER, {("ip", "filter"): OF_A}) == PART


@pytest.mark.parametrize("end", ["COMMIT\n", ""], ids=["whole", "cut"])
def test_a_part_of_each_of_several_tables_is_selected(end: str) -> None:
    both = {("ip", "filter"): OF_A, ("ip", "nat"): Selection(["A"], (), rules={"A": {0}})}
    text, part = FILTER.removesuffix("COMMIT\n") + end, PART.removesuffix("COMMIT\n") + end
    of_nat = f"*nat\n:A - [0:0]\n-A A -j MASQUERADE\n{end}"
    nat = NAT.removesuffix("COMMIT\n") + end
    assert iptables_save.select("ip", text + nat, both) == part + of_nat
    assert iptables_save.select("ip", nat + text, both) == of_nat + part


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rules_come_before_all_others_or_behind_them(end: str) -> None:
    text = NAT.replace("\n", end)
    rules = ["-A PREROUTING -d 192.0.2.1/32 -j DNAT --to-destination 192.0.2.2", "-A POSTROUTING -j ACCEPT"]
    for is_first, order in ((True, ["ACCEPT", "A", "MASQUERADE"]), (False, ["A", "ACCEPT", "MASQUERADE"])):
        table = iptables_save.read("ip", "nat", iptables_save.with_rules(text, rules, is_first))
        targets = [rule.verdict or rule.statements[0] for name in ("POSTROUTING", "A") for rule in table.chains[name].rules]
        assert [each.target or each.kind.upper() for each in targets] == order
        assert table.chains["PREROUTING"].policy == "accept" and len(table.chains["PREROUTING"].rules) == 1


def test_a_policy_is_that_of_one_chain() -> None:
    table = iptables_save.read("ip", "filter", iptables_save.with_policy(FILTER, "INPUT", "DROP"))
    assert {name: chain.policy for name, chain in table.chains.items()} == {"INPUT": "drop", "A": "", "B": ""}
