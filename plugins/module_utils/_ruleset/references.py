# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which chains and verdict maps of a table nothing refers to, and by what a rule would look up a map."""

from __future__ import annotations

import ipaddress
import typing as t

from .ruleset import PROTOCOL, TRANSPORTS, Element, Table


def unreferenced(table: Table) -> list[str]:
    """Return the chains with rules, and the verdict maps with elements, to which neither a hook nor a rule refers.

    A table with a hook is listed as a whole: what nothing refers to there gets no packet.
    """
    if any(chain.hook for chain in table.chains.values()):
        return []
    targets = {each.target for rule in table.rules() for each in rule.statements}
    targets.update(each.statement.target for elements in table.sets.values() for each in elements if each.statement)
    used = {name for rule in table.rules() for name in rule.sets}
    chains = [name for name, chain in table.chains.items() if chain.rules and name not in targets]
    return [*chains, *(name for name, elements in table.sets.items() if name not in used and lookup(elements))]


def lookup(elements: t.Iterable[Element]) -> str:
    """Return the fields that a rule looks up in a verdict map; empty for a set, or for keys of other kinds."""
    element = next((each for each in elements if each.statement), None)
    fields = [field(part) for part in element.key] if element else []
    return " . ".join(fields) if fields and all(fields) else ""


def field(part: str) -> str:
    """Return the field of a packet that a part of a key is about: its destination, protocol or port; empty for another one."""
    if part in TRANSPORTS:
        return PROTOCOL
    if part.isdigit():
        return "th dport"
    try:
        return "ip6 daddr" if ipaddress.ip_network(part, strict=False).version == 6 else "ip daddr"
    except ValueError:
        return ""
