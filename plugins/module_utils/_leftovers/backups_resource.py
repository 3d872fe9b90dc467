# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The backups of ebtables_cleanup. Their contents are evidence for all kinds of leftovers."""

from __future__ import annotations

import typing as t

from .._azure_vnet import leftovers
from .._azure_vnet.backup_resource import BackupFile
from .._files.files import Files
from .._netfilter.iptables import Rule
from .._platform import process
from . import iptables_backup, leftovers_backend, links_backup
from .azure import Facts
from .leftovers_backend import Former


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
        """Reads the node and the backups. Raises Failure if a table cannot be read, and the exceptions of former()."""
        troubles: list[str] = []
        seen = leftovers_backend.see(run)
        facts = leftovers_backend.of_azure(run, troubles.append, seen, self.former(), is_strict=True)
        return Look(facts, tuple(troubles))

    def former(self) -> Former:
        """The objects that earlier runs removed. Raises Refusal if a backup is invalid or another node's."""
        frames, iptables, links = (one.observe().runs for one in self)
        rules = tuple(
            Rule(one.table, removed.place.chain, removed.rules[number].text)
            for run in iptables
            for one in run.taken
            for removed in one.rules
            for number in sorted(removed.gone)
        )
        states = tuple(one.text for run in frames for one in run.files if one.path == leftovers.STATE_FILE)
        return Former(states, rules, bool(frames or iptables or links))


def backups(backend: Files, path: str) -> Backups:
    """path: the common beginning of the paths of the three files."""
    return Backups(
        BackupFile(backend, f"{path}.json"),
        BackupFile(backend, f"{path}-iptables.json", iptables_backup),
        BackupFile(backend, f"{path}-links.json", links_backup),
    )
