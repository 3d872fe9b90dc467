# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A foreign ruleset reaches nft only as permitted words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import nft_listing, nft_words
from unit.foreign_tables import RULESET

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
