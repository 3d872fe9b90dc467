# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules and chains of iptables that certainly are azure-vnet's or azure-cns's: removes and restores them."""

from __future__ import annotations

import typing as t

from .._cni import cni
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._netfilter import chain, iptables
from .._netfilter.chain import Place, RemovedRules
from .._netfilter.iptables import Table, TableRemoval
from .._netfilter.iptables_backend import Iptables, PutBack, Take
from .._platform import kernel, process
from . import azure_leftovers
from .backup_resource import BackupFile, Backups, Look, ObservedBackup
from .iptables_backup import Run
from .leftover import CHAIN, RULE, findings

NAME = "azure-vnet's iptables rules"


class ObservedIptables(t.NamedTuple):
    node: Look
    backup: ObservedBackup
    boot: str


class IptablesLeftovers:
    """Ensures that the node has no such rules and chains. Removed ones are kept in a backup. The plan's report is Findings."""

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, run: process.Runner, backend: files.Files, backups: Backups, desired: t.Collection[str]) -> None:
        """desired: the backends of iptables whose tables are changed."""
        self._run = run
        self._backups = backups
        self._desired = desired
        self.backends: t.Sequence[Backend] = (Iptables(run), backend)

    def observe(self) -> ObservedIptables:
        return ObservedIptables(self._backups.look(self._run), self._backups.iptables.observe(), kernel.boot_identity())

    def plan(self, observed: ObservedIptables) -> Plan:
        facts = observed.node.facts
        places = tuple(f"({backend})" for backend in self._desired)
        leftovers = azure_leftovers.find(facts) if facts else ()
        selected = [leftover for leftover in leftovers if leftover.kind in (RULE, CHAIN) and leftover.place.endswith(places)]
        report = findings(selected, observed.node.troubles)
        if not facts or not report.removed:
            return Plan(report=report)
        rules = [(leftover.place, leftover.text) for leftover in report.removed if leftover.kind == RULE]
        certain = {(leftover.place, leftover.text) for leftover in report.removed if leftover.kind == CHAIN}
        chains = [(table, name) for table, name in facts.chains if (str(table), name) in certain]
        taken = iptables.taken(rules, chains, facts.rules)
        runs = (*observed.backup.runs, Run(tuple(taken), observed.boot))
        steps = [
            *self._backups.iptables.steps(observed.backup, runs),
            *(Step(f"remove {_count(removal)} from table {removal.table}", Take(removal), PutBack(removal)) for removal in taken),
        ]
        return Plan(tuple(steps), whole("".join(map(_shown, taken))), report)


class ObservedIptablesRestoration(t.NamedTuple):
    """now: the chains of the tables that the backup names. addresses: all of the node, without lengths."""

    now: t.Mapping[Table, iptables.Chains]
    addresses: frozenset[str]
    backup: ObservedBackup
    boot: str


class Back(t.NamedTuple):
    """The objects that a plan restores. differences: those that are not restored as they were, and why. left: the runs that
    stay in the backup."""

    taken: tuple[TableRemoval, ...] = ()
    differences: tuple[str, ...] = ()
    left: tuple[Run, ...] = ()


class RestoredIptables:
    """Ensures that the rules that runs of this boot removed exist again. The boot has removed those of earlier runs.

    A rule stays in the backup if it translates to an address that the node no longer has, or if its chain or the chain that
    it jumps to is gone. The plan's report is Back.
    """

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, run: process.Runner, backend: files.Files, kept: BackupFile) -> None:
        self._tables = Iptables(run)
        self._backup = kept
        self.backends: t.Sequence[Backend] = (self._tables, backend)

    def observe(self) -> ObservedIptablesRestoration:
        kept, boot = self._backup.observe(), kernel.boot_identity()
        tables = dict.fromkeys(removal.table for run in kept.runs if run.boot == boot for removal in run.taken)
        addresses = frozenset(str(address).partition("/")[0] for address in LinkMessages().addresses()) if tables else frozenset()
        return ObservedIptablesRestoration({table: self._tables.read(table) for table in tables}, addresses, kept, boot)

    def plan(self, observed: ObservedIptablesRestoration) -> Plan:
        back = _back(observed)
        steps = [
            *(
                Step(f"restore {_count(removal)} in table {removal.table}", PutBack(removal), Take(removal))
                for removal in back.taken
            ),
            *self._backup.steps(observed.backup, back.left),
        ]
        return Plan(tuple(steps), whole(after="".join(map(_shown, back.taken))), back)


