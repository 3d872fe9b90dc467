# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign rules and sets reach iptables-restore and ipset only as permitted words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_options import EBTABLES
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import (
    ipset_text,
    restore_text,
    rule_options,
    rule_words,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.rule_words import IPTABLES
from unit.foreign_tables import BRIDGED, SAVED, SETS


def test_tables_of_kubernetes_are_rendered_as_they_were_saved() -> None:
    assert restore_text.read(SAVED) == (SAVED, [])


def test_tables_of_ebtables_are_rendered_as_they_were_saved() -> None:
    assert restore_text.read(BRIDGED, EBTABLES) == (BRIDGED, [])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('-A  X\t-m comment --comment "a \\"b\\" \\\\"', ["-A", "X", "-m", "comment", "--comment", 'a "b" \\']),
        ('a"b c"d "" \\x', ["ab cd", "", "\\x"]),
        ("it's", ["it's"]),
    ],
)
def test_words_are_those_of_iptables_restore(line: str, words: list[str]) -> None:
    assert rule_words.split(line) == words


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=1), min_size=1))
def test_a_quoted_word_is_divided_as_itself(words: list[str]) -> None:
    assert rule_words.split(" ".join(map(rule_words.quote, words))) == words


def test_a_quote_without_its_end_is_refused() -> None:
    with pytest.raises(Unfit, match="each quote ends"):
        rule_words.split('-m comment --comment "a')


@pytest.mark.parametrize("line", ['"\\' * 50_000, '"a" ' * 30_000 + '"', '"' * 100_001])
def test_quotes_are_read_in_linear_time(line: str) -> None:
    started = time.process_time()
    with pytest.raises(Unfit, match="each quote ends"):
        rule_words.split(line)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "line",
    [
        '-A INPUT -m comment --comment "" --comment "-M" /x',
        "-A INPUT -m comment --comment ! --modprobe=/x",
        "-A INPUT -p comment --comment x",
        "-A INPUT -p ! -M",
        "-A INPUT -m tcp --tcp-flags SYN -M",
        "-A INPUT -p tcp --tcp-flags SYN -M",
        "-A INPUT -j",
        "-A INPUT !",
        "-A INPUT -g IDLETIMER",
        "-A -M /x",
        "-A INPUT -j DROP extra",
        "-A INPUT --protocol=tcp=udp -M",
        "-A INPUT -f=/x",
        "-A INPUT -m bpf --object-pinned=/x",
        "-I INPUT 1 2 -j DROP",
        "[0:0] COMMIT",
        "[0:0]",
        ":X ACCEPT [0:0",
        ":X /x",
        "* nat",
        "COMMIT now",
        "-A INPUT -m comment --comment \x1b",
    ],
)
def test_a_line_that_is_not_permitted_is_left_out(line: str) -> None:
    found = restore_text.read(f"*filter\n{line}\nCOMMIT\n")
    assert [given_line for given_line, _allowed in found.refused] == [line.strip()] and found.text == "*filter\nCOMMIT\n"


def test_an_empty_comment_becomes_a_blank_because_iptables_restore_overlooks_it() -> None:
    assert restore_text.read('-A X -m comment --comment "" -j Y\n').text == '-A X -m comment --comment " " -j Y\n'


@pytest.mark.parametrize("name", ["IDLETIMER", "LED", "AUDIT", "SECMARK", "SYSRQ"])
def test_targets_outside_of_the_namespace_are_neither_targets_nor_chains(name: str) -> None:
    assert name not in rule_options.TARGETS and not rule_words.is_chain(name)


HOSTILE = (
    "-M",
    "/x",
    "--modprobe=/x",
    "--modp",
    "-j IDLETIMER",
    '"',
    "\\",
    "\n",
    ";",
    "--object-pinned",
    "!",
    "-t nat",
    "include",
    "-m bpf",
)


