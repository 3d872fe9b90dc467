# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A table in the running kernel, and the table that the next boot loads: its script, its unit and its boot program, if any."""

from __future__ import annotations

import typing as t

from .._boot import boot_files
from .._core.errors import Failure
from .._core.plan import Plan, Plane, Resource, Step, whole
from .._files import files
from .._files.managed_files import ManagedFile, text
from .._systemd import units
from .._systemd.boot_unit import BootUnit
from .._systemd.unit_resource import EnabledUnit
from . import nft_backend, table_unit
from .nft_table import Table
from .table_unit import BootCondition


class ObservedTable(t.NamedTuple):
    """table: the current table, None if it is absent. text: nft's text of it, read only if it differs from the desired table.

    A table that is to be removed may be unreadable. Then only its existence is known, and its text is empty.
    """

    table: Table | None
    text: str = ""


class LiveTable:
    """Makes the kernel's table ``family name`` equal ``desired``; None removes it."""

    plane = Plane.IMMEDIATE

    def __init__(self, backend: nft_backend.Nft, family: str, name: str, desired: Table | None) -> None:
        self.name = f"table {family} {name}"
        self.backends = (backend,)
        self.is_desired = desired is not None
        self._backend = backend
        self._family = family
        self._table = name
        self._desired = desired

    def observe(self) -> ObservedTable:
        try:
            return self._observe()
        except Failure as failure:
            if self._desired is not None:
                raise
            table = self._backend.unread(self._family, self._table)
            if table:
                self._backend.warn_unread(self._family, self._table, failure)
            return ObservedTable(table)

    def _observe(self) -> ObservedTable:
        table = self._backend.read(self._family, self._table)
        if self._desired and table != self._desired:
            self._backend.warn_without_nft(self._family, self._table)
        if table is None or table == self._desired:
            return ObservedTable(table)
        return ObservedTable(table, self._backend.text(self._family, self._table))

    def plan(self, observed: ObservedTable) -> Plan:
        if observed.table == self._desired:
            return Plan()
        text = self._desired.text() if self._desired else ""
        verb = "remove" if self._desired is None else "add" if observed.table is None else "replace"
        step = Step(f"{verb} {self.name}", self._replacement(text), self._replacement(observed.text))
        return Plan((step,), whole(nft_backend.without_readings(observed.text), text))

    def _replacement(self, text: str) -> nft_backend.Replace:
        return nft_backend.Replace(self._family, self._table, text)


class HandedOverTable(LiveTable):
    """A table that another program loads from now on. If it is loaded, ``desired`` replaces it; if not, nothing is loaded.

    A table that cannot be read is left to that program.
    """

    def observe(self) -> ObservedTable:
        try:
            table = self._backend.read(self._family, self._table)
            is_done = table is None or table == self._desired
            return ObservedTable(table, "" if is_done else self._backend.text(self._family, self._table))
        except Failure:
            return ObservedTable(None)

    def plan(self, observed: ObservedTable) -> Plan:
        return super().plan(observed) if observed.text else Plan()


class BootTable:
    """The permanent plane of one table.

    path: its script; the boot program lies beside the script. before: see kubelet_units.ordering().
    """

    def __init__(
        self,
        backend: files.Files,
        systemd: units.Units,
        family: str,
        table: str,
        path: str,
        before: t.Sequence[str] = (),
    ) -> None:
        self._backend = backend
        self._systemd = systemd
        self._family = family
        self._table = table
        self._path = path
        self._before = before

    @property
    def unit(self) -> str:
        return self._unit().name

    @property
    def program(self) -> str:
        return boot_files.program(self._path)

    def condition(self, kind: str, interface: str) -> BootCondition:
        """Return the condition that the unit checks at boot, with its interpreter.

        Raises Refusal if the node has no suitable one.
        """
        from .._boot.interpreters import interpreter  # only tables with a condition need it

        condition = BootCondition(kind, interface, "", self.program)
        chosen = interpreter(self._backend, self._systemd, lambda python: self._unit(condition._replace(python=python)))
        return condition._replace(python=chosen)

    def _unit(self, condition: BootCondition | None = None) -> BootUnit:
        return table_unit.unit(self._family, self._table, self._path, condition, self._before)

    def resources(
        self,
        script: str | None,
        accept: nft_backend.Nft,
        starts: bool,
        condition: BootCondition | None = None,
        program: str | None = None,
    ) -> list[Resource]:
        """Return the resources that install ``script``, or remove it if None, in the order in which they are applied.

        accept: checks the script. starts: see EnabledUnit. condition: what the unit checks at boot. program: the boot
        program's archive.
        """
        unit = self._unit(condition)

        def entries(path: str, is_here: bool) -> list[ManagedFile]:
            return self._entries(path, script, program, accept) if is_here else self._entries(path, None, None, accept)

        is_desired = script is not None
        enabled = EnabledUnit(self._backend, self._systemd, unit, desired=is_desired, starts=starts)
        arriving, leaving = boot_files.BootFiles(self._backend, unit.name, self._path, is_desired, entries).stages()
        is_asking = condition is not None and is_desired
        # The unit starts the timer, so the timer comes before it and goes after it. starts: the unit does that.
        timer = EnabledUnit(self._backend, self._systemd, table_unit.timer(self._family, self._table), is_asking, starts=False)
        if not is_asking:
            return [arriving, enabled, leaving, timer]

        return [timer, boot_files.RehearsedUnit(arriving, enabled, unit), leaving]

    def _entries(self, path: str, script: str | None, program: str | None, accept: nft_backend.Nft) -> list[ManagedFile]:
        """Return the files of the table.

        Each begins with the table's name, so that a run for one table does not claim another table's file.
        """
        comment = f"# For table {self._family} {self._table}.\n"
        return [
            text(path, script, f"table {self._family} {self._table} {{}}\n", accept),
            text(boot_files.program(path), program and comment + program, comment),
        ]
