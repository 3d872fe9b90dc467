# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

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

from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import FOLDER

# Readable by root alone, and put in place as a whole or not at all. Of two runs at the same time, the second finds it there.
UNPACK = """\
umask 077 && mkdir -p {folder} && rm -rf {way} && mkdir {way} && tar -xzof {archive} -C {way} \
&& {{ mv -T {way} {place} 2>/dev/null || {{ rm -rf {way} && test -d {place}; }}; }} \
|| {{ rm -rf {way}; rmdir {folder} {parent} 2>/dev/null; false; }}"""


def execute(action: ActionBase, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
    """Runs the task's module. If it lacks a library, carries that over and runs the module again."""
    result: dict[str, t.Any] = action._execute_module(module_args=arguments, task_vars=task_vars)
    missing = result.pop("missing_library", None)
    if missing is None:
        return result
    package = _find(missing)
    if not result.get("failed"):  # check mode: the run would carry it over
        return result
    _carry(action, package)
    again: dict[str, t.Any] = action._execute_module(module_args=arguments, task_vars=task_vars)
    return again if again.get("failed") else {**again, "changed": True}


def _find(name: str) -> Path:
    """The library's folder on the controller."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise AnsibleActionFail(
            f"{name} is needed on the node for this change, and is neither there nor on the controller. Nothing was changed."
            f" Install it for the Python of ansible-playbook, {sys.executable}, for example with:"
            f" {sys.executable} -m pip install {name}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _carry(action: ActionBase, package: Path) -> None:
    name, packed = package.name, pack(package)
    place = f"{FOLDER}/{name}-{metadata.version(name)}-{hashlib.sha256(packed).hexdigest()[:16]}"
    shell = action._connection._shell
    if shell.tmpdir is None:
        action._make_tmp_path()
    archive = shell.join_path(shell.tmpdir, f"{name}.tar.gz")
    with tempfile.NamedTemporaryFile() as local:
        local.write(packed)
        local.flush()
        action._transfer_file(local.name, archive)
    names = {
        "folder": FOLDER,
        "parent": os.path.dirname(FOLDER),
        "way": f"{FOLDER}/.{os.path.basename(shell.tmpdir.rstrip('/'))}",
        "archive": archive,
        "place": place,
    }
    done = action._low_level_execute_command(UNPACK.format(**{key: shlex.quote(path) for key, path in names.items()}))
    if done["rc"] != 0:
        raise AnsibleActionFail(f"{name} could not be unpacked on the node: {done['stderr'] or done['stdout']}")


def pack(package: Path) -> bytes:
    """Packs a package's sources, to the same bytes each time: sorted, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(package.rglob("*.py")):
            entry = tarfile.TarInfo(f"{package.name}/{path.relative_to(package)}")
            entry.size, entry.mode = path.stat().st_size, 0o600
            with path.open("rb") as source:
                archive.addfile(entry, source)
    return gzip.compress(packed.getvalue(), mtime=0)
