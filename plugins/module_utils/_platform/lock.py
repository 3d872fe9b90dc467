# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""One run at a time on a node: a lock that the kernel drops with its last holder and that leaves nothing behind.

The holders are a run and the programs that it starts. A run that is killed leaves an empty file, which the next one removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import threading
import time
import typing as t

from .._core.errors import Failure

# In /run, which a boot empties; mode 0600, as any user who may open a file may also lock it.
PATH = "/run/kubenode.lock"
PATIENCE = 300.0  # seconds; most runs hold it for less than one, a package's installation for minutes
PAUSE = 0.05  # seconds
ENDINGS = (signal.SIGHUP, signal.SIGTERM)


@contextlib.contextmanager
def exclusive(path: str = PATH, patience: float = PATIENCE) -> t.Iterator[int]:
    """Holds the lock; a signal to end raises meanwhile, so that what was done can be taken back.

    Gives the descriptor of the lock, for the programs that the holder starts (process.sharing).
    Raises Failure when another run has held it for ``patience`` seconds.
    """
    descriptor = _take(path, time.monotonic() + patience)
    try:
        with _raising_signals():
            yield descriptor
    finally:
        if _is_at(descriptor, path):
            os.unlink(path)  # while it is still held, so that whoever waits sees that its file is gone
        os.close(descriptor)


@contextlib.contextmanager
def _raising_signals() -> t.Iterator[None]:
    """A connection that breaks sends SIGHUP, a time limit SIGTERM: both would end the run between two steps."""
    if threading.current_thread() is not threading.main_thread():  # where alone Python lets handlers be set
        yield
        return

    def end(number: int, _frame: object) -> t.NoReturn:
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)  # what is taken back now is taken back whole
        raise SystemExit(128 + number)

    heard = [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup(1) does not hear
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take(path: str, deadline: float) -> int:
    look = time.monotonic() + PAUSE  # for what a killed run has left, which takes longer than to try again
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > look:
                _end_strays(descriptor)
                look = time.monotonic() + 1.0
            if time.monotonic() > deadline:
                holders = ", ".join(map(_named, _holders(descriptor))) or "a process that can not be seen from here"
                os.close(descriptor)
                raise Failure(
                    f"another run on this node holds {path}: {holders}. Nothing was changed. Wait for its end, then run again"
                ) from None
            time.sleep(PAUSE)
        os.close(descriptor)


def _holders(descriptor: int) -> t.Iterator[int]:
    """The processes that have the file open, and so hold its lock or wait for it; not this one.

    The link of an open file is read before it is followed: a file on a network file system whose server has gone never answers.
    """
    lock, name = os.fstat(descriptor), _name(f"/proc/self/fd/{descriptor}")
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has ended
            paths = (f"/proc/{pid}/fd/{one}" for one in os.listdir(f"/proc/{pid}/fd"))
            files = (os.stat(path) for path in paths if _name(path) == name)
            if pid != os.getpid() and any(os.path.samestat(lock, one) for one in files):
                yield pid


def _name(path: str) -> str:
    """Of the file that a link of /proc/PID/fd leads to, whether or not it was removed; empty for a descriptor that was closed."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.basename(os.readlink(path)).removesuffix(" (deleted)")
    return ""


def _end_strays(descriptor: int) -> None:
    """Kills what programs of a killed run have left: such a program dies with its run, and what it has started does not."""
    from . import process  # who finds the lock free has no need of it

    for pid in _holders(descriptor):
        with contextlib.suppress(OSError, ValueError):
            run = _variable(pid, process.MARK).split()
            is_here = run[2:] == process.mark(os.getpid()).split()[2:]
            if run and is_here and " ".join(run) != process.mark(int(run[0])):
                os.kill(pid, signal.SIGKILL)


def _variable(pid: int, name: str) -> str:
    """Of a process's environment; empty where it has none of that name."""
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
        variables = (one.partition("=") for one in file.read().split("\0"))
        return next((value for found, _equals, value in variables if found == name), "")


def _named(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
        return f"process {pid} ({comm.read().strip()})"
    return f"process {pid}"


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Failure(f"{path}, the lock that keeps two runs apart: {error.strerror}; nothing was changed") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size:
        os.close(descriptor)
        raise Failure(f"{path}, where the lock that keeps two runs apart goes, is somebody else's; nothing was changed")
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the file that was locked is still the one that others would find."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
