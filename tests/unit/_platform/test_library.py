# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A library that was carried to the node: found, judged, removed."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, MissingLibrary
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import CarriedLibrary

NAME = "kubenode_no_such_library"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_loaded", {})
    monkeypatch.setattr(library, "_packed", {})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "kubenode" / "lib"
    monkeypatch.setattr(library, "FOLDER", str(place))
    monkeypatch.setitem(library.MINIMUM, NAME, (1, 2))
    return place


def carry(folder: Path, version: str) -> Path:
    path = folder / f"{NAME}-{version}-0123abcd"
    (path / NAME).mkdir(parents=True)
    (path / NAME / "__init__.py").write_text("")
    (path / NAME / "part.py").write_text(f"VERSION = {version!r}\n")
    path.chmod(0o700)
    return path


def hold(desired: bool, is_needed: bool = False) -> bool:
    return converge([CarriedLibrary(NAME, desired, lambda: is_needed, Plane.PERMANENT)], {Plane.PERMANENT}).changed


def test_the_newest_is_found(folder: Path) -> None:
    paths = [str(carry(folder, version)) for version in ("1.9", "1.10", "1.2.3")]
    assert library.carried(NAME) == [paths[2], paths[0], paths[1]]


@pytest.mark.parametrize("needs_init", [False, True])
def test_modules_are_loaded_without_what_they_do_not_need(
    folder: Path, monkeypatch: pytest.MonkeyPatch, needs_init: bool
) -> None:
    package = carry(folder, "1.9") / NAME
    (package / "__init__.py").write_text("from . import rest\n")
    (package / "rest.py").write_text("")
    (package / "part.py").write_text(f"import {NAME}\nREST = {NAME}.rest\n" if needs_init else "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(library.MODULES, NAME, ("part",))
    try:
        (part,) = library.load(NAME)
        assert part.__name__ == f"{NAME}.part"
        assert (f"{NAME}.rest" in sys.modules) == needs_init
        assert library.load(NAME) == [part]
        assert importlib.import_module(NAME).rest.__name__ == f"{NAME}.rest"  # another importer gets all of the package
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]


def test_a_library_that_is_packed_with_the_program_comes_before_others(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(folder, "1.9")
    packed = carry(tmp_path, "1.3")
    monkeypatch.setitem(library.MODULES, NAME, ("part",))
    monkeypatch.setattr(sys, "path", [*sys.path])
    library.use_packed(NAME, str(packed))
    assert library.is_there(NAME)
    try:
        assert library.load(NAME)[0].VERSION == "1.3"
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_library_that_others_could_have_written_is_not_found(folder: Path, mode: int) -> None:
    carry(folder, "1.9").chmod(mode)
    assert not library.is_there(NAME)


def test_a_link_is_not_found(folder: Path, tmp_path: Path) -> None:
    target = carry(tmp_path, "1.9")
    folder.mkdir(parents=True)
    os.symlink(target, folder / target.name)
    assert not library.is_there(NAME)


def test_a_missing_library_is_asked_for_and_check_mode_does_not_ask() -> None:
    carrying = CarriedLibrary(NAME, True, lambda: False, Plane.PERMANENT)
    outcome = converge([carrying], {Plane.PERMANENT}, check=True)
    assert outcome.changed and outcome.diff() == []  # the run finds the library on the node already, and its diff is the same
    with pytest.raises(DatapathError, match=f"{NAME} 1.2 or newer is not on this node") as error:
        hold(True)
    causes: list[t.Any] = [error.value]
    while causes[-1] is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(cause, MissingLibrary) for cause in causes)


def test_it_goes_with_the_last_that_needs_it_and_so_do_its_folders(folder: Path, tmp_path: Path) -> None:
    carry(folder, "1.9")
    assert not hold(True) and not hold(False, is_needed=True)
    assert hold(False) and not hold(False)
    assert list(tmp_path.iterdir()) == []


def test_other_folders_beside_the_library_stay(folder: Path, tmp_path: Path) -> None:
    carry(folder, "1.9")
    (folder.parent / "backup").mkdir()
    hold(False)
    assert [path.name for path in folder.parent.iterdir()] == ["backup"]


@pytest.mark.parametrize(
    ("infos", "version"),
    [
        ([f"{NAME}-1.2.3.dist-info"], (1, 2, 3)),
        ([f"{NAME}-0.7.2.post1.dist-info"], (0, 7, 2)),
        ([f"{NAME}-0.5.14-py3.6.egg-info"], (0, 5, 14)),
        ([f"{NAME}_ext-9.9.dist-info", f"{NAME}-1.2.dist-info"], (1, 2)),
        ([f"{NAME}-1.2.dist-info", f"{NAME}-1.3.dist-info"], (1, 3)),  # one is left over: the metadata decide
        ([], ()),
    ],
)
def test_the_version_of_the_nodes_own_library_is_that_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, infos: list[str], version: tuple[int, ...]
) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "__init__.py").touch()
    for info in infos:
        (tmp_path / info).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.3" if infos else _absent(name))
    assert library._own_version(NAME) == version


def _absent(name: str) -> t.NoReturn:
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_package_is_packed_the_same_each_time(folder: Path) -> None:
    pytest.importorskip("ansible")
    from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library

    package = carry(folder, "1.9") / NAME
    packed = _library.pack(package)
    os.utime(package / "part.py", (0, 0))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "part.pyc").write_text("")
    assert _library.pack(package) == packed
