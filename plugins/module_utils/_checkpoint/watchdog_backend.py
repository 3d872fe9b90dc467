# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What rolls back at a checkpoint's deadline, without Ansible and without the network.

A transient timer of systemd, where systemd is process 1 and we are in its network namespace; elsewhere a process of its own
that sleeps, as a timer's service would run in process 1's namespace.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
import time
import typing as t

from .._boot import units
from .._core.errors import Failure
from .._platform import process, processes
from .checkpoint_backend import PROGRAM, PYTHON

Watchdog = t.Union[str, processes.Process]  # the timer's unit, or the process
READY = "ready\n"
HEAD_START = 1.0  # seconds before the deadline in which a timer's Python starts: a tenth of one, more on a busy node
START_LIMIT = 30.0  # seconds; Python starts in a tenth of one


def start(identity: str, seconds: int, libraries: t.Sequence[str]) -> tuple[Watchdog, float]:
    """Has the program call ``expire`` for the checkpoint in ``seconds``. Answers when: in seconds of the monotonic clock.

    These count from when the program has said that it can be started and that the Python libraries are there, which takes its
    time on a node with much to do. Raises Failure.
    """
    if not _is_systemds():
        return _start_process(identity, seconds, libraries)
    done = process.run([*_program("ready"), *libraries])
    if done.stdout != READY:
        raise Failure(f"the roll-back program can not be run: {done.stderr.strip() or done.rc}")
    unit, deadline = f"kubenode-checkpoint-{identity}", time.monotonic() + seconds
    done = process.run(
        [
            process.find("systemd-run") or "systemd-run",
            *("--quiet", "--collect", f"--unit={unit}", "--description=Roll back what was not confirmed"),
            *(f"--on-active={seconds - HEAD_START}s", "--timer-property=AccuracySec=100ms"),
            *_program("expire", identity),
        ]
    )
    if done.rc != 0:
        raise Failure(f"systemd-run could not set a timer: {done.stderr.strip() or done.rc}")
    return f"{unit}.timer", deadline


def stop(watchdog: Watchdog) -> None:
    """It may have ended; it may even be the caller's own."""
    if isinstance(watchdog, str):
        process.run([process.find("systemctl") or "systemctl", "stop", watchdog])
    elif watchdog != processes.myself():
        processes.tell(watchdog, signal.SIGTERM)


def _is_systemds() -> bool:
    return units.Units(process.run).is_running() and processes.network_namespace() == processes.network_namespace("1")


def _program(*arguments: str) -> list[str]:
    return [*PYTHON, PROGRAM, *arguments]


def _start_process(identity: str, seconds: int, libraries: t.Sequence[str]) -> tuple[Watchdog, float]:
    """It is in no session of ours and has none of our files, so that no connection waits for it or takes it along."""
    # pylint: disable-next=ansible-bad-function,consider-using-with  # it outlives us, and AnsibleModule waits
    child = subprocess.Popen(
        _program("watch", identity, *libraries),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", text=True,
        start_new_session=True, env={"PATH": process.SEARCH_PATH, "LC_ALL": "C"},
    )  # fmt: skip
    stdin, stdout = t.cast("tuple[t.IO[str], t.IO[str]]", (child.stdin, child.stdout))
    with stdin as told, stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        said = output.readline() if selector.select(START_LIMIT) else ""
        if said != READY:
            child.kill()
            raise Failure(f"the roll-back program can not be run: {said}{output.read()}".strip())
        deadline = time.monotonic() + seconds
        told.write(f"{deadline}\n")
    return processes.find(child.pid), deadline
