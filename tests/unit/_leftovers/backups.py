# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backup files that a run of release 1.0.0 wrote on a node of the lab, and the same objects as one backup."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import backup_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup_backend import Backup, Run

FOLDER = Path(__file__).parent / "backups_1_0_0"
FRAMES, IPTABLES, LINKS = FORMER = [(FOLDER / f"azure_vnet{kind}.json").read_text() for kind in ("", "-iptables", "-links")]
_BACKUPS = [*map(backup_backend.from_text, FORMER)]
BACKUP = Backup(_BACKUPS[0].node, (Run(tuple(undo for one in _BACKUPS for undo in one.runs[0].undo), "a boot"),))
TEXT = backup_backend.to_text(BACKUP)
_ONE_OF_EACH = tuple({type(undo): undo for undo in BACKUP.runs[0].undo}.values())
SHORT = backup_backend.to_text(Backup(BACKUP.node, (Run(_ONE_OF_EACH, "a boot"),)))
