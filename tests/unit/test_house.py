# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports run one way, models are pure, and a room stays small enough to be seen at once."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import house
import pytest

# Modules of Python with access to the node. Models may use ``socket`` for its numbers and for addresses as text.
IMPURE = {"ctypes", "fcntl", "glob", "os", "select", "shutil", "signal", "subprocess", "tempfile", "urllib", "zipfile"}
FILES = [path for room in house.ROOMS for path in house.files(room)]


def test_the_rooms_are_these() -> None:
    assert {path.parent.name for path in house.ROOT.glob("*/*.py")} == {*house.ROOMS}
    assert [path.name for path in house.ROOT.glob("*.py")] == ["_module.py"]


def test_the_documentation_has_the_same_rooms_and_imports() -> None:
    text = (house.ROOT.parent.parent / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `(_\w+)`( \(service\))? \| .* \| (.*)\|$", text, re.MULTILINE)
    assert [room for room, *_rest in rows] == [*house.ROOMS]
    assert [room for room, is_service, _imports in rows if is_service] == [*house.SERVICES]
    for room, is_service, imports in rows:
        others = {*house.ROOMS[room]} - ({*house.SERVICES} if not is_service else set())
        if imports.strip() not in ("every room", "nothing"):
            assert {*re.findall(r"`(_\w+)`", imports)} == others, room


@pytest.mark.parametrize("room", ["_trace", "_audit", "_render"])
def test_nothing_is_decided_by_the_words_of_a_sentence(room: str) -> None:
    assert [words for path in house.files(room) for words in house.decisions_by_words(path)] == []


@pytest.mark.parametrize("room", house.ROOMS)
def test_a_room_is_seen_at_once(room: str) -> None:
    assert 0 < len(house.files(room)) <= house.MOST_FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_imports_run_one_way(path: Path) -> None:
    room = path.parent.name
    permitted = {room, house.ENTRANCES.get(room), *house.ROOMS[room]}
    assert {imported for imported, _name in house.imported(path) if imported} <= permitted


@pytest.mark.parametrize("room", house.CONTROLLER)
def test_a_room_of_the_controller_goes_to_no_node(room: str) -> None:
    """Ansible sends what a module imports, directly or not."""
    modules = [
        *(house.ROOT.parent / "modules").glob("*.py"),
        *(path for path in FILES if path.parent.name not in house.CONTROLLER),
    ]
    assert not [path.name for path in modules if re.search(rf"import.*\b{room}\b|\.{room}\b", path.read_text())]


def test_no_two_rooms_import_each_other() -> None:
    for number, room in enumerate(house.ROOMS):
        assert {*house.ROOMS[room]} <= {*list(house.ROOMS)[:number]}, room


def test_no_files_import_each_other_in_a_circle() -> None:
    imports = {(path.parent.name, path.stem): {(room, name) for room, name in house.imported(path) if room} for path in FILES}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the cycle


def test_a_twin_has_nothing_of_its_own_that_the_table_of_substitutions_lacks() -> None:
    paths = [path for room in ("_twin", "_trace") for path in house.files(room)]
    assert [path.name for path in paths if {"Assumption", "assumption.about"} & {*house.called(path)}] == ["substitutions.py"]


def test_a_check_reads_a_node_by_its_values() -> None:
    checks = [path for path in house.files("_audit") if path.stem.endswith("_checks")]
    assert [reading for path in checks for reading in house.plain_readings(path)] == []


def test_a_twin_is_built_from_values() -> None:
    inner = (path for path in house.files("_twin") if path.name not in house.BORDER)
    assert {path.name: {*keys} for path in inner if (keys := [*house.keys(path)])} == house.KEYS_OF_OTHERS


def test_the_rules_of_nfts_json_have_one_reader() -> None:
    readers = {str(path.relative_to(house.ROOT)) for path in FILES if {*house.NFT_KEYS} & {*house.keys(path)}}
    assert readers == {*house.NFT_READERS}


@pytest.mark.parametrize("path", house.models(), ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_a_model_is_pure(path: Path) -> None:
    pure = {(model.parent.name, model.stem) for model in house.models()}
    for room, name in house.imported(path):
        assert (room, name) in pure if room else name not in IMPURE, f"{room}.{name}"
