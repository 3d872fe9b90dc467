# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The file that keeps what was removed from a node."""

from __future__ import annotations

import os
import typing as t

from .._converge import Step
from .._model import backup
from .._model.problem import Invalid, Refusal
from .._system import files
from . import managed_files
from .managed_files import Entry, ManagedFiles

OURS = "/var/lib/kubenode"  # made for a backup below it; any other parent has to be there


class Observed(t.NamedTuple):
    """runs: what the file keeps. file: the file itself. parent: "missing", "ours" (only the backup is in it) or "theirs"."""

    runs: backup.Runs
    file: managed_files.Observed
    parent: str


class BackupFile:
    """Plans how the file comes to keep ``runs``; without any it goes, and the folders that were made for it."""

    def __init__(self, edge: files.Files, path: str) -> None:
        self.path = path
        self._edge = edge
        self._folder = os.path.dirname(path)
        self._parent = os.path.dirname(self._folder)

    def observe(self) -> Observed:
        """Raises Refusal where something else stands there."""
        return Observed(self._read(), self._file("").observe(), self._observe_parent())

    def _read(self) -> backup.Runs:
        found = self._edge.read(self.path)
        if found is None:
            return ()
        try:
            if not isinstance(found, files.Content):
                raise backup.Damaged("it is no regular file")
            return backup.from_text(found.text)
        except backup.Damaged as damaged:
            raise Refusal(
                f"{self.path}, where what is removed is kept, can not be read: {damaged}. Nothing was changed. Move the file"
                " away; what it kept is then not known here any more"
            ) from damaged

    def _observe_parent(self) -> str:
        if not self._edge.is_folder(self._parent):
            return "missing"
        is_ours = self._edge.is_ours(self._parent) and self._edge.entries(self._parent) <= {
            os.path.basename(self._folder)
        }
        return "ours" if is_ours else "theirs"

    def steps(self, observed: Observed, runs: backup.Runs) -> tuple[Step, ...]:
        if runs == observed.runs:
            return ()
        steps = self._file(backup.to_text(runs) if runs else "").plan(observed.file).steps
        make, remove = files.MakeFolder(self._parent), files.RemoveFolder(self._parent)
        if runs and observed.parent == "missing":
            if self._parent != OURS:
                raise Invalid(
                    "backup", self._folder, f"a folder that is there or whose parent is; {self._parent} is none"
                )
            return (Step(f"make {self._parent}", make, remove), *steps)
        if not runs and observed.parent == "ours" and observed.file.folder == "ours" and not observed.file.has_others:
            return (*steps, Step(f"remove {self._parent}", remove, make))
        return steps

    def _file(self, text: str) -> ManagedFiles:
        wish = files.Content(text, 0o600) if text else None
        return ManagedFiles(
            self._edge, [Entry(self.path, wish, backup.SIGNATURE)], "backup", "set backup to another folder"
        )
