# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The backup file on the node, which keeps what runs have removed."""

from __future__ import annotations

import os
import typing as t

from .._core.errors import Invalid, Refusal
from .._core.plan import Step
from .._platform import files, managed_files
from .._platform.managed_files import Entry, ManagedFiles
from . import backup

OURS = "/var/lib/kubenode"  # created if the backup is below it; any other parent must exist


class Observed(t.NamedTuple):
    """runs: the content of the file. file: its state on the node. has_parent: whether the backup folder's parent exists."""

    runs: backup.Runs
    file: managed_files.Observed
    has_parent: bool


class BackupFile:
    """Plans the steps that make the file contain ``runs``.

    Without runs, the file and the folders that were created for it are removed.
    """

    def __init__(self, backend: files.Files, path: str) -> None:
        self.path = path
        self._backend = backend
        self._folder = os.path.dirname(path)
        self._parent = os.path.dirname(self._folder)

    def observe(self) -> Observed:
        """Raises Refusal if the path holds anything but a valid backup."""
        return Observed(self._read(), self._file("").observe(), self._backend.is_folder(self._parent))

    def _read(self) -> backup.Runs:
        found = self._backend.read(self.path)
        if found is None:
            return ()
        try:
            if not isinstance(found, files.Content):
                raise backup.Damaged("it is not a regular file")
            return backup.from_text(found.text)
        except backup.Damaged as damaged:
            raise Refusal(
                f"{self.path} should be a backup of removed rules, and cannot be read: {damaged}. Nothing was changed. Move"
                " the file away; what it keeps can then no longer be restored or used as evidence"
            ) from damaged

    def steps(self, observed: Observed, runs: backup.Runs) -> tuple[Step, ...]:
        if runs and runs == observed.runs:
            return ()  # without runs, folders of a killed run may remain
        steps = self._file(backup.to_text(runs) if runs else "").plan(observed.file).steps
        if observed.has_parent or not runs:
            return steps
        if self._parent != OURS:
            raise Invalid("backup", self._folder, f"a folder that exists or whose parent exists; {self._parent} is not a folder")
        make = Step(f"make {self._parent}", files.MakeFolder(self._parent), files.RemoveFolder(self._parent))
        return (make, *steps)

    def _file(self, text: str) -> ManagedFiles:
        desired = files.Content(text, 0o600) if text else None
        return ManagedFiles(
            self._backend, [Entry(self.path, desired, backup.SIGNATURE)], "backup", "set backup to another folder"
        )
