# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder of a checkpoint, in /run, which a boot empties. Only root can read it; the files are meant for operators too.

armed.json: the checkpoint that waits. outcome.json: its end; of one that was not confirmed, kept until the next run.
journal: one line for each step, with the operation that undoes it, written before the step is done.
lock: a second name of the run's lock, which keeps the lock's file in place. reserve: see prepare().
rollback.pyz: the program that rolls back. rollback: the command that starts it, for operators and the controller. It is
called as ``sh rollback status``, because /run may be mounted with noexec.

A roll-back, a confirmation and the next run create no file, as /run may be full by then: all files are made, with their space,
before the first change. The watchdog has outcome.json open, so that the kernel does not make the file system read-only
meanwhile (EBUSY), and a read-only mount over it can be written through.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
import typing as t

from .._core import codec
from .._core.errors import DatapathError, Failure, Refusal
from .._files import files
from .._platform import lock, processes
from .checkpoint import Armed, Closed, FailedRollBack, Outcome, RolledBack, clock

# Not in /run/kubenode, which is created and removed with its last file.
FOLDER = "/run/kubenode-checkpoint"
PROGRAM = f"{FOLDER}/rollback.pyz"
COMMAND = f"{FOLDER}/rollback"
# The running Python, without packages and variables of its user (-I), and without writing bytecode files (-B).
PYTHON = (sys.executable, "-I", "-B")
ARMED, OUTCOME, JOURNAL = f"{FOLDER}/armed.json", f"{FOLDER}/outcome.json", f"{FOLDER}/journal"
LOCK, RESERVE = f"{FOLDER}/lock", f"{FOLDER}/reserve"
SPACE = 2**16  # bytes of outcome.json: some hundred steps that could not be undone
BLANK = "\0"  # what posix_fallocate(3) fills a file with
HELD = 0  # the watchdog's descriptor of outcome.json
KNOWN = codec.vocabulary(Armed, RolledBack, FailedRollBack, Closed)


def armed() -> Armed | None:
    """Return the checkpoint that is neither confirmed nor rolled back."""
    checkpoint: Armed | None = _read(ARMED)
    end = outcome() if checkpoint else None
    is_over = checkpoint and end and end.identity == checkpoint.identity and not isinstance(end, FailedRollBack)
    return None if is_over else checkpoint


def outcome() -> Outcome | None:
    """Return the end of the last checkpoint, or the last try to roll it back; None while there is none."""
    record: Outcome | None = _read(OUTCOME)
    return record


def refuse_change() -> None:
    """Raise Refusal if a checkpoint is armed: its roll-back does not expect other changes meanwhile."""
    checkpoint = armed()
    if checkpoint is None:
        return
    rest = checkpoint.deadline - time.monotonic()
    if rest > 0:
        fate = f"It is confirmed or rolled back in {rest:.0f} s; run again then"
    else:
        fate = f"Its time is over, but {_why_not_rolled_back()}; do so on the node: sh {COMMAND} rollback"
    raise Refusal(
        f"{checkpoint}, until {clock(checkpoint.since + checkpoint.seconds)}, is still open. Nothing was changed. {fate}"
    )


def _why_not_rolled_back() -> str:
    end, mount = outcome(), files.Files().read_only_at(FOLDER)
    if mount:
        return (
            f"whether it was rolled back is not recorded, because {mount} is read-only. See the watchdog's report (journalctl"
            f" --identifier=kubenode-checkpoint) and make it writable (mount -o remount,rw {mount}). If it was not rolled back"
        )
    return str(end) if isinstance(end, FailedRollBack) else "nothing has rolled it back"


def prepare(program: str, reserve: t.Iterable[int]) -> None:
    """Make a new folder with the program. Removes what the previous checkpoint left. Call it under the lock.

    reserve: the bytes of each file that a roll-back restores. They are kept allocated, with their inodes, until then.
    """
    clear()
    with _answering():
        os.mkdir(FOLDER, 0o700)
        os.link(lock.PATH, LOCK)
        os.mkdir(RESERVE, 0o700)
        _allocate(OUTCOME, SPACE)
        for number, size in enumerate(reserve):
            _allocate(f"{RESERVE}/{number}", size)
    _write(PROGRAM, program)
    _write(COMMAND, f'exec {shlex.join([*PYTHON, PROGRAM])} "$@"\n')
    _write(JOURNAL, "")


def arm(checkpoint: Armed) -> None:
    _write(ARMED, codec.encode(checkpoint, KNOWN))


def spend_reserve() -> None:
    """Give the file system the space for the files that are restored next."""
    shutil.rmtree(RESERVE, ignore_errors=True)


def settle(report: RolledBack, checkpoint: Armed) -> None:
    """Record the roll-back; nothing is armed any more. The program stays, to answer a controller that comes late.

    Raises Failure if it cannot be recorded.
    """
    record(report, checkpoint)
    for path in (ARMED, JOURNAL, LOCK):
        with contextlib.suppress(OSError):  # on a read-only file system they stay
            os.unlink(path)


