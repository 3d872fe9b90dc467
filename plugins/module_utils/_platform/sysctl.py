# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of the running kernel under /proc/sys, and the files that set them at the next boot. Starts no process."""

from __future__ import annotations

import os
import socket
import typing as t
from pathlib import Path

from .._core.errors import Failure, ForeignChange
from .._core.names import DOTTED
from .._core.plan import UndoBackend
from .._files import files
from . import kernel
from .sysctl_files import FOLDERS, LAST_OF_PROCPS


class Write(t.NamedTuple):
    """Write a number to a setting; ``key`` is its path below /proc/sys."""

    key: str
    value: int


class Restore(t.NamedTuple):
    """Write ``value`` if the setting still has the value ``written``."""

    key: str
    value: int
    written: int


Operation = t.Union[Write, Restore]


class Sysctl(UndoBackend):
    """The backend for the running kernel, in the network namespace of this process."""

    OPERATIONS = t.get_args(Operation)

    def links(self) -> dict[str, int]:
        """Return link indexes by name, from the kernel: /sys may be mounted from another network namespace."""
        return {name: index for index, name in socket.if_nameindex()}

    def read(self, key: str) -> int | None:
        """Return the number in a setting; None if there is no such setting."""
        return kernel.setting(key)

    def existing(self, keys: t.Iterable[str]) -> tuple[tuple[str, int], ...]:
        """Return the keys that exist, with their numbers."""
        return tuple((key, value) for key in keys for value in (self.read(key),) if value is not None)

    def has_applied(self, path: str, ifindex: int) -> bool:
        """Return whether the boot, or udev when the link appeared, has read the current content of the file at ``path``.

        ifindex: the link's index, 0 for none. The inode's change time decides, which cp --preserve cannot set.
        """
        try:
            changed = os.stat(path).st_ctime
        except OSError:
            return False
        booted = kernel.by_either_clock(kernel.booted_at(), "systemd-sysctl.service")
        return changed < max(booted, kernel.set_up_at(ifindex) or 0)

    def perform(self, operation: Operation) -> None:
        """Write once. If the setting is gone, its link is gone, and nothing is written.

        Raises Failure with the kernel's answer, and ForeignChange if a setting to be restored has another value by now.
        """
        if isinstance(operation, Restore):
            current = self.read(operation.key)
            if current in (None, operation.value):
                return
            if current != operation.written:
                raise ForeignChange(f"{operation.key.translate(DOTTED)} is {current}")
        path = f"/proc/sys/{operation.key}"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from error
        try:
            os.write(descriptor, b"%d\n" % operation.value)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror} for {operation.value}") from error
        finally:
            os.close(descriptor)

    def verify(self, operation: Operation) -> list[str]:
        """Describe how the node differs from the operation's result; see UndoBackend."""
        current = self.read(operation.key)
        if current in (None, operation.value) or (isinstance(operation, Restore) and current != operation.written):
            return []
        return [f"{operation.key.translate(DOTTED)} is {current} and not {operation.value}"]


def configuration(warn: t.Callable[[str], None]) -> dict[str, str]:
    """Return all files that systemd-sysctl or ``sysctl --system`` may read: texts by path.

    A file that cannot be read is left out.

    warn: called with a sentence for each path that is not a regular file, so that these programs may block on it.
    """
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).glob("[!.]*.conf"))]
    return {str(path): text for path in (*paths, Path(LAST_OF_PROCPS)) for text in _text_of(path, warn)}


def _text_of(path: Path, warn: t.Callable[[str], None]) -> t.Iterator[str]:
    try:
        yield files.text(str(path), errors="surrogateescape")
    except files.NotRegular as error:
        if not path.is_dir():
            warn(
                f"{path} was not read: {error.strerror}. systemd-sysctl, which sets the permanent plane at the next boot, may"
                " wait for it forever, or fail. Remove it."
            )
    except OSError:
        return
