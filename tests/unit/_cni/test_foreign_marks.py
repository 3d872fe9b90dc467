# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The marks of other programs, and those that are free beside them."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import foreign_marks
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.foreign_marks import ForeignMark
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import uplinks
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery.uplinks import Occupied
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_text
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import ALL

WG_QUICK = """table ip wg-quick-wg0 {
    chain premangle {
        type filter hook prerouting priority mangle; policy accept;
        meta l4proto udp meta mark set ct mark
    }
    chain postmangle {
        type filter hook postrouting priority mangle; policy accept;
        meta l4proto udp meta mark 0x0000ca6c ct mark set meta mark
    }
}
"""
MANGLE = """*mangle
-A PREROUTING -m comment --comment "AWS, primary ENI" -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -j CONNMARK --restore-mark --nfmask 0x30 --ctmask 0x30
-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A OUTPUT -m connmark ! --mark 0x7 -j MARK --set-xmark 0x6d6f6c65/0xffffffff
COMMIT
"""


def texts(text: str, comment: str = "") -> list[tuple[str, str]]:
    tables = iptables_save.tables("ip", text) if text.startswith("*") else nft_text.tables(text)
    return [(mark.text, mark.owner) for mark in foreign_marks.of_tables(tables, "kubenodeReturnPath", comment)]


def test_the_chains_of_other_programs_show_the_marks_that_they_set_copy_and_test() -> None:
    assert texts(WG_QUICK) == [("0xca6c", "table ip wg-quick-wg0, chain postmangle")]
    assert texts(WG_QUICK.replace("wg-quick-wg0", "kubenodeReturnPath")) == []
    assert texts(MANGLE, "AWS, primary ENI") == texts(MANGLE)[1:] == [
        ("0x30/0x30", "table ip mangle, chain PREROUTING"),
        ("0x4000/0x4000", "table ip mangle, chain FORWARD"),
        ("0x4000/0x4000", "table ip mangle, chain POSTROUTING"),
        ("0x6d6f6c65", "table ip mangle, chain OUTPUT"),
        ("0x7", "table ip mangle, chain OUTPUT"),
    ]  # fmt: skip


def test_policy_rules_show_the_marks_that_they_test_also_of_negated_ones() -> None:
    negated = Rule(2, 32764, fwmark=0xCA6C, fwmask=ALL, invert=True, table=51820)
    rules = [(negated, 3), (Rule(2, 1200, fwmark=4, fwmask=6, table=1003), 75), (Rule(2, 32766, table=254), 2)]
    assert [*foreign_marks.of_rules(rules, 75)] == [
        ForeignMark(0xCA6C, ALL, "ip rule 32764: not from all fwmark 0xca6c/0xffffffff lookup 51820")
    ]


@pytest.mark.parametrize(
    ("mark", "mask", "own", "own_mask", "collides"),
    [
        (0xCA6C, ALL, 0x4, 0x6, True),
        (0xCA6C, ALL, 0x2, 0x6, False),
        (0xCA6E, ALL, 0x1000, 0x1002, False),
        (0xCA6E, ALL, 0x2, 0x1002, True),
        (0x4, 0x4, 0x6, 0x46, True),
        (0x539, 0xFFF, 0x2, 0x6, False),
    ],
)
def test_a_rule_takes_a_packet_whose_mark_has_the_bits_that_it_tests(
    mark: int, mask: int, own: int, own_mask: int, collides: bool
) -> None:
    assert ForeignMark(mark, mask, "x").collides(own, own_mask) == collides


def marks(count: int, occupied: Occupied, **former: int) -> list[int]:
    listed = uplinks.from_option([{"name": f"eth{number}"} for number in range(count)])
    return [int(entry["mark"], 0) for entry in uplinks.remarked(listed, occupied, former)]


@pytest.mark.parametrize(
    ("whole", "by_bit", "expected"),
    [
        (0, 0, [0x2, 0x4, 0x6]),
        (0xCA6C, 0, [0x2, 0x1000, 0x1002]),
        (0xCA6E, 0, [0x1000, 0x1002, 0x1004]),
        (0, 0x4, [0x2, 0x40, 0x42]),
        (0xCA6F | 0x6D6F6C65, 0x1004, None),
    ],
)
def test_an_uplink_gets_a_mark_that_no_foreign_mark_has(whole: int, by_bit: int, expected: list[int] | None) -> None:
    if expected:
        assert marks(3, Occupied(by_bit, whole)) == expected
        mask = expected[0] | expected[1] | expected[2]
        assert not any(ForeignMark(whole, ALL, "x").collides(mark, mask) for mark in expected if whole)
    else:
        with pytest.raises(Invalid, match=r"uplinks\[0\]\.mark must be given, because only 0 marks are free"):
            marks(3, Occupied(by_bit, whole))


def test_a_mark_in_force_stays_unless_another_program_has_come_to_use_it() -> None:
    assert marks(2, Occupied(), eth1=0x1000) == [0x2, 0x1000]
    assert marks(2, Occupied(whole=0xCA6C), eth0=0x40, eth1=0x1000) == [0x2, 0x1000]
    listed = uplinks.from_option([{"name": "eth0"}, {"name": "eth1", "mark": "0x2"}])
    assert [entry["mark"] for entry in uplinks.remarked(listed, Occupied(whole=0xCA6E), {"eth0": 0x2})] == ["0x1000", "0x2"]
    assert uplinks.remarked(listed, Occupied(), {}) is listed
