# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""systemd's folders and its manager. Units are enabled by the links that ``systemctl enable`` makes: offline as well."""

from __future__ import annotations

import os
from pathlib import Path

from .._model.problem import Failure
from . import process

FOLDER = "/etc/systemd/system"
# Where a unit may have been enabled, systemd.unit(5).
FOLDERS = (FOLDER, "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")


class Reload:
    """Has the running manager read its unit files again."""


class Units:
    """The edge."""

    def __init__(self, run: process.Runner) -> None:
        self._run = run

    def is_enabled(self, unit: str) -> bool:
        """Whether a link in some target's or unit's .wants or .requires names the unit."""
        links = (link for folder in FOLDERS for link in Path(folder).glob(f"*.[wr]*s/{unit}"))
        return any(link.parent.suffix in (".wants", ".requires") for link in links)

    def named(self, pattern: str) -> set[str]:
        """Units of the operator's folder, and so ours, whose names match a shell pattern."""
        return {path.name for path in Path(FOLDER).glob(pattern)}

    def is_running(self) -> bool:
        """Whether systemd manages this root (sd_booted(3))."""
        return os.path.isdir("/run/systemd/system")

    def reload(self) -> None:
        """``systemctl daemon-reload``; starts and stops nothing."""
        done = self._run([process.find("systemctl") or "systemctl", "daemon-reload"], None)
        if done.rc != 0:
            raise Failure(f"systemctl daemon-reload: {done.stderr.strip() or done.rc}")
