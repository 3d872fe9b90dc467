# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The Python that a boot unit names: the one that it names already, or a new choice."""

from __future__ import annotations

import typing as t

from .._files import files
from .._files.managed_files import HEADING
from .._systemd import boot_unit, unit_files, units
from .._systemd.boot_unit import BootUnit, UnitVerdict
from . import interpreters


def interpreter(backend: files.Files, systemd: units.Units, unit: t.Callable[[str], BootUnit]) -> str:
    """Return the interpreter that the unit on the node names, if it lasts and the unit needs no change; else a new choice.

    So a run by another interpreter changes nothing on a converged node, and a converged run starts no process for the choice.
    If the unit has failed, the choice is made anew, because the interpreter may be the reason.

    unit: gives the unit for an interpreter. Raises Refusal if the node has no suitable interpreter.
    """
    current = backend.read(unit_files.path_of(unit("").name))
    named = boot_unit.interpreter(current.text) if isinstance(current, files.Content) else ""
    if named and current == files.Content(HEADING + unit(named).text) and interpreters.is_lasting(named):
        name = unit(named).name
        if systemd.is_active(name) or not systemd.is_running() or systemd.verdict(name) is not UnitVerdict.FAILED:
            return named
    return interpreters.choose()
