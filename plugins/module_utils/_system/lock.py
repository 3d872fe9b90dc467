# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""One run at a time on a node: a lock that the kernel drops with its holder and that leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import threading
import time
import typing as t

from .._model.problem import Failure

# In /run, which a boot empties; mode 0600, as any user who may open a file may also lock it.
PATH = "/run/kubenode.lock"
PATIENCE = 300.0  # seconds; most runs hold it for less than one, a package's installation for minutes
PAUSE = 0.05  # seconds
ENDINGS = (signal.SIGHUP, signal.SIGTERM)


@contextlib.contextmanager
def exclusive(path: str = PATH, patience: float = PATIENCE) -> t.Iterator[None]:
    """Holds the lock; a signal to end raises meanwhile, so that what was done can be taken back.

    Raises Failure when another run has held it for ``patience`` seconds.
    """
    descriptor = _take(path, time.monotonic() + patience)
    try:
        with _raising_signals():
            yield
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
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise Failure(
                    f"another run on this node holds {path}; nothing was changed. Wait for it, then run again"
                ) from None
            time.sleep(PAUSE)
        os.close(descriptor)


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
