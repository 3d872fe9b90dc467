# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of iptables in both backends. Reads only tables that exist, so that none is created or loaded.

Rules are removed by their text and never by flushing a chain. One call of iptables-restore changes all of a table or nothing.
"""

from __future__ import annotations

import typing as t

from .._core.errors import Failure
from .._core.plan import UndoBackend
from .._platform import process
from . import chain, chains_backend, iptables
from .iptables import PROGRAMS, Rule, Table, TableRemoval, rules


class RemoveRules(TableRemoval):
    """Remove rules, and chains that are then empty, from a table, all or none."""


class RestoreRules(TableRemoval):
    """Restore removed rules beside their former neighbours, and removed chains, all or none. What exists already is left."""


Operation = t.Union[RemoveRules, RestoreRules]


class Iptables(UndoBackend):
    """The backend of these operations. run: starts programs."""

    OPERATIONS = t.get_args(Operation)
    VALUES = (Table, chain.RemovedRules, chain.Place, chain.ListedRule)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Iptables:
        return cls(run)

    def __init__(self, run: process.Runner) -> None:
        self._run = run

    def read(self, table: Table) -> dict[str, tuple[iptables.ListedRule, ...]]:
        """Return the chains of a table that exists, with their rules. Raises Failure."""
        return iptables.chains(self._call(table, "save", "-t", table.name))

    def perform(self, operation: Operation) -> None:
        """Raise Failure with the program's answer, or with the part that it left undone: a restored rule is in no backup any
        more."""
        script = self._script(operation)
        if script:
            self._call(operation.table, "restore", "-w", "--noflush", stdin=script)
            undone = self.verify(operation)
            if undone:
                raise Failure(f"iptables-restore reported success, but {'; '.join(undone)}")

    def verify(self, operation: Operation) -> list[str]:
        """Read the node again and compare it with the operation's result; see UndoBackend."""
        difference = "is still there" if isinstance(operation, RemoveRules) else "is not there"
        lines = self._script(operation).splitlines()
        return [f"{line[3:]} in table {operation.table} {difference}" for line in lines if line.startswith("-")]

    def _script(self, operation: Operation) -> str:
        """Return the rest of the operation as a script; empty if nothing is left to do."""
        now = self.read(operation.table)
        script = iptables.removal_script if isinstance(operation, RemoveRules) else iptables.restoration_script
        return script(operation, now)

    def _call(self, table: Table, verb: str, *options: str, stdin: str | None = None) -> str:
        tool = f"{PROGRAMS[table.family]}-{table.backend}-{verb}"
        path = process.find(tool)
        if path is None:
            raise Failure(
                f"{tool} (package iptables) is not installed, and is needed for table {table}. Install it and run again"
            )
        completed = self._run([path, *options], stdin)
        if completed.rc:
            raise Failure(f"{tool}, table {table}: {completed.stderr.strip() or f'exit status {completed.rc}'}")
        return completed.stdout


class Read(t.NamedTuple):
    """unread: each table that could not be read, with a sentence that says why."""

    rules: tuple[Rule, ...] = ()
    unread: t.Mapping[Table, str] = {}


def read(
    run: process.Runner,
    names: t.Mapping[str, t.Collection[str]],
    chains: t.Iterable[tuple[str, str]],
    is_strict: bool = False,
) -> Read:
    """Read the rules of tables of iptables. names: tables to read, by family.

    chains: place and name of all chains of the node; see chains_backend.read().

    is_strict: whether a program that fails raises Failure. A table that iptables cannot show is unread even then.
    """
    existing = {place for place, _chain in chains}
    rules_read: list[Rule] = []
    unread: dict[Table, str] = {}
    for family, wanted in names.items():
        legacy = chains_backend.legacy_tables(chains_backend.LEGACY[family][0])
        for name in wanted:
            nft = Table(family, name, "nft")
            for table in [nft] * (str(nft) in existing) + [Table(family, name, "legacy")] * (name in legacy):
                why = _read(run, table, rules_read, is_strict)
                if why:
                    unread[table] = why
    return Read(tuple(rules_read), unread)


def _read(run: process.Runner, table: Table, listed: list[Rule], is_strict: bool) -> str:
    """Append the table's rules, and return why they could not be read; empty if they were."""
    tool = f"{PROGRAMS[table.family]}-{table.backend}-save"
    path = process.find(tool)
    if path is None:
        return f"Table {table} was not read: {tool} (package iptables) is not installed. Install it and run again."
    completed = run([path, "-t", table.name], None)
    # Rules that nft added are not iptables'; the program then prints a comment in place of the table.
    if completed.rc or "incompatible" in completed.stdout + completed.stderr:
        said = (completed.stderr or completed.stdout).strip().splitlines()
        if completed.rc and is_strict:
            raise Failure(f"{tool}, table {table}: {said[-1] if said else f'exit status {completed.rc}'}")
        return f"Table {table} was not read: {tool} answered {said[-1] if said else completed.rc!r}. List it with nft instead."
    listed += rules(table, completed.stdout)
    return ""
