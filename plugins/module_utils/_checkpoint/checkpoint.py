# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A checkpoint: a change that the node rolls back by itself unless the controller confirms it in time."""

from __future__ import annotations

import decimal
import time
import typing as t

from .._core import codec
from .._core.errors import Invalid
from .._core.plan import UndoBackend

OPTION = "checkpoint"
SHORTEST = 5  # seconds; a new connection and one more command over it take about two
LONGEST = 3600  # seconds; every other change of the node is refused meanwhile


class Armed(t.NamedTuple):
    """A checkpoint that waits for its confirmation.

    identity: distinguishes it from others on this node. who: the module, and the address that its connection came from.
    since: seconds since the epoch, for people. deadline: on this boot's monotonic clock, in seconds.
    run: the pid of the run that armed it and that process's start in clock ticks since boot.
    namespace: device and inode of the network namespace that was changed.
    watchdog: the process that will roll back, as ``run``.
    """

    identity: str
    who: str
    since: float
    seconds: int
    deadline: float
    run: tuple[int, int]
    namespace: tuple[int, int]
    watchdog: tuple[int, int]

    def __str__(self) -> str:
        return f"the checkpoint of {self.who}, armed at {clock(self.since)} for {self.seconds} s"


class JournalEntry(t.NamedTuple):
    """The journal's entry for a step: what the step does, and the operation that undoes it.

    backend: the name of the backend's class, which has the operation's class in its OPERATIONS. is_backup: see Step.
    """

    summary: str
    backend: str
    undo: t.Any
    is_backup: bool = False


def vocabulary(backends: t.Iterable[type[UndoBackend]]) -> codec.Vocabulary:
    """Return the classes in a journal of operations of these backends."""
    return codec.vocabulary(JournalEntry, *(kind for backend in backends for kind in (*backend.OPERATIONS, *backend.VALUES)))


class RolledBack(t.NamedTuple):
    """A checkpoint that was not confirmed.

    since, at: when it was armed and when rolled back, in seconds since the epoch, for people. ended: when it was rolled back, in
    seconds of CLOCK_BOOTTIME, which also counts a suspended node's time and does not jump. steps: how many were undone.
    left: objects that another program has changed since. failed: steps that could not be undone, with the reason.
    """

    identity: str
    who: str
    since: float
    at: float
    ended: float
    reason: str
    steps: int = 0
    left: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = f" Not undone, as another program has changed it since: {'; '.join(self.left)}." if self.left else ""
        failed = f" Could not be undone: {'; '.join(self.failed)}." if self.failed else ""
        undone = f"{self.steps} step{'s' if self.steps != 1 else ''} undone"
        return f"the change of {self.who} was rolled back at {clock(self.at)}, as {self.reason}; {undone}.{left}{failed}"


class FailedRollBack(t.NamedTuple):
    """A try to roll back that ended before the first step was undone. at: seconds since the epoch. error: why."""

    identity: str
    at: float
    error: str

    def __str__(self) -> str:
        return f"its roll-back failed at {clock(self.at)}: {self.error}"


class Closed(t.NamedTuple):
    """A checkpoint that needs no roll-back: it was confirmed, or the run has undone its changes itself."""

    identity: str


Outcome = t.Union[RolledBack, FailedRollBack, Closed]


def clock(seconds: float) -> str:
    """Return a time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def seconds(value: object) -> int:
    """Parse the option's value, 0 for none. Raises Invalid.

    Accepts everything that AnsibleModule accepts as an integer, such as ``30.0``, which a template's division gives. Otherwise
    the module would arm a checkpoint that the controller does not confirm.
    """
    try:
        exact = decimal.Decimal(str(value or 0))
        whole = int(exact) if exact <= LONGEST and exact == int(exact) else -1
    except (decimal.InvalidOperation, ValueError, OverflowError):
        whole = -1
    if whole and not SHORTEST <= whole <= LONGEST:
        raise Invalid(OPTION, value, f"0 for none, or from {SHORTEST} to {LONGEST} seconds")
    return whole
