# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A systemd unit of ours: its file, the link by which its target starts it, and its drop-in for another unit, if any."""

from __future__ import annotations

import typing as t

from .._converge import Operation, Plan, Plane, Step
from .._model.boot_unit import BootUnit
from .._system import files, units
from . import managed_files
from .telling_systemd import told


class Observed(t.NamedTuple):
    """What each of the groups observed, and what systemd, where it runs here, makes of the unit."""

    groups: tuple[managed_files.Observed, ...]
    is_managed: bool
    is_active: bool


class EnabledUnit:
    """Holds ``unit`` placed and enabled (``wish``), or absent.

    starts: whether a unit that was placed is started as well, so that systemd takes it for active from now on. One that
        is removed is forgotten: its file is gone by then, so that no command of it is run.
    is_resident: whether its program stays. It is then started where it does not run, restarted where its unit has
        changed, and as it was before if the run is undone.
    """

    plane = Plane.PERMANENT

    def __init__(
        self,
        edge: files.Files,
        systemd: units.Units,
        unit: BootUnit,
        wish: bool,
        starts: bool,
        is_resident: bool = False,
    ) -> None:
        self.name = units.path_of(unit.name)
        self._edge = edge
        self._systemd = systemd
        self._unit = unit.name
        self._wish = wish
        self._starts = starts
        self._is_resident = is_resident
        self._is_asked_for = False
        drop_in = f"{units.path_of(unit.beside)}.d/{unit.name.rpartition('.')[0]}.conf"
        enabling = f"{units.path_of(unit.wanted_by)}.wants/{unit.name}"
        # A boot must never find a link to a unit that is not there.
        order = [managed_files.text(self.name, unit.text if wish else None)]
        order += [managed_files.text(drop_in, unit.drop_in if wish else None)] if unit.drop_in else []
        order += [managed_files.link(enabling, self.name, wish)]
        instead = "set permanent to false"
        groups = [managed_files.ManagedFiles(edge, [entry], "permanent", instead) for entry in order]
        self._groups = groups if wish else groups[::-1]

    def observe(self) -> Observed:
        is_active = self._systemd.is_active(self._unit) or self._is_asked_for  # systemd comes to it when it can
        return Observed(tuple(group.observe() for group in self._groups), self._systemd.is_running(), is_active)

    def plan(self, observed: Observed) -> Plan:
        plans = [group.plan(seen) for group, seen in zip(self._groups, observed.groups)]
        steps = told([step for plan in plans for step in plan.steps], observed.is_managed)
        if observed.is_managed:
            steps = (*self._before(steps, observed), *steps, *self._afterwards(steps, observed))
        before, after = (
            "\n".join(filter(None, texts)) for texts in zip(*((plan.before, plan.after) for plan in plans))
        )
        return Plan(steps, before, after)

    def _before(self, steps: t.Sequence[Step], observed: Observed) -> t.Iterator[Step]:
        """The first step is the last to be undone: the former files are there again."""
        if steps and self._is_resident and observed.is_active:
            yield Step(f"have {self._unit} run on", undo=units.Restart(self._unit))

    def _afterwards(self, steps: t.Sequence[Step], observed: Observed) -> t.Iterator[Step]:
        if not self._wish:
            if steps:
                yield Step(f"have systemd forget {self._unit}", units.Forget(self._unit))
        elif not observed.is_active:
            if self._starts and (steps or self._is_resident):
                back = units.Forget(self._unit) if self._is_resident else None
                yield Step(f"start {self._unit}", units.Start(self._unit), back)
        elif steps and self._is_resident:
            yield Step(f"restart {self._unit}", units.Restart(self._unit))

    def perform(self, operation: Operation) -> None:
        if isinstance(operation, t.get_args(units.Operation)):
            self._is_asked_for = isinstance(operation, (units.Start, units.Restart))
            self._systemd.perform(operation)
        else:
            self._edge.perform(operation)
