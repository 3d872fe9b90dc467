# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The folder of a checkpoint, in /run, which a boot empties. Only root can read it; the files are meant for operators too.

armed.json: the checkpoint that waits. rolled-back.json: the last one that was not confirmed, kept until the next run.
journal: one line for each step, with the operation that undoes it, written before the step is done.
rollback.pyz: the program that rolls back. rollback: the command that starts it, for operators and the controller. It is
called as ``sh rollback status``, because /run may be mounted with noexec.
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
from .._core.errors import Failure, Refusal
from .._files import files
from .checkpoint import Armed, RolledBack, clock

# Not in /run/kubenode, which is created and removed with its last file.
FOLDER = "/run/kubenode-checkpoint"
PROGRAM = f"{FOLDER}/rollback.pyz"
COMMAND = f"{FOLDER}/rollback"
# The running Python, without packages and variables of its user (-I), and without writing bytecode files (-B).
PYTHON = (sys.executable, "-I", "-B")
ARMED, ROLLED_BACK, JOURNAL = f"{FOLDER}/armed.json", f"{FOLDER}/rolled-back.json", f"{FOLDER}/journal"
KNOWN = codec.vocabulary(Armed, RolledBack)


def armed() -> Armed | None:
    record: Armed | None = _read(ARMED)
    return record


def rolled_back() -> RolledBack | None:
    record: RolledBack | None = _read(ROLLED_BACK)
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
        fate = f"Its time is over, but nothing has rolled it back; do so on the node: sh {COMMAND} rollback"
    raise Refusal(
        f"{checkpoint}, until {clock(checkpoint.since + checkpoint.seconds)}, is still open. Nothing was changed. {fate}"
    )


def prepare(program: str) -> None:
    """Make a new folder with the program. Removes what the previous checkpoint left."""
    clear()
    with _answering():
        os.mkdir(FOLDER, 0o700)
    _write(PROGRAM, program)
    _write(COMMAND, f'exec {shlex.join([*PYTHON, PROGRAM])} "$@"\n')
    _write(JOURNAL, "")


def arm(checkpoint: Armed) -> None:
    _write(ARMED, codec.encode(checkpoint, KNOWN))


def settle(report: RolledBack) -> None:
    """Record the roll-back; nothing is armed any more. The program stays, to answer a controller that comes late."""
    _write(ROLLED_BACK, codec.encode(report, KNOWN))
    for path in (ARMED, JOURNAL):
        files.Files().perform(files.Remove(path))


def clear() -> None:
    """Remove everything, armed.json first: from then on nothing is armed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ARMED)
    shutil.rmtree(FOLDER, ignore_errors=True)


def clear_unless_armed() -> None:
    """Remove the report of a roll-back, and the files of a run that was killed before it armed. Call it under the lock."""
    if not os.path.lexists(ARMED):
        clear()


def note(entry: str) -> None:
    """Add a line to the journal. The line survives if the caller is killed next. Raises Failure."""
    with _answering(), open(os.open(JOURNAL, os.O_WRONLY | os.O_APPEND), "w", encoding="ascii") as journal:
        journal.write(f"{entry}\n")


def entries() -> list[str]:
    """Return the journal's entries.

    A last line without a newline is skipped: its writer was killed, so its step was not begun.
    """
    try:
        with open(JOURNAL, encoding="ascii") as journal:
            return [line for line in journal.read().split("\n")[:-1] if line]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _answering() -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"{FOLDER}, where the checkpoint is kept: {error.strerror}") from error


def _read(path: str) -> t.Any:
    current = files.Files().read(path)
    if current is None:
        return None
    try:
        record = codec.decode(current.text, KNOWN) if isinstance(current, files.Content) else None
        if not isinstance(record, (Armed, RolledBack)) or not all(map(_is_number, record._asdict().items())):
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


def _write(path: str, text: str) -> None:
    files.Files().perform(files.Put(path, files.Content(text, 0o600, (os.geteuid(), os.getegid()))))
