# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files, folders and symbolic links on the node, and the operations that change them.

Each object appears or disappears by one rename: a killed run leaves the old or the new. Before the rename, the object has a
temporary name beside its path (``.NAME.kubenode``). If a run is killed, the temporary object stays, and the next run removes
it. A folder that this collection makes contains a marker, so that any later run knows that it may remove the folder with its
last file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import typing as t

from .._core.errors import Failure, Uncertain
from .._core.plan import UndoBackend

LARGEST = 64 * 2**20  # bytes; a set of 20,000 rules has 3 MiB
MARKER = ".kubenode"
MARKER_TEXT = "This folder was made by kubenode.datapath and goes with the last of its files.\n"


class Content(t.NamedTuple):
    """A regular file, current or desired. Bytes that are not UTF-8 survive in ``text`` as surrogates."""

    text: str
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)


class Target(t.NamedTuple):
    """A symbolic link, current or desired, by its target."""

    path: str


class Other(t.NamedTuple):
    """An object that is always foreign, by its kind: "folder", "FIFO", "device or the like"."""

    kind: str


State = t.Union[Content, Target, Other]
Placed = t.Union[Content, Target]


class Put(t.NamedTuple):
    """Put a complete file or link in place."""

    path: str
    desired: Placed


class Remove(t.NamedTuple):
    """Remove a file or a link."""

    path: str


class MakeFolder(t.NamedTuple):
    """Make a folder with our marker in it."""

    path: str


class RemoveFolder(t.NamedTuple):
    """Remove a folder that contains nothing but our marker."""

    path: str


class Discard(t.NamedTuple):
    """Remove the object that a killed run left under the temporary name of ``path``."""

    path: str


Operation = t.Union[Put, Remove, MakeFolder, RemoveFolder, Discard]


class NotRegular(OSError):
    """A path cannot be read as a file: it is a FIFO, which waits for a writer, or a device, which may never end."""


