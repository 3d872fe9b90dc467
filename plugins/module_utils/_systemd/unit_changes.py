# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Changes units: starts and restarts them, makes systemd read or forget them, and rehearses their start."""

from __future__ import annotations

from .._core.errors import Failure
from .._platform import library, process
from .boot_unit import LACKS_LIBRARY
from .unit_state import Verdict
from .units import Forget, Operation, Rehearse, Reload, Restart, Start, Units

LINES = 10  # of the journal that an error message repeats


def perform(systemd: Units, operation: Operation) -> None:
    """See Units.perform()."""
    if isinstance(operation, Forget):
        for verb in ("stop", "reset-failed"):
            systemd.systemctl(verb, operation.unit, unless="not loaded")
    elif isinstance(operation, (Start, Restart)):
        _start(systemd, operation)
    elif isinstance(operation, Reload):
        systemd.systemctl("daemon-reload")
    elif isinstance(operation, Rehearse):
        rehearse(operation)
    else:
        raise TypeError(f"{operation!r} is no operation on units")


def _start(systemd: Units, operation: Start | Restart) -> None:
    """Starts with --no-block: systemctl would wait for ever if the unit's job waits for this run."""
    unit = operation.unit
    # Otherwise systemd refuses a start after five in a row (StartLimitBurst=).
    systemd.systemctl("reset-failed", unit, unless="not loaded")
    is_anew = isinstance(operation, Restart) or systemd.state(unit).waits_to_try_again
    systemd.systemctl("--no-block", "restart" if is_anew else "start", unit)
    verdict, state = systemd.settled(unit)
    if verdict is Verdict.QUEUED:
        systemd.warn(
            f"{unit} is enabled, and its start is queued, but was not seen: the node is still booting, and systemd starts"
            f" the unit after the units that come before it. Run again after the boot, or see `systemctl status {unit}`."
        )
    elif verdict not in (Verdict.ACTIVE, Verdict.SKIPPED):
        raise Failure(
            f"{unit} was started and should be active, but is {state}{_limit(systemd, verdict)}. {_last_lines(systemd, unit)}."
            f" See `systemctl status {unit}`, also for drop-ins, and `systemctl list-jobs`"
        )


def _limit(systemd: Units, verdict: Verdict) -> str:
    return f" after {systemd.patience:g} s" if verdict is Verdict.STARTING else ""


def _last_lines(systemd: Units, unit: str) -> str:
    journalctl = process.find("journalctl")
    if journalctl is None:
        return "Its journal cannot be read, because the node has no journalctl"
    systemd.run([journalctl, "--sync"], None)  # the unit's last lines may not be in the journal yet
    done = systemd.run([journalctl, f"--unit={unit}", f"--lines={LINES}", "--output=cat", "--no-pager", "--quiet"], None)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return f"Its journal ends with: {' | '.join(lines)}" if lines else "Its journal is empty"


def rehearse(operation: Rehearse) -> None:
    """Runs the command in the environment that systemd gives a unit: a search path, and no variables of the login.

    Raises Failure, and MissingLibrary if the unit's interpreter lacks a library, which this process's interpreter may have.
    """
    command = " ".join(operation.command)
    done = process.run(operation.command)
    if done.rc == LACKS_LIBRARY:
        raise library.missing(library.PYROUTE2)
    if done.rc != 0:
        said = done.stderr.strip().splitlines()[-3:] or [f"exit status {done.rc}"]
        raise Failure(f"the next boot would fail. {command} answered {done.rc}: {' | '.join(said)}")
