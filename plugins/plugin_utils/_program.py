# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries the program of the collection to a node that lacks it: the code of all modules, see module_utils/_program/program.py.

A module starts the program that is on the node. Only if that is missing, the module answers so, gets an archive in Ansible's
temporary folder, and is run again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import typing as t
import zlib
from pathlib import Path

from ansible import constants
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.version import COLLECTION
from ansible_collections.kubenode.datapath.plugins.module_utils._program import program

Result = dict[str, t.Any]
ROOMS = Path(__file__).parents[1] / "module_utils"
CONTROLLER = ("_pastes", "_render")  # rooms that only plugins on the controller use
MISSING = "missing_program"


def carrying(action: ActionBase, execute: t.Callable[[], Result], needs_program: bool) -> Result:
    """Run a module. execute: runs it, by Ansible. needs_program: whether it is a module of the collection."""
    if not needs_program:
        return execute()
    archive = packed()
    answer = _started(action, archive.name, execute)
    if answer.pop(MISSING, None) == archive.name:
        _transfer(action, archive)
        answer = _started(action, archive.name, execute)
        answer.pop(MISSING, None)
    return answer


def _started(action: ActionBase, name: str, execute: t.Callable[[], Result]) -> Result:
    """Run the module with the name of the program, and with the path of its archive, which an earlier run may have got."""
    environment = action._task.environment
    action._task.environment = [*(environment or []), {program.PROGRAM: name, program.ARCHIVE: _path(action)}]
    try:
        return execute()
    finally:
        action._task.environment = environment


def _path(action: ActionBase) -> str:
    """Return the archive's path on the node; empty while the task has no temporary folder there."""
    shell = action._connection._shell
    return str(shell.join_path(shell.tmpdir, "program")) if shell.tmpdir else ""


def _transfer(action: ActionBase, archive: Path) -> None:
    if not action._connection._shell.tmpdir:
        action._make_tmp_path()
    path = _path(action)
    action._transfer_data(path, zlib.compress(archive.read_bytes()))
    if action._is_become_unprivileged():
        action._fixup_perms2([os.path.dirname(path), path], execute=False)


def packed() -> Path:
    """Return the archive, whose name is that of the program. The first task of a run packs it, for all tasks and nodes."""
    folder = Path(constants.DEFAULT_LOCAL_TMP)
    for path in folder.glob(f"{program.PACKAGE}-*"):
        return path
    contents = program.pack(sources())
    with contextlib.ExitStack() as failed, tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        failed.callback(os.unlink, file.name)
        file.write(contents)
        archive = folder / program.name_of(COLLECTION, contents)
        os.replace(file.name, archive)  # as a whole, because other tasks look for it
        failed.pop_all()
    return archive


def sources() -> program.Files:
    """Return the files of the program: the rooms that modules use, as one package."""
    files = {
        f"{program.PACKAGE}/{path.relative_to(ROOMS)}": path.read_bytes()
        for path in ROOMS.rglob("*.py")
        if path.relative_to(ROOMS).parts[0] not in CONTROLLER
    }
    packages = {os.path.dirname(path) for path in files}
    return {**files, **{f"{package}/__init__.py": b"" for package in packages}}
