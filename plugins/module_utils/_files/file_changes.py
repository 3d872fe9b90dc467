# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Changes of files, folders and links. Each appears or disappears by one rename: a killed run leaves the old or the new.

Before the rename, the object has a temporary name beside its path (``.NAME.kubenode``). If a run is killed, the temporary
object stays, and the next run removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from .._core.errors import Uncertain
from .files import (
    MARKER,
    Content,
    Discard,
    Files,
    MakeFolder,
    Operation,
    Put,
    Remove,
    RemoveFolder,
    Target,
    answering,
    temporary_name,
)

MARKER_TEXT = "This folder was made by kubenode.datapath and goes with the last of its files.\n"


def perform(operation: Operation) -> None:
    """See Files.perform()."""
    with answering(operation.path):
        _PERFORM[type(operation)](operation)


def differences(backend: Files, operation: Operation) -> list[str]:
    """See Files.verify()."""
    path = operation.path
    if isinstance(operation, Put):
        found = backend.read(path)
        return [] if found == operation.desired else [f"{path} is not as it was" if found else f"{path} is not there"]
    if isinstance(operation, MakeFolder):
        return [] if backend.is_folder(path) else [f"{path} is not there"]
    if isinstance(operation, RemoveFolder):  # with another program's files in it, it stays
        is_there = backend.is_ours(path) and not backend.entries(path)
    else:
        is_there = backend.is_left_over(path) if isinstance(operation, Discard) else backend.read(path) is not None
    return [f"{path} is still there"] if is_there else []


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
            file.write(MARKER_TEXT)


@contextlib.contextmanager
def _arriving(path: str) -> t.Iterator[str]:
    """Yields the free temporary name of ``path``. What is built there is renamed to ``path``, or removed if building it fails."""
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
    """A rename survives a power cut only when its folder has reached the disk (fsync(2))."""
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
