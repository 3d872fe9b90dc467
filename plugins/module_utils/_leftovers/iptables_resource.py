# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""azure-vnet's and azure-cns's rules and chains of iptables: removed if they are certain, and restored."""

from __future__ import annotations

import typing as t

from .._azure_vnet import backup_resource
from .._azure_vnet.backup_resource import BackupFile
from .._core.plan import Backend, Plan, Plane, Step
from .._ebtables import ebtables
from .._ebtables.ebtables import Removed
from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._platform import kernel, process
from . import azure, iptables, leftovers_backend
from .azure import Facts
from .iptables import Rule, Table, Taken
from .iptables_backend import Iptables, PutBack, Take
from .iptables_backup import Run
from .leftover import CHAIN, RULE, Leftover

NAME = "azure-vnet's iptables rules"


class Observed(t.NamedTuple):
    """facts: None if nothing on the node is azure-vnet's. troubles: sentences about what was not read."""

    facts: Facts | None
    backup: backup_resource.Observed
    boot: str
    troubles: tuple[str, ...]


class Findings(t.NamedTuple):
    """removed: what is certain. kept: what is not. troubles: as observed."""

    removed: tuple[Leftover, ...] = ()
    kept: tuple[Leftover, ...] = ()
    troubles: tuple[str, ...] = ()


class IptablesLeftovers:
    """Ensures that the node has none that is certain. They are kept in a backup. The plan's report is Findings."""

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, run: process.Runner, backend: files.Files, kept: BackupFile, desired: t.Collection[str]) -> None:
        """desired: the backends of iptables whose tables are changed."""
        self._run = run
        self._backup = kept
        self._desired = desired
        self.backends: t.Sequence[Backend] = (Iptables(run), backend)

    def observe(self) -> Observed:
        kept = self._backup.observe()
        troubles: list[str] = []
        facts = leftovers_backend.of_azure(self._run, troubles.append, leftovers_backend.see(self._run), is_strict=True)
        return Observed(facts, kept, kernel.boot_identity(), tuple(troubles))

    def plan(self, observed: Observed) -> Plan:
        places = tuple(f"({backend})" for backend in self._desired)
        found = [
            one
            for one in (azure.find(observed.facts) if observed.facts else ())
            if one.kind in (RULE, CHAIN) and one.place.endswith(places)
        ]
        findings = Findings(
            tuple(one for one in found if one.is_certain), tuple(one for one in found if not one.is_certain), observed.troubles
        )
        if not observed.facts or not findings.removed:
            return Plan(report=findings)
        rules = [(one.place, one.text) for one in findings.removed if one.kind == RULE]
        certain = {(one.place, one.text) for one in findings.removed if one.kind == CHAIN}
        chains = [(table, chain) for table, chain in observed.facts.chains if (str(table), chain) in certain]
        taken = iptables.taken(rules, chains, observed.facts.rules)
        runs = (*observed.backup.runs, Run(tuple(taken), observed.boot))
        steps = [
            *self._backup.steps(observed.backup, runs),
            *(Step(f"remove {_count(one)} from table {one.table}", Take(one), PutBack(one)) for one in taken),
        ]
        return Plan(tuple(steps), "".join(map(_shown, taken)), report=findings)


class RestoredObserved(t.NamedTuple):
    """now: the chains of the tables that the backup names. addresses: all of the node, without lengths."""

    now: t.Mapping[Table, t.Mapping[str, t.Sequence[ebtables.Rule]]]
    addresses: frozenset[str]
    backup: backup_resource.Observed
    boot: str


class Back(t.NamedTuple):
    """What a plan restores, newest run first. differences: what is not restored, and why. is_left: some stays in the backup."""

    taken: tuple[Taken, ...] = ()
    differences: tuple[str, ...] = ()
    is_left: bool = False


class RestoredIptables:
    """Ensures that the rules of this boot's runs are there again. A boot has ended those of earlier ones.

    A rule that translates to an address that the node no longer has stays in the backup. The plan's report is Back.
    """

    name = NAME
    plane = Plane.IMMEDIATE

    def __init__(self, run: process.Runner, backend: files.Files, kept: BackupFile) -> None:
        self._tables = Iptables(run)
        self._backup = kept
        self.backends: t.Sequence[Backend] = (self._tables, backend)

    def observe(self) -> RestoredObserved:
        kept, boot = self._backup.observe(), kernel.boot_identity()
        tables = {one.table for run in kept.runs if run.boot == boot for one in run.taken}
        own = frozenset(str(one).partition("/")[0] for one in LinkMessages().addresses()) if tables else frozenset()
        return RestoredObserved({table: self._tables.read(table) for table in tables}, own, kept, boot)

    def plan(self, observed: RestoredObserved) -> Plan:
        taken: list[Taken] = []
        left: list[Run] = []
        differences: list[str] = []
        for run in reversed(observed.backup.runs):
            if run.boot != observed.boot:
                differences.append("the rules of iptables of a clean-up before this boot, which the boot has ended")
                continue
            barred = [_part(one, observed.addresses, False) for one in run.taken]
            differences += [
                f"{one.place.chain} of {table.table}: {one.rules[number].text}: the node does not have that address now"
                for table in barred
                for one in table.rules
                for number in sorted(one.gone)
            ]
            kept = tuple(one for one in barred if one.rules)
            left += [run._replace(taken=kept)] if kept else []
            taken += [one for one in (_part(one, observed.addresses, True) for one in run.taken) if one.rules or one.chains]
        due = tuple(one for one in taken if iptables.restoration(one, observed.now[one.table]))
        steps = [
            *(Step(f"restore {_count(one)} in table {one.table}", PutBack(one), Take(one)) for one in due),
            *self._backup.steps(observed.backup, tuple(reversed(left))),
        ]
        return Plan(tuple(steps), after="".join(map(_shown, due)), report=Back(due, tuple(differences), bool(left)))


def reported(back: Back) -> list[dict[str, str]]:
    """What is restored, as the module returns it."""
    return [
        *({"kind": CHAIN, "place": str(one.table), "text": chain} for one in back.taken for chain in one.chains),
        *(
            {"kind": RULE, "place": one.table.place(removed.place.chain), "text": removed.rules[number].text}
            for one in back.taken
            for removed in one.rules
            for number in sorted(removed.gone)
        ),
    ]


def _part(one: Taken, addresses: t.AbstractSet[str], is_fit: bool) -> Taken:
    """Of what was removed, what is fit to be restored, or the rules that translate to an address that the node lacks."""
    rules = tuple(_of_rules(one.table, removed, addresses, is_fit) for removed in one.rules)
    return one._replace(rules=tuple(removed for removed in rules if removed.gone), chains=one.chains if is_fit else ())


def _of_rules(table: Table, removed: Removed, addresses: t.AbstractSet[str], is_fit: bool) -> Removed:
    sources = {number: azure.source_of(Rule(table, removed.place.chain, removed.rules[number].text)) for number in removed.gone}
    other = {number for number, source in sources.items() if (not source or source in addresses) is not is_fit}
    return removed.without(other) if is_fit else removed._replace(gone=removed.gone - other)


def _count(one: Taken) -> str:
    rules = sum(len(removed.gone) for removed in one.rules)
    return f"{rules} rules and {len(one.chains)} chains"


def _shown(one: Taken) -> str:
    chains = [f"{one.table}: -N {chain}\n" for chain in one.chains]
    rules = [
        f"{one.table}: -A {removed.place.chain} {removed.rules[number].text}\n"
        for removed in one.rules
        for number in sorted(removed.gone)
    ]
    return "".join([*chains, *rules])
