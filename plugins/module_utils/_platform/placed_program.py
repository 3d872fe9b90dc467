# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the collection in its folder on the node, from which later runs start it (``_program/program.py``).

It is there as long as the node has something of the collection: a run that leaves something places it, and a run that removes
the last thing removes it. It is placed as a whole or not at all, and other versions are removed then.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import typing as t

from .._core.errors import Failure
from .._files import files
from .._program import program
from . import lock

# Files of this collection at their default paths, and records of what a run has put into the kernel.
TRACES = (
    *("/etc/kubenode/*", "/etc/systemd/system/kubenode-*", "/etc/sysctl.d/*kubenode*", "/etc/systemd/*.d/*kubenode*"),
    *("/run/kubenode/*", "/var/lib/kubenode/*"),
)


def settle(is_check: bool) -> bool:
    """Place the program if the node has something of the collection, or else remove it. Return whether that changes the node.

    is_check: True to only return that. Raises Failure.
    """
    is_wanted = has_traces()
    running = _in_memory() if is_wanted else None
    placed = [] if is_wanted else _placed()
    if running:
        _require_roots()
    if is_check or not (running or placed):
        return bool(running or placed)
    with lock.exclusive():
        try:
            if running:
                _place(running.name, running.packed)
            else:
                _remove(placed)
        except OSError as error:
            raise Failure(f"{program.FOLDER}: {error.strerror}") from error
    return True


def _require_roots() -> None:
    """Raise Failure if a user other than root could replace the program."""
    for folder in (os.path.dirname(program.FOLDER), program.FOLDER):
        if os.path.lexists(folder) and not program.is_roots(folder):
            raise Failure(f"{folder} is not a folder that only root can write. Correct its owner and its mode")


def has_traces() -> bool:
    """Return whether the node has something of the collection, besides its libraries and this program."""
    return any(path != program.FOLDER for pattern in TRACES for path in glob.iglob(pattern))


def _in_memory() -> program.Importer | None:
    """Return the running program if it is not on the node."""
    spec = sys.modules[__name__.partition(".")[0]].__spec__
    importer: program.Importer | None = getattr(spec and spec.loader, "importer", None)
    return None if importer and importer.is_placed else importer


def _placed() -> list[str]:
    """Return the folders of all versions, and of those that a killed run has left."""
    return [path for prefix in ("", ".") for path in glob.iglob(f"{program.FOLDER}/{prefix}{program.PACKAGE}-*")]


def _place(name: str, packed: bytes) -> None:
    """Write the program and its compiled code, and move them in place, when all of it is on the disk."""
    folder, coming = f"{program.FOLDER}/{name}", f"{program.FOLDER}/.{name}"
    shutil.rmtree(coming, ignore_errors=True)
    for made in (os.path.dirname(program.FOLDER), program.FOLDER, coming):
        os.makedirs(made, 0o700, exist_ok=True)
    for path, content in ((program.SOURCES, packed), (program.COMPILED, program.compiled(name, program.unpacked(packed)))):
        with open(os.open(f"{coming}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # or else a power cut could leave an empty file
    descriptor = os.open(coming, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _remove([path for path in _placed() if path != coming])
    os.rename(coming, folder)


def _remove(paths: t.Iterable[str]) -> None:
    """Remove these folders, and those that were made for them if they contain nothing else."""
    for path in paths:
        os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)
    for folder in (program.FOLDER, os.path.dirname(program.FOLDER)):
        files.Files().perform(files.RemoveFolder(folder))