@given(st.sampled_from(SAVED.splitlines()), st.data())
def test_what_is_put_into_a_line_never_survives_as_an_option(line: str, data: st.DataObject) -> None:
    for word in data.draw(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3)):
        place = data.draw(st.integers(0, len(line)))
        line = f"{line[:place]} {word} {line[place:]}"
    text = restore_text.read(line).text
    assert restore_text.read(text) == (text, [])
    for kept in filter(None, text.splitlines()):
        words = rule_words.split(kept)
        options = [word for last, word in zip(["", *words], words) if last not in IPTABLES.texts | IPTABLES.quoted]
        assert {"-M", "--modprobe", "--modprobe=/x", "--modp", "-t", "--object-pinned", "IDLETIMER"}.isdisjoint(options)
        known = {option for table in (*IPTABLES.matches.values(), *IPTABLES.targets.values(), IPTABLES.rule) for option in table}
        assert {word for word in options[2:] if word.startswith("-")} <= {*known, "-A", "-"}


VALUES = (
    *("10.0.0.1", "80", "tcp", "?", "!", "-j", "-m", "IDLETIMER", "ACCEPT", "-s", "--dport", "--match"),
    *('"a b"', '"-j"', '""', "'", "\\", "a\\b", '"', " "),
)


@given(st.sampled_from(SAVED.splitlines()), st.data())
def test_a_rule_is_permitted_as_if_no_rule_of_its_shape_had_been_read_before(line: str, data: st.DataObject) -> None:
    words = line.split(" ")
    place = data.draw(st.integers(0, len(words)))
    words[place : place + data.draw(st.integers(0, 2))] = data.draw(st.lists(st.sampled_from(VALUES), max_size=2))
    changed = " ".join(words)
    alone, after = restore_text.read(changed), restore_text.read(f"{SAVED}{changed}\n")
    assert after.refused == alone.refused
    assert [rule_words.split(one) for one in after.text.removeprefix(SAVED).splitlines()] == [
        rule_words.split(one) for one in alone.text.splitlines()
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("-A X -p tcp -m tcp --dport 80 -j ACCEPT", "-A X -p udp -m tcp --dport 80 -j IDLETIMER"),
        ("-A X -s 10.0.0.1 -j ACCEPT", "-A X -s 10.0.0.1 -j  IDLETIMER"),
        ("-A X -s 10.0.0.1 -j ACCEPT", "-A IDLETIMER -s 10.0.0.1 -j ACCEPT"),
        ("-A X -p ! tcp --dport 80 -j ACCEPT", "-A X -p ! icmp --dport 80 -j ACCEPT"),
        ("-A X -m comment --comment a -j ACCEPT", '-A X -m comment --comment a" -j ACCEPT'),
        ("-A X -s 10.0.0.1 -j ACCEPT", '-A X -s "-f" -j ACCEPT'),
        ("-A X -s 10.0.0.1", "-A X -s --modprobe=/x"),
        ("-A X -s 10.0.0.1 -j ACCEPT", "-A X -s 10.0.0.1 -j"),
        ("-A X -s 10.0.0.1 -j ACCEPT", "-A X -s 10.0.0.1 -j ?"),
    ],
)
def test_a_permitted_rule_makes_no_other_permitted(first: str, second: str) -> None:
    found = restore_text.read(f"*filter\n{first}\n{second}\nCOMMIT\n")
    assert [line for line, _allowed in found.refused] == [second]


def test_sets_are_rendered_as_they_were_saved() -> None:
    commands, refused = ipset_text.read(SETS)
    assert ([*map(ipset_text.render, commands)], refused) == (SETS.splitlines(), [])


def test_commands_of_ipset_have_their_forms() -> None:
    assert ipset_text.command(["swap", "a", "b"]) == ["swap", "a", "b"]
    assert ipset_text.command(["flush", "a", "-!"]) == ["flush", "a", "-exist"]
    with pytest.raises(Unfit, match="one of add, create"):
        ipset_text.command([])
    with pytest.raises(Unfit, match="a value of hashsize in place of '-f'"):
        ipset_text.command(["create", "a", "hash:ip", "hashsize", "-f"])
