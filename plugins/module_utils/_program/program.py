# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts a module from the program: the code of this collection, which the controller carries to a node once.

All that Ansible copies with a module is this file, so it imports no room. The action plugin names the program by PROGRAM and
carries it (plugin_utils/_program.py). A program whose name is ``kubenode-VERSION-DIGEST`` is run if its files have this digest:

* from FOLDER, which only root can write, with the compiled code beside it. ``_platform/placed_program.py`` places it there.
* or from ARCHIVE in Ansible's temporary folder, so that nothing is left on a node that has nothing of the collection.

Without a program, the module answers ``missing_program``. Where the rooms are beside this file, as in a checkout, they are used.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import marshal
import mmap
import os
import stat
import sys
import types
import typing as t
import zlib

PACKAGE = "kubenode"
FOLDER = "/var/lib/kubenode/lib"
PROGRAM, ARCHIVE = "KUBENODE_PROGRAM", "KUBENODE_ARCHIVE"  # environment variables: the name, and the path of an archive
SOURCES, COMPILED = "sources", "compiled"  # files in the folder of a program

LENGTH = 8  # bytes of a number

Files = dict[str, bytes]  # contents by path
Codes = dict[str, memoryview]  # code by path, as marshal has it


def start(module: str) -> None:
    """Run a module of the collection, from the program that the controller names."""
    # By default Python looks for garbage after each few hundred new objects. Imports make thousands, and all of them stay.
    gc.set_threshold(50_000)
    name, archive = os.environ.pop(PROGRAM, ""), os.environ.pop(ARCHIVE, "")
    package = str(__package__).rpartition(".")[0]
    if name:
        _forget()
        package = PACKAGE
        importer = _placed(name) or _archived(name, archive)
        if not importer:
            _fail(f"{module}: the node lacks the program {name}. Nothing was changed", missing_program=name)
        importer.install()
    elif importlib.util.find_spec(f"{package}._module") is None:
        _fail(
            f"{module}: the node needs the program of the collection, which the module's action plugin carries there, and the"
            f" module was started without it. Nothing was changed. Call kubenode.datapath.{module} in a task"
        )
    importlib.import_module(f"{package}._module").start(module)


def _fail(message: str, **more: str) -> t.NoReturn:
    sys.stdout.write(json.dumps({"failed": True, "changed": False, "msg": message, **more}) + "\n")
    raise SystemExit(1)


def name_of(version: str, packed: bytes) -> str:
    """Return the name of the file on the node: of the package, its version, and 32 digits of the SHA-256 of its bytes."""
    return f"{PACKAGE}-{version}-{hashlib.sha256(packed).hexdigest()[:32]}"


def _is(name: str, packed: bytes) -> bool:
    return name == name_of(name.split("-")[1], packed)


def pack(files: Files) -> bytes:
    return b"".join(f"{path} {len(content)}\n".encode() + content for path, content in sorted(files.items()))


def unpacked(packed: bytes) -> Files:
    files, place = {}, 0
    while place < len(packed):
        end = packed.index(b"\n", place)
        path, size = packed[place:end].decode().split(" ")
        place = end + 1 + int(size)
        files[path] = packed[end + 1 : place]
    return files


def compiled(name: str, files: Files) -> bytes:
    """Return the code of a program's files for the Python that runs, and at the end their places by path.

    Tracebacks name the files as if they were in the program's folder.
    """
    codes = {path: marshal.dumps(compile(source, f"{FOLDER}/{name}/{path}", "exec", 0, True)) for path, source in files.items()}
    ends = itertools.accumulate(map(len, codes.values()))
    places = marshal.dumps({path: (end - len(code), end) for (path, code), end in zip(codes.items(), ends)})
    return b"".join([*codes.values(), places, len(places).to_bytes(LENGTH, "big"), importlib.util.MAGIC_NUMBER])


def _codes(folder: str) -> Codes:
    """Return the code by path of a placed program; nothing if there is none for this Python.

    A map of the file reads only the code that is imported, and outlives the file.
    """
    magic = importlib.util.MAGIC_NUMBER
    try:
        with open(f"{folder}/{COMPILED}", "rb", buffering=0) as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        end = len(view) - len(magic) - LENGTH
        size = int.from_bytes(view[end : end + LENGTH], "big") if view[end + LENGTH :] == magic else 0
        return {path: view[first:last] for path, (first, last) in marshal.loads(view[end - size : end]).items()} if size else {}
    except (OSError, ValueError):  # none, or an empty one
        return {}


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def is_roots(path: str) -> bool:
    """Return whether only root can write the folder: root runs what is in it."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _placed(name: str) -> Importer | None:
    """Return the program from its folder, if it is there as a whole, and only root can write it."""
    folder = f"{FOLDER}/{name}"
    try:
        packed = _content(f"{folder}/{SOURCES}") if all(map(is_roots, (os.path.dirname(FOLDER), FOLDER, folder))) else b""
    except OSError:
        return None
    if not _is(name, packed):
        return None
    sys.dont_write_bytecode = True  # a run that changes nothing writes nothing
    return Importer(name, packed, _codes(folder), is_placed=True)


def _archived(name: str, path: str) -> Importer | None:
    """Return the program from an archive, if that is there with these files."""
    try:
        packed = zlib.decompress(_content(path))
    except (OSError, zlib.error):  # no archive, or of another form
        return None
    return Importer(name, packed) if _is(name, packed) else None


def _forget() -> None:
    """Forget a program that this interpreter has loaded for another module, as under Mitogen."""
    for module in [module for module in sys.modules if module.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "package", "") != PACKAGE]


class Importer:
    """Imports a program from memory: its folder may be gone, because a run has removed it, or behind a twin's wall.

    codes: compiled code by path; empty to compile the sources. is_placed: whether the program is in its folder.
    """

    package = PACKAGE

    def __init__(self, name: str, packed: bytes, codes: Codes | None = None, is_placed: bool = False) -> None:
        self.name = name
        self.folder = f"{FOLDER}/{name}"
        self.packed = packed
        self.codes = codes or {}
        self.is_placed = is_placed

    @functools.cached_property
    def files(self) -> Files:
        return unpacked(self.packed)

    def install(self) -> None:
        sys.meta_path.insert(0, t.cast(t.Any, self))
        sys.modules[PACKAGE] = importlib.util.module_from_spec(t.cast(t.Any, self.find_spec(PACKAGE)))  # its file is empty

    def find_spec(self, fullname: str, _path: t.Any = None, _target: t.Any = None) -> importlib.machinery.ModuleSpec | None:
        stem = fullname.replace(".", "/")
        for file in (f"{stem}/__init__.py", f"{stem}.py"):
            if file in (self.codes or self.files):
                path = f"{self.folder}/{file}"
                return importlib.util.spec_from_file_location(fullname, path, loader=Loader(fullname, path, self))
        return None


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, importer: Importer) -> None:
        super().__init__(fullname, path)
        self.importer = importer

    def get_code(self, fullname: str) -> types.CodeType | None:
        code = self.importer.codes.get(os.path.relpath(self.path, self.importer.folder))
        return marshal.loads(code) if code else super().get_code(fullname)

    def get_data(self, path: t.Any) -> bytes:
        try:
            return self.importer.files[os.path.relpath(path, self.importer.folder)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def path_stats(self, path: t.Any) -> t.Any:
        """Raise OSError: nothing of this program is compiled beside its source."""
        raise FileNotFoundError(path)
