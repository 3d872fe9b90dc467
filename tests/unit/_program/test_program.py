# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module is started from a program whose files were verified, in a folder that only root can write or from an archive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import placed_program
from ansible_collections.kubenode.datapath.plugins.module_utils._program import program

MAIN = b"""\
def start(name):
    import shutil
    shutil.rmtree(FOLDER, ignore_errors=True)
    from kubenode._room import later
    print(name, later.VALUE, "disk" if __loader__.importer.is_placed else "memory")
"""
FILES = {
    "kubenode/__init__.py": b"",
    "kubenode/_module.py": MAIN,
    "kubenode/_room/__init__.py": b"",
    "kubenode/_room/later.py": b"VALUE = 7\n",
}
# What Ansible copies to the node is this file alone.
START = """\
import sys
from module_utils._program import program
program.FOLDER = sys.argv[1]
program.start("rp_filter")
"""


class Node:
    """A folder for programs, and an archive."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.archive, self.payload = folder / "kubenode/lib", folder / "program", folder / "payload"
        (self.payload / "module_utils/_program").mkdir(parents=True)
        shutil.copy(str(program.__file__), self.payload / "module_utils/_program")
        monkeypatch.setattr(program, "FOLDER", str(self.folder))
        self.files = {**FILES, "kubenode/_module.py": f"FOLDER = {str(self.folder)!r}\n".encode() + MAIN}
        self.packed = program.pack(self.files)
        self.name = program.name_of("1.0.0", self.packed)
        self.place = self.folder / self.name

    def start(self, name: str | None = None) -> tuple[int, str]:
        """Start a module as the action plugin does. Return its status, and what it printed."""
        variables = {program.PROGRAM: self.name if name is None else name, program.ARCHIVE: str(self.archive)}
        result = subprocess.run(
            [sys.executable, "-c", START, str(self.folder)],
            env={**os.environ, **variables, "PYTHONPATH": str(self.payload)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return result.returncode, result.stdout.strip() or result.stderr

    def link(self) -> None:
        """Replace the program's folder by a link to it."""
        self.place.rename(self.folder / "other")
        self.place.symlink_to(self.folder / "other")

    def send(self) -> None:
        self.archive.write_bytes(zlib.compress(self.packed))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_a_placed_program_runs_on_when_its_folder_is_removed(node: Node) -> None:
    placed_program._place(node.name, node.packed)
    assert node.start() == (0, "rp_filter 7 disk")


def test_an_archive_runs_in_memory(node: Node) -> None:
    node.send()
    assert node.start() == (0, "rp_filter 7 memory")
    assert not node.folder.exists()


DEFECTS: dict[str, Callable[[Node], Any]] = {
    "no folder": lambda node: node.place.rename(node.folder / "other"),
    "the sources are cut": lambda node: (node.place / program.SOURCES).write_bytes(node.packed[:-1]),
    "the sources are missing": lambda node: (node.place / program.SOURCES).unlink(),
    "other sources": lambda node: (node.place / program.SOURCES).write_bytes(node.packed + b"kubenode/more.py 0\n"),
    "others can write the folder": lambda node: node.place.chmod(0o777),
    "others can write the folder of all programs": lambda node: node.folder.chmod(0o770),
    "others can write the folder above": lambda node: node.folder.parent.chmod(0o777),
    "a link": lambda node: node.link(),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_program_that_is_not_as_its_name_says_is_not_run_but_asked_for(node: Node, defect: str) -> None:
    placed_program._place(node.name, node.packed)
    DEFECTS[defect](node)
    status, printed = node.start()
    answer = json.loads(printed)
    assert (status, answer["failed"], answer["changed"], answer["missing_program"]) == (1, True, False, node.name)
    node.send()
    assert node.start() == (0, "rp_filter 7 memory")


@pytest.mark.parametrize("compiled", [None, b"", b"short", b"of another Python", b"cut"])
def test_without_code_for_this_python_a_placed_program_is_compiled_and_left_as_it_is(node: Node, compiled: bytes | None) -> None:
    placed_program._place(node.name, node.packed)
    path = node.place / program.COMPILED
    path.unlink() if compiled is None else path.write_bytes(path.read_bytes()[:-9] if compiled == b"cut" else compiled)
    assert program._codes(str(node.place)) == {}
    assert node.start() == (0, "rp_filter 7 disk")


def test_sources_are_packed_as_they_are() -> None:
    assert program.unpacked(program.pack(FILES)) == FILES


@pytest.mark.parametrize("archive", [b"", b"text", zlib.compress(b""), zlib.compress(b"kubenode/more.py 0\n")])
def test_an_archive_with_other_files_is_not_run(node: Node, archive: bytes) -> None:
    node.archive.write_bytes(archive)
    assert json.loads(node.start()[1])["missing_program"] == node.name


def test_without_its_action_plugin_a_module_says_what_is_missing(node: Node) -> None:
    status, printed = node.start("")
    assert status == 1 and "was started without it. Nothing was changed. Call kubenode.datapath.rp_filter in a task" in printed


def test_another_version_and_what_a_killed_run_left_go_when_a_program_is_placed(node: Node) -> None:
    for name in ("kubenode-0.9.0-0123", f".{node.name}", ".kubenode-0.8.0-4567", "pyroute2-0.9.7-89ab"):
        (node.folder / name / "kubenode").mkdir(parents=True)
    (node.folder / "kubenode-0.7.0-89ab").symlink_to(node.folder)
    placed_program._place(node.name, node.packed)
    assert sorted(path.name for path in node.folder.iterdir()) == [node.name, "pyroute2-0.9.7-89ab"]
    placed_program._remove(placed_program._placed())
    assert [path.name for path in node.folder.iterdir()] == ["pyroute2-0.9.7-89ab"]


@pytest.mark.parametrize("exposed", ["kubenode", "kubenode/lib"])
def test_a_program_is_not_placed_where_others_can_replace_it(node: Node, exposed: str) -> None:
    node.folder.mkdir(parents=True)
    (node.folder.parents[1] / exposed).chmod(0o777)
    with pytest.raises(Failure, match=f"{exposed} is not a folder that only root can write. Correct its owner and its mode"):
        placed_program._require_roots()


def test_a_run_that_is_killed_while_it_places_the_program_leaves_nothing_that_the_next_run_does_not_mend(node: Node) -> None:
    events, count = ("open", "os.mkdir", "os.rename", "os.chmod", "shutil.rmtree", "os.rmdir", "os.remove"), 0
    while _is_killed(node, events, count):
        if node.place.exists():
            assert node.start()[0] == 0
        placed_program._place(node.name, node.packed)
        assert [path.name for path in node.folder.iterdir()] == [node.name]
        placed_program._remove(placed_program._placed())
        assert not node.folder.parent.exists()
        count += 1
    assert count > len(FILES)


def _is_killed(node: Node, events: tuple[str, ...], count: int) -> bool:
    """Place the program in a process that ends at its ``count``-th call that changes files. Return whether it got there."""
    child = os.fork()
    if not child:
        seen = 0

        def end(event: str, _arguments: object) -> None:
            nonlocal seen
            seen += event in events
            if seen > count:
                os._exit(9)

        sys.addaudithook(end)
        placed_program._place(node.name, node.packed)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
