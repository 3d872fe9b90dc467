# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of connections: those of CNIs and of other programs, and those that are free."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import foreign_marks, marks
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.foreign_marks import ForeignMark
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.marks import Marks
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import uplinks
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery.uplinks import Occupied
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_text
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import ALL, LEGACY, Table

# Which program marks connections, by the rules of a node


AWS_SET = (
    '-A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in'
    " -j CONNMARK --set-xmark 0x80/0x80"
)
AWS_RESTORE = (
    '-A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80'
)
CILIUM = [
    '-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle',
    '-A CILIUM_PRE_mangle -m socket --transparent -m comment --comment "cilium: any" -j MARK --set-xmark 0x200/0xffffffff',
    '-A CILIUM_PRE_mangle -i ens5 -m comment --comment "cilium: primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in'
    " -j CONNMARK --set-xmark 0x80/0x80",
    '-A CILIUM_PRE_mangle -i lxc+ -m comment --comment "cilium: primary ENI" -j CONNMARK --restore-mark --nfmask 0x80'
    " --ctmask 0x80",
]
TERWAY = [
    "-A PREROUTING -i eth0 -m comment --comment terway-symmetric -j CONNMARK --set-xmark 0x20/0x30",
    "-A PREROUTING -m comment --comment terway-symmetric -j CONNMARK --restore-mark --nfmask 0x30 --ctmask 0x30",
]
CALICO = [
    '-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING',
    '-A cali-PREROUTING -m comment --comment "cali:6BJqBjBC7crtA-7-" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
]


# As cmd/terway-cli writes them with nftables.
TERWAY_NFT = """table ip terway_symmetric {
    chain prerouting {
        type filter hook prerouting priority mangle; policy accept;
        iifname "eth0" ct mark set ct mark & 0xffffffef | 0x00000020 comment "terway-symmetric"
        meta mark set ct mark & 0x00000030 comment "terway-symmetric"
    }
}
"""


def saved(*rules: str) -> Table:
    text = "\n".join(["*nat", "-A PREROUTING -j NOWHERE", "COMMIT", "*mangle", ":PREROUTING ACCEPT [0:0]", *rules, "COMMIT", ""])
    return iptables_save.read("ip", "mangle", text, LEGACY)


def test_the_marks_of_each_cni_are_found() -> None:
    place = "table ip mangle (legacy)"
    assert marks.find([saved(AWS_SET, AWS_RESTORE)]) == [Marks("amazon-vpc-cni", place, "eth0", 0x80, 0x80)]
    assert marks.find([saved(*CILIUM)]) == [Marks("Cilium", place, "ens5", 0x80, 0x80)]
    assert marks.find([saved(*TERWAY)]) == [Marks("Terway", place, "eth0", 0x20, 0x30)]
    assert marks.find([saved(*TERWAY, *CILIUM)]) == [
        Marks("Cilium", place, "ens5", 0x80, 0x80),
        Marks("Terway", place, "eth0", 0x20, 0x30),
    ]
    assert marks.find([saved(), saved(*CALICO)]) == []
    assert marks.find(nft_text.tables(TERWAY_NFT)) == [Marks("Terway", "table ip terway_symmetric (nft)", "eth0", 0x20, 0x30)]


HIDDEN = "a rule of chain cali-PREROUTING accepts packets before they reach them"


@pytest.mark.parametrize(
    ("rules", "trouble"),
    [
        ([AWS_SET, AWS_RESTORE, *CALICO], ""),
        ([*CALICO, AWS_SET, AWS_RESTORE], HIDDEN),
        ([AWS_SET, *CALICO, AWS_RESTORE], HIDDEN),
        (["-A PREROUTING -i wg0 -j ACCEPT", AWS_SET, AWS_RESTORE], ""),
        (["-A PREROUTING -i eth+ -j ACCEPT", AWS_SET, AWS_RESTORE], "a rule of chain PREROUTING accepts packets before"),
        (["-A PREROUTING -i eni12+ -j ACCEPT", AWS_SET, AWS_RESTORE], "a rule of chain PREROUTING accepts packets before"),
        (["-A PREROUTING -i eni12 -j ACCEPT", AWS_SET, AWS_RESTORE], "a rule of chain PREROUTING accepts packets before"),
        ([AWS_SET], "no rule copies the mark to the packets of pods"),
        ([AWS_SET, AWS_RESTORE.replace("0x80", "0x40")], "no rule copies the mark to the packets of pods"),
    ],
)
def test_marks_that_not_all_packets_get_are_told(rules: list[str], trouble: str) -> None:
    (found,) = marks.find([saved(*rules)])
    assert found.trouble.startswith(trouble) and bool(found.trouble) == bool(trouble)


