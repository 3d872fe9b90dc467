# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a running task waits for, such as its module on the node, from there to the callback.

A module can answer at its end only. So a thread of the task's worker lists, over a connection of its own, the files in memory by
whose names the module shows what it waits for (_platform/process.py), and notes the name in a folder that the callback reads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import typing as t
import urllib.parse
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.process import WAITING
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_watch
from ansible_collections.kubenode.datapath.plugins.plugin_utils._report_callback import FOLDER

LONGEST = 200  # characters of a text
PAUSE = 8.0  # seconds between two looks, less than between two lines of the callback
# Connections of which each command starts a program of its own. Others cannot be used by two threads.
SEPARATE = ("buildah", "docker", "kubectl", "lab_node", "local", "nsenter", "podman", "ssh")
LOOK = rf"ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n 's|.*-> /memfd:{WAITING}\(.*\) (deleted)$|\1|p'"


def note(host: str, text: str) -> None:
    """Note what a node's module waits for, if the callback is there to read it."""
    folder = os.environ.get(FOLDER)
    if folder:
        with contextlib.suppress(OSError):
            _file(folder, host).write_text(in_one_line(text[:LONGEST]))


def noted(host: str) -> str:
    folder = os.environ.get(FOLDER)
    with contextlib.suppress(OSError):
        return _file(folder, host).read_text(errors="replace") if folder else ""  # a part of a sign, while it is written
    return ""


def _file(folder: str, host: str) -> Path:
    return Path(folder) / urllib.parse.quote(host, safe="")


def _telling(lines: t.Sequence[str]) -> str:
    """Return the line about a wait, else the last one, which is about a program."""
    return next((line for line in lines if line.startswith("waits ")), lines[-1] if lines else "")


class Watch:
    """Notes what a task waits for, while the block runs.

    command: looks, on the task's host, by default at what the task's module waits for. text: of the lines that it printed.
    """

    def __init__(
        self, action: ActionBase, host: str, command: str = LOOK, text: t.Callable[[t.Sequence[str]], str] = _telling
    ) -> None:
        self._action, self._host = action, host
        self._command, self._text = command, text
        self._is_over = threading.Event()

    def __enter__(self) -> None:
        transport = self._action._connection.transport.rpartition(".")[2]
        if os.environ.get(FOLDER) and transport in SEPARATE:
            threading.Thread(target=self._look, daemon=True).start()

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        note(self._host, "")

    def _look(self) -> None:
        separate = None
        while not self._is_over.wait(PAUSE):
            separate = separate or _connection_watch.beside(self._action)
            lines = list[str]()
            with contextlib.suppress(AnsibleError):
                lines = str(separate._low_level_execute_command(self._command)["stdout"]).splitlines()
            if not self._is_over.is_set():
                note(self._host, self._text(lines))
