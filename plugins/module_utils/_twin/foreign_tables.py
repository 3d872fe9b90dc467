# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Tables, sets and rulesets of a snapshot as texts for the programs that load them.

The texts may come from a report. A program gets only what was read word for word and rendered again; a note names each line that
is left out, and what is permitted in its place.
"""

from __future__ import annotations

import typing as t

from .._core.errors import Invalid
from .._netfilter import ipset_text, restore_text
from .._netfilter.rule_words import Language
from .._nftables import nft_listing

# Kinds of nft's JSON objects. A hardware offload, a tunnel or a command such as flush is none of them.
KINDS = ("table", "element", "rule", *nft_listing.BLOCKS)
MOST_NOTES = 40  # about one text

Refused = t.Sequence[tuple[str, str]]


def ruleset(text: str, reserved: t.Container[str], notes: list[str]) -> str:
    """The text for nft, each statement on its line. Raises Invalid if the text has no table.

    reserved: names of tables that are left out.
    """
    found = nft_listing.read(text, reserved)
    if found.notes and not found.tables:
        raise Invalid("snapshot.nftables_text", text[:200], "tables as nft list ruleset prints them")
    notes += found.notes
    return found.text


def tables(saved: str, program: str, language: Language, notes: list[str]) -> str:
    """The tables of an output of iptables-save, for a program that restores them."""
    found = restore_text.read(saved, language)
    notes += _notes(program, found.refused)
    return found.text


def sets(saved: t.Iterable[str], notes: list[str]) -> str:
    """The sets for ``ipset restore``; empty if there are none. saved: the output of ``ipset save`` for each set."""
    lines: list[str] = []
    for text in saved:
        kept, refused = ipset_text.read(text)
        lines += kept
        notes += _notes("ipset", refused)
    return "\n".join([*lines, ""]) if lines else ""


def is_loadable(one: t.Mapping[str, t.Any], reserved: t.Container[str], notes: list[str]) -> bool:
    """True for an object of nft that a twin can have. reserved: names of tables whose objects are left out."""
    kinds = [*one]
    if kinds == ["flowtable"]:
        notes.append(f"Flowtable {one['flowtable'].get('name')} is not in the twin: each packet takes the whole path.")
        return False
    body = one[kinds[0]] if len(kinds) == 1 and kinds[0] in KINDS else None
    is_permitted = isinstance(body, dict) and body.get("name" if kinds == ["table"] else "table") not in reserved
    if not is_permitted and kinds != ["metainfo"]:
        notes.append(
            f"An object of nft is not in the twin, because its kind or its table is not permitted: {str(dict(one))[:120]}."
        )
    return is_permitted


def _notes(program: str, refused: Refused) -> t.Iterator[str]:
    for line, allowed in refused[:MOST_NOTES]:
        shown = line if line.isprintable() else repr(line)
        yield f"{program}: a line is not in the twin. It must be {allowed}: {shown[:120]}"
    if len(refused) > MOST_NOTES:
        yield f"{program}: {len(refused) - MOST_NOTES} further lines are not in the twin."
