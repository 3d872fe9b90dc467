# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The files that a unit of ours loads at boot, where the option ``path`` wants them and where it wanted them before."""

from __future__ import annotations

import typing as t

from .._model import boot_unit, names
from .._model.problem import Invalid
from .._system import files, units
from .managed_files import HEADING, Entry, ManagedFiles


def program(path: str) -> str:
    """Where the program stands that goes with a file."""
    return f"{path}.pyz"


def check_path(path: str) -> None:
    """Raises Invalid for a path among systemd's own files, and for one in /run, where our records are as well."""
    if names.is_in_run(path):
        raise Invalid("path", path, "outside /run, which a boot empties")
    if path.startswith(f"{units.FOLDER}/"):
        raise Invalid("path", path, f"outside {units.FOLDER}, where systemd keeps its own")


def former_path(edge: files.Files, unit: str) -> str:
    """What our unit loads as it stands on the node: it is ours, whatever is in it. Empty where it loads nothing."""
    found = edge.read(units.path_of(unit))
    if isinstance(found, files.Content) and found.text.startswith(HEADING):
        return boot_unit.loaded_path(found.text)
    return ""


def placed(
    edge: files.Files, unit: str, path: str, entries: t.Callable[[str, bool], t.Sequence[Entry]]
) -> list[ManagedFiles]:
    """What holds the files of ``path``, and after it, where the unit loads others, what removes those.

    entries: gives the file at a path and its program; with False for both gone.
    """
    former = former_path(edge, unit)
    claimed = (former, program(former)) if former else ()
    here = ManagedFiles(edge, entries(path, True), claimed=claimed)
    return [here] if former in ("", path) else [here, ManagedFiles(edge, entries(former, False), claimed=claimed)]