@contextlib.contextmanager
def regular(path: str, flags: int = 0, errors: str = "replace", newline: str | None = None) -> t.Iterator[t.TextIO]:
    """Open a regular file that another program may have placed. flags: further ones of open(2). Raises OSError.

    Links are followed, and /dev/null, which masks a file, is read as an empty file. Nothing else is opened, because some
    devices begin their work then. As the path may be replaced after this check, it is opened without blocking, and the open
    file is checked again.
    """
    _expect_regular(path, os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with open(descriptor, encoding="utf-8", errors=errors, newline=newline) as file:
        _expect_regular(path, os.fstat(descriptor))
        yield file


def text(path: str, errors: str = "replace") -> str:
    """Return the text of a regular file, read as by regular(). Raises OSError."""
    with regular(path, errors=errors) as file:
        return file.read()


def text_or_empty(path: str) -> str:
    """Return the text as text() does; empty if the file cannot be read."""
    try:
        return text(path)
    except OSError:
        return ""


def names_or_none(folder: str) -> list[str]:
    """Return the names in a folder, in order; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _expect_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3):  # /dev/null, as in each Linux (devices.txt)
        return
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, f"it is no regular file, but a {_kind(status.st_mode)}", path)
    if status.st_size > LARGEST:
        raise NotRegular(errno.EFBIG, f"it has {status.st_size} bytes, and at most {LARGEST} are read", path)


class Files(UndoBackend):
    """The backend for the file system. An error becomes a Failure that names the path."""

    OPERATIONS = t.get_args(Operation)
    VALUES = (Content, Target)

    def read(self, path: str) -> State | None:
        """Return the object at a path; None for none."""
        with answering(path):
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISLNK(mode):
                    return Target(os.readlink(path))
                return _content(path) if stat.S_ISREG(mode) else Other(_kind(mode))
            except (FileNotFoundError, NotADirectoryError):  # also if another run has just removed it
                return None

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder, or a link to one."""
        return os.path.isdir(path)

    def is_ours(self, folder: str) -> bool:
        """Return whether this collection made the folder. A folder that is reached through a link is foreign."""
        return not os.path.islink(folder) and os.path.isfile(os.path.join(folder, MARKER))

    def entries(self, folder: str) -> set[str]:
        """Return the names in a folder, without our marker and temporary names; empty for a missing folder."""
        with answering(folder):
            try:
                names = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                return set()
        return {name for name in names if not (name.startswith(".") and name.endswith(MARKER))}

    def read_only_at(self, folder: str) -> str:
        """Return where the read-only part of the tree that contains the folder begins; empty if the folder's file system is
        writable.

        A folder that does not exist is in the file system of the nearest folder above it.
        """
        top, path = "", os.path.realpath(folder)
        while True:
            with answering(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not os.statvfs(path).f_flag & os.ST_RDONLY:
                    return top
                top = path
            if path == "/":
                return top
            path = os.path.dirname(path)

    def is_left_over(self, path: str) -> bool:
        """Return whether a killed run left something under the temporary name of ``path``."""
        return os.path.lexists(temporary_name(path))

    def left_over_in(self, folder: str) -> set[str]:
        """Return the names in a folder whose temporary names a killed run left; empty for a missing folder."""
        with answering(folder):
            try:
                names = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                return set()
        return {name[1 : -len(MARKER)] for name in names if name.startswith(".") and name.endswith(MARKER)} - {""}

    def perform(self, operation: Operation) -> None:
        """Perform one operation. Raises Failure; Uncertain if it may have been done nevertheless."""
        with answering(operation.path):
            _PERFORM[type(operation)](operation)

    def verify(self, operation: Operation) -> list[str]:
        """Describe how the node differs from the operation's result; see UndoBackend."""
        path = operation.path
        if isinstance(operation, Put):
            current = self.read(path)
            return [] if current == operation.desired else [f"{path} is not as it was" if current else f"{path} is not there"]
        if isinstance(operation, MakeFolder):
            return [] if self.is_folder(path) else [f"{path} is not there"]
        if isinstance(operation, RemoveFolder):  # with another program's files in it, it stays
            is_there = self.is_ours(path) and not self.entries(path)
        else:
            is_there = self.is_left_over(path) if isinstance(operation, Discard) else self.read(path) is not None
        return [f"{path} is still there"] if is_there else []


@contextlib.contextmanager
def answering(path: str, kind: type[Failure] = Failure) -> t.Iterator[None]:
    """Turn an OSError into a failure that names the path."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: {reason(error, path)}") from error


def reason(error: OSError, path: str) -> str:
    """Return the error's text. If the file system takes no file, add the command that shows why."""
    folder = os.path.dirname(path)
    if error.errno == errno.EROFS:
        return f"{error.strerror} (findmnt --target {folder})"
    if error.errno != errno.ENOSPC:
        return str(error.strerror)
    with contextlib.suppress(OSError):
        status = os.statvfs(folder)
        if status.f_files and not status.f_favail:
            return f"{error.strerror}, as no inode is free (df -i {folder})"
    return f"{error.strerror} (df {folder})"


def _content(path: str) -> Content:
    with regular(path, os.O_NOFOLLOW, "surrogateescape", "") as file:
        status = os.fstat(file.fileno())
        text = file.buffer.read().decode("utf-8", "surrogateescape")  # file.read() copies it once more
        return Content(text, stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))


def _kind(mode: int) -> str:
    return "folder" if stat.S_ISDIR(mode) else "FIFO" if stat.S_ISFIFO(mode) else "device or the like"


def temporary_name(path: str) -> str:
    """Return the path at which an object is built before a rename moves it to ``path``."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{MARKER}")


def _put(operation: Put) -> None:
    if Files().read(operation.path) == operation.desired:  # the undo of a step that was not done
        _settle(operation.path)
        return
    with _arriving(operation.path) as temporary:
        if isinstance(operation.desired, Target):
            os.symlink(operation.desired.path, temporary)
        else:
            _write(temporary, operation.desired)


def _write(temporary: str, content: Content) -> None:
    with open(temporary, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        os.fchmod(file.fileno(), content.mode)
        os.fchown(file.fileno(), *content.owner)
        file.write(content.text)
        file.flush()
        os.fsync(file.fileno())


def _make_folder(operation: MakeFolder) -> None:
    if os.path.isdir(operation.path):  # the undo of a step that was not done
        return
    with _arriving(operation.path) as temporary:
        os.mkdir(temporary)
        os.chmod(temporary, 0o755)  # whatever the caller's umask is
        with open(os.path.join(temporary, MARKER), "x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(MARKER_TEXT)


@contextlib.contextmanager
def _arriving(path: str) -> t.Iterator[str]:
    """Yield the free temporary name of ``path``. What is built there is renamed to ``path``, or removed if building it fails."""
    temporary = temporary_name(path)
    _discard_at(temporary)
    try:
        yield temporary
        os.rename(temporary, path)
    except BaseException:
        _discard_at(temporary)
        raise
    _settle(path)


def _remove(operation: Remove) -> None:
    try:
        os.unlink(operation.path)
    except FileNotFoundError:  # the undo of a step that was not done; the folder may be gone as well
        return
    _settle(operation.path)


def _remove_folder(operation: RemoveFolder) -> None:
    temporary = temporary_name(operation.path)
    _discard_at(temporary)
    if not os.path.isdir(operation.path) or set(os.listdir(operation.path)) - {MARKER}:
        return  # another program has put a file there, so the folder stays
    os.rename(operation.path, temporary)
    _discard_at(temporary)
    _settle(operation.path)


def _discard(operation: Discard) -> None:
    _discard_at(temporary_name(operation.path))


def _discard_at(temporary: str) -> None:
    if os.path.isdir(temporary) and not os.path.islink(temporary):
        shutil.rmtree(temporary)
    elif os.path.lexists(temporary):
        os.unlink(temporary)


def _settle(path: str) -> None:
    """Write a folder to the disk: a rename survives a power cut only when its folder has reached the disk (fsync(2))."""
    with answering(path, Uncertain):
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


_PERFORM: dict[type, t.Callable[[t.Any], None]] = {
    Put: _put,
    Remove: _remove,
    MakeFolder: _make_folder,
    RemoveFolder: _remove_folder,
    Discard: _discard,
}