def _back(observed: ObservedIptablesRestoration) -> Back:
    runs = [run for run in reversed(observed.backup.runs) if run.boot == observed.boot]
    ended = len(observed.backup.runs) - len(runs)
    removals = [removed for run in runs for table in run.taken for removed in table.rules]
    now = {table.at(name): rules for table, chains in observed.now.items() for name, rules in chains.items()}
    chains = {table: _missing(runs, table, observed.now[table]) for table in observed.now}
    there = {*now, *(table.at(name) for table, names in chains.items() for name in names)}
    restored = chain.restoration(removals, now, lambda place, rule: _obstacle(place, rule.text, there, observed.addresses))
    taken = [
        TableRemoval(table, tuple(removed for removed in restored.removed if removed.place.table == str(table)), names)
        for table, names in chains.items()
    ]
    left = [run._replace(taken=tuple(_left(run, restored.barred))) for run in reversed(runs)]
    return Back(
        tuple(removal for removal in taken if removal.rules or removal.chains),
        (*["the rules of iptables of a clean-up before this boot, which the boot has removed"] * ended, *restored.differences),
        tuple(run for run in left if run.taken),
    )


def _missing(runs: t.Iterable[Run], table: Table, now: iptables.Chains) -> tuple[str, ...]:
    """Return the removed chains of a table that do not exist."""
    names = [name for run in runs for removal in run.taken if removal.table == table for name in removal.chains]
    return tuple(name for name in dict.fromkeys(names) if name not in now)


def _obstacle(place: Place, text: str, there: t.Collection[Place], addresses: t.Collection[str]) -> str:
    """Return why a rule is not restored; empty if it is restored. there: the chains that exist, or are restored."""
    source, jump = iptables.meaning(text).get("--to-source", ""), place._replace(chain=iptables.target(text))
    missing = [
        target for target in (place, jump) if target not in there and (target is place or cni.AZURE_CHAIN.fullmatch(target.chain))
    ]
    if missing:
        return f"the chain {missing[0].chain} does not exist now"
    return "the node does not have that address now" if source and source not in addresses else ""


def _left(run: Run, barred: t.Mapping[RemovedRules, frozenset[int]]) -> t.Iterator[TableRemoval]:
    for removal in run.taken:
        kept = tuple(removed._replace(gone=barred[removed]) for removed in removal.rules if removed in barred)
        if kept:
            yield TableRemoval(removal.table, kept)


def reported(back: Back) -> list[dict[str, str]]:
    """Return the restored objects, as the module returns them."""
    return [
        *({"kind": CHAIN, "place": str(removal.table), "text": chain} for removal in back.taken for chain in removal.chains),
        *(
            {"kind": RULE, "place": removal.table.place(removed.place.chain), "text": removed.rules[number].text}
            for removal in back.taken
            for removed in removal.rules
            for number in sorted(removed.gone)
        ),
    ]


def _count(removal: TableRemoval) -> str:
    rules = sum(len(removed.gone) for removed in removal.rules)
    return f"{rules} rules and {len(removal.chains)} chains"


def _shown(removal: TableRemoval) -> str:
    chains = [f"{removal.table}: -N {chain}\n" for chain in removal.chains]
    rules = [
        f"{removal.table}: -A {removed.place.chain} {removed.rules[number].text}\n"
        for removed in removal.rules
        for number in sorted(removed.gone)
    ]
    return "".join([*chains, *rules])
