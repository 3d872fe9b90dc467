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
from .._files import files, managed_files
from .._files.files import Files
from .._files.managed_files import ManagedFile, ManagedFiles
from .._interfaces import interfaces_backend
from .._netfilter.iptables import Rule
from .._platform import process
from . import backup, ebtables_backup, iptables_backup, links_backup, survey_backend
from .azure_leftovers import Facts
from .backup import Backup, Codec, Node
from .state_file import STATE_FILE
from .survey_backend import Former

MACHINE_ID = "/etc/machine-id"
OURS = "/var/lib/kubenode"  # created if the backup is below it; any other parent must exist


class ObservedBackup(t.NamedTuple):
    """here: this node. node, runs: the content of the file. file: its state. has_parent: whether the folder's parent exists."""

    here: Node
    node: Node | None
    runs: backup.Runs
    file: managed_files.ObservedFiles
    has_parent: bool


class BackupFile:
    """Plans the steps that make the file contain ``runs``.

    Without runs, the file and the folders that were created for it are removed. codec: the kind of backup.
    """

    def __init__(self, backend: files.Files, path: str, codec: Codec) -> None:
        self.path = path
        self._codec = codec
        self._backend = backend
        self._folder = os.path.dirname(path)
        self._parent = os.path.dirname(self._folder)

    def observe(self) -> ObservedBackup:
        """Raise Refusal if the path holds anything but a valid backup of this node."""
        backup = self._read()
        node, runs = backup or (None, ())
        here = self._node()
        if node and not node.is_same(here):
            raise Refusal(
                f"{self.path} should be a backup of this node ({here}), and is of another ({node}). Nothing was changed. Its"
                f" contents would cut this node off. {self._away()}"
            )
        return ObservedBackup(here, node, runs, self._file("").observe(), self._backend.is_folder(self._parent))

    def _node(self) -> Node:
        """Return this node, with the MACs of all its links."""
        file = self._backend.read(MACHINE_ID)
        machine = file.text.strip() if isinstance(file, files.Content) else ""
        return Node(machine, tuple(sorted({interface.mac for interface in interfaces_backend.of_this_namespace()})))

    def _away(self) -> str:
        return f"Remove it from there, for example with: mv {self.path} {self.path}.old"

    def _read(self) -> Backup | None:
        file = self._backend.read(self.path)
        if file is None:
            return None
        try:
            if not isinstance(file, files.Content):
                raise backup.Damaged("it is not a regular file")
            return self._codec.from_text(file.text)
        except backup.Damaged as damaged:
            raise Refusal(
                f"{self.path} should be a backup of removed rules, and cannot be read: {damaged}. Nothing was changed. Its"
                f" contents can no longer be restored or used as evidence. {self._away()}"
            ) from damaged

    def steps(self, observed: ObservedBackup, runs: backup.Runs, node: Node | None = None) -> tuple[Step, ...]:
        """Return the steps that write or remove the backup. node: for a backup that does not exist yet."""
        if runs and runs == observed.runs:
            return ()  # without runs, folders of a killed run may remain
        text = self._codec.to_text(Backup(observed.node or node or observed.here, runs)) if runs else ""
        steps = tuple(step._replace(is_backup=True) for step in self._file(text).plan(observed.file).steps)
        if observed.has_parent or not runs:
            return steps
        if self._parent != OURS:
            raise Invalid("backup", self._folder, f"a folder that exists or whose parent exists; {self._parent} is not a folder")
        make = Step(f"make {self._parent}", files.MakeFolder(self._parent), files.RemoveFolder(self._parent), is_backup=True)
        return (make, *steps)

    def _file(self, text: str) -> ManagedFiles:
        desired = files.Content(text, 0o600) if text else None
        return ManagedFiles(
            self._backend, [ManagedFile(self.path, desired, self._codec.SIGNATURE)], "backup", "set backup to another folder"
        )


class Look(t.NamedTuple):
    """facts: None if nothing on the node is azure-vnet's. troubles: sentences about objects that could not be read."""

    facts: Facts | None
    troubles: tuple[str, ...]


class Backups(t.NamedTuple):
    """frames: of rules of ebtables, neighbours, routes and files; iptables: of its rules; links: of links and addresses."""

    frames: BackupFile
    iptables: BackupFile
    links: BackupFile

    def look(self, run: process.Runner) -> Look:
        """Read the node and the backups. Raises Failure if a table cannot be read, and the exceptions of former()."""
        troubles: list[str] = []
        survey = survey_backend.survey(run)
        facts = survey_backend.of_azure(run, troubles.append, survey, self.former(), is_strict=True)
        return Look(facts, tuple(troubles))

    def former(self) -> Former:
        """Return the objects that earlier runs removed. Raises Refusal if a backup is invalid or another node's."""
        frames, iptables, links = (file.observe().runs for file in self)
        rules = tuple(
            Rule(table.table, removed.place.chain, removed.rules[number].text)
            for run in iptables
            for table in run.taken
            for removed in table.rules
            for number in sorted(removed.gone)
        )
        states = tuple(file.text for run in frames for file in run.files if file.path == STATE_FILE)
        return Former(states, rules, bool(frames or iptables or links))


def backups(backend: Files, path: str) -> Backups:
    """Return the three backups of ebtables_cleanup. path: the common beginning of the paths of the three files."""
    return Backups(
        BackupFile(backend, f"{path}.json", ebtables_backup),
        BackupFile(backend, f"{path}-iptables.json", iptables_backup),
        BackupFile(backend, f"{path}-links.json", links_backup),
    )
