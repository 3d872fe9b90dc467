# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change touches: the tests that `make quick` runs for it. Standard library only, as toolchain.py."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
OF_DEPLOY = (ROOT / "deploy/image", ROOT / "deploy/cli")  # folders of packages
SECONDS = 540  # after which no further test on a kernel begins, by default
LEAST_SECONDS = 5  # for each file
COLLECTION = "ansible_collections.kubenode.datapath."
MODULE_UTILS = Path("plugins/module_utils")
# Files that load files of a room by a name that is known at run time only, and that room.
BY_NAME = {"_trace/changes_backend.py": "_parts", "_parts/assembly.py": "_parts", "_parts/profile.py": "_profiles"}


class Unusable(Exception):
    """A variable of the environment cannot be used. The text says what to set."""


def budget(text: str) -> float:
    """The seconds in BUDGET; SECONDS if it is empty. Raises Unusable."""
    if not (text or "0").isdecimal():
        raise Unusable(f"BUDGET={text} is no number of seconds. Give one, as BUDGET=120")
    return float(text or SECONDS)


def changed(since: str = "") -> set[Path]:
    """The files, relative to the checkout, that differ from a commit, and those that git does not know yet.

    since: any name of a commit; by default the newest one that the branch shares with its upstream, or HEAD without one.
    """
    base = since or _git("merge-base", "HEAD", "@{upstream}") or "HEAD"
    differing = _git("diff", "--name-only", "-z", base, "--")
    if differing is None:
        raise Unusable(f"SINCE={base} is no commit of this repository. Name one, as SINCE=main or SINCE=HEAD~3")
    unknown = _git("ls-files", "--others", "--exclude-standard", "-z") or ""
    return {Path(name) for name in (differing + unknown).split("\0") if name}


def _git(*words: str) -> str | None:
    """What git printed, or None if it failed."""
    result = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return result.stdout.strip("\n") if result.returncode == 0 else None


def sources(paths: set[Path]) -> list[str]:
    """The changed files of Python that are still there."""
    return sorted(str(path) for path in paths if path.suffix == ".py" and (ROOT / path).exists())


def unit_tests(paths: set[Path]) -> list[str]:
    """The files of unit tests that import a changed file, at any remove, and those about the repository as a whole."""
    absolute = {ROOT / path for path in paths}
    whole = set((TESTS / "unit").glob("test_*.py"))
    return _names(path for path in (TESTS / "unit").rglob("test_*.py") if path in whole or absolute & needs(path))


def integration_tests(paths: set[Path]) -> tuple[list[str], list[str]]:
    """The files of tests on a real kernel: those about what changed, and those that run modules with what changed.

    The former are those of the changed rooms, modules, roles and playbooks; the latter follow the imports, as unit tests do.
    """
    rooms = {path.parts[2] for path in paths if path.is_relative_to(MODULE_UTILS) and len(path.parts) > 3}
    rooms |= {"lab" for path in paths if path.parts[:2] == ("tests", "lab")}
    subjects, every = _subjects(paths), sorted((TESTS / "integration").rglob("test_*.py"))
    near = {
        test
        for test in every
        if test.parent.name in rooms or test.relative_to(ROOT) in paths or test.stem[len("test_") :] in subjects
    }
    absolute = {ROOT / path for path in paths}
    modules = {f'"{path.stem}"' for path in (ROOT / "plugins/modules").glob("*.py") if absolute & _of_module(path)}
    further = {test for test in every if absolute & _of_integration(test) or any(map(_text(test).__contains__, modules))}
    return _names(test for test in every if test in near), _names(test for test in every if test in further - near)


def _of_module(path: Path) -> frozenset[Path]:
    """A module and what it imports. Its own file starts the file of its name in a room, by ``_module.py``."""
    utils = ROOT / MODULE_UTILS
    mains = [main for room in ("_queries", "_parts") if (main := utils / room / path.name).exists()]
    return frozenset[Path]().union(*map(needs, [path, *mains, *([utils / "_module.py"] if mains else [])]))


def _of_integration(test: Path) -> frozenset[Path]:
    """A file of tests and what it imports, without the lab, which nearly all of them need."""
    return frozenset(path for path in needs(test) if not path.is_relative_to(TESTS / "lab"))


@functools.cache
def _text(test: Path) -> str:
    """The text of a file of tests, and of those beside it that it imports, which name the modules that it runs."""
    return "".join(path.read_text() for path in _of_integration(test) if path.is_relative_to(TESTS / "integration"))


def _subjects(paths: set[Path]) -> set[str]:
    """The names of the tests of changed modules, roles, playbooks and plugins of the controller."""
    subjects = {path.stem for path in paths if path.parts[0] == "plugins"}
    roles = {path.parts[1] for path in paths if path.parts[0] in ("roles", "molecule")}
    roles |= {path.stem for path in paths if path.parent.name == "_profiles"} & {role.name for role in (ROOT / "roles").iterdir()}
    changed_utils = {ROOT / path for path in paths if path.parts[:2] == ("plugins", "plugin_utils")}
    users = [path for kind in ("action", "callback", "filter") for path in (ROOT / "plugins" / kind).glob("*.py")]
    subjects |= {path.stem for path in users if changed_utils & needs(path)}
    if "report" in subjects or any(path.parts[0] == "playbooks" for path in paths):
        subjects.add("fleet")
    return subjects | {f"role_{role}" for role in roles}


def share(tests: list[str], seconds: float) -> float:
    """The seconds after which no further test of a file begins. left: seconds of all. Two files run at a time."""
    return max(LEAST_SECONDS, seconds * 2 / max(2, len(tests)))


def _names(paths: Iterator[Path]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


@functools.cache
def needs(path: Path) -> frozenset[Path]:
    """A Python file of the repository and all that it imports of it, at any remove."""
    reached, next_ones = set(), [path]
    while next_ones:
        current = next_ones.pop()
        if current not in reached:
            reached.add(current)
            next_ones += _imports(current)
    return frozenset(reached)


@functools.cache
def _imports(path: Path) -> tuple[Path, ...]:
    names: list[tuple[Path | None, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [(None, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1] if node.level else None
            module = f"{node.module}." if node.module else ""
            names += [(folder, module.rstrip("."))] * bool(module) + [(folder, module + alias.name) for alias in node.names]
    by_name = next((room for name, room in BY_NAME.items() if path == ROOT / MODULE_UTILS / name), None)
    loaded = (ROOT / MODULE_UTILS / by_name).glob("*.py") if by_name else ()
    return (*(file for folder, name in names for file in _files(folder, name)), *loaded)


def _files(folder: Path | None, name: str) -> Iterator[Path]:
    """The files that a dotted name may mean: a module, or a package."""
    if folder is not None:
        folders = [folder]
    elif name.startswith(COLLECTION):
        folders, name = [ROOT], name[len(COLLECTION) :]
    else:
        folders = [TESTS, *OF_DEPLOY]
    for parent in folders:
        stem = parent / name.replace(".", os.sep)
        yield from (file for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py") if file.is_file())
