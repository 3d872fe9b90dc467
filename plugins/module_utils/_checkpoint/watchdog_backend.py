# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The watchdog, which rolls back at a checkpoint's deadline, without Ansible and without the network.

It is a transient timer of systemd, if systemd is process 1 and this run is in its network namespace. Otherwise it is a process
that sleeps, because a timer's service would run in the network namespace of process 1.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
import time
import typing as t

from .._core.errors import Failure
from .._platform import kernel, process, processes
from .checkpoint_backend import PROGRAM, PYTHON

Watchdog = t.Union[str, processes.Process]  # the timer's unit, or the process
READY = "ready\n"
HEAD_START = 1.0  # seconds before the deadline in which a timer's Python starts: a tenth of one, more on a busy node
START_LIMIT = 30.0  # seconds; Python starts in a tenth of one


def start(identity: str, seconds: int, libraries: t.Sequence[str]) -> tuple[Watchdog, float]:
    """Make the program call ``expire`` for the checkpoint in ``seconds``. Raises Failure.

    Returns the watchdog and the deadline, in seconds of the monotonic clock. The seconds count from the moment when the program
    has said that it runs and can load the Python libraries, which takes a while on a busy node.
    """
    if not _is_systemds():
        return _start_process(identity, seconds, libraries)
    done = process.run([*_program("ready"), *libraries])
    if done.stdout != READY:
        raise Failure(f"the roll-back program cannot be run: {done.stderr.strip() or done.rc}")
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
    """Stop the watchdog, which may have ended, or be this process."""
    if isinstance(watchdog, str):
        process.run([process.find("systemctl") or "systemctl", "stop", watchdog])
    elif watchdog != processes.myself():
        processes.tell(watchdog, signal.SIGTERM)


def _is_systemds() -> bool:
    return kernel.is_managed_by_systemd() and processes.network_namespace() == processes.network_namespace("1")


def _program(*arguments: str) -> list[str]:
    return [*PYTHON, PROGRAM, *arguments]


def _start_process(identity: str, seconds: int, libraries: t.Sequence[str]) -> tuple[Watchdog, float]:
    """Start the process in its own session and without this run's open files, so that no connection waits for it or ends it."""
    # pylint: disable-next=ansible-bad-function,consider-using-with  # it outlives the run, and AnsibleModule would wait
    child = subprocess.Popen(
        _program("watch", identity, *libraries),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", text=True,
        start_new_session=True, env={"PATH": process.SEARCH_PATH, "LC_ALL": "C"},
    )  # fmt: skip
    stdin, stdout = t.cast("tuple[t.IO[str], t.IO[str]]", (child.stdin, child.stdout))
    with stdin as deadline_pipe, stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        said = output.readline() if selector.select(START_LIMIT) else ""
        if said != READY:
            child.kill()
            raise Failure(f"the roll-back program cannot be run: {said}{output.read()}".strip())
        deadline = time.monotonic() + seconds
        deadline_pipe.write(f"{deadline}\n")
    return processes.find(child.pid), deadline
