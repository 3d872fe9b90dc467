# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolls back a change that was made under a checkpoint, or confirms it. Reports what it does to the node's syslog.

Started as ``rollback.pyz VERB ARGUMENT...``:

watch ID LIBRARY...     loads these Python libraries, reads the deadline from stdin, and rolls back at that time if the change is
                        not confirmed
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
from .checkpoint import Armed, FailedRollBack, JournalEntry, RolledBack, vocabulary

ARMED, CONFIRMED, ROLLED_BACK, NONE = "armed", "confirmed", "rolled back", "none"

# How long to wait for the lock, in seconds, before the run that is to be rolled back gets a signal: it may hold the lock.
# SIGTERM lets the run undo its changes itself.
PATIENCE: tuple[tuple[float, int], ...] = ((0.3, signal.SIGTERM), (5.0, signal.SIGKILL), (lock.PATIENCE, 0))

# Seconds between tries: of steps whose error may pass, before the controller gives up; and of a roll-back that could not begin.
STEP_PAUSES = (0.25, 0.5, 1.0, 2.0)
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
PASSING = (OSError, MemoryError, Failure)
NEVER_KILLED = "-1000"  # by the kernel for lack of memory: proc_pid_oom_score_adj(5)

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


def watch(identity: str, *names: str) -> int:
    held = os.open(checkpoint_backend.OUTCOME, os.O_RDWR)
    for name in names:
        library.load(name)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as adjustment:
        adjustment.write(NEVER_KILLED)
    sys.stdout.write(watchdog_backend.READY)
    sys.stdout.flush()
    deadline = sys.stdin.readline()
    if not deadline:  # the run was killed before it changed anything
        return 1
    nowhere = os.open(os.devnull, os.O_RDWR)
    for source, descriptor in ((held, checkpoint_backend.HELD), (nowhere, 1), (nowhere, 2)):
        os.dup2(source, descriptor)
    time.sleep(max(0.0, float(deadline) - time.monotonic()))
    for pause in PAUSES:
        try:
            return _expire(identity)
        except Exception as error:  # also an unforeseen one: the change must be undone
            _report_try(identity, error)
        time.sleep(pause)
    return _expire(identity)


def _expire(identity: str) -> int:
    armed = _armed(identity)
    if armed:
        _roll_back(identity, f"it was not confirmed over a new connection within {armed.seconds} s")
    return 0


def _report_try(identity: str, error: Exception) -> None:
    syslog.syslog(syslog.LOG_ERR, f"the roll-back failed, and is tried again: {error}")
    with contextlib.suppress(Exception):  # the next try matters more
        armed = _armed(identity)
        if armed:
            checkpoint_backend.record(FailedRollBack(identity, time.time(), str(error)), armed)


def confirm(identity: str = "", command: str = "") -> int:
    armed = _armed(identity)
    trouble = _run(command, armed) if armed and command else ""
    if trouble:
        return rollback(identity, trouble)
    with _locked():
        armed = _armed(identity)
        if armed is None:
            return status(identity)
        checkpoint_backend.close(armed)
    watchdog_backend.stop(armed.watchdog)
    sentence = f"the change of {armed.who} was confirmed"
    syslog.syslog(syslog.LOG_INFO, sentence)
    return _answer(CONFIRMED, sentence)


def rollback(identity: str = "", reason: str = "a roll-back was requested") -> int:
    sentence = _roll_back(identity, reason)
    return _answer(ROLLED_BACK, sentence) if sentence else status(identity)


def status(identity: str = "") -> int:
    armed, report = _armed(identity), checkpoint_backend.outcome()
    if armed:
        last_try = f"; {report}" if isinstance(report, FailedRollBack) else ""
        return _answer(ARMED, f"{armed}, is open{last_try}", armed.seconds - (armed.deadline - time.monotonic()))
    if isinstance(report, RolledBack) and identity in ("", report.identity):
        return _answer(ROLLED_BACK, str(report), _uptime() - report.ended)
    return _answer(NONE, "nothing is armed, and nothing was rolled back since")


