# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that stays while a person works with it, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import collection, images
from lab.waiting import until


class Tool:
    """``python -m lab`` on one folder; each call is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, command: str, *words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(collection.CHECKOUT / "tests")}
        done = subprocess.run(
            [sys.executable, "-m", "lab", command, self.folder, *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.folder / "kubectl", *words], capture_output=True, text=True, check=False)

    def daemon(self) -> int:
        (pid,) = _processes(f"lab.daemon\0{self.folder}\0")
        return pid


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    tool = Tool(tmp_path / "lab")
    yield tool
    tool.call("down")


def test_a_person_has_kubectl_until_the_cluster_is_told_to_end(tool: Tool) -> None:
    tool.call("up", "cluster")
    assert len(tool.kubectl("get", "nodes", "--output=name").stdout.split()) == 2
    place = _place(tool.daemon())
    tool.call("down")
    assert [path.name for path in tool.folder.iterdir()] == ["log"]
    assert _left(place) == []


def test_a_cluster_that_is_killed_leaves_nothing_and_its_kubectl_says_so(tool: Tool) -> None:
    tool.call("up", "cluster")
    place = _place(tool.daemon())
    os.kill(tool.daemon(), signal.SIGKILL)
    until("nothing is left of the cluster", lambda: _left(place), expected=[])
    refused = tool.kubectl("get", "nodes")
    assert (refused.returncode, refused.stderr) == (1, "kubectl: the cluster has ended; bring up another one\n")


def _place(daemon: int) -> Path:
    """The folder of the daemon's containers, which has all files of a cluster."""
    (folder,) = (images.cache() / "containers").glob(f"{daemon}-*")
    return folder


def _left(place: Path) -> list[str]:
    """The remains of a cluster: its folder, and processes whose arguments have a path in it."""
    folder = [str(place)] if place.exists() else []
    return folder + [f"process {pid}" for pid in _processes(str(place))]


def _processes(words: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:  # ended meanwhile
            continue
    return found