def close(checkpoint: Armed) -> None:
    """Record that the checkpoint needs no roll-back, and remove all files. Raises Failure if it cannot be recorded."""
    try:
        clear()
    except Failure:
        record(Closed(checkpoint.identity), checkpoint)


def record(end: Outcome, checkpoint: Armed) -> None:
    """Write the checkpoint's outcome into the space that outcome.json has. Raises Failure.

    The first byte is written last: until then, the file counts as blank.
    """
    if isinstance(end, RolledBack):
        end = _fitting(end)
    text = codec.encode(end, KNOWN).encode().ljust(SPACE, BLANK.encode())
    with _answering():
        descriptor = os.open(_held(checkpoint) or OUTCOME, os.O_WRONLY)
        try:
            for part, position in ((BLANK.encode(), 0), (text[1:], 1), (text[:1], 0)):
                os.pwrite(descriptor, part, position)
        finally:
            os.close(descriptor)


def _held(checkpoint: Armed) -> str:
    """Return the watchdog's open outcome.json, which can be written under a read-only mount as well; empty if it has ended."""
    pid, _start = checkpoint.watchdog
    path = f"/proc/{pid}/fd/{HELD}"
    with contextlib.suppress(OSError):
        if processes.find(pid) == checkpoint.watchdog and os.path.samefile(path, OUTCOME):
            return path
    return ""


def _fitting(report: RolledBack) -> RolledBack:
    """Return the report with as many lines as outcome.json has space for. The node's syslog has all."""
    lines = max(len(report.left), len(report.failed))
    while len(codec.encode(report, KNOWN)) > SPACE and lines:
        lines //= 2
        left, failed = ((*names[:lines], *(["and more, see the syslog"] * (len(names) > lines))) for names in report[-2:])
        report = report._replace(left=left, failed=failed)
    return report


def clear() -> None:
    """Remove everything, armed.json first: from then on nothing is armed. Raises Failure on a read-only file system."""
    with _answering("its files from the last checkpoint cannot be removed: "), contextlib.suppress(FileNotFoundError):
        os.unlink(ARMED)
    with _answering("its files from the last checkpoint cannot be removed: "), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(FOLDER)


def clear_unless_armed() -> None:
    """Remove the report of a roll-back, and the files of a run that was killed before it armed. Call it under the lock.

    Files that are on a read-only file system stay, and so does a record that cannot be read, which refuse_change() names.
    """
    with contextlib.suppress(DatapathError):
        if armed() is None:
            clear()


def note(entry: str) -> None:
    """Add a line to the journal. The line survives if the caller is killed next. Raises Failure; the run then undoes its
    changes, for which it may need the reserve."""
    try:
        with _answering(), open(os.open(JOURNAL, os.O_WRONLY | os.O_APPEND), "w", encoding="ascii") as journal:
            journal.write(f"{entry}\n")
    except Failure:
        spend_reserve()
        raise


def entries() -> list[str]:
    """Return the journal's entries. Raises Failure.

    A last line without a newline is skipped: its writer was killed, so its step was not begun.
    """
    with files.answering(JOURNAL), open(JOURNAL, encoding="ascii") as journal:
        return [line for line in journal.read().split("\n")[:-1] if line]


@contextlib.contextmanager
def _answering(trouble: str = "") -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{FOLDER}, where the checkpoint is kept: {trouble}{files.reason(error, FOLDER)}") from error


def _read(path: str) -> t.Any:
    current = files.Files().read(path)
    if current is None:
        return None
    if path == OUTCOME and isinstance(current, files.Content) and current.text.startswith(BLANK):
        return None
    try:
        record = codec.decode(current.text.rstrip(BLANK), KNOWN) if isinstance(current, files.Content) else None
        if not isinstance(record, Armed if path == ARMED else t.get_args(Outcome)) or not all(
            map(_is_number, record._asdict().items())
        ):
            raise codec.Unreadable("it is not the record of a checkpoint")
        return record
    except codec.Unreadable as damage:
        raise Refusal(
            f"{path}, the record of a checkpoint, cannot be read: {damage}. Nothing was changed. {JOURNAL} lists the changes that"
            f" it may have been about; check them, then remove {FOLDER}"
        ) from damage


def _is_number(field: tuple[str, t.Any]) -> bool:
    """Return True also for a field that need not be a number. The others are used in calculations."""
    name, value = field
    return name not in ("since", "seconds", "deadline", "at", "ended") or isinstance(value, (int, float))


def _allocate(path: str, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, max(size, 1))
    finally:
        os.close(descriptor)


def _write(path: str, text: str) -> None:
    files.Files().perform(files.Put(path, files.Content(text, 0o600, (os.geteuid(), os.getegid()))))
