# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another program that runs on a machine during a test's action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab.machine import Machine

_START = "sh /run/background > /run/background.log 2>&1 & echo $! > /run/background.pid"
_END = "read pid < /run/background.pid; kill $pid; while kill -0 $pid 2> /dev/null; do :; done"


@contextmanager
def shell(machine: Machine, script: str) -> Iterator[None]:
    """Runs the script for the length of the block, at most one on a machine. Its current command may end later."""
    machine.write("/run/background", script)
    machine.run(["sh", "-c", _START])
    try:
        yield
    finally:
        machine.run(["sh", "-c", _END])
