# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A systemd unit of ours: its file, and the link by which its target starts it."""

from __future__ import annotations

import os
import typing as t

from .._converge import Operation, Plan, Plane, Step
from .._model.boot_unit import BootUnit
from .._model.problem import Refusal
from .._system import files, units
from . import managed_files
from .telling_systemd import told


class Observed(t.NamedTuple):
    """file: None where the operator has masked the unit. link: where the target's link points, empty for none."""

    file: managed_files.Observed | None
    link: str
    has_folder: bool
    is_managed: bool  # systemd runs here and has to be told


class EnabledUnit:
    """Holds ``unit`` placed and enabled (``wish``), or absent. Starts and stops nothing."""

    plane = Plane.PERMANENT

    def __init__(self, edge: files.Files, systemd: units.Units, unit: BootUnit, wish: bool) -> None:
        self.name = f"{units.FOLDER}/{unit.name}"
        self._edge = edge
        self._systemd = systemd
        self._wish = wish
        self._file = managed_files.ManagedFiles(
            edge, [managed_files.File(self.name, unit.text if wish else None)], option="permanent"
        )
        self._folder = f"{units.FOLDER}/{unit.wanted_by}.wants"
        self._link = os.path.join(self._folder, unit.name)

    def observe(self) -> Observed:
        is_masked = self._edge.kind(self.name) == "link" and self._edge.target(self.name) == "/dev/null"
        return Observed(
            None if is_masked else self._file.observe(),
            self._edge.target(self._link) if self._edge.kind(self._link) == "link" else "",
            self._edge.kind(self._folder) != "missing",
            self._systemd.is_running(),
        )

    def plan(self, observed: Observed) -> Plan:
        if observed.file is None:
            return self._plan_for_masked()
        placing = self._file.plan(observed.file)
        linking = self._linking(observed)
        # A boot must never find a link to a unit that is not there.
        steps = (*placing.steps, *linking) if self._wish else (*linking, *placing.steps)
        was, is_ = (self._shown(link) for link in (observed.link, self.name if self._wish else ""))
        return Plan(told(steps, observed.is_managed), placing.before + was, placing.after + is_)

    def _plan_for_masked(self) -> Plan:
        if self._wish:
            raise Refusal(
                f"{self.name} is masked: somebody does not want it at boot. Nothing was changed."
                " Run `systemctl unmask` on it, or set permanent to false"
            )
        return Plan()

    def _linking(self, observed: Observed) -> list[Step]:
        wish = self.name if self._wish else ""
        if observed.link == wish:
            return []
        back = files.Link(self._link, observed.link) if observed.link else files.Remove(self._link)
        if not wish:
            return [Step(f"remove {self._link}", files.Remove(self._link), back)]
        folder = Step(f"make {self._folder}", files.MakeFolder(self._folder), files.RemoveFolder(self._folder))
        return [
            *([] if observed.has_folder else [folder]),
            Step(f"link {self._link}", files.Link(self._link, wish), back),
        ]

    def _shown(self, link: str) -> str:
        return f"# {self._link} -> {link}\n" if link else ""

    def perform(self, operation: Operation) -> None:
        if isinstance(operation, units.Reload):
            self._systemd.reload()
        else:
            self._edge.perform(operation)
