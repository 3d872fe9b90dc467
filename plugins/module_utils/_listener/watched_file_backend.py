# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Watches files that other programs replace, change or remove, by dnotify (fcntl(2), F_NOTIFY): Python has it without ctypes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import typing as t

EVENTS = fcntl.DN_RENAME | fcntl.DN_DELETE | fcntl.DN_MULTISHOT  # the collection replaces a file by a rename
ANY_EVENT = EVENTS | fcntl.DN_CREATE | fcntl.DN_MODIFY


def version(path: str) -> list[int]:
    """Return the inode number and mtime in ns, which tell one file at the path from the next; empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_mtime_ns]


def versions(folders: t.Iterable[str]) -> dict[str, list[int]]:
    """Return the versions of all files in some folders, by path."""
    paths = [os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    return {path: version(path) for path in sorted(paths)}


class WatchedFile:
    """The backend. A process may have only one, because it handles SIGIO.

    ``fileno`` becomes readable when a file in the folder of the watched file is renamed or removed, or when any file in one of
    the further folders changes.
    """

    def __init__(self) -> None:
        self._path = ""
        self._news, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGIO, lambda _number, _frame: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        return self._news

    def watch(self, path: str, folders: t.Iterable[str]) -> None:
        """Watch ``path`` from now on, in its current folder, and all files in ``folders``. A kernel without dnotify reports no
        change."""
        self._path = path
        while self._descriptors:
            os.close(self._descriptors.pop())
        for folder, events in ((os.path.dirname(path), EVENTS), *((folder, ANY_EVENT) for folder in folders)):
            with contextlib.suppress(OSError):
                self._descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                fcntl.fcntl(self._descriptors[-1], fcntl.F_NOTIFY, events)

    def version(self) -> list[int]:
        """Return the current version of the file. Discards the notifications that have arrived so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._news, 4096)
        return version(self._path)
