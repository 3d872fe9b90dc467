# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rolls back a change that was made under a checkpoint, or confirms it. Reports what it does to the node's syslog.

Started as ``rollback.pyz VERB ARGUMENT...``:

ready LIBRARY...        says whether it can load these Python libraries, which a roll-back needs
watch ID LIBRARY...     does ``ready``, reads the deadline from stdin, sleeps until then, and does ``expire``
expire ID               rolls back if the change is not confirmed by the deadline
confirm [ID [COMMAND]]  confirms the change, if the shell command, where one is given, exits with status 0
rollback [ID]           rolls back at once
status [ID]             only reports

The last three print a line of JSON: ``state``, one of armed, confirmed, rolled back and none; ``told``, a sentence; and
``age``, the seconds since that happened. Without an ID they apply to any checkpoint, for the operator.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import syslog
import time
import typing as t

from .._core import codec
from .._core.errors import Failure, ForeignChange
from .._core.plan import UndoBackend
from .._platform import library, lock, process, processes
from . import checkpoint_backend, watchdog_backend
from .checkpoint import Armed, JournalEntry, RolledBack, vocabulary

ARMED, CONFIRMED, ROLLED_BACK, NONE = "armed", "confirmed", "rolled back", "none"

# How long to wait for the lock, in seconds, before the run that is to be rolled back gets a signal: it may hold the lock.
# SIGTERM lets the run undo its changes itself.
PATIENCE: tuple[tuple[float, int], ...] = ((0.3, signal.SIGTERM), (5.0, signal.SIGKILL), (lock.PATIENCE, 0))

MARGIN = 0.5  # seconds before the deadline at which a command is given up: time to report that before the watchdog acts


def main(arguments: t.Sequence[str] = ()) -> int:
    verb, *rest = arguments or sys.argv[1:]
    syslog.openlog("kubenode-checkpoint")
    if verb not in VERBS:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        return VERBS[verb](*rest)
    except Exception as error:  # a watchdog's output is not read
        syslog.syslog(syslog.LOG_ERR, f"{verb}: {type(error).__name__}: {error}")
        raise


def ready(*names: str) -> int:
    for name in names:
        library.load(name)
    sys.stdout.write(watchdog_backend.READY)
    sys.stdout.flush()
    return 0


def watch(identity: str, *names: str) -> int:
    ready(*names)
    deadline = sys.stdin.readline()
    if not deadline:  # the run was killed before it changed anything
        return 1
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    time.sleep(max(0.0, float(deadline) - time.monotonic()))
    return expire(identity)


def expire(identity: str) -> int:
    armed = _armed(identity)
    if armed:
        time.sleep(max(0.0, armed.deadline - time.monotonic()))
        _roll_back(identity, f"it was not confirmed over a new connection within {armed.seconds} s")
    return 0


def confirm(identity: str = "", command: str = "") -> int:
    armed = _armed(identity)
    trouble = _run(command, armed) if armed and command else ""
    if trouble:
        return rollback(identity, trouble)
    with _locked():
        armed = _armed(identity)
        if armed is None:
            return status(identity)
        checkpoint_backend.clear()
    watchdog_backend.stop(armed.watchdog)
    sentence = f"the change of {armed.who} was confirmed"
    syslog.syslog(syslog.LOG_INFO, sentence)
    return _answer(CONFIRMED, sentence)


def rollback(identity: str = "", reason: str = "a roll-back was requested") -> int:
    _roll_back(identity, reason)
    return status(identity)


def status(identity: str = "") -> int:
    armed, report = _armed(identity), checkpoint_backend.rolled_back()
    if armed:
        return _answer(ARMED, f"{armed}, is open", armed.seconds - (armed.deadline - time.monotonic()))
    if report and identity in ("", report.identity):
        return _answer(ROLLED_BACK, str(report), _uptime() - report.ended)
    return _answer(NONE, "nothing is armed, and nothing was rolled back since")


VERBS: dict[str, t.Callable[..., int]] = {verb.__name__: verb for verb in (ready, watch, expire, confirm, rollback, status)}


