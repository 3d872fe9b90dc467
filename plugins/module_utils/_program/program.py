# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Starts a module from the program: the code of this collection, which the controller carries to a node once.

All that Ansible copies with a module is this file, so it imports no room. The action plugin names the program by PROGRAM and
carries it (plugin_utils/_program.py). A program whose name is ``kubenode-VERSION-DIGEST`` is run if its files have this digest:

* from FOLDER, which only root can write, with the compiled files beside it. ``_platform/placed_program.py`` places it there.
* or from ARCHIVE in Ansible's temporary folder, in memory, so that nothing is left on a node that has nothing of the collection.

Without a program, the module answers ``missing_program``. Where the rooms are beside this file, as in a checkout, they are used.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import stat
import sys
import typing as t
import zlib

PACKAGE = "kubenode"
FOLDER = "/var/lib/kubenode/lib"
PROGRAM, ARCHIVE = "KUBENODE_PROGRAM", "KUBENODE_ARCHIVE"  # environment variables: the name, and the path of an archive

Files = dict[str, bytes]  # contents by path, without the names of compiled files


def start(module: str) -> None:
    """Run a module of the collection, from the program that the controller names."""
    # By default Python looks for garbage after each few hundred new objects. Imports make thousands, and all of them stay.
    gc.set_threshold(50_000)
    name, archive = os.environ.pop(PROGRAM, ""), os.environ.pop(ARCHIVE, "")
    package = str(__package__).rpartition(".")[0]
    if name:
        _forget()
        package = PACKAGE
        if not (_use_placed(name) or _use_archive(name, archive)):
            _fail(f"{module}: the node lacks the program {name}. Nothing was changed", missing_program=name)
    elif importlib.util.find_spec(f"{package}._module") is None:
        _fail(
            f"{module}: the node needs the program of the collection, which the module's action plugin carries there, and the"
            f" module was started without it. Nothing was changed. Call kubenode.datapath.{module} in a task"
        )
    importlib.import_module(f"{package}._module").start(module)


def _fail(message: str, **more: str) -> t.NoReturn:
    sys.stdout.write(json.dumps({"failed": True, "changed": False, "msg": message, **more}) + "\n")
    raise SystemExit(1)


def name_of(version: str, files: Files) -> str:
    """Return the name of a program of these files."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path} {len(content)}\n".encode())
        digest.update(content)
    return f"{PACKAGE}-{version}-{digest.hexdigest()[:32]}"


def _is(name: str, files: Files) -> bool:
    return name == name_of(name.split("-")[1], files)


def pack(files: Files) -> bytes:
    return json.dumps({path: content.decode() for path, content in files.items()}).encode()


def _unpacked(archive: bytes) -> Files:
    return {path: text.encode() for path, text in json.loads(archive).items()}


def read(folder: str, path: str = "") -> Files:
    """Return the files in a folder, except compiled ones. Raises OSError."""
    files = {}
    with os.scandir(f"{folder}/{path}") as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                files.update(read(folder, f"{path}{entry.name}/") if entry.name != "__pycache__" else {})
            else:
                with open(entry.path, "rb", buffering=0) as file:
                    files[f"{path}{entry.name}"] = file.read()
    return files


def is_roots(path: str) -> bool:
    """Return whether only root can write the folder: root runs what is in it."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _use_placed(name: str) -> bool:
    """Let Python import the program from its folder. Return whether it is there as a whole, and only root can write it."""
    folder = f"{FOLDER}/{name}"
    try:
        files = read(folder) if all(map(is_roots, (os.path.dirname(FOLDER), FOLDER, folder))) else {}
    except OSError:
        return False
    if not _is(name, files):
        return False
    sys.dont_write_bytecode = True  # a run that changes nothing writes nothing
    _load(importlib.util.spec_from_file_location(PACKAGE, f"{folder}/{PACKAGE}/__init__.py"))
    # For what is imported when the folder is gone: because this run or another one has removed it, or behind a twin's wall.
    sys.meta_path.append(t.cast(t.Any, Importer(name, files)))
    return True


def _use_archive(name: str, path: str) -> bool:
    """Let Python import the program from an archive. Return whether the archive is there, with these files."""
    try:
        with open(path, "rb") as archive:
            files = _unpacked(zlib.decompress(archive.read()))
    except (AttributeError, OSError, ValueError, zlib.error):  # no archive, or of another form
        return False
    if not _is(name, files):
        return False
    importer = Importer(name, files)
    sys.meta_path.insert(0, t.cast(t.Any, importer))
    _load(importer.find_spec(PACKAGE))
    return True


def _load(spec: t.Any) -> None:
    """Load the package, whose own file is empty."""
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


def _forget() -> None:
    """Forget a program that this interpreter has loaded for another module, as under Mitogen."""
    for module in [module for module in sys.modules if module.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "package", "") != PACKAGE]


class Importer:
    """Imports a program from memory. Tracebacks name its files as if they were in the folder."""

    package = PACKAGE

    def __init__(self, name: str, files: Files) -> None:
        self.name = name
        self.folder = f"{FOLDER}/{name}"
        self.files = files

    def find_spec(self, fullname: str, _path: t.Any = None, _target: t.Any = None) -> importlib.machinery.ModuleSpec | None:
        stem = fullname.replace(".", "/")
        for file in (f"{stem}/__init__.py", f"{stem}.py"):
            if file in self.files:
                path = f"{self.folder}/{file}"
                return importlib.util.spec_from_file_location(fullname, path, loader=Loader(fullname, path, self))
        return None


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, importer: Importer) -> None:
        super().__init__(fullname, path)
        self.importer = importer

    def get_data(self, path: t.Any) -> bytes:
        try:
            return self.importer.files[os.path.relpath(path, self.importer.folder)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def path_stats(self, path: t.Any) -> t.Any:
        """Raise OSError: nothing of this program is compiled beside its source."""
        raise FileNotFoundError(path)
