# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which program marks connections, from the rules of iptables-save and from the kernel's encoding of nf_tables."""

from __future__ import annotations

import struct
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import mangle, marks
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.mangle import ACCEPT, JUMP, RESTORE, SET, Line
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.marks import Chains, Marks
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack

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


def saved(*rules: str) -> Chains:
    text = "\n".join(["*nat", "-A PREROUTING -j NOWHERE", "COMMIT", "*mangle", ":PREROUTING ACCEPT [0:0]", *rules, "COMMIT", ""])
    return Chains("table ip mangle (legacy)", "PREROUTING", mangle.from_save(text, "mangle"))


def test_the_rules_of_amazon_vpc_cni_are_read() -> None:
    assert saved(AWS_SET, AWS_RESTORE).lines == [
        Line("PREROUTING", "AWS, primary ENI", "eth0", SET, 0x80, 0x80),
        Line("PREROUTING", "AWS, primary ENI", "eni+", RESTORE, 0, 0x80),
    ]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("-A a -j ACCEPT", Line("a", verb=ACCEPT)),
        ("-A a ! -i eth0 -j ACCEPT", Line("a", verb=ACCEPT)),
        ("-A a -i eth0 -g b", Line("a", link="eth0", verb=JUMP, target="b")),
        ("-A a -p tcp", Line("a")),
        ("-A a -j CONNMARK --set-xmark 0x7", Line("a", verb=SET, mark=7, mask=0xFFFFFFFF)),
        ("-A a -j CONNMARK --restore-mark", Line("a", verb=RESTORE, mask=0xFFFFFFFF)),
        ("-A a -j CONNMARK --restore-mark --mask 0xf0", Line("a", verb=RESTORE, mask=0xF0)),
        ("-A a -j CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xf0", Line("a", verb=JUMP, target="CONNMARK")),
    ],
)
def test_a_rule_of_iptables_save_is_read(rule: str, line: Line) -> None:
    assert saved(rule).lines == [line]


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


# As the kernel encodes them


def listed(*expressions: tuple[str, dict[int, bytes]]) -> bytes:
    """NFTA_RULE_EXPRESSIONS: a list of names with attributes."""
    packed = [pack({1: name.encode() + b"\0", 2: pack(found)}) for name, found in expressions]
    return b"".join(pack({1: one}) for one in packed)


def big(number: int) -> bytes:
    return struct.pack(">i", number)


def value(data: bytes) -> bytes:
    return pack({1: data})


def native(number: int) -> bytes:
    return struct.pack("=I", number)


def entering(name: bytes, operation: int = 0) -> list[tuple[str, dict[int, bytes]]]:
    return [("meta", {2: big(6), 1: big(1)}), ("cmp", {1: big(1), 2: big(operation), 3: value(name)})]


def connmark(revision: int, mark: int, mask: int, of_packet: int, mode: int) -> tuple[str, dict[int, bytes]]:
    info = struct.pack("=III", mark, mask, of_packet) + bytes(2 * (revision > 1)) + bytes([mode, 0])
    return "target", {1: b"CONNMARK\0", 2: big(revision), 3: info}


def verdict(code: int, chain: str = "") -> tuple[str, dict[int, bytes]]:
    found = {1: big(code), **({2: chain.encode() + b"\0"} if chain else {})}
    return "immediate", {1: big(0), 2: pack({2: pack(found)})}


COMMENT = ("match", {1: b"comment\0", 2: big(0), 3: b"AWS, primary ENI".ljust(256, b"\0")})
CT_MARK = ("ct", {2: big(3), 1: big(1)})
ENCODED: list[tuple[list[t.Any], bytes, Line]] = [
    ([*entering(b"eth0\0"), COMMENT, connmark(1, 8, 8, 0xFFFFFFFF, 0)], b"", Line("a", "AWS, primary ENI", "eth0", SET, 8, 8)),
    ([*entering(b"eni"), COMMENT, connmark(2, 0, 8, 8, 2)], b"", Line("a", "AWS, primary ENI", "eni+", RESTORE, 0, 8)),
    ([connmark(2, 0, 0x80, 0x80, 1)], b"", Line("a")),
    ([connmark(1, 0, 0x80, 0xF, 2)], b"", Line("a", verb=RESTORE, mask=0)),
    ([("target", {1: b"CONNMARK\0", 2: big(2), 3: b"short"})], b"", Line("a")),
    ([verdict(1)], b"\0\5hello", Line("a", "hello", verb=ACCEPT)),
    ([*entering(b"eth0\0", 1), verdict(1)], b"", Line("a", verb=ACCEPT)),
    ([verdict(0)], b"", Line("a")),
    ([verdict(-5)], b"", Line("a")),
    ([verdict(-3, "b")], b"terway", Line("a", "terway", verb=JUMP, target="b")),
    ([verdict(-4, "b")], b"", Line("a", verb=JUMP, target="b")),
    (
        [
            *entering(b"eth0".ljust(16, b"\0")), CT_MARK,
            ("bitwise", {4: value(native(0xFFFFFFCF)), 5: value(native(0x20))}), ("ct", {2: big(3), 4: big(1)}),
        ],
        b"terway-symmetric", Line("a", "terway-symmetric", "eth0", SET, 0x20, 0x30),
    ),
    (
        [CT_MARK, ("bitwise", {4: value(native(0x30)), 5: value(native(0))}), ("meta", {2: big(3), 3: big(1)})],
        b"", Line("a", verb=RESTORE, mask=0x30),
    ),
    (
        [("immediate", {1: big(8), 2: value(native(0x20))}), ("ct", {2: big(3), 4: big(8)})],
        b"", Line("a", verb=SET, mark=0x20, mask=0xFFFFFFFF),
    ),
    ([("immediate", {1: big(8), 2: value(native(0x20))}), ("meta", {2: big(3), 3: big(8)})], b"", Line("a")),
]  # fmt: skip


@pytest.mark.parametrize(("expressions", "userdata", "line"), ENCODED)
def test_a_rule_in_the_kernels_encoding_is_read(expressions: list[t.Any], userdata: bytes, line: Line) -> None:
    assert mangle.from_nft("a", listed(*expressions), userdata) == line
