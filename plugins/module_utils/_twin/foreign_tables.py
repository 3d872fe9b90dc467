# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables, sets and rulesets of a snapshot as texts for the programs that load them.

The texts may come from a report. A program gets only what was read word for word and rendered again; a note names each line that
is left out, and what is permitted in its place.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._core import memo
from .._core.errors import Failure, Invalid
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter import ipset_text, restore_text
from .._netfilter.rule_words import IPTABLES
from .._ruleset import nft_listing, nft_objects
from .._ruleset.generated import Generated
from .._ruleset.nft_blocks import Place
from .._ruleset.ruleset import Selection
from .._snapshot.assumption import CHAIN, Assumption, Concern
from . import bounds, stateful_matches
from .substitutions import FLOWTABLE, TRACING, gap, replaced

MOST_NOTES = 40  # about one text
RESTORES = {"ip": "iptables-nft-restore", "ip6": "ip6tables-nft-restore", "bridge": "ebtables-nft-restore"}  # by family
_TRACING = re.compile(rf"\bmeta\s+{nft_objects.NFTRACE}\s+set\s+[\w$]+")
# A target that sends a copy, which in a twin would be taken for the packet. Without it, the rule counts and goes on as before.
_COPYING = re.compile(r" -j TEE(?: --(?:gateway|oif) \S+)+$", re.MULTILINE)
_RULE = re.compile(r"(?:\[\d+:\d+\] )?-[AI] (\S+)")
_UNTRACED = replaced(TRACING, "Statements `meta nftrace set` are not in the twin, which traces each packet itself.")

Entry = t.Mapping[str, t.Any]
Refused = t.Sequence[tuple[str, str]]


def ruleset(text: str, reserved: t.Container[str], sizes: bounds.Sets, notes: list[Assumption]) -> str:
    """Return the text for nft, each statement on its line. Raises Invalid if the text has no table, or its sets are too large.

    reserved: names of tables that are left out.
    """
    listing = _listing(text, reserved, sizes, notes)
    if listing.notes and not listing.tables:
        raise Invalid("snapshot.nftables_text", text[:200], "tables as nft list ruleset prints them")
    return listing.text


def generated(
    lacking: Generated, selections: t.Mapping[Place, Selection], sizes: bounds.Sets, notes: list[Assumption]
) -> dict[Place, list[str]]:
    """Return the lines for nft of what the text of a snapshot lacks and a selection has. Raises Failure, Invalid as ruleset()."""
    result = {}
    for place in lacking.blocks.keys() & selections.keys():
        lines = lacking.lines(place, selections[place])
        listing = _listing("\n".join([f"table {' '.join(place)} {{", *lines, "}", ""]), (), sizes, notes)
        if listing.tables != [place]:
            raise Failure(f"the table {' '.join(place)} has a name that ends it")
        result[place] = listing.text.splitlines()[1:-1]
    return result


def _listing(text: str, reserved: t.Container[str], sizes: bounds.Sets, notes: list[Assumption]) -> nft_listing.Listing:
    untraced = _untraced(text)
    _note_untraced(untraced != text, notes)
    listing = nft_listing.read(untraced, reserved)
    sizes.nft("snapshot.nftables_text", listing.allocated)
    notes += map(gap, listing.notes)
    return listing


@memo.of_part
def _untraced(text: str) -> str:
    return _TRACING.sub("", text)


@functools.lru_cache(maxsize=32)  # the tables of a few worlds
def _restored(text: str, family: str, recorded: tuple[str, ...]) -> restore_text.Restored:
    alone = _COPYING.sub("", text)
    return restore_text.read(stateful_matches.resolved(alone, recorded), EBTABLES if family == "bridge" else IPTABLES)


def tables(text: str, family: str, notes: list[Assumption], recorded: tuple[str, ...] = ()) -> str:
    """Return the tables of an output of iptables-save, for a program that restores them. recorded: as stateful_matches has it."""
    parsed = _restored(text, family, recorded)
    concerns: dict[str, frozenset[Concern]] = {}
    for line, chains in with_chains(family, text.splitlines() if parsed.refused else ()):
        concerns[line] = concerns.get(line, frozenset()) | chains  # two chains may have the same rule
    notes += _notes(RESTORES[family], parsed.refused, concerns)
    return parsed.text


def with_chains(family: str, lines: t.Iterable[str]) -> t.Iterator[tuple[str, frozenset[Concern]]]:
    """Yield each line of an output of iptables-save with the chain whose rule it is; with none if it is no rule."""
    table = ""
    for line in map(str.strip, lines):
        table = line[1:] if line.startswith("*") else table
        rule = _RULE.match(line) if table else None
        yield line, frozenset({Concern(CHAIN, f"{family} {table} {rule[1]}")} if rule else ())


def sets(saved: t.Iterable[str], sizes: bounds.Sets, notes: list[Assumption]) -> str:
    """Return the sets for ``ipset restore``; empty if there are none. saved: the output of ``ipset save`` for each set.

    Raises Invalid if the sets are too large.
    """
    lines: list[str] = []
    for number, text in enumerate(saved):
        commands, refused = ipset_text.read(text)
        for command in commands:
            sizes.ipset(f"snapshot.ipsets[{number}].save", command)
        lines += map(ipset_text.render, commands)
        notes += _notes("ipset", refused, {})
    return "\n".join([*lines, ""]) if lines else ""


def objects(given: list[Entry], reserved: t.Container[str], sizes: bounds.Sets, notes: list[Assumption]) -> t.Sequence[Entry]:
    """Return nft's JSON objects that a twin can have, in the order of loading. Raises Invalid if the sets are too large.

    reserved: names of tables whose objects are left out.
    """
    loadable = nft_objects.loadable(given, reserved)
    for size in loadable.allocated:
        sizes.nft("snapshot.nftables", size)
    for name in loadable.flowtables:
        notes.append(replaced(FLOWTABLE, f"Flowtable {name} is not in the twin: each packet takes the whole path."))
    notes += map(gap, loadable.left_out)
    _note_untraced(loadable.is_untraced, notes)
    return loadable.objects


def of_links(given: t.Sequence[Entry], links: t.Collection[str], notes: list[Assumption]) -> t.Sequence[Entry]:
    """Return nft's JSON objects with those of the devices of chains that a twin has. links: the names of its links."""
    remaining, unlinked = nft_objects.of_links(given, links)
    notes += (gap(f"Chain {chain} is not in the twin: its links are not known.") for chain in unlinked)
    return remaining


def _note_untraced(is_untraced: bool, notes: list[Assumption]) -> None:
    if is_untraced and _UNTRACED not in notes:
        notes.append(_UNTRACED)


def _notes(program: str, refused: Refused, concerns: t.Mapping[str, frozenset[Concern]]) -> t.Iterator[Assumption]:
    for line, allowed in refused[:MOST_NOTES]:
        printable = line if line.isprintable() else repr(line)
        sentence = f"{program}: a line is not in the twin. It must be {allowed}: {printable[:120]}"
        yield gap(sentence, *concerns.get(line, ()))
    if len(refused) > MOST_NOTES:
        yield gap(f"{program}: {len(refused) - MOST_NOTES} further lines are not in the twin.")
