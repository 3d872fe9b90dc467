# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab that stays between calls of its tool, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import collection
from lab.waiting import until

NAMESPACES = {"metadata": True, "nodes": [{"name": "node1", "pods": ["pod1"]}]}
SYSTEMD = {"nodes": [{"name": "node1", "pods": ["pod1"], "system": "bookworm"}]}


class Tool:
    """``python -m lab`` on one folder; each call is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def call(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(collection.CHECKOUT / "tests")}
        return subprocess.run(
            [sys.executable, "-m", "lab", command, self.folder, *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def up(self, declaration: dict[str, Any], *options: str) -> None:
        path = self.folder.with_suffix(".json")
        path.write_text(json.dumps(declaration))
        result = self.call("up", str(path), *options)
        assert result.returncode == 0, result.stderr

    def ask(self, command: str, *words: str) -> Any:
        result = self.call(command, *words)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def processes(self) -> list[int]:
        """The daemon and all its children, found by its arguments, and the node's process 1."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_mine(path)]

    def building(self) -> list[int]:
        """The daemon, which leads a session of its own, as soon as it has started something."""
        return [pid for pid in self.processes() if os.getsid(pid) == pid and _children(pid)]

    def _is_mine(self, path: Path) -> bool:
        try:
            return str(self.folder) in path.read_bytes().decode().split("\0")
        except OSError:  # ended meanwhile
            return False

    def node_pid(self) -> int:
        hosts = json.loads((self.folder / "inventory.json").read_text())["all"]["children"]["nodes"]["hosts"]
        return int(Path(hosts["node1"]["lab_node_pid_file"]).read_text())


def _children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    """In a folder whose path is too long for a socket."""
    tool = Tool(tmp_path / ("deep" * 30) / "lab")
    tool.folder.parent.mkdir()
    yield tool
    tool.call("down")


def test_a_lab_that_cannot_be_built_says_why(tool: Tool) -> None:
    path = tool.folder.with_suffix(".json")
    path.write_text('{"nodes": [{"name": "node1", "color": "red"}]}')
    failed = tool.call("up", str(path))
    assert failed.returncode == 1
    assert "color" in failed.stderr
    assert not tool.processes()


def test_when_down_has_returned_nothing_is_left(tool: Tool) -> None:
    """molecule does the same with nodes that run systemd."""
    tool.up(NAMESPACES)
    node = Path("/proc", str(tool.node_pid()))
    assert node.exists() and tool.processes()
    assert tool.call("down").returncode == 0
    assert not node.exists()
    assert [path.name for path in tool.folder.iterdir()] == ["log"]
    until("the lab has no processes", tool.processes, expected=[])
    assert "there is no lab" in tool.call("probe", "pod1").stderr
    assert tool.call("down").returncode == 0  # succeeds without a lab too
    tool.up(NAMESPACES)  # and the folder can be used again


@pytest.mark.parametrize("declaration", [NAMESPACES, SYSTEMD], ids=["namespaces", "systemd"])
def test_a_killed_daemon_leaves_nothing_that_runs_and_the_folder_usable(tool: Tool, declaration: dict[str, Any]) -> None:
    tool.up(declaration)
    node = Path("/proc", str(tool.node_pid()))
    for pid in tool.processes():
        os.kill(pid, signal.SIGKILL)
    until("the node has ended", lambda: not node.exists())
    assert tool.call("down").returncode == 0
    assert [path.name for path in tool.folder.iterdir()] == ["log"]
    tool.up(NAMESPACES)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_who_gives_up_while_it_is_built_leaves_nothing(tool: Tool, number: signal.Signals) -> None:
    declaration = tool.folder.with_suffix(".json")
    declaration.write_text(json.dumps(SYSTEMD))
    starter = subprocess.Popen(
        [sys.executable, "-m", "lab", "up", tool.folder, declaration],
        env={**os.environ, "PYTHONPATH": str(collection.CHECKOUT / "tests")},
    )  # fmt: skip
    until("the lab is being built", tool.building)
    (daemon,) = tool.building()
    os.kill(daemon, signal.SIGSTOP)  # so that it is not ready before the caller is killed
    assert not (tool.folder / "control").exists()
    starter.send_signal(number)
    starter.wait()
    os.kill(daemon, signal.SIGCONT)
    until("the lab has no processes", tool.processes, expected=[])
    assert not (tool.folder / "control").exists()


def test_it_ends_with_its_folder(tool: Tool) -> None:
    tool.up(NAMESPACES)
    node = Path("/proc", str(tool.node_pid()))
    shutil.rmtree(tool.folder)
    until("the lab and its node have ended", lambda: not tool.processes() and not node.exists())


def test_it_ends_without_requests(tool: Tool) -> None:
    tool.up(NAMESPACES, "--idle", "10")
    for _number in range(4):  # the daemon stays while requests come; a busy machine takes seconds for each
        time.sleep(3)
        tool.ask("probe", "pod1")
    until("the lab has no processes", tool.processes, expected=[])
    assert [path.name for path in tool.folder.iterdir()] == ["log"]
