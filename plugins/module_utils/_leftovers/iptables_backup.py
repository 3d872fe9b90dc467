# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The content of a backup file: the rules and chains of iptables that each run removed from the node, as JSON."""

from __future__ import annotations

import typing as t

from .._cni import cni
from .._core.codec import exactly
from .._netfilter import iptables
from .._netfilter.chain import ListedRule, RemovedRules
from .._netfilter.iptables import Table, TableRemoval
from . import azure_leftovers, backup
from .backup import Backup, Damaged, keys

VERSION = 1
MADE_BY = "kubenode.datapath.ebtables_cleanup, iptables"
# Each backup file begins with this text. A file that begins otherwise is foreign.
SIGNATURE = f'{{\n "made_by": "{MADE_BY}",\n'


class Run(t.NamedTuple):
    """The objects that one run removed. boot: the identity of the boot in which it ran."""

    taken: tuple[TableRemoval, ...]
    boot: str


def to_text(kept: Backup) -> str:
    """Return the text of a backup file."""
    return backup.written(
        MADE_BY, VERSION, kept, lambda run: {"boot": run.boot, "tables": [_packed(table) for table in run.taken]}
    )


def from_text(text: str) -> Backup:
    """Parse the text of a backup file, and accept only what a run may have removed. Raises Damaged."""
    return backup.parsed(text, VERSION, _run)


def _packed(table: TableRemoval) -> dict[str, t.Any]:
    """Return a table as plain data. Each chain keeps all its rules; ``removed`` has the positions of the removed ones."""
    rules = [
        {"chain": chain.place.chain, "rules": [rule.text for rule in chain.rules], "removed": sorted(chain.gone)}
        for chain in table.rules
    ]
    return {**table.table._asdict(), "rules": rules, "chains": [*table.chains]}


def _run(run: dict[str, t.Any]) -> Run:
    keys(run, "boot", "tables")
    return Run(tuple(map(_taken, exactly(list, run["tables"]))), exactly(str, run["boot"]))


def _taken(entry: dict[str, t.Any]) -> TableRemoval:
    keys(entry, *Table._fields, "rules", "chains")
    table = iptables.table_at(str(Table(entry["family"], entry["name"], entry["backend"])))
    if table is None:
        raise Damaged(f"{entry['family']!r} {entry['name']!r} {entry['backend']!r} is not a table of iptables")
    chains = tuple(exactly(str, chain) for chain in exactly(list, entry["chains"]))
    for chain in chains:
        if not cni.AZURE_CHAIN.fullmatch(chain):
            raise Damaged(f"{chain!r} is not the name of a chain of azure-vnet")
    return TableRemoval(table, tuple(_removed(table, chain) for chain in exactly(list, entry["rules"])), chains)


def _removed(table: Table, entry: dict[str, t.Any]) -> RemovedRules:
    keys(entry, "chain", "rules", "removed")
    rules = tuple(ListedRule(exactly(str, text)) for text in exactly(list, entry["rules"]))
    gone = frozenset(exactly(int, number) for number in exactly(list, entry["removed"]))
    if not gone <= set(range(len(rules))):
        raise Damaged("a chain names a removed rule at a position that it does not have")
    for number in gone:  # the text goes into a script of one rule a line
        if not rules[number].text.isprintable() or not azure_leftovers.is_own(
            iptables.Rule(table, entry["chain"], rules[number].text)
        ):
            raise Damaged(f"{rules[number].text!r} in {table.place(entry['chain'])} is no rule of azure-vnet")
    return RemovedRules(table.at(exactly(str, entry["chain"])), rules, gone)
