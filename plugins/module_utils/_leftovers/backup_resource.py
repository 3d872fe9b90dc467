# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The backup of the objects that runs removed, as a file on the node."""

from __future__ import annotations

import os
import typing as t

from .._core.errors import Invalid, Refusal
from .._core.plan import Step
from .._files import files, managed_files
from .._files.managed_files import ManagedFile, ManagedFiles
from .._interfaces import interfaces_backend
from . import backup_backend
from .backup_backend import Backup, Node, Run

MACHINE_ID = "/etc/machine-id"
OWN_FOLDER = "/var/lib/kubenode"  # created if the backup is below it; any other parent must exist


class ObservedBackup(t.NamedTuple):
    """here: this node. node, runs: the content of the file. file: its state. has_parent: whether the folder's parent exists."""

    here: Node
    node: Node | None
    runs: tuple[Run, ...]
    file: managed_files.ObservedFiles
    has_parent: bool


class BackupFile:
    """Plans the steps that make the file ``stem``.json contain ``runs``.

    Without runs, the file and the folders that were created for it are removed. Release 1.0.0 wrote two further files beside
    it. Their content is read as well, and moves into this file when it is written.
    """

    def __init__(self, backend: files.Files, stem: str) -> None:
        self.path = f"{stem}.json"
        self._paths = (self.path, f"{stem}-iptables.json", f"{stem}-links.json")
        self._backend = backend
        self._folder = os.path.dirname(stem)
        self._parent = os.path.dirname(self._folder)

    def observe(self) -> ObservedBackup:
        """Raise Refusal if one of the paths holds anything but a valid backup of this node."""
        here = self._node()
        backups = [self._read(path, here) for path in self._paths]
        nodes = [backup.node for backup in backups if backup]
        runs = dict.fromkeys(run for backup in backups if backup for run in backup.runs)  # a killed run may have left both
        parent = self._backend.is_folder(self._parent)
        return ObservedBackup(here, nodes[0] if nodes else None, tuple(runs), self._files("").observe(), parent)

    def _node(self) -> Node:
        """Return this node, with the MACs of all its links."""
        file = self._backend.read(MACHINE_ID)
        machine = file.text.strip() if isinstance(file, files.Content) else ""
        return Node(machine, tuple(sorted({interface.mac for interface in interfaces_backend.of_this_namespace()})))

    def _read(self, path: str, here: Node) -> Backup | None:
        file = self._backend.read(path)
        if file is None:
            return None
        away = f"Remove it from there, for example with: mv {path} {path}.old"
        try:
            if not isinstance(file, files.Content):
                raise backup_backend.Damaged("it is not a regular file")
            backup = backup_backend.from_text(file.text)
        except backup_backend.Damaged as damaged:
            raise Refusal(
                f"{path} should be a backup of removed objects, and cannot be read: {damaged}. Nothing was changed. Its contents"
                f" can no longer be restored or used as evidence. {away}"
            ) from damaged
        if not backup.node.is_same(here):
            raise Refusal(
                f"{path} should be a backup of this node ({here}), and is of another ({backup.node}). Nothing was changed. Its"
                f" contents would cut this node off. {away}"
            )
        return backup

    def steps(self, observed: ObservedBackup, runs: tuple[Run, ...], node: Node | None = None) -> tuple[Step, ...]:
        """Return the steps that write or remove the backup. node: for a backup that does not exist yet."""
        if runs and runs == observed.runs:
            return ()  # without runs, folders of a killed run may remain
        text = backup_backend.to_text(Backup(observed.node or node or observed.here, runs)) if runs else ""
        steps = tuple(step._replace(is_backup=True) for step in self._files(text).plan(observed.file).steps)
        if observed.has_parent or not runs:
            return steps
        if self._parent != OWN_FOLDER:
            raise Invalid("backup", self._folder, f"a folder that exists or whose parent exists; {self._parent} is not a folder")
        make = Step(f"make {self._parent}", files.MakeFolder(self._parent), files.RemoveFolder(self._parent), is_backup=True)
        return (make, *steps)

    def _files(self, text: str) -> ManagedFiles:
        desired = [files.Content(text, 0o600) if text else None, None, None]
        entries = [ManagedFile(path, content, backup_backend.SIGNATURE) for path, content in zip(self._paths, desired)]
        return ManagedFiles(self._backend, entries, "backup", "set backup to another folder")
