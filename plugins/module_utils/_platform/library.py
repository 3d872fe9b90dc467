# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python libraries of the node: its own, or one that was carried to it.

A carried library is unpacked below FOLDER, which only root can write, under its name, version and a hash of its files. The
controller carries it (plugin_utils/_library.py). A module that lacks it raises MissingLibrary before it changes anything.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import typing as t
from pathlib import Path

from .._core.errors import Failure, MissingLibrary
from .._core.plan import Backend, Plan, Plane, Step
from .._files import files
from .._program.program import FOLDER, is_roots

PYROUTE2 = "pyroute2"
# 0.7.1 makes rules that look up no table (svinota/pyroute2 issue 964); 0.6.9 and older cannot delete on Linux 5.19 and newer.
MINIMUM = {PYROUTE2: (0, 7, 2)}
# The modules of a library that this collection uses: the messages for rules, routes and neighbours.
MODULES = {PYROUTE2: ("netlink.rtnl.fibmsg", "netlink.rtnl.rtmsg", "netlink.rtnl.ndmsg")}


_loaded: dict[str, list[t.Any]] = {}
_packed: dict[str, str] = {}


def use_packed(name: str, folder: str) -> None:
    """Load the library from a folder that is packed with the program, whatever this machine has."""
    _packed[name] = folder


class Load(t.NamedTuple):
    """Check that the library can be loaded."""

    name: str

    @property
    def needs(self) -> str:
        return self.name


class Remove(t.NamedTuple):
    """Remove a carried library, and the folders that were made for it if they contain nothing else."""

    path: str


Operation = t.Union[Load, Remove]


def needed(operations: t.Iterable[t.Any]) -> list[str]:
    """Return the libraries that the operations need: an operation names its library as ``needs``."""
    return sorted({operation.needs for operation in operations if getattr(operation, "needs", "")})


def lacking(operations: t.Iterable[t.Any]) -> list[str]:
    """Return the libraries that the operations need and this node does not have."""
    return [name for name in needed(operations) if not is_there(name)]


def require(operations: t.Iterable[t.Any]) -> None:
    """Raise MissingLibrary if the operations need a library that this node does not have."""
    for name in lacking(operations):
        raise missing(name)


def is_there(name: str) -> bool:
    """Return whether the library can be loaded. Does not load it."""
    return name in {*_loaded, *_packed} or bool(carried(name)) or _own_version(name) >= MINIMUM[name]


def missing(name: str) -> MissingLibrary:
    return MissingLibrary(name, ".".join(map(str, MINIMUM[name])))


def loaded(operations: t.Iterable[t.Any]) -> list[str]:
    """Load the libraries that the operations need, and return their names. Raises MissingLibrary if the node lacks one."""
    names = needed(operations)
    for name in names:
        load(name)
    return names


def load(name: str) -> list[t.Any]:
    """Import the MODULES of a library, and what these import. Raises MissingLibrary.

    The library's own ``__init__`` is run only if the modules need it: that of pyroute2 imports all of its 160 modules, which
    takes 0.15 s, and eight of them are enough to encode a message. What was loaded once is not looked for again, because the
    process may have left the folders in which it was.
    """
    if name not in _loaded:
        _loaded[name] = _imported(name)
    return _loaded[name]


def _imported(name: str) -> list[t.Any]:
    if name in _packed:
        sys.path.insert(0, _packed[name])
    elif _own_version(name) < MINIMUM[name]:
        paths = carried(name)
        if not paths:
            raise missing(name)
        sys.path.insert(0, paths[-1])
    names = [f"{name}.{module}" for module in MODULES[name]]
    if name not in sys.modules:
        try:
            with _without_init(name):
                return [importlib.import_module(module) for module in names]
        except (AttributeError, ImportError):
            pass
    return [importlib.import_module(module) for module in names]


@contextlib.contextmanager
def _without_init(name: str) -> t.Iterator[None]:
    """Import modules of the package ``name`` without its ``__init__`` in the block.

    Afterwards, ``import`` finds the package whole.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(name)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[name]


def carried(name: str) -> list[str]:
    """Return the folders that the library was carried to, the newest version last."""
    versions = {}
    for path in Path(FOLDER).glob(f"{name}-*"):
        version = re.fullmatch(re.escape(name) + r"-(\d[0-9.]*)-[0-9a-f]+", path.name)
        if version and is_roots(str(path)) and (path / name).is_dir():
            versions[str(path)] = _numbers(version[1])
    return sorted(versions, key=lambda path: (versions[path], path))


def _own_version(name: str) -> tuple[int, ...]:
    """Return the version of the library on Python's own path; () if there is none."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return ()
    folder = os.path.dirname(os.path.dirname(spec.origin or ""))
    with contextlib.suppress(OSError):
        matches = [
            re.fullmatch(re.escape(name) + r"-(\d[\d.]*)(-py[\d.]+)?\.(dist|egg)-info", each) for each in os.listdir(folder)
        ]
        versions = {match[1] for match in matches if match}
        if len(versions) == 1:
            return _numbers(versions.pop())
    from importlib import metadata  # takes 20 ms, so only if the name of no folder tells it

    try:
        return _numbers(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


class Libraries:
    """The backend of these operations."""

    OPERATIONS = t.get_args(Operation)

    def perform(self, operation: Operation) -> None:
        """Raise MissingLibrary, or Failure with the answer of the file system."""
        if isinstance(operation, Load):
            load(operation.name)
            return
        try:
            shutil.rmtree(operation.path)
        except OSError as error:
            raise Failure(f"{operation.path}: {error.strerror}") from error
        for folder in (FOLDER, os.path.dirname(FOLDER)):
            files.Files().perform(files.RemoveFolder(folder))  # only if it contains nothing else


class ObservedLibrary(t.NamedTuple):
    """is_there: it can be loaded. carried: the folders it was carried to. is_needed: another set of this collection uses it."""

    is_there: bool
    carried: tuple[str, ...]
    is_needed: bool


class CarriedLibrary:
    """Keeps the library ``name`` on the node, or removes it when nothing uses it any more.

    The controller carries it over (MissingLibrary asks for it), so a diff shows nothing.

    is_needed: whether another set of this collection on the node uses it.
    """

    def __init__(self, name: str, desired: bool, is_needed: t.Callable[[], bool], plane: Plane) -> None:
        self.name = f"library {name}"
        self.plane = plane
        self._library = name
        self.is_desired = desired
        self._is_needed = is_needed

    def observe(self) -> ObservedLibrary:
        return ObservedLibrary(
            not self.is_desired or is_there(self._library),
            () if self.is_desired else tuple(carried(self._library)),
            self.is_desired or self._is_needed(),
        )

    def plan(self, observed: ObservedLibrary) -> Plan:
        if self.is_desired:
            return Plan() if observed.is_there else Plan((Step(f"carry over {self._library}", Load(self._library)),))
        paths = () if observed.is_needed else observed.carried
        return Plan(tuple(Step(f"remove {path}", Remove(path)) for path in paths))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (Libraries(),)
