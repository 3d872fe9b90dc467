# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The file that keeps what was removed from a node."""

from __future__ import annotations

import os
import typing as t

from .._core.converge import Step
from .._core.errors import Invalid, Refusal
from .._platform import files, managed_files
from .._platform.managed_files import Entry, ManagedFiles
from . import backup

OURS = "/var/lib/kubenode"  # made for a backup below it; any other parent has to be there


class Observed(t.NamedTuple):
    """runs: what the file keeps. file: the file itself. has_parent: whether the folder's parent is there."""

    runs: backup.Runs
    file: managed_files.Observed
    has_parent: bool


class BackupFile:
    """Plans how the file comes to keep ``runs``; without any it goes, and the folders that were made for it."""

    def __init__(self, backend: files.Files, path: str) -> None:
        self.path = path
        self._backend = backend
        self._folder = os.path.dirname(path)
        self._parent = os.path.dirname(self._folder)

    def observe(self) -> Observed:
        """Raises Refusal where something else stands there."""
        return Observed(self._read(), self._file("").observe(), self._backend.is_folder(self._parent))

    def _read(self) -> backup.Runs:
        found = self._backend.read(self.path)
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

    def steps(self, observed: Observed, runs: backup.Runs) -> tuple[Step, ...]:
        if runs and runs == observed.runs:
            return ()  # without any, a killed run may have left folders
        steps = self._file(backup.to_text(runs) if runs else "").plan(observed.file).steps
        if observed.has_parent or not runs:
            return steps
        if self._parent != OURS:
            raise Invalid("backup", self._folder, f"a folder that is there or whose parent is; {self._parent} is none")
        make = Step(f"make {self._parent}", files.MakeFolder(self._parent), files.RemoveFolder(self._parent))
        return (make, *steps)

    def _file(self, text: str) -> ManagedFiles:
        desired = files.Content(text, 0o600) if text else None
        return ManagedFiles(
            self._backend, [Entry(self.path, desired, backup.SIGNATURE)], "backup", "set backup to another folder"
        )
