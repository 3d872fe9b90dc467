# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The readers of a ruleset, on rules as each tool and the kernel show them."""

from __future__ import annotations

import struct
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import iptables_save, nft_netlink, nft_text, observed
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import (
    ACCEPT,
    ALL,
    CONNECTION_MARK,
    DNAT,
    DROP,
    GOTO,
    JUMP,
    MASQUERADE,
    PACKET_MARK,
    SNAT,
    TRANSLATES_SOURCE,
    WRITES_MARK,
    Bits,
    Match,
    Rule,
    Statement,
)


def setting(bits: Bits, target: str = "") -> Statement:
    return Statement(CONNECTION_MARK, target, bits)


def restoring(of_connection: int, of_packet: int | None = None, target: str = "ct mark") -> Statement:
    written = ALL & ~of_connection if of_packet is None else of_packet
    return Statement(PACKET_MARK, target, Bits(packet=written, connection=of_connection))


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
ENCODED: list[tuple[list[t.Any], bytes, Rule]] = [
    (
        [*entering(b"eth0\0"), COMMENT, connmark(1, 8, 8, ALL, 0)],
        b"",
        Rule("a", (Match("iifname", ("eth0",)),), (setting(Bits(constant=8, connection=ALL & ~8), "0x8"),), "AWS, primary ENI"),
    ),
    (
        [*entering(b"eni"), COMMENT, connmark(2, 0, 8, 8, 2)],
        b"",
        Rule("a", (Match("iifname", ("eni*",)),), (restoring(8),), "AWS, primary ENI"),
    ),
    ([connmark(2, 0, 0x80, 0x80, 1)], b"", Rule("a", (), (setting(Bits(packet=0x80, connection=ALL & ~0x80), "meta mark"),))),
    ([connmark(1, 0, 0x80, 0xF, 2)], b"", Rule("a", (), (restoring(0, ALL & ~0xF),))),
    ([("target", {1: b"CONNMARK\0", 2: big(2), 3: b"short"})], b"", Rule("a")),
    ([verdict(1)], b"\0\5hello", Rule("a", (), (Statement(ACCEPT),), "hello")),
    ([*entering(b"eth0\0", 1), verdict(1)], b"", Rule("a", (), (Statement(ACCEPT),))),
    ([verdict(0)], b"", Rule("a", (), (Statement(DROP),))),
    ([verdict(-5)], b"", Rule("a")),
    ([verdict(-3, "b")], b"terway", Rule("a", (), (Statement(JUMP, "b"),), "terway")),
    ([verdict(-4, "b")], b"", Rule("a", (), (Statement(GOTO, "b"),))),
    (
        [
            *entering(b"eth0".ljust(16, b"\0")),
            CT_MARK,
            ("bitwise", {4: value(native(0xFFFFFFCF)), 5: value(native(0x20))}),
            ("ct", {2: big(3), 4: big(1)}),
        ],
        b"terway-symmetric",
        Rule(
            "a",
            (Match("iifname", ("eth0",)),),
            (setting(Bits(constant=0x20, connection=0xFFFFFFCF)),),
            "terway-symmetric",
        ),
    ),
    (
        [CT_MARK, ("bitwise", {4: value(native(0x30)), 5: value(native(0))}), ("meta", {2: big(3), 3: big(1)})],
        b"",
        Rule("a", (), (restoring(0x30, 0, ""),)),
    ),
    (
        [("immediate", {1: big(8), 2: value(native(0x20))}), ("ct", {2: big(3), 4: big(8)})],
        b"",
        Rule("a", (), (setting(Bits(constant=0x20)),)),
    ),
    (
        [("immediate", {1: big(8), 2: value(native(0x20))}), ("meta", {2: big(3), 3: big(8)})],
        b"",
        Rule("a", (), (Statement(PACKET_MARK, "", Bits(constant=0x20)),)),
    ),
]


@pytest.mark.parametrize(("expressions", "userdata", "rule"), ENCODED)
def test_a_rule_in_the_kernels_encoding_is_read(expressions: list[t.Any], userdata: bytes, rule: Rule) -> None:
    assert nft_netlink.rule("a", 1, listed(*expressions), userdata) == rule


@pytest.mark.parametrize(
    ("line", "matches", "statements"),
    [
        ("-A a -j ACCEPT", (), (Statement(ACCEPT),)),
        ("-A a ! -i eth0 -j ACCEPT", (Match("iifname", ("eth0",), True),), (Statement(ACCEPT),)),
        ("-A a -i eth+ -g b", (Match("iifname", ("eth*",)),), (Statement(GOTO, "b"),)),
        ("-A a -p tcp", (Match("meta l4proto", ("tcp",)),), ()),
        ("-A a -j CONNMARK --set-xmark 0x7", (), (setting(Bits(constant=7), "0x7"),)),
        ("-A a -j CONNMARK --or-mark 0x80", (), (setting(Bits(connection=ALL & ~0x80, constant=0x80), "0x80"),)),
        ("-A a -j CONNMARK --and-mark 0x80", (), (setting(Bits(connection=0x80), "0x0"),)),
        ("-A a -j CONNMARK --restore-mark", (), (restoring(ALL),)),
        ("-A a -j CONNMARK --restore-mark --mask 0xf0", (), (restoring(0xF0),)),
        (
            "-A a -j CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xf0",
            (),
            (setting(Bits(packet=0xF0, connection=ALL & ~0xF0), "meta mark"),),
        ),
        ("-A a -j MARK --set-xmark 0x4/0x6", (), (Statement(PACKET_MARK, "0x4", Bits(packet=ALL & ~6, constant=4)),)),
        ("-A a -m mark ! --mark 0x4000/0x4000 -j a", (Match(PACKET_MARK, ("16384/16384",), True),), (Statement(JUMP, "a"),)),
        (
            '-A a -d 10.96.0.1/32 -m comment --comment "-j DROP \\"x" -m tcp --dport 443:445 -j DNAT --to-destination 10.0.0.1:8',
            (Match("ip daddr", ("10.96.0.1",)), Match("th dport", ("443-445",))),
            (Statement(DNAT, "10.0.0.1:8"),),
        ),
        ("-A a -m set --match-set x src -j MASQUERADE", (Match("set", ("@x src",)),), (Statement(MASQUERADE),)),
        ("-A a -m multiport --dports 80,90: -j LOG", (Match("th dport", ("80", "90-65535")),), (Statement("log"),)),
        ("-A a -m addrtype --dst-type LOCAL", (Match("addrtype --dst-type", ("LOCAL",)),), ()),
    ],
)
def test_a_rule_of_iptables_save_is_read(line: str, matches: tuple[Match, ...], statements: tuple[Statement, ...]) -> None:
    read = iptables_save.rule("ip", line)
    assert (read.chain, read.matches, read.statements, read.line) == ("a", matches, statements, line)
    assert_its_line_tells_its_kind(read)


