# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""nft's JSON objects that are loaded elsewhere as they are: their sizes, and what of a rule is left out."""

from __future__ import annotations

import typing as t

from .._core import memo
from . import ruleset

Entry = t.Mapping[str, t.Any]
NFTRACE = "nftrace"  # the field of a packet that makes the kernel report it
_DECIDE_NOTHING = ("comment", "LOG", "NFLOG")  # extensions of iptables
_FILLING = frozenset(("set", "map"))  # statements by which packets fill a set


@memo.of_part
def elements(objects: t.Iterable[Entry]) -> int:
    """Return the number of elements of all sets, with those of the anonymous sets in rules."""
    bodies = [body for entry in objects for body in entry.values() if isinstance(body, dict)]
    return sum(_length(body.get("elem")) + _anonymous(body.get("expr")) for body in bodies)


def _length(value: object) -> int:
    return len(value) if isinstance(value, (list, tuple)) else 0


def _anonymous(value: object) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_anonymous, value))
    return _length(value.get("set")) + sum(map(_anonymous, value.values())) if isinstance(value, dict) else 0


@memo.of_part
def have_packets_fill_sets(objects: t.Iterable[Entry]) -> bool:
    return any(_FILLING & {*statement} for entry in objects for statement in _statements(entry) if isinstance(statement, dict))


def _statements(entry: Entry) -> list[t.Any]:
    rule = entry.get("rule")
    return ruleset.listed(rule.get("expr")) if isinstance(rule, dict) else []


def _with(entry: Entry, statements: list[t.Any]) -> Entry:
    return {"rule": {**entry["rule"], "expr": statements}}


def names_nftrace(part: object) -> bool:
    """Return whether a rule, or a part of one, reads or sets nftrace."""
    if isinstance(part, dict):
        meta = part.get("meta")
        return (isinstance(meta, dict) and meta.get("key") == NFTRACE) or any(map(names_nftrace, part.values()))
    return isinstance(part, list) and any(map(names_nftrace, part))


def without_tracing(entry: Entry) -> Entry | None:
    """Return a rule without the statements that begin or end the kernel's reports about a packet; None if it has no other one."""
    statements = [statement for statement in _statements(entry) if not _is_tracing(statement)]
    return _with(entry, statements) if statements else None


def _is_tracing(statement: object) -> bool:
    """Return True for a statement that sets nftrace. nft overlooks further keys beside those that it knows."""
    mangle = statement.get("mangle") if isinstance(statement, dict) else None
    return isinstance(mangle, dict) and names_nftrace(mangle.get("key")) and not names_nftrace(mangle.get("value"))


def without_extensions(entry: Entry) -> Entry | None:
    """Return a rule without extensions of iptables that decide nothing, and with nft's own word for MASQUERADE.

    Return None if it has another one: nft prints the name of an extension alone. Another object is returned as it is.
    """
    statements = list[t.Any]()
    for statement in _statements(entry):
        extension = statement.get("xt") if isinstance(statement, dict) and "xt" in statement else {}
        name = extension.get("name") if isinstance(extension, dict) else ""
        if name == "MASQUERADE":
            statements.append({"masquerade": None})
        elif extension == {}:
            statements.append(statement)
        elif name not in _DECIDE_NOTHING:
            return None
    return _with(entry, statements) if _statements(entry) else entry
