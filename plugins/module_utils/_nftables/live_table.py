# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A table in the running kernel."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure
from .._core.plan import Backend, Plan, Plane, Step, whole
from . import nft_backend
from .nft_table import Table


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

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend,)


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