@pytest.mark.parametrize(
    ("line", "matches", "statements"),
    [
        ("tcp dport 22 accept", (Match("meta l4proto", ("tcp",)), Match("th dport", ("22",))), (Statement(ACCEPT),)),
        ('iifname != { "a", "b*" } drop', (Match("iifname", ("a", "b*"), True),), (Statement(DROP),)),
        ("ct original ip saddr @s counter packets 1 bytes 2 drop", (Match("ct original ip saddr", ("@s",)),), ("counter", DROP)),
        ("ip saddr 10.0.0.0/8 snat to 1.1.1.1", (Match("ip saddr", ("10.0.0.0/8",)),), (Statement(SNAT, "1.1.1.1"),)),
        ('limit rate 10/second burst 5 packets log prefix "drop all" accept', (), ("limit", "log", ACCEPT)),
        ("meta mark set ip saddr map @m", (), (Statement(PACKET_MARK, "ip saddr", Bits(constant=ALL)),)),
    ],
)
def test_a_rule_of_nfts_text_is_read(line: str, matches: tuple[Match, ...], statements: tuple[t.Any, ...]) -> None:
    read = nft_text.rule("a", line)
    assert read.matches[: len(matches)] == matches
    assert [*statements] == [got if isinstance(want, Statement) else got.kind for got, want in zip(read.statements, statements)]
    assert_its_line_tells_its_kind(read)


def assert_its_line_tells_its_kind(rule: Rule) -> None:
    """Checks read only rules whose line tells that they write a mark, or translate a source."""
    writes = any(each.kind in (PACKET_MARK, CONNECTION_MARK) for each in rule.statements)
    assert bool(WRITES_MARK.search(rule.line)) == writes
    assert bool(TRANSLATES_SOURCE.search(rule.line)) == rule.translates_source()


@pytest.mark.parametrize("line", ["meta mark set 0x1", "ct mark set  meta mark or 0x4", "masquerade", "counter snat to 1.1.1.1"])
def test_further_lines_of_nft_tell_their_kind(line: str) -> None:
    assert_its_line_tells_its_kind(nft_text.rule("a", line))


def test_of_a_table_the_rules_of_a_kind_are_read() -> None:
    rules = ["tcp dport 1 jump mark-for-masquerade", "meta mark set 0x1", "drop", "masquerade fully-random"]
    (table,) = nft_text.tables("table ip x {\nchain a {\n" + "\n".join(rules) + "\n}\n}\n")
    found = [[rule.line for rule in table.rules(pattern)] for pattern in (WRITES_MARK, TRANSLATES_SOURCE)]
    assert found == [[rules[1]], [rules[3]]]
    assert [rule.line for rule in table.rules()] == rules


def test_a_chains_own_comment_is_no_rule_and_its_sets_may_be_cut() -> None:
    text = """table ip t {
\tmap m {
\t\ttype ipv4_addr : verdict
\t\telements = { 192.0.2.1 : drop, 192.0.2.2 : goto }
\t}
\tchain c {
\t\tcomment "of the site"
\t\ttype filter hook input priority filter; policy drop; counter
\t\ttcp dport vmap { 80 : accept, 443 : jump }
\t}
}
"""
    (table,) = nft_text.tables(text)
    chain = table.chains["c"]
    assert (chain.hook, chain.kind, chain.policy) == ("input", "filter", "drop")
    assert [rule.line for rule in chain.rules] == ["counter", "tcp dport vmap { 80 : accept, 443 : jump }"]
    assert [element.statement for element in table.sets["m"]] == [Statement("drop"), Statement("goto")]
    assert nft_text.counted(text)["ip", "t"][0] == {"c": 2}


DORMANT = [
    {"nftables_text": 'table ip t {\n\tcomment "a"\n\tflags owner, dormant\n\n\tchain c {\n\t}\n}\ntable ip u {\n}\n'},
    {
        "nftables": [
            {"table": {"family": "ip", "name": name, "flags": flags}} for name, flags in (("t", "dormant"), ("u", "owner"))
        ]
    },
]


@pytest.mark.parametrize("snapshot", DORMANT, ids=["text", "JSON"])
def test_a_table_that_no_packet_meets_is_no_part_of_the_ruleset(snapshot: dict[str, t.Any]) -> None:
    assert [str(table) for table in observed.of_nft(snapshot)] == ["ip u"]
