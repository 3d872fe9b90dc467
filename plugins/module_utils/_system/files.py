# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Files, folders and links on the node. Each comes or goes in one rename: a killed run leaves the old or the new.

What is on its way lies beside its place under a name of ours (``.NAME.kubenode``); a run that was killed leaves it there
and the next one, which sees it, takes it away. A folder that we make carries a marker inside, so that any later run
knows that it may go with its last file, and that the files in it are ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import typing as t

from .._model.problem import Failure

MARKER = ".kubenode"
MARKER_TEXT = "This folder was made by kubenode.datapath and goes with the last of its files.\n"


class Content(t.NamedTuple):
    """A regular file as it is or shall be. Bytes that are no UTF-8 survive in ``text`` as surrogates."""

    text: str
    mode: int = 0o644
    owner: tuple[int, int] = (0, 0)


class Write(t.NamedTuple):
    """Put a file in place, whole."""

    path: str
    content: Content


class Link(t.NamedTuple):
    """Put a symbolic link in place."""

    path: str
    target: str


class Remove(t.NamedTuple):
    """Take a file or a link away."""

    path: str


class MakeFolder(t.NamedTuple):
    """Make a folder with our marker in it."""

    path: str


class RemoveFolder(t.NamedTuple):
    """Take a folder with nothing but our marker away."""

    path: str


class Discard(t.NamedTuple):
    """Take away what a killed run left on its way to ``path``."""

    path: str


Operation = t.Union[Write, Link, Remove, MakeFolder, RemoveFolder, Discard]


class Files:
    """The edge to the file system."""

    def kind(self, path: str) -> str:
        """ "missing", "file", "folder", "link" or "other"."""
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
        return next((name for is_kind, name in kinds if is_kind(mode)), "other")

    def read(self, path: str) -> Content:
        """A regular file's content."""
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            status = os.fstat(file.fileno())
            return Content(file.read(), stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))

    def target(self, path: str) -> str:
        """Where a link points."""
        return os.readlink(path)

    def is_ours(self, folder: str) -> bool:
        """Whether we made the folder."""
        return self.kind(os.path.join(folder, MARKER)) == "file"

    def entries(self, folder: str) -> set[str]:
        """The names in a folder, our marker and what is on its way left out; empty for a missing one."""
        names = os.listdir(folder) if self.kind(folder) == "folder" else []
        return {name for name in names if name != MARKER and not (name.startswith(".") and name.endswith(MARKER))}

    def is_left_over(self, path: str) -> bool:
        """Whether a killed run left something on its way to ``path``."""
        return self.kind(_on_its_way(path)) != "missing"

    def perform(self, operation: Operation) -> None:
        """Does one operation. Raises Failure with what the file system answered."""
        try:
            _PERFORM[type(operation)](operation)
        except OSError as error:
            raise Failure(f"{operation.path}: {error.strerror}") from error


def _on_its_way(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{MARKER}")


def _write(operation: Write) -> None:
    content = operation.content
    with (
        _arriving(operation.path) as way,
        open(way, "x", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        os.fchmod(file.fileno(), content.mode)
        os.fchown(file.fileno(), *content.owner)
        file.write(content.text)
        file.flush()
        os.fsync(file.fileno())


def _link(operation: Link) -> None:
    with _arriving(operation.path) as way:
        os.symlink(operation.target, way)


def _make_folder(operation: MakeFolder) -> None:
    with _arriving(operation.path) as way:
        os.mkdir(way)
        os.chmod(way, 0o755)  # not what the caller's umask left of it
        with open(os.path.join(way, MARKER), "x", encoding="utf-8") as file:
            file.write(MARKER_TEXT)


@contextlib.contextmanager
def _arriving(path: str) -> t.Iterator[str]:
    """A free name beside ``path`` to build on; what was built is then renamed to it, and removed if it could not be built."""
    way = _on_its_way(path)
    _discard_at(way)
    try:
        yield way
        os.rename(way, path)
    except BaseException:
        _discard_at(way)
        raise
    _settle(path)


def _remove(operation: Remove) -> None:
    os.unlink(operation.path)
    _settle(operation.path)


def _remove_folder(operation: RemoveFolder) -> None:
    way = _on_its_way(operation.path)
    _discard_at(way)
    if set(os.listdir(operation.path)) - {MARKER}:
        return  # somebody put a file there meanwhile: the folder is his now
    os.rename(operation.path, way)
    _discard_at(way)
    _settle(operation.path)


def _discard(operation: Discard) -> None:
    _discard_at(_on_its_way(operation.path))


def _discard_at(way: str) -> None:
    if os.path.isdir(way) and not os.path.islink(way):
        shutil.rmtree(way)
    elif os.path.lexists(way):
        os.unlink(way)


def _settle(path: str) -> None:
    """A rename survives a power cut only when its folder has reached the disk (fsync(2))."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


_PERFORM: dict[type, t.Callable[[t.Any], None]] = {
    Write: _write,
    Link: _link,
    Remove: _remove,
    MakeFolder: _make_folder,
    RemoveFolder: _remove_folder,
    Discard: _discard,
}
