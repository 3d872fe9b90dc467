# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run waits for is the name of a file in memory: seen in /proc meanwhile, and by the controller's command."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import packages, process

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _waits


def screen_lines() -> list[str]:
    """Run the command by which the controller looks."""
    result = subprocess.run(["sh", "-c", _waits.LOOK], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def meanwhile(run: t.Callable[[], object]) -> list[str]:
    """Return what is seen while another thread runs."""
    thread = threading.Thread(target=run)
    thread.start()
    lines = list[str]()
    while thread.is_alive():
        lines += screen_lines()
    return lines


def test_a_wait_is_seen_and_is_gone_afterwards() -> None:
    with process.waiting("waits for a\ntest " + "x" * 300):
        assert [line for line in screen_lines() if line.startswith("waits for a test xx")]
    assert not [line for line in screen_lines() if line.startswith("waits for a test xx")]


def test_a_program_is_seen_without_its_variables() -> None:
    lines = meanwhile(lambda: process.run(["/usr/bin/env", "NAME=secret", "sleep", "4.25"]))
    assert "runs /usr/bin/env sleep 4.25" in lines and not [line for line in lines if "secret" in line]


def test_a_lock_of_the_package_manager_is_seen_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock-frontend"
    lock.touch()
    script = f"import fcntl, time; file = open({str(lock)!r}, 'w'); fcntl.lockf(file, fcntl.LOCK_EX); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", script])
    try:
        while not is_locked(lock):
            time.sleep(0.05)

        def wait() -> None:
            with pytest.raises(Failure, match=r"is held by process \d+"):
                packages._wait_for([str(lock)], time.monotonic() + 4)

        text = f"waits for {lock}, which process {holder.pid} ("
        assert [line for line in meanwhile(wait) if line.startswith(text) and line.endswith(") holds")]
    finally:
        holder.kill()
        holder.wait()


def is_locked(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.parametrize(
    ("lines", "text"),
    [([], ""), (["runs apt-get", "runs dpkg"], "runs dpkg"), (["waits for a lock", "runs apt-get"], "waits for a lock")],
)
def test_a_wait_is_told_before_a_program(lines: list[str], text: str) -> None:
    assert _waits._telling(lines) == text
