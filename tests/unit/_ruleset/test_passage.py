# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rule drops every packet of a kind only if no rule before it may accept one."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_json, passage
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import Table

PACKET: passage.Packet = {"meta l4proto": "icmp".__eq__, "ct state": "related".__eq__, "iifname": "eth0".__eq__}
ACCEPT, DROP = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A INPUT -p icmp -j DROP"

OTHERS = "-A INPUT -m conntrack ! --ctstate ESTABLISHED -j REJECT"


def dropping(table: Table, chain: str = "INPUT") -> str | None:
    rule = passage.dropping(table, chain, PACKET)
    return rule and (rule.line or rule.chain)


@pytest.mark.parametrize(
    ("rules", "policy", "line"),
    [
        ([DROP], "ACCEPT", DROP),
        ([ACCEPT, DROP], "ACCEPT", None),
        (["-A INPUT -i lo -j ACCEPT", "-A INPUT -p tcp -j ACCEPT", DROP], "ACCEPT", DROP),
        (["-A INPUT -p icmp -m limit --limit 9/sec -j ACCEPT", DROP], "ACCEPT", None),
        (["-A INPUT -s 192.0.2.1/32 -j DROP"], "ACCEPT", None),
        (["-A INPUT -p tcp -j DROP", "-A INPUT ! -i eth0 -j DROP"], "ACCEPT", None),
        ([OTHERS], "ACCEPT", OTHERS),
        (["-A INPUT -p icmp -j A", "-A A -j DROP"], "ACCEPT", "-A A -j DROP"),
        (["-A INPUT -p icmp -j A", "-A A -j RETURN", "-A A -j DROP"], "ACCEPT", None),
        (["-A INPUT -m mark --mark 1 -j A", "-A A -j DROP"], "ACCEPT", None),
        (["-A INPUT -m set --match-set trusted src -j ACCEPT", DROP], "ACCEPT", None),
        (["-A INPUT -g A", DROP, "-A A -p tcp -j DROP"], "ACCEPT", None),
        (["-A INPUT -j A", "-A A -j INPUT", DROP], "ACCEPT", DROP),
        ([], "DROP", "INPUT policy drop"),
        ([ACCEPT], "DROP", None),
    ],
)  # fmt: skip
def test_a_rule_of_iptables(rules: list[str], policy: str, line: str | None) -> None:
    text = "\n".join(["*filter", f":INPUT {policy}", ":A -", *rules, "COMMIT", ""])
    assert dropping(iptables_save.read("ip", "filter", text)) == line


STATES = [["established", {"accept": None}], ["invalid", {"drop": None}]]


@pytest.mark.parametrize(
    ("statements", "is_dropped"),
    [
        ([{"drop": None}], True),
        ([{"limit": {"rate": 9, "per": "second", "inv": True}}, {"drop": None}], False),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [*STATES, ["related", {"drop": None}]]}}}], True),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [*STATES, ["related", {"accept": None}]]}}}], False),
        ([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": STATES}}}], False),
        ([{"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@marks"}}], False),
    ],
)
def test_a_rule_of_nft(statements: list[dict[str, object]], is_dropped: bool) -> None:
    about = {"family": "inet", "table": "t"}
    chain = {"chain": {**about, "name": "INPUT", "type": "filter", "hook": "input", "policy": "accept"}}
    (table,) = nft_json.tables([chain, {"rule": {**about, "chain": "INPUT", "expr": statements}}])
    assert (dropping(table) is not None) == is_dropped
