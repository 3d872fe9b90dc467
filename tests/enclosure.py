# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command so that none of its processes and mounts outlive it, whatever ends the command or its caller.

    make                  a person, a CI or a time limit ends it
      toolchain.py        `run`: passes each request to end to the process below, through a pipe
        enclosure.py      `main`: process 1 of a PID namespace that has mounts of its own
          toolchain.py    the work, in a session of its own

If toolchain.py is killed, the pipe is closed, which is a request to end too. If process 1 is killed, the kernel kills all
processes of the namespace, and frees their mounts and network namespaces with them. Without root there is no PID namespace:
enclosure.py then adopts and ends all processes that the work has left, unless it is killed itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import leftovers

GRACE = 8.0  # seconds for labs to be taken down, from the request to end; one with nodes that boot takes 2 s
KILLED = 1.5  # seconds in which the kernel ends killed processes
PAUSE = 0.05  # seconds between two looks
INSIDE = "KUBENODE_ENCLOSED"  # the name of the environment variable that says so
MAKE_LEVEL = "MAKELEVEL"  # the name of the environment variable that make sets for what it starts
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ALONE = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
"""In front of a command: its processes and mounts end with `unshare`, or with its own first process."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def is_inside() -> bool:
    return INSIDE in os.environ


def run(command: Sequence[str]) -> int:
    """Run the command; return its exit status, or 128 and the number of the signal that ended it."""
    reading, writing = os.pipe()
    namespaces = ALONE if os.geteuid() == 0 else ()
    environment = {name: value for name, value in os.environ.items() if name != MAKE_LEVEL}  # no make is seen inside
    child = subprocess.Popen(
        [*namespaces, sys.executable, __file__, str(reading), *command],
        pass_fds=[reading], start_new_session=True, env={**environment, INSIDE: "1"},
    )  # fmt: skip
    os.close(reading)
    requested: list[int] = []

    def request(number: int) -> None:
        if not requested:
            requested.append(number)
            work = " ".join(command[2:])
            _say(f"{signal.Signals(number).name}: ending {work}; labs have {GRACE:g} s to be taken down")
            with contextlib.suppress(BrokenPipeError):
                os.write(writing, bytes([number]))

    for wanted in REQUESTS:
        if signal.getsignal(wanted) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(wanted, lambda number, _frame: request(number))
    make = Make()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(timeout=PAUSE)
            break
        for number in make.requests():
            request(number)
    os.close(writing)
    return 128 + requested[0] if requested else status if status >= 0 else 128 - status


class Make:
    """The `make` that started this process, if one did. It does not pass each signal that ends it on to its children."""

    def __init__(self) -> None:
        self._pid = _ancestor("make")
        if self._pid == os.getppid():
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    def requests(self) -> list[signal.Signals]:
        """The signals to end that make has received.

        make handles INT and HUP by waiting for its children, which must have the signal from a terminal, and passes on TERM
        alone. Its handler resets the signal's action to the default (fatal_error_signal in commands.c), which shows here.
        """
        if not self._pid:
            return [signal.SIGTERM] if MAKE_LEVEL in os.environ else []  # it has ended already
        with contextlib.suppress(OSError):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{self._pid}/status").read_text().splitlines())
            handled = int(status["SigCgt"], 16) | int(status["SigIgn"], 16)
            return [number for number in REQUESTS if not handled >> (number - 1) & 1]
        return []


def _ancestor(name: str) -> int:
    """The nearest ancestor of this process with the name; 0 if there is none."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        while pid and Path(f"/proc/{pid}/comm").read_text().strip() != name:
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        return pid
    return 0


def main(control: int, command: Sequence[str]) -> int:
    """Run the command as process 1, or as a process that adopts orphans, until no process is left."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for request in REQUESTS:
        signal.signal(request, lambda _number, _frame: None)  # not SIG_IGN, which the command would inherit
    os.set_blocking(control, False)
    os.set_inheritable(control, False)
    work = os.posix_spawn(command[0], [*command], os.environ, setsid=True, setsigdef=REQUESTS)
    statuses: dict[int, int] = {}
    deadline = None
    while not _reap(statuses):
        if deadline is None:
            number = _request(control)
            if number and work not in statuses:
                os.killpg(work, number)
            if number or work in statuses:
                deadline = time.monotonic() + GRACE
        elif time.monotonic() > deadline:
            _kill_all(statuses)
            break
        select.select([], [], [], PAUSE)
    leftovers.remove_cgroups()
    return statuses.get(work, 128 + signal.SIGKILL)


def _request(control: int) -> int:
    """The signal that the caller passes on; SIGTERM if the caller has ended; 0 if there is none."""
    try:
        return (os.read(control, 1) or bytes([signal.SIGTERM]))[0]
    except BlockingIOError:
        return 0


def _reap(statuses: dict[int, int]) -> bool:
    """Collect the exit statuses of the children that have ended; return whether no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if not pid:
            return False
        code = os.waitstatus_to_exitcode(status)
        statuses[pid] = code if code >= 0 else 128 - code


def _kill_all(statuses: dict[int, int]) -> None:
    """Kill all descendants: children of a killed process become children of this one."""
    names: set[str] = set()
    deadline = time.monotonic() + KILLED
    while not _reap(statuses) and time.monotonic() < deadline:
        for pid, name in _children():
            names.add(name)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    _say(f"ended the processes that were left after {GRACE:g} s: {', '.join(sorted(names))}")


def _children() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _end, rest = path.read_text(errors="replace").rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found.append((int(path.parent.name), head.partition("(")[2]))
    return found


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone
        os.write(2, f"toolchain: {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