VERBS: dict[str, t.Callable[..., int]] = {verb.__name__: verb for verb in (watch, confirm, rollback, status)}


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


def _roll_back(identity: str, reason: str) -> str:
    """Roll back and return the report as a sentence; empty if nothing is armed, or if it was armed elsewhere."""
    armed = _armed(identity)
    if armed is None:
        return ""
    if processes.network_namespace() != armed.namespace:
        syslog.syslog(
            syslog.LOG_ERR,
            f"{armed} cannot be rolled back from here: this is not the network namespace that was changed",
        )
        return ""
    with _locked(armed.run):
        armed = _armed(identity)
        if armed is None:  # the run has undone its changes itself, or was confirmed
            return ""
        report = replay(armed, reason)
        sentence = str(report)
        try:
            checkpoint_backend.settle(report, armed)
        except Failure as error:
            sentence += f" That could not be recorded: {error}."
    syslog.syslog(syslog.LOG_WARNING, sentence)
    watchdog_backend.stop(armed.watchdog)
    return sentence


class _Undo(t.NamedTuple):
    """The result of undoing a step. is_passing: whether it may succeed when it is tried again."""

    left: str = ""
    failed: str = ""
    is_passing: bool = False

    @property
    def is_complete(self) -> bool:
        return not self.left and not self.failed


def replay(armed: Armed, reason: str) -> RolledBack:
    """Undo the steps in the journal, newest first. If one entry fails, the others are still undone; then it is tried again.

    A step counts as undone if its object was read back and is as before. A backup stays if anything could not be undone.
    """
    # The program's archive loads the backends of its run, and no others.
    kinds = {codec.name_of(kind): kind for kind in UndoBackend.__subclasses__()}
    operations = vocabulary(kinds.values())
    lines = [*reversed(checkpoint_backend.entries())]
    checkpoint_backend.spend_reserve()
    results = [_Undo(is_passing=True)] * len(lines)
    for pause in (0.0, *STEP_PAUSES):
        time.sleep(pause)
        for number, line in enumerate(lines):
            if results[number].is_passing:
                are_undone = all(result.is_complete for result in results[:number])
                results[number] = _undo(line, operations, kinds, are_undone)
        if not any(result.failed and result.is_passing for result in results):
            break
    return RolledBack(
        *(armed.identity, armed.who, armed.since, time.time(), _uptime(), reason),
        sum(result.is_complete for result in results),
        tuple(result.left for result in results if result.left),
        tuple(result.failed for result in results if result.failed),
    )


def _undo(line: str, operations: codec.Vocabulary, kinds: t.Mapping[str, type[UndoBackend]], are_undone: bool) -> _Undo:
    """Undo the step of a line of the journal. are_undone: whether all later steps are undone."""
    summary, left = line[:80], ""
    try:
        entry: JournalEntry = codec.decode(line, operations)
        summary = entry.summary
        if entry.is_backup and not are_undone:
            return _Undo(left=f"{summary}: it may have objects that could not be restored", is_passing=True)
        backend = _backend(entry, kinds)
        try:
            backend.perform(entry.undo)
        except ForeignChange as change:
            left = str(change)
        differences = backend.verify(entry.undo)
        return _Undo(left, f"{summary}: {'; '.join(differences)}" if differences else "")
    except Exception as error:  # also an unforeseen one: the earlier steps must still be undone
        return _Undo(left, f"{summary}: {error}", isinstance(error, PASSING))


def _backend(entry: JournalEntry, kinds: t.Mapping[str, type[UndoBackend]]) -> UndoBackend:
    """Make the backend that the entry names. Raises Unreadable unless it has the operation's class in its OPERATIONS.

    kinds: the permitted classes by name.
    """
    kind = kinds.get(entry.backend)
    if kind is None or type(entry.undo) not in kind.OPERATIONS:
        raise codec.Unreadable(f"{entry.backend} is no backend of this roll-back that performs {type(entry.undo).__name__}")
    return kind.standalone(process.run, syslog.syslog)
