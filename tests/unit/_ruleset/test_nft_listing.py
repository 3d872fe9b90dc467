# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listings of rulesets: a foreign one reaches nft only as permitted words, and each is compared with what the kernel counts."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import inventory, nft_listing, nft_words
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.inventory import Chain
from unit.foreign_tables import RULESET

# A foreign ruleset reaches nft only as permitted words


# Tokens that nft's scanner gives a meaning of its own, outside of quotes.
FORBIDDEN = re.compile(r"include|\bdefine\b|[$\\]")


def unquoted(text: str) -> str:
    return re.sub(r'"[^"\n]*"', '""', text)


def words(text: str) -> list[str]:
    return [word for line in text.splitlines() for word in nft_words.tokens(line) if word != ";"]


def test_rulesets_of_kubernetes_are_read_in_full() -> None:
    found = nft_listing.read(RULESET)
    assert found.notes == [] and len(found.tables) == 5
    assert words(found.text) == words(RULESET.replace("    flags owner,persist\n", ""))


def test_statements_stay_on_their_lines_and_what_was_read_reads_as_itself() -> None:
    found = nft_listing.read(RULESET)
    assert len(found.text.splitlines()) == len(RULESET.splitlines())
    for shown, given_line in zip(found.text.splitlines(), RULESET.splitlines()):
        assert set(words(shown)) <= set(words(given_line))
    assert nft_listing.read(found.text) == found


@pytest.mark.parametrize(
    "text", ["chain y {\n tcp dport vmap { 80 : accept,\n", "set s {\n elements = {\n 1,\n", "chain y {\n {\n{\n"]
)
def test_a_listing_that_ends_within_a_set_has_no_table(text: str) -> None:
    found = nft_listing.read(f"table ip w {{\n}}\ntable ip x {{\n {text}")
    assert found.tables == [("ip", "w")] and "a table that ends" in found.notes[-1]


def test_a_listing_on_one_line_is_divided() -> None:
    text = "table ip x { chain y { type filter hook input priority 0; policy accept; tcp dport { 1, 2 } drop; } chain z { } }"
    found = nft_listing.read(text)
    assert found.notes == [] and nft_listing.read(found.text) == found
    assert "priority 0 ; policy accept ; tcp dport { 1 , 2 } drop ; } ; chain z { } ; }" in found.text


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("add rule ip x y drop", "a table with its family"),
        ("flush ruleset", "a table with its family"),
        ("}", "a table with its family"),
        ("table ip x", "a table with its family"),
        ("table ip6tables x { }", "a table with its family"),
        ("table ip x { chain y {", "a table that ends"),
        ("table ip x { tunnel y { } ; }", "one of chain, set"),
        ("table ip x { chain include { } ; }", "one of chain, set"),
        ("table ip x { flags include; }", "one of chain, set"),
        ("table ip x { include; }", "one of chain, set"),
        ("table ip x { chain y { wildcard; }; }", "a rule that begins with a permitted word of nft in place of 'wildcard'"),
        ("table ip x { chain y { jump include; }; }", "in place of 'include'"),
        ("table ip x { chain y { ip saddr 1include drop; }; }", "in place of '1include'"),
        ("table ip x { chain y { ip saddr $include drop; }; }", "in place of '$'"),
        ("table ip x { chain y { ip saddr 10.0.0.1 \\; }; }", "in place of '\\\\'"),
        ("table ip x { chain y { meta nftrace set 0; }; }", "in place of 'nftrace'"),
        ('table ip x { chain y { log prefix "a drop; }; }', "in place of '\"'"),
        ('table ip x { chain y { log prefix "a\x1b[2J"; }; }', "in place of"),
        ('table ip x { set y { include "/x"; }; }', "a statement of a set that begins with one of type"),
        ("table ip x { chain y { jump define; }; }", "in place of 'define'"),
        ("table ip x { flowtable y { devices = { a, b define }; }; }", "in place of 'define'"),
        ("table ip x { flowtable y { flags offload; }; }", "a statement of a flowtable that begins with one of hook"),
    ],
)
def test_a_statement_that_is_not_permitted_is_left_out_and_named(text: str, allowed: str) -> None:
    found = nft_listing.read(text)
    assert allowed in found.notes[0] and found.notes[0].startswith("nft: line 1 of the ruleset is not in the twin.")
    assert not FORBIDDEN.search(unquoted(found.text)) and found.notes[0].isprintable()
    assert nft_listing.read(found.text).notes == []


def test_notes_have_a_bound() -> None:
    found = nft_listing.read("table ip x {\nchain y {\n" + "foo\n" * 100 + "}\n}\n")
    assert len(found.notes) == nft_listing.MOST_NOTES + 1 and found.notes[-1].startswith("nft: 60 further lines")


def test_a_statement_is_checked_by_its_block() -> None:
    nft_listing.check("chain", ["accept"])
    with pytest.raises(Unfit, match="a rule that begins with a permitted word of nft in place of 'hook'"):
        nft_listing.check("chain", ["hook"])


HOSTILE = st.sampled_from(
    [
        "include",
        ' include "/x"',
        ";",
        "\n",
        "{",
        "}",
        '"',
        "#",
        "\\",
        "\\\n",
        "$x",
        "define x = 1",
        "@",
        "\0",
        "\r",
        '"/x"',
        "-M",
        "*",
    ]
)