def _answer(state: str, sentence: str, age: float = 0.0) -> int:
    sys.stdout.write(json.dumps({"state": state, "told": sentence, "age": age}) + "\n")
    return 0


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _armed(identity: str) -> Armed | None:
    checkpoint = checkpoint_backend.armed()
    return checkpoint if checkpoint and identity in ("", checkpoint.identity) else None


def _run(command: str, armed: Armed) -> str:
    """Return why the shell command failed; empty if it did not. Does not wait for processes that it leaves in the background."""
    rest = max(0.0, armed.deadline - time.monotonic() - MARGIN)
    # A file, as a process in the background would keep a pipe open.
    with os.fdopen(os.memfd_create("kubenode"), "w+b") as output:
        # pylint: disable-next=ansible-bad-function,consider-using-with  # there is no AnsibleModule here
        shell = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(rest)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            return f"checkpoint_command, {command!r}, did not end in time"
        output.seek(0)
        said = output.read().decode(errors="replace").strip()[-500:]
    return f"checkpoint_command, {command!r}, answered {status}: {said}" if status else ""


@contextlib.contextmanager
def _locked(run: processes.Process | None = None) -> t.Iterator[None]:
    """Hold the lock and ignore signals, so that what is begun is completed. Ends ``run`` if the lock stays held."""
    for number in lock.ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.ExitStack() as stack:
        for patience, ending in PATIENCE:
            try:
                stack.enter_context(process.sharing(stack.enter_context(lock.exclusive(patience=patience))))
                break
            except Failure:
                if run and ending:
                    processes.tell(run, ending)
                elif not ending:
                    raise
        yield


def _roll_back(identity: str, reason: str) -> None:
    armed = _armed(identity)
    if armed is None:
        return
    if processes.network_namespace() != armed.namespace:
        syslog.syslog(
            syslog.LOG_ERR,
            f"{armed} cannot be rolled back from here: this is not the network namespace that was changed",
        )
        return
    with _locked(armed.run):
        armed = _armed(identity)
        if armed is None:  # the run has undone its changes itself, or was confirmed
            return
        report = replay(armed, reason)
        checkpoint_backend.settle(report)
    syslog.syslog(syslog.LOG_WARNING, str(report))
    watchdog_backend.stop(armed.watchdog)


def replay(armed: Armed, reason: str) -> RolledBack:
    """Undo the steps in the journal, newest first. If one entry fails, the others are still undone.

    A step counts as undone if its object was read back and is as before. A backup stays if anything could not be undone.
    """
    undone, left, failed = 0, list[str](), list[str]()
    # The program's archive loads the backends of its run, and no others.
    kinds = {codec.name_of(kind): kind for kind in UndoBackend.__subclasses__()}
    known = vocabulary(kinds.values())
    for line in reversed(checkpoint_backend.entries()):
        summary, count = line[:80], len(left)
        try:
            entry: JournalEntry = codec.decode(line, known)
            summary = entry.summary
            if entry.is_backup and (left or failed):
                left.append(f"{summary}: it may have objects that could not be restored")
                continue
            backend = _backend(entry, kinds)
            try:
                backend.perform(entry.undo)
            except ForeignChange as change:
                left.append(str(change))
            differences = backend.verify(entry.undo)
            failed += [f"{summary}: {'; '.join(differences)}"] if differences else []
            undone += not differences and len(left) == count
        except Exception as error:  # also an unforeseen one: the earlier steps must still be undone
            failed.append(f"{summary}: {error}")
    origin = (armed.identity, armed.who, armed.since, time.time(), _uptime(), reason)
    return RolledBack(*origin, undone, tuple(left), tuple(failed))


def _backend(entry: JournalEntry, kinds: t.Mapping[str, type[UndoBackend]]) -> UndoBackend:
    """Make the backend that the entry names. Raises Unreadable unless it has the operation's class in its OPERATIONS.

    kinds: the permitted classes by name.
    """
    kind = kinds.get(entry.backend)
    if kind is None or type(entry.undo) not in kind.OPERATIONS:
        raise codec.Unreadable(f"{entry.backend} is no backend of this roll-back that performs {type(entry.undo).__name__}")
    return kind.standalone(process.run, syslog.syslog)
