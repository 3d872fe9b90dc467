# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What systemd says of a unit, and what that means for a unit that has to be active."""

from __future__ import annotations

import enum
import typing as t


class Verdict(enum.Enum):
    """ACTIVE: it was started and did not fail.

    SKIPPED: its ExecCondition= said no, which is as right as ACTIVE. FAILED: its last start failed, whether or not systemd
    will try again. STARTING: a job or a start is under way. QUEUED: its job waits while systemd still boots the node.
    INACTIVE: it was stopped or never started.
    """

    ACTIVE = "active"
    SKIPPED = "skipped"
    FAILED = "failed"
    STARTING = "starting"
    QUEUED = "queued"
    INACTIVE = "inactive"


class UnitState(t.NamedTuple):
    """The properties of a unit in the words of ``systemctl show``. job: the number of its job; 0 or empty for none."""

    active: str
    sub: str
    result: str
    job: str

    @property
    def has_job(self) -> bool:
        return self.job not in ("", "0")

    @property
    def verdict(self) -> Verdict:
        """Never QUEUED, which depends on the node as well."""
        if self.has_job:
            return Verdict.STARTING
        if self.active == "failed" or self.waits_to_try_again:
            return Verdict.FAILED
        if self.active in ("activating", "deactivating"):
            return Verdict.STARTING
        if self.active == "inactive":
            return Verdict.SKIPPED if self.result == "exec-condition" else Verdict.INACTIVE
        return Verdict.ACTIVE  # active, reloading and their like

    @property
    def waits_to_try_again(self) -> bool:
        """True between two starts of a unit that has Restart=. A start job stays queued then, until systemd's own time."""
        return self.sub == "auto-restart"

    @property
    def waits_in_queue(self) -> bool:
        """True if its job has not begun: a unit that starts is activating, one that is started anew deactivating first."""
        return self.has_job and self.active in ("inactive", "failed")

    def __str__(self) -> str:
        return f"{self.active} ({self.sub}, result {self.result}{f', job {self.job} waits or runs' if self.has_job else ''})"
