# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A systemd unit of this collection as a value, its state in systemd, and the command line of its boot program.

Each subject renders the units of its own: ``_nftables/table_unit.py``, ``_listener/policy_unit.py``,
``_interfaces/address_unit.py``.
"""

from __future__ import annotations

import enum
import re
import typing as t


class BootUnit(t.NamedTuple):
    """A unit file with its ``name`` and ``text``; ``wanted_by`` is the target or device that starts the unit.

    drop_in: the text of a drop-in for the unit ``beside``; empty for none.
    rehearsal: the command that rehearses the unit's program; empty if it has none.
    before: the units that the operator named, and that this one precedes at boot.
    """

    name: str
    text: str
    drop_in: str = ""
    beside: str = "nftables.service"
    wanted_by: str = "multi-user.target"
    rehearsal: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


# -I ignores the environment and the user's packages, -S the node's packages; -B writes no compiled files.
ISOLATED = ("-I", "-S", "-B")


def isolated(python: str, program: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a boot program."""
    return (python, *ISOLATED, program, *arguments)


def interpreter(text: str) -> str:
    """Return the Python that a unit of this collection runs; empty if it runs none. text: of the unit file."""
    match = re.search(rf"^Exec(?:Condition|Start)=.*?(\S+) {' '.join(ISOLATED)} ", text, re.MULTILINE)
    return match[1] if match else ""


def loaded_path(text: str) -> str:
    """Return the file that a unit of this collection loads; empty if the text is not that of such a unit."""
    match = re.search(r"^ExecStart=(?:nft -f|\S+ -I -S -B \S+ (?:\d+|watch)) (\S+)", text, re.MULTILINE)
    return match[1] if match else ""


class UnitVerdict(enum.Enum):
    """ACTIVE: it was started and did not fail.

    SKIPPED: its ExecCondition= skipped the start, which is as good as ACTIVE. FAILED: its last start failed, even if systemd
    will try again. STARTING: a job or a start is in progress. QUEUED: its job waits while systemd still boots the node.
    INACTIVE: it was stopped or never started.
    """

    ACTIVE = "active"
    SKIPPED = "skipped"
    FAILED = "failed"
    STARTING = "starting"
    QUEUED = "queued"
    INACTIVE = "inactive"


class UnitState(t.NamedTuple):
    """Properties of a unit, as ``systemctl show`` prints them. job: the number of its job; "0" or empty for none."""

    active: str
    sub: str
    result: str
    job: str

    @property
    def has_job(self) -> bool:
        return self.job not in ("", "0")

    @property
    def verdict(self) -> UnitVerdict:
        """Return the verdict by the unit alone. Never QUEUED, which also depends on whether the node is booting."""
        if self.has_job:
            return UnitVerdict.STARTING
        if self.active == "failed" or self.waits_to_try_again:
            return UnitVerdict.FAILED
        if self.active in ("activating", "deactivating"):
            return UnitVerdict.STARTING
        if self.active == "inactive":
            return UnitVerdict.SKIPPED if self.result == "exec-condition" else UnitVerdict.INACTIVE
        return UnitVerdict.ACTIVE  # active, reloading and similar states

    @property
    def waits_to_try_again(self) -> bool:
        """Return True between two starts of a unit with Restart=. A start job then stays queued until RestartSec= has passed."""
        return self.sub == "auto-restart"

    @property
    def waits_in_queue(self) -> bool:
        """Return whether the unit's job has not begun: a unit that starts is activating, one that restarts is deactivating
        first."""
        return self.has_job and self.active in ("inactive", "failed")

    def __str__(self) -> str:
        return f"{self.active} ({self.sub}, result {self.result}{f', job {self.job} waits or runs' if self.has_job else ''})"
