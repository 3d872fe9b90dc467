# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""systemd's folders and its manager. Units are enabled by the links that ``systemctl enable`` makes: offline as well."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from .._model.problem import Failure
from . import kernel, process

FOLDER = "/etc/systemd/system"
# Where a unit may be and may have been enabled, first come first served, systemd.unit(5).
FOLDERS = (
    FOLDER,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


class Reload(t.NamedTuple):
    """Have the running manager read its unit files again."""


class Start(t.NamedTuple):
    """Start a unit, without waiting for it."""

    unit: str


class Restart(t.NamedTuple):
    """Start a unit anew, with the program that is there now, without waiting for it."""

    unit: str


class Forget(t.NamedTuple):
    """Have the manager forget a unit whose file has gone: that it was started, has failed, or shall be tried again."""

    unit: str


Operation = t.Union[Reload, Start, Restart, Forget]


def path_of(unit: str) -> str:
    """Where the administrator's file of a unit stands."""
    return f"{FOLDER}/{unit}"


class Units:
    """The edge."""

    def __init__(self, run: process.Runner) -> None:
        self._run = run

    def is_enabled(self, unit: str) -> bool:
        """Whether the unit is there, not masked, and named by a link in some target's or unit's .wants or .requires."""
        found = [path for path in (Path(folder, unit) for folder in FOLDERS) if os.path.lexists(path)]
        if not found or not found[0].is_file():  # missing, masked by a link to /dev/null, or a link to nowhere
            return False
        links = (link for folder in FOLDERS for link in Path(folder).glob(f"*.[wr]*s/{unit}"))
        return any(link.parent.suffix in (".wants", ".requires") for link in links)

    def named(self, pattern: str) -> set[str]:
        """Units of the operator's folder, and so ours, whose names match a shell pattern."""
        return {path.name for path in Path(FOLDER).glob(pattern)}

    def is_running(self) -> bool:
        """Whether systemd manages this root (sd_booted(3)); not where a chroot has the /run of its builder."""
        return os.path.isdir("/run/systemd/system") and kernel.is_own_root()

    def is_active(self, unit: str) -> bool:
        """Whether the unit was started and not stopped: systemd keeps a link to each such unit's invocation."""
        return os.path.lexists(f"/run/systemd/units/invocation:{unit}") and kernel.is_own_root()

    def perform(self, operation: Operation) -> None:
        """Does one operation. Raises Failure with what systemctl answered."""
        if isinstance(operation, Forget):
            for verb in ("stop", "reset-failed"):
                self._systemctl(verb, operation.unit, unless="not loaded")
        elif isinstance(operation, (Start, Restart)):
            self._systemctl("--no-block", type(operation).__name__.lower(), operation.unit)
        else:
            self._systemctl("daemon-reload")

    def _systemctl(self, *arguments: str, unless: str = "\0") -> None:
        done = self._run([process.find("systemctl") or "systemctl", *arguments], None)
        if done.rc != 0 and unless not in done.stderr:
            raise Failure(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.rc}")
