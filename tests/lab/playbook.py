# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook, the one of this Python, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import inventory

PROGRAM = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
_RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)


class Recap(NamedTuple):
    """A node's line at the end of a run: how many tasks changed it, and whether it was lost."""

    changed: int
    is_lost: bool


class Played(NamedTuple):
    """``output`` is the text of both streams; ``nodes`` has the recaps of nodes that were reached or tried."""

    output: str
    status: int
    nodes: dict[str, Recap]

    @property
    def changed(self) -> int:
        """The number of tasks that changed something, of all nodes; -1 if the run began with no node."""
        return sum(node.changed for node in self.nodes.values()) if self.nodes else -1

    @property
    def failed(self) -> bool:
        return self.status != 0

    @property
    def modules(self) -> list[str]:
        """The modules executed on nodes, if -vvv was among the arguments."""
        return re.findall(r"Using module file .*/(\w+)\.py", self.output)

    def well(self) -> Played:
        """This object, if the run succeeded; fails otherwise."""
        assert not self.failed, self.output
        return self


def play(
    hosts: Path,
    playbook: str | Path,
    *arguments: str,
    variables: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    killed_after: float = 0,
) -> Played:
    """Run a playbook, a file or a collection's, on an inventory. ``variables`` keep their types, as in JSON.

    ``killed_after``: seconds after which the controller's processes get SIGKILL, 0 for never.
    """
    killer = ["timeout", "--signal=KILL", str(killed_after)] if killed_after else []
    extra = ["--extra-vars", json.dumps(variables)] if variables else []
    return run([*killer, PROGRAM, "--inventory", os.fspath(hosts), os.fspath(playbook), *extra, *arguments], environment)


def streams(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command line that has PROGRAM in it, and keep its two streams apart."""
    return subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, **inventory.environment(), **(environment or {})},
    )  # fmt: skip


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Played:
    """Run a command line that has PROGRAM in it."""
    result = streams(command, environment)
    recap = {name: Recap(int(changed), away + failed != "00") for name, changed, away, failed in _RECAP.findall(result.stdout)}
    return Played(result.stdout + result.stderr, result.returncode, recap)


def write(path: Path, tasks: Sequence[Mapping[str, Any]], hosts: str = "node1") -> Path:
    """A playbook of these tasks."""
    path.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": list(tasks)}]))
    return path


def tell(hosts: Path, node: str, **variables: str) -> None:
    """Set variables of a node in an inventory of the lab."""
    text = json.loads(hosts.read_text())
    text["all"]["children"]["nodes"]["hosts"][node].update(variables)
    hosts.write_text(json.dumps(text))


def without_library(folder: Path, name: str) -> dict[str, str]:
    """The environment of an ansible-playbook whose Python does not find the library. ``folder``: for the files that hide it."""
    (folder / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n\n"
        "find = PathFinder.find_spec\n"
        f"PathFinder.find_spec = lambda found, *more: None if found == {name!r} else find(found, *more)\n"
    )
    return {"PYTHONPATH": os.pathsep.join([os.fspath(folder), os.environ.get("PYTHONPATH", "")])}