@given(st.lists(st.tuples(st.integers(0, len(RULESET)), HOSTILE), min_size=1, max_size=4))
def test_what_is_put_into_a_ruleset_never_survives_as_a_word_of_its_own(insertions: list[tuple[int, str]]) -> None:
    text = RULESET
    for place, word in insertions:
        text = text[:place] + word + text[place:]
    found = nft_listing.read(text)
    assert not FORBIDDEN.search(unquoted(found.text))
    for line in found.text.splitlines():
        assert line.isprintable()
    again = nft_listing.read(found.text)
    assert again.text == found.text and again.notes == []


@given(st.text(alphabet='abinclude"{};#\\$@/.:-\n 0x1', max_size=60))
def test_any_text_is_read_and_what_is_accepted_consists_of_permitted_words(text: str) -> None:
    found = nft_listing.read(f"table ip x {{\nchain y {{\n{text}\n}}\n}}\n")
    assert not FORBIDDEN.search(unquoted(found.text))
    previous = ""
    for word in words(found.text):
        is_named = previous in (*nft_words.BEFORE_NAMES, *nft_words.FAMILIES, *nft_listing.BLOCKS)
        known = word in nft_words.WORDS or word in ("table", "chain", "set", "map") or nft_words.is_value(word)
        assert known or (is_named and nft_words.is_name(word)), word
        previous = word


@pytest.mark.parametrize("line", ["a:" * 40_000, "{ " * 40_000, '"' * 80_001, "0x" * 40_000, "1.2.3." * 20_000, "[::" * 30_000])
def test_reading_takes_linear_time(line: str) -> None:
    started = time.process_time()
    nft_listing.read(f"table ip x {{\nchain y {{\n{line}\n}}\n}}\n")
    assert time.process_time() - started < 2


# Listings are compared with what the kernel counts


SAVE = """*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OWN - [0:0]
-A FORWARD -m comment --comment "-j OWN" -j OWN
-A OWN -s 10.0.0.1/32 -g OWN
-A OWN -j ACCEPT
COMMIT
"""
IPTABLES = [{"family": "ip", "table": "filter", "backend": "nft", "save": SAVE}]
EBTABLES = [
    {"table": "nat", "chain": "OWN", "backend": "nft", "policy": "DROP", "rules": ["-p IPv4 -j ACCEPT"]},
    {"table": "nat", "chain": "PREROUTING", "backend": "nft", "policy": "ACCEPT", "rules": ["-j OWN"]},
]
ELEMENTS = [["10.0.0.1", {"jump": {"target": "svc"}}], [{"elem": {"val": "10.0.0.2"}}, {"goto": {"target": "svc"}}]]
OBJECTS: list[dict[str, Any]] = [
    {"table": {"family": "inet", "name": "t"}},
    {"chain": {"family": "inet", "table": "t", "name": "f", "hook": "forward", "policy": "accept"}},
    {"chain": {"family": "inet", "table": "t", "name": "svc"}},
    {"map": {"family": "inet", "table": "t", "name": "m", "map": "verdict", "elem": ELEMENTS}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [{"vmap": {"key": {}, "data": "@m"}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [{"vmap": {"key": {}, "data": {"set": ELEMENTS}}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "svc", "expr": [{"accept": None}]}},
]


def base(family: str, table: str, name: str, use: int, policy: str = "accept") -> Chain:
    return Chain(family, table, name, True, policy, use)


def inner(family: str, table: str, name: str, use: int) -> Chain:
    return Chain(family, table, name, False, "", use)


KERNEL = [
    base("ip", "filter", "FORWARD", 1, "drop"),
    inner("ip", "filter", "OWN", 4),
    base("bridge", "nat", "PREROUTING", 1),
    inner("bridge", "nat", "OWN", 3),
    base("inet", "t", "f", 2),
    inner("inet", "t", "svc", 5),
    base("arp", "t", "x", 9),
]


def differences(*kernel: Chain, size: int = 2) -> list[tuple[str, str]]:
    return [*inventory.differences(kernel, {("inet", "t", "m"): size}, IPTABLES, EBTABLES, OBJECTS)]


def test_a_whole_listing_has_what_the_kernel_counts() -> None:
    assert differences(*KERNEL) == []


@pytest.mark.parametrize(
    ("changed", "table", "sentence"),
    [
        (
            base("ip", "filter", "FORWARD", 2, "drop"),
            "ip filter",
            "The kernel has 2 rules in the chain FORWARD, and 1 are listed.",
        ),
        (
            base("ip", "filter", "FORWARD", 1),
            "ip filter",
            "The kernel has the policy accept in the chain FORWARD, and drop is listed.",
        ),
        (inner("ip", "filter", "OWN", 5), "ip filter", "The kernel has 6 rules and jumps, and 5 are listed."),
        (inner("ip", "filter", "HIDDEN", 0), "ip filter", "No program lists the chain HIDDEN."),
        (inner("inet", "t", "svc", 6), "inet t", "The kernel has 8 rules and jumps, and 7 are listed."),
        (base("ip6", "t", "f", 1), "ip6 t", "No program lists the chain f."),
    ],
)
def test_a_table_of_which_the_kernel_has_more_is_named(changed: Chain, table: str, sentence: str) -> None:
    other_listings = [
        chain for chain in KERNEL if (chain.family, chain.table, chain.name) != (changed.family, changed.table, changed.name)
    ]
    assert differences(*other_listings, changed) == [(table, sentence)]


def test_a_set_that_has_other_elements_is_named() -> None:
    sentence = "The kernel has 3 elements in the set m, and 2 are listed."
    assert differences(*KERNEL, size=3) == [("inet t", sentence)]


def test_a_table_that_the_kernel_lacks_is_named() -> None:
    without = [chain for chain in KERNEL if chain.family != "inet"]
    assert differences(*without) == [("inet t", "The kernel has no chain of it.")]
