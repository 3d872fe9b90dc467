# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watchdog, which rolls back at a checkpoint's deadline, without Ansible and without the network.

It is a process that sleeps in the network namespace of the run. It has loaded its program and holds the open record, so that at
the deadline it needs nothing of the file system. Where systemd is process 1, it is in a scope of its own (systemd.scope(5)):
neither the end of the ssh session nor that of a container ends it.
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

READY = "ready\n"
START_LIMIT = 30.0  # seconds; Python starts in a tenth of one


def start(identity: str, seconds: int, libraries: t.Sequence[str]) -> tuple[processes.Process, float]:
    """Start the watchdog in its own session and without this run's open files, so that no connection waits for it or ends it.

    Returns the watchdog and the deadline, in seconds of the monotonic clock. The seconds count from the moment when the program
    has said that it runs, holds the record, and can load the Python libraries, which takes a while on a busy node.
    Raises Failure.
    """
    # pylint: disable-next=ansible-bad-function,consider-using-with  # it outlives the run, and AnsibleModule would wait
    child = subprocess.Popen(
        [*_scope(identity), *PYTHON, PROGRAM, "watch", identity, *libraries],
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


def _scope(identity: str) -> list[str]:
    """Return the command that starts a program in a scope, as the same process; empty without systemd."""
    if not kernel.is_managed_by_systemd():
        return []
    options = ("--scope", "--quiet", "--collect", f"--unit=kubenode-checkpoint-{identity}")
    return [process.find("systemd-run") or "systemd-run", *options, "--description=Roll back what was not confirmed"]


def stop(watchdog: processes.Process) -> None:
    """Stop the watchdog, which may have ended, or be this process."""
    if watchdog != processes.myself():
        processes.tell(watchdog, signal.SIGTERM)