def test_chains_that_lead_to_each_other_end() -> None:
    loop = ["-A PREROUTING -j a", "-A a -j b", "-A b -j a"]
    assert len(marks.find([saved(*loop, AWS_SET, AWS_RESTORE)])) == 1


def test_rules_in_a_chain_that_is_not_entered_do_not_count() -> None:
    assert marks.find([saved(*CILIUM[1:])]) == []


@pytest.mark.parametrize(
    ("layout", "rules", "mark", "is_complete", "reason"),
    [
        (
            "aws_vpc_cni", [AWS_SET, AWS_RESTORE], None, True,
            "Rules of amazon-vpc-cni in table ip mangle (legacy) mark connections with 0x80/0x80.",
        ),
        ("aws_vpc_cni", [], None, False, "No rule of amazon-vpc-cni marks connections that come in by eth0."),
        ("aws_vpc_cni", TERWAY, None, False, "No rule of amazon-vpc-cni marks connections that come in by eth0."),
        ("custom", [AWS_SET, AWS_RESTORE], None, False, "The layout custom has no CNI that marks connections."),
        (
            "aws_vpc_cni", [*CALICO, AWS_SET, AWS_RESTORE], None, False,
            "Rules of amazon-vpc-cni in table ip mangle (legacy) mark connections with 0x80/0x80, but that does not suffice:"
            f" {HIDDEN}.",
        ),
        (
            "cilium", CILIUM, None, False,
            "Rules of Cilium in table ip mangle (legacy) mark connections with 0x80/0x80, but that does not suffice: they do so"
            " for ens5, and requests come in by eth0.",
        ),
        ("terway", TERWAY, (0x20, 0x30), True, "Rules of Terway in table ip mangle (legacy) mark connections with 0x20/0x30."),
        (
            "terway", TERWAY, (0x10, 0x10), False,
            "Rules of Terway in table ip mangle (legacy) mark connections with 0x20/0x30, but that does not suffice: 0x10/0x10"
            " was given.",
        ),
    ],
)  # fmt: skip
def test_the_verdict_gives_its_reason(
    layout: str, rules: list[str], mark: tuple[int, int] | None, is_complete: bool, reason: str
) -> None:
    verdict = marks.verdict(layout, "eth0", marks.find([saved(*rules)]), "", mark)
    assert (verdict.is_complete, verdict.reason) == (is_complete, reason)


def test_of_several_tables_the_one_without_trouble_decides_and_what_was_not_read_is_told() -> None:
    tables = [saved(*CALICO, AWS_SET, AWS_RESTORE), saved(AWS_SET, AWS_RESTORE)]
    assert marks.verdict("aws_vpc_cni", "eth0", marks.find(tables)).is_complete
    assert marks.verdict("terway", "eth0", marks.find(tables), "Not read.").reason.endswith("come in by eth0. Not read.")


# The marks of other programs, and those that are free beside them


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


def free(count: int, occupied: Occupied, **former: int) -> list[int]:
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
        assert free(3, Occupied(by_bit, whole)) == expected
        mask = expected[0] | expected[1] | expected[2]
        assert not any(ForeignMark(whole, ALL, "x").collides(mark, mask) for mark in expected if whole)
    else:
        with pytest.raises(Invalid, match=r"uplinks\[0\]\.mark must be given, because only 0 marks are free"):
            free(3, Occupied(by_bit, whole))


def test_a_mark_in_force_stays_unless_another_program_has_come_to_use_it() -> None:
    assert free(2, Occupied(), eth1=0x1000) == [0x2, 0x1000]
    assert free(2, Occupied(whole=0xCA6C), eth0=0x40, eth1=0x1000) == [0x2, 0x1000]
    listed = uplinks.from_option([{"name": "eth0"}, {"name": "eth1", "mark": "0x2"}])
    assert [entry["mark"] for entry in uplinks.remarked(listed, Occupied(whole=0xCA6E), {"eth0": 0x2})] == ["0x1000", "0x2"]
    assert uplinks.remarked(listed, Occupied(), {}) is listed
