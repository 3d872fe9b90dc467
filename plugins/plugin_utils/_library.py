# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries a Python library of the controller to a node that lacks it.

A module that lacks a library fails with ``missing_library`` in its result, before it changes anything. The library is then
carried over, and the module is run again. In check mode the module succeeds with ``missing_library``. Nothing is carried over
then, and the task fails only if the controller does not have the library. A node that has the library costs nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import shlex
import sys
import tarfile
import tempfile
import typing as t
from importlib import metadata
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import FOLDER
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer

# Readable by root alone, and put in place as a whole or not at all. Of two runs at the same time, the second finds it there.
UNPACK = """\
umask 077 && mkdir -p {folder} && rm -rf {way} && mkdir {way} && tar -xzof {archive} -C {way} \
&& {{ mv -T {way} {place} 2>/dev/null || {{ rm -rf {way} && test -d {place}; }}; }} \
|| {{ rm -rf {way}; rmdir {folder} {parent} 2>/dev/null; false; }}"""

LEND = "mkdir -p {folder} {dist_info} && tar -xzof {archive} -C {folder} && printf {text} > {dist_info}/METADATA"


def execute(
    action: ActionBase, arguments: dict[str, t.Any], task_vars: dict[str, t.Any], module: str | None = None
) -> dict[str, t.Any]:
    """Run a module. If it lacks a library, carries that over and runs the module again. module: by default that of the task."""
    result = _node_answer.run(action, task_vars, arguments, module)
    missing = result.pop("missing_library", None)
    if missing is None:
        return result
    package = _find(missing)
    if not result.get("failed"):  # check mode: the run would carry it over
        return result
    _carry(action, package)
    again = _node_answer.run(action, task_vars, arguments, module)
    return again if again.get("failed") else {**again, "changed": True}


def lend(
    action: ActionBase, arguments: dict[str, t.Any], task_vars: dict[str, t.Any], module: str | None = None
) -> dict[str, t.Any]:
    """Run a module that changes nothing on the node. A library that it lacks is there for the task only.

    module: by default that of the task.
    """
    result = _node_answer.run(action, task_vars, arguments, module)
    missing = result.pop("missing_library", None)
    if missing is None:
        return result
    folder = _lent(action, _find(missing))
    environment = action._task.environment
    action._task.environment = [*(environment or []), {"PYTHONPATH": folder}]
    try:
        return _node_answer.run(action, task_vars, arguments, module)
    finally:
        action._task.environment = environment
        # Ansible removes its temporary folder as the user of the connection, who may not remove what root has unpacked.
        action._low_level_execute_command(f"rm -rf {shlex.quote(folder)}")


def _find(name: str) -> Path:
    """Return the library's folder on the controller."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise AnsibleActionFail(
            f"{name} is needed on the node for this change, and is neither there nor on the controller. Nothing was changed."
            f" Install it for the Python of ansible-playbook, {sys.executable}, for example with:"
            f" {sys.executable} -m pip install {name}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _carry(action: ActionBase, package: Path) -> None:
    packed = pack(package)
    archive = _transferred(action, packed)
    place = f"{FOLDER}/{package.name}-{metadata.version(package.name)}-{hashlib.sha256(packed).hexdigest()[:16]}"
    folder = f"{FOLDER}/.{os.path.basename(os.path.dirname(archive))}"
    _unpack(action, package, UNPACK, folder=FOLDER, parent=os.path.dirname(FOLDER), way=folder, archive=archive, place=place)


def _lent(action: ActionBase, package: Path) -> str:
    """Unpack the library in the task's temporary folder on the node, as Python finds it there."""
    archive = _transferred(action, pack(package))
    folder = f"{os.path.dirname(archive)}/lib"
    version = metadata.version(package.name)
    dist_info = f"{folder}/{package.name}-{version}.dist-info"
    text = f"Metadata-Version: 2.1\\nName: {package.name}\\nVersion: {version}\\n"
    _unpack(action, package, LEND, archive=archive, folder=folder, dist_info=dist_info, text=text)
    return folder


def _transferred(action: ActionBase, packed: bytes) -> str:
    """Return the archive's path on the node, in the task's temporary folder."""
    shell = action._connection._shell
    if shell.tmpdir is None:
        action._make_tmp_path()
    archive: str = shell.join_path(shell.tmpdir, "library.tar.gz")
    with tempfile.NamedTemporaryFile() as local:
        local.write(packed)
        local.flush()
        action._transfer_file(local.name, archive)
    return archive


def _unpack(action: ActionBase, package: Path, command: str, **words: str) -> None:
    completed = action._low_level_execute_command(command.format(**{key: shlex.quote(word) for key, word in words.items()}))
    if completed["rc"] != 0:
        answer = printable(completed["stderr"] or completed["stdout"])
        raise AnsibleActionFail(f"{package.name} could not be unpacked on the node: {answer}")


def pack(package: Path) -> bytes:
    """Pack a package's sources, to the same bytes each time: sorted, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(package.rglob("*.py")):
            entry = tarfile.TarInfo(f"{package.name}/{path.relative_to(package)}")
            entry.size, entry.mode = path.stat().st_size, 0o600
            with path.open("rb") as source:
                archive.addfile(entry, source)
    return gzip.compress(packed.getvalue(), mtime=0)
