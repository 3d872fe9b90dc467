# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Where a checkpoint is kept: a folder in /run, which a boot empties, for root alone. Its files are for operators to read.

armed.json: the checkpoint that waits. rolled-back.json: the last one that was not confirmed, until the next run.
journal: what takes back each step, a line each, written before the step is done. rollback.pyz: the program that does it;
rollback: the command that starts it, for people and the controller (``sh rollback status``), as no program in /run may be run
by itself everywhere.
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
from .._platform import files
from .checkpoint import Armed, RolledBack, clock

# Beside the folder of our other files, which comes and goes by its own rules.
FOLDER = "/run/kubenode-checkpoint"
PROGRAM = f"{FOLDER}/rollback.pyz"
COMMAND = f"{FOLDER}/rollback"
# The Python that we are in, without what its user has added to it, and without leaving anything behind.
PYTHON = (sys.executable, "-I", "-B")
ARMED, ROLLED_BACK, JOURNAL = f"{FOLDER}/armed.json", f"{FOLDER}/rolled-back.json", f"{FOLDER}/journal"
KNOWN = codec.vocabulary(Armed, RolledBack)


def armed() -> Armed | None:
    found: Armed | None = _read(ARMED)
    return found


def rolled_back() -> RolledBack | None:
    found: RolledBack | None = _read(ROLLED_BACK)
    return found


def refuse_change() -> None:
    """Raises Refusal where a checkpoint is armed: what is changed now would not be what its roll-back expects."""
    found = armed()
    if found is None:
        return
    rest = found.deadline - time.monotonic()
    if rest > 0:
        fate = f"{rest:.0f} s from now it is confirmed or rolled back; run again then"
    else:
        fate = f"Its time is over, but nothing has rolled it back; do so on the node: sh {COMMAND} rollback"
    raise Refusal(f"{found}, until {clock(found.since + found.seconds)}, is still open. Nothing was changed. {fate}")


def prepare(program: str) -> None:
    """A new folder with the program. What the checkpoint before left in it goes."""
    clear()
    with _answering():
        os.mkdir(FOLDER, 0o700)
    _write(PROGRAM, program)
    _write(COMMAND, f'exec {shlex.join([*PYTHON, PROGRAM])} "$@"\n')
    _write(JOURNAL, "")


def arm(checkpoint: Armed) -> None:
    _write(ARMED, codec.encode(checkpoint, KNOWN))


def settle(report: RolledBack) -> None:
    """What was armed no longer is. The program stays, to tell a controller that comes late."""
    _write(ROLLED_BACK, codec.encode(report, KNOWN))
    for path in (ARMED, JOURNAL):
        files.Files().perform(files.Remove(path))


def clear() -> None:
    """Nothing stays, and from the first moment nothing is armed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ARMED)
    shutil.rmtree(FOLDER, ignore_errors=True)


def clear_unless_armed() -> None:
    """Clears what a roll-back told, or a run that was killed before it armed anything has left. Under the lock."""
    if not os.path.lexists(ARMED):
        clear()


def note(entry: str) -> None:
    """Adds a line to the journal; it is there, should the caller be killed next. Raises Failure."""
    with _answering(), open(os.open(JOURNAL, os.O_WRONLY | os.O_APPEND), "w", encoding="ascii") as journal:
        journal.write(f"{entry}\n")


def entries() -> list[str]:
    """The journal. A line without its end was cut off by the writer's death, so that its step was not begun."""
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
    found = files.Files().read(path)
    if found is None:
        return None
    try:
        told = codec.decode(found.text, KNOWN) if isinstance(found, files.Content) else None
        if not isinstance(told, (Armed, RolledBack)) or not all(map(_is_number, told._asdict().items())):
            raise codec.Unreadable("it is something else")
        return told
    except codec.Unreadable as damage:
        raise Refusal(
            f"{path}, which tells of a checkpoint, can not be read: {damage}. Nothing was changed. What it may have been about"
            f" is in {JOURNAL}; see to that, and remove {FOLDER}"
        ) from damage


def _is_number(field: tuple[str, t.Any]) -> bool:
    """Of a field that is to be one: what tells of a checkpoint is reckoned with."""
    name, value = field
    return name not in ("since", "seconds", "deadline", "at") or isinstance(value, (int, float))


def _write(path: str, text: str) -> None:
    files.Files().perform(files.Put(path, files.Content(text, 0o600, (os.geteuid(), os.getegid()))))
