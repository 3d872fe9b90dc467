# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run at a time on a node: a lock that the kernel releases with its last holder, and whose file the run removes at its end.

The holders are a run and the programs that it starts. A killed run leaves an empty file, which the next run removes. While a
checkpoint is armed, the file has a second name in the checkpoint's folder and stays: the roll-back takes the lock without
creating a file, so it needs no inode, and a read-only file system does not hinder it.
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
from .._files import files

# In /run, which a boot empties; mode 0600, as any user who may open a file may also lock it.
PATH = "/run/kubenode.lock"
PATIENCE = 300.0  # seconds; most runs hold it for less than one, a package's installation for minutes
PAUSE = 0.05  # seconds
ENDINGS = (signal.SIGHUP, signal.SIGTERM)


@contextlib.contextmanager
def exclusive(path: str = PATH, patience: float = PATIENCE) -> t.Iterator[int]:
    """Hold the lock. Meanwhile a signal to end raises SystemExit, so that the run can undo its steps.

    Yields the descriptor of the lock, for the programs that the holder starts (process.sharing).
    Raises Failure if other runs have held the lock for ``patience`` seconds.
    """
    with _held(_take(path, time.monotonic() + patience), path) as descriptor:
        yield descriptor


@contextlib.contextmanager
def if_free(path: str = PATH) -> t.Iterator[bool]:
    """Hold the lock for a moment, unless a run holds it. Yields whether it is held. Raises Failure if it cannot be made."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    with _held(descriptor, path):
        yield _is_at(descriptor, path)


@contextlib.contextmanager
def _held(descriptor: int, path: str) -> t.Iterator[int]:
    """Release the lock behind the block, and remove its file."""
    try:
        with _raising_signals():
            yield descriptor
    finally:
        if _is_at(descriptor, path) and os.fstat(descriptor).st_nlink == 1:
            with contextlib.suppress(OSError):  # on a read-only file system the empty file stays
                os.unlink(path)  # while the lock is still held, so that a waiting run sees that its file is gone
        os.close(descriptor)


@contextlib.contextmanager
def _raising_signals() -> t.Iterator[None]:
    """Turn signals that end the run into an exception in the block. A broken connection sends SIGHUP, a time limit SIGTERM.

    Without a handler, both would end the run between two steps.
    """
    if threading.current_thread() is not threading.main_thread():  # Python sets handlers in the main thread only
        yield
        return

    def end(number: int, _frame: object) -> t.NoReturn:
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)  # the undo that follows must be complete
        raise SystemExit(128 + number)

    heard = [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]  # as under nohup(1)
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take(path: str, deadline: float) -> int:
    look = time.monotonic() + PAUSE  # for processes of a killed run, which takes longer than another try
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
                holders = ", ".join(map(_process_text, _holders(descriptor))) or "a process that cannot be seen from here"
                os.close(descriptor)
                raise Failure(
                    f"another run on this node holds {path}: {holders}. Nothing was changed. Wait for its end, then run again"
                ) from None
            from . import process  # not needed if the lock is free

            with process.waiting(f"waits for another run on this node, which holds {path}"):
                time.sleep(PAUSE)
        os.close(descriptor)


def _holders(descriptor: int) -> t.Iterator[int]:
    """Yield the other processes that have the file open, and so hold its lock or wait for it.

    The link of an open file is read before it is followed, because stat(2) of a file on a network file system whose server is
    gone never returns.
    """
    lock, name = os.fstat(descriptor), _name(f"/proc/self/fd/{descriptor}")
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has ended
            paths = (f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd"))
            files = (os.stat(path) for path in paths if _name(path) == name)
            if pid != os.getpid() and any(os.path.samestat(lock, file) for file in files):
                yield pid


def _name(path: str) -> str:
    """Return the base name of the file that a link of /proc/PID/fd leads to, even if it was removed; empty for a closed
    descriptor."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.basename(os.readlink(path)).removesuffix(" (deleted)")
    return ""


def _end_strays(descriptor: int) -> None:
    """Kill the processes that a killed run left: its programs died with it, but not the processes that they had started."""
    from . import process  # not needed if the lock is free

    for pid in _holders(descriptor):
        with contextlib.suppress(OSError, ValueError):
            run = _variable(pid, process.MARK).split()
            is_here = run[2:] == process.mark(os.getpid()).split()[2:]
            if run and is_here and " ".join(run) != process.mark(int(run[0])):
                os.kill(pid, signal.SIGKILL)


def _variable(pid: int, name: str) -> str:
    """Return the value of a variable in a process's environment; empty if it has no such variable."""
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
        variables = (line.partition("=") for line in file.read().split("\0"))
        return next((value for key, _equals, value in variables if key == name), "")


def _process_text(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
        return f"process {pid} ({comm.read().strip()})"
    return f"process {pid}"


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        why = files.reason(error, path)
        raise Failure(f"{path}, the lock that keeps two runs apart, cannot be made: {why}. Nothing was changed") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size:
        os.close(descriptor)
        raise Failure(
            f"{path}, the lock that keeps two runs apart, is not an empty regular file, so it is foreign; nothing was changed"
        )
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether the locked file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
