# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Records the settings that the boot has made, in a run that changes only the permanent plane.

The collection's files in sysctl.d(5) are the evidence of these settings. Such a run replaces the files, so the record keeps the
evidence.
"""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane, Resource


class Live(Resource, t.Protocol):
    """The resource for the running kernel, which keeps a record."""

    def remember(self, observed: t.Any) -> Plan:
        """Plan the record alone: it takes over the settings that the collection's files have made."""


class ObservedBootRecord(t.NamedTuple):
    live: t.Any
    files: tuple[t.Any, ...]


class BootRecord:
    """Adds to the record of ``live`` the settings that ``files`` have made, so that a later run can undo them."""

    plane = Plane.PERMANENT

    def __init__(self, live: Live, *files: Resource) -> None:
        self.name = f"record of {live.name}"
        self._live = live
        self._files = files

    def observe(self) -> ObservedBootRecord:
        return ObservedBootRecord(self._live.observe(), tuple(file.observe() for file in self._files))

    def plan(self, observed: ObservedBootRecord) -> Plan:
        is_moving = any(file.plan(state).steps for file, state in zip(self._files, observed.files))
        return self._live.remember(observed.live) if is_moving else Plan()

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._live.backends
