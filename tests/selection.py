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

import house

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
OF_DEPLOY = (ROOT / "deploy/image", ROOT / "deploy/cli")  # folders of packages
SECONDS = 540  # of all checks; the tests that run at the end of this time have the rest of ten minutes
LEAST_SECONDS = 5  # for each file
COLLECTION = "ansible_collections.kubenode.datapath."
MODULE_UTILS = Path("plugins/module_utils")


class NoBase(Exception):
    """There is nothing to compare the checkout with. The text says what to name."""


def changed(since: str = "") -> set[Path]:
    """The files, relative to the checkout, that differ from a commit, and those that git does not know yet.

    since: any name of a commit; by default the newest one that the branch shares with its upstream, or HEAD without one.
    """
    base = since or _git("merge-base", "HEAD", "@{upstream}") or "HEAD"
    differing = _git("diff", "--name-only", "-z", base, "--")
    if differing is None:
        raise NoBase(f"SINCE={base} is no commit of this repository. Name one, as SINCE=main or SINCE=HEAD~3")
    unknown = _git("ls-files", "--others", "--exclude-standard", "-z") or ""
    return {Path(name) for name in (differing + unknown).split("\0") if name}


def _git(*words: str) -> str | None:
    """What git printed, or None if it failed."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip("\n") if done.returncode == 0 else None


def sources(paths: set[Path]) -> list[str]:
    """The changed files of Python that are still there."""
    return sorted(str(path) for path in paths if path.suffix == ".py" and (ROOT / path).exists())


def unit_tests(paths: set[Path]) -> list[str]:
    """The files of unit tests that import a changed file, at any remove, and those about the repository as a whole."""
    absolute = {ROOT / path for path in paths}
    whole = set((TESTS / "unit").glob("test_*.py"))
    return _names(path for path in (TESTS / "unit").rglob("test_*.py") if path in whole or absolute & needs(path))


def integration_tests(paths: set[Path]) -> list[str]:
    """The files of tests on a real kernel in the rooms of the changed files: all of them, if a service has changed."""
    rooms = {path.parts[2] for path in paths if path.is_relative_to(MODULE_UTILS) and len(path.parts) > 3}
    rooms |= {"lab" for path in paths if path.parts[:2] == ("tests", "lab")}
    is_of_all = bool(rooms & {*house.SERVICES})
    subjects = _subjects(paths)

    def is_touched(test: Path) -> bool:
        room = test.parent.name
        is_near = room in rooms or (is_of_all and room in house.ROOMS)
        return is_near or test.relative_to(ROOT) in paths or test.stem[len("test_") :] in subjects

    return _names(test for test in (TESTS / "integration").rglob("test_*.py") if is_touched(test))


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


def limits(tests: list[str], spent: float) -> tuple[float, float]:
    """Return the seconds after which no further test of a file begins, and those after which none begins at all.

    spent: the seconds that the checks before have taken. Two files run at a time.
    """
    left = max(LEAST_SECONDS, SECONDS - spent)
    return max(LEAST_SECONDS, left * 2 / max(2, len(tests))), left


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
    return tuple(file for folder, name in names for file in _files(folder, name))


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
