# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A unit and the files that its program reads. The boot is rehearsed whenever one of them changes."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane, Resource, Step, objects
from .._systemd import unit_resource, units
from .._systemd.boot_unit import BootUnit


class ObservedRehearsal(t.NamedTuple):
    loaded: t.Any
    enabled: unit_resource.ObservedUnit


class RehearsedUnit:
    """Places the files (``loaded``), rehearses the boot, then places the unit that names them (``enabled``).

    The rehearsal runs the program at its final path, by the interpreter of ``unit``. The unit is enabled and started only if the
    rehearsal succeeds.
    """

    plane = Plane.PERMANENT

    def __init__(self, loaded: Resource, enabled: unit_resource.EnabledUnit, unit: BootUnit) -> None:
        self.name = f"{loaded.name}, {enabled.name}"
        self._loaded = loaded
        self._enabled = enabled
        self._unit = unit

    def observe(self) -> ObservedRehearsal:
        return ObservedRehearsal(self._loaded.observe(), self._enabled.observe())

    def plan(self, observed: ObservedRehearsal) -> Plan:
        loaded, enabled = self._loaded.plan(observed.loaded), self._enabled.plan(observed.enabled)
        if not loaded.steps and not enabled.steps:
            return Plan()
        rehearsal = Step(f"rehearse the start of {self._unit.name}", units.Rehearse(self._unit.rehearsal))
        return Plan((*loaded.steps, rehearsal, *enabled.steps), objects([loaded, enabled]))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (*self._loaded.backends, *self._enabled.backends)
