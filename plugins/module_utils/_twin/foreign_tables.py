# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Tables, sets and rulesets of a snapshot as texts for the programs that load them.

The texts may come from a report. A program gets only what was read word for word and rendered again; a note names each line that
is left out, and what is permitted in its place.
"""

from __future__ import annotations

import fnmatch
import re
import typing as t

from .._core import memo
from .._core.errors import Invalid
from .._netfilter import ipset_text, restore_text
from .._netfilter.rule_words import Language
from .._ruleset import nft_listing, nft_objects
from .._snapshot.assumption import CHAIN, Assumption, Concern
from .._snapshot.saved import OF_LINKS
from . import bounds
from .substitutions import FLOWTABLE, TRACING, gap, replaced

# Kinds of nft's JSON objects. A hardware offload, a tunnel or a command such as flush is none of them.
KINDS = ("table", "element", "rule", *nft_listing.BLOCKS)
MOST_NOTES = 40  # about one text
RESTORES = {"ip": "iptables-nft-restore", "ip6": "ip6tables-nft-restore", "bridge": "ebtables-nft-restore"}  # by family
_TRACING = re.compile(rf"\bmeta\s+{nft_objects.NFTRACE}\s+set\s+[\w$]+")
_RULE = re.compile(r"(?:\[\d+:\d+\] )?-[AI] (\S+)")
_UNTRACED = replaced(TRACING, "Statements `meta nftrace set` are not in the twin, which traces each packet itself.")

Entry = t.Mapping[str, t.Any]
Refused = t.Sequence[tuple[str, str]]


def ruleset(text: str, reserved: t.Container[str], sizes: bounds.Sets, notes: list[Assumption]) -> str:
    """Return the text for nft, each statement on its line. Raises Invalid if the text has no table, or its sets are too large.

    reserved: names of tables that are left out.
    """
    text, count = _TRACING.subn("", text)
    _note_untraced(count > 0, notes)
    listing = nft_listing.read(text, reserved)
    if listing.notes and not listing.tables:
        raise Invalid("snapshot.nftables_text", text[:200], "tables as nft list ruleset prints them")
    sizes.nft("snapshot.nftables_text", listing.allocated)
    notes += map(gap, listing.notes)
    return listing.text


def tables(text: str, family: str, language: Language, notes: list[Assumption]) -> str:
    """Return the tables of an output of iptables-save, for a program that restores them."""
    parsed = restore_text.read(text, language)
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


def objects(
    listed: t.Iterable[Entry], reserved: t.Container[str], sizes: bounds.Sets, notes: list[Assumption]
) -> t.Sequence[Entry]:
    """Return nft's JSON objects that a twin can have, in the order of loading. Raises Invalid if the sets are too large.

    reserved: names of tables whose objects are left out.
    """
    kept, allocated, of_objects = _loadable(listed, reserved)
    for size in allocated:
        sizes.nft("snapshot.nftables", size)
    notes += (note for note in of_objects if note is not _UNTRACED)
    _note_untraced(_UNTRACED in of_objects, notes)
    return kept


@memo.of_part
def _loadable(
    listed: t.Iterable[Entry], reserved: t.Container[str]
) -> tuple[t.Sequence[Entry], t.Sequence[int], t.Sequence[Assumption]]:
    """Return the objects that a twin can have, in the order of loading, the sizes of their sets, and what of them it lacks."""
    kept, allocated, notes = list[Entry](), list[int](), list[Assumption]()
    for entry in listed:
        if _is_loadable(entry, reserved, notes):
            allocated += (_allocated(entry[kind]) for kind in entry.keys() & nft_listing.SETS)
            kept += _without_tracing(entry, notes) if "rule" in entry else [_without_owner(entry)]
    return sorted(kept, key=_load_order), allocated, notes


def of_links(objects: t.Sequence[Entry], links: t.Collection[str], notes: list[Assumption]) -> t.Sequence[Entry]:
    """Return nft's JSON objects with those of the devices of chains that a twin has. links: the names of its links.

    A chain without any is left out with its rules: it gets no packet, unless its devices were not read.
    """
    left_out, remaining = set[tuple[t.Any, ...]](), list[Entry]()
    if not any("chain" in entry and entry["chain"].get("hook") in OF_LINKS for entry in objects):  # nearly all nodes
        return objects
    for entry in objects:
        body = entry.get("chain") or entry.get("rule") or {}
        place = body.get("family"), body.get("table"), body.get("name" if "chain" in entry else "chain")
        if "chain" in entry and body.get("hook") in OF_LINKS:
            listed = [body["dev"]] if isinstance(body.get("dev"), str) else body.get("dev") or ()
            names = [link for link in links if any(fnmatch.fnmatchcase(link, str(pattern)) for pattern in listed)]
            if not names:
                left_out.add(place)
                notes += (
                    [] if listed else [gap(f"Chain {' '.join(map(str, place))} is not in the twin: its links are not known.")]
                )
            entry = {"chain": {**body, "dev": names[0] if len(names) == 1 else names}}
        if place not in left_out:
            remaining.append(entry)
    return remaining


def _is_loadable(entry: Entry, reserved: t.Container[str], notes: list[Assumption]) -> bool:
    kinds = [*entry]
    if kinds == ["flowtable"]:
        sentence = f"Flowtable {entry['flowtable'].get('name')} is not in the twin: each packet takes the whole path."
        notes.append(replaced(FLOWTABLE, sentence))
        return False
    body = entry[kinds[0]] if len(kinds) == 1 and kinds[0] in KINDS else None
    is_permitted = isinstance(body, dict) and body.get("name" if kinds == ["table"] else "table") not in reserved
    if not is_permitted and kinds != ["metainfo"]:
        reason = "because its kind or its table is not permitted"
        notes.append(gap(f"An object of nft is not in the twin, {reason}: {str(dict(entry))[:120]}."))
    return is_permitted


def _allocated(body: Entry) -> int:
    """Return the number of elements for which the kernel allocates memory when it creates a set."""
    flags = body.get("flags") or ()
    size = [["size", str(body["size"])]] if "size" in body else []
    return nft_listing.allocated([*size, ["flags", *([flags] if isinstance(flags, str) else map(str, flags))]])


def _without_tracing(entry: Entry, notes: list[Assumption]) -> list[Entry]:
    """Return a rule without the statements that begin or end the kernel's reports about a packet.

    Return no rule if it has no other statement, or if it depends on whether a packet is reported: in the twin, each packet is.
    """
    if not nft_objects.names_nftrace(entry["rule"]):
        return [entry]
    others = nft_objects.without_tracing(entry)
    if nft_objects.names_nftrace(others and others["rule"]):
        notes.append(gap(f"A rule of nft is not in the twin, because it depends on nftrace: {str(entry['rule'])[:120]}."))
        return []
    _note_untraced(True, notes)
    return [others] if others else []


def _note_untraced(is_untraced: bool, notes: list[Assumption]) -> None:
    if is_untraced and _UNTRACED not in notes:
        notes.append(_UNTRACED)


def _load_order(entry: Entry) -> int:
    """Return the place in the order of loading: nft lists a map before the chains that its elements name."""
    return {"table": 0, "set": 2, "map": 2, "element": 3, "rule": 4}.get(next(iter(entry)), 1)


def _without_owner(entry: Entry) -> Entry:
    """Return a table without the flags that tie it to the process that created it."""
    table = entry.get("table")
    if not isinstance(table, dict) or "flags" not in table:
        return entry
    flags = [table["flags"]] if isinstance(table["flags"], str) else table["flags"]
    kept = [flag for flag in flags if flag not in nft_listing.OWNED]
    return {"table": {**{key: value for key, value in table.items() if key != "flags"}, **({"flags": kept} if kept else {})}}


def _notes(program: str, refused: Refused, concerns: t.Mapping[str, frozenset[Concern]]) -> t.Iterator[Assumption]:
    for line, allowed in refused[:MOST_NOTES]:
        shown = line if line.isprintable() else repr(line)
        sentence = f"{program}: a line is not in the twin. It must be {allowed}: {shown[:120]}"
        yield gap(sentence, *concerns.get(line, ()))
    if len(refused) > MOST_NOTES:
        yield gap(f"{program}: {len(refused) - MOST_NOTES} further lines are not in the twin.")
