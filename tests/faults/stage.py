# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules on a node, each in a fork of a process that has imported all of them: a run takes some 20 ms.

Lines on stdin: the number of a process that holds a node (0: this one does), which is entered; then a JSON object for each run
on it, with ``module``, ``arguments`` (as Ansible gives them), ``fault`` (kind and number, or null) and ``limit`` in seconds;
then an empty line. On stdout: "ready" on the node, and for each run an Outcome.

Needs ansible-core's module_utils and the collection on PYTHONPATH, nothing else of the lab, and Python 3.9.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import time
import traceback
import typing as t

from ansible.module_utils import basic

from ansible_collections.kubenode.datapath.plugins import module_utils, modules
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library, process
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import routing_backend
from faults import points
from faults.kinds import HANGS, Fault
from faults.points import Point, Stopped, Supervisor

_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: orphans of a run become children of this process, which can wait for them
_STARTS = 3  # the module's descriptor for the list of the processes that it starts
# These modules send up to CHUNK messages at once: a NIC that left its bridge in two sends would be cut off in between.
_AT_ONCE = ("azure_vnet_bridge",)
_DEADLINE = 3.0  # seconds; the deadline of each child process in a run in which one hangs, instead of its own deadline
_GRACE = 1.0  # seconds before a held child of an earlier run goes on, because a run may wait for it
_LAST = 10.0  # seconds that processes get to end after their run


class Outcome(t.NamedTuple):
    """The outcome of a run.

    result: the module's JSON; None if it died without one. status: of waitpid(2). output: its other output.
    points: in order, up to the fault. starts: how many child processes the module itself started.
    is_hung: whether it was killed after its time limit. left: processes that went on after it.
    """

    result: dict[str, t.Any] | None
    status: int
    output: str
    points: list[Point]
    starts: int
    is_hung: bool
    left: list[str]


class Run:
    """A module under supervision."""

    def __init__(self, module: str, arguments: dict[str, t.Any], fault: Fault | None) -> None:
        self.points: list[Point] = []
        self._fault = fault
        self._said, self._starts = os.memfd_create("said"), os.memfd_create("starts")
        self.pid = os.fork()
        if not self.pid:
            _become(module, arguments, fault, self._said, self._starts)
        try:
            self.supervisor = Supervisor(self.pid)
        except RuntimeError as error:
            raise RuntimeError(f"{module}: {error}: {_read(self._said)}") from error
        self._ended = os.pidfd_open(self.pid)
        self.survivor: Stopped | None = None  # a child that is held at a point, while its module was killed

    def serve(self, current: list[tuple[Supervisor, Stopped]], limit: float) -> bool:
        """Let the module run to its end. Returns False if that takes too long.

        held: children of earlier runs, which go on after _GRACE, because this run may wait for them.
        """
        started = time.monotonic()
        poll = select.poll()
        poll.register(self.supervisor, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        while time.monotonic() < started + limit:
            if current and time.monotonic() > started + _GRACE:
                release(current)
            ready = dict(poll.poll(100))
            if ready.get(self.supervisor.fileno(), 0) & select.POLLIN:
                if stopped := self.supervisor.receive():
                    self._judge(stopped)
            elif ready.get(self._ended):
                return True
        return False

    def _judge(self, stopped: Stopped) -> None:
        self.points.append(stopped.point)
        verdict = self._fault.decide(len(self.points), stopped.point) if self._fault else "go"
        if verdict == "kill":
            self.end()
        elif verdict == "kill module":
            self.survivor = stopped
            os.kill(self.pid, signal.SIGKILL)
        else:
            self.supervisor.answer(stopped.number, {"no space": errno.ENOSPC, "read-only": errno.EROFS}.get(verdict, 0))

    def end(self) -> None:
        """Kill the module, and all processes that it has started, in any session."""
        for pid in _tree(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def outcome(self, is_hung: bool, left: list[str]) -> Outcome:
        _pid, status = os.waitpid(self.pid, 0)
        said, starts = _read(self._said), _read(self._starts)
        os.close(self._ended)
        try:
            result = json.loads(said)
        except ValueError:
            result = None
        return Outcome(result, status, "" if result else said, self.points, starts.count("\n"), is_hung, left)


def release(current: list[tuple[Supervisor, Stopped]]) -> None:
    """Let all processes that wait at a point go on, at this and at later points."""
    for supervisor, stopped in current:
        supervisor.answer(stopped.number)
    followed = {supervisor for supervisor, _stopped in current}
    current.clear()
    poll = select.poll()
    for supervisor in followed:
        poll.register(supervisor, select.POLLIN)
    while followed:
        ready = dict(poll.poll(int(_GRACE * 1000)))
        for supervisor in list(followed):
            event = ready.get(supervisor.fileno(), 0)
            if event & select.POLLIN:
                if waiting := supervisor.receive():
                    supervisor.answer(waiting.number)
            elif event or not ready:  # all have ended, or none reaches another point
                poll.unregister(supervisor)
                followed.discard(supervisor)
                supervisor.close()


def perform(request: dict[str, t.Any], current: list[tuple[Supervisor, Stopped]]) -> Outcome:
    fault = Fault(*request["fault"]) if request["fault"] else None
    run = Run(request["module"], request["arguments"], fault)
    is_in_time = run.serve(current, request["limit"])
    if not is_in_time:
        run.end()
    if run.survivor:
        current.append((run.supervisor, run.survivor))
        return run.outcome(is_hung=False, left=[])
    release(current)
    left = _settled(run) if is_in_time else []
    run.end()
    run.supervisor.close()
    return run.outcome(not is_in_time, left)


def _settled(run: Run) -> list[str]:
    """The processes that still run some time after the module has ended; they are killed."""
    deadline = time.monotonic() + _LAST
    poll = select.poll()
    poll.register(run.supervisor, select.POLLIN)
    while _orphans(run.pid) and time.monotonic() < deadline:
        for _descriptor, event in poll.poll(5):
            stopped = run.supervisor.receive() if event & select.POLLIN else None
            if stopped:
                run.points.append(stopped.point)
                run.supervisor.answer(stopped.number)
    names = []
    for pid in _orphans(run.pid):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            names.append(file.read().replace("\0", " ").strip())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return names


def _tree(pid: int) -> list[int]:
    """A process and its descendants, parents first, so that none sees its child die; ended ones are included."""
    return [pid, *(descendant for child in _children_of(pid) for descendant in _tree(child))]


def _children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def _orphans(module: int) -> set[int]:
    """The processes that a run has left to this process; those that have ended are reaped, except the module itself."""
    found = set()
    for pid in _children_of(os.getpid()):
        if pid == module:
            continue
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            found.add(pid)
        else:
            os.waitpid(pid, 0)
    return found


# In the module's own process


def _become(module: str, arguments: dict[str, t.Any], fault: Fault | None, said: int, starts: int) -> t.NoReturn:
    """Runs the module in this process."""
    status = 1
    try:
        os.setsid()
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), said, said, starts)):
            os.dup2(descriptor, number, inheritable=number < _STARTS)
        os.closerange(_STARTS + 1, os.sysconf("SC_OPEN_MAX"))  # the other end of a held child, too
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        _strike_children(fault)
        if module not in _AT_ONCE:
            routing_backend.CHUNK = 1  # each message is a point
        basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
        basic._ANSIBLE_PROFILE = "legacy"
        main = importlib.import_module(f"{modules.__name__}.{module}").main
        points.submit()
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _strike_children(fault: Fault | None) -> None:
    """Counts the started processes, and replaces the one that the fault strikes; a hang has a short deadline."""
    start, count = subprocess.Popen, 0

    class Popen(start):  # type: ignore[misc, valid-type]
        def __init__(self, argv: t.Sequence[str], **options: t.Any) -> None:
            nonlocal count
            count += 1
            os.write(_STARTS, (json.dumps(list(argv)) + "\n").encode())
            super().__init__(fault.replaced(count, argv) if fault else argv, **options)

    subprocess.Popen = Popen  # type: ignore[assignment, misc]
    if fault and fault.kind in HANGS:
        process.DEADLINE = process.GRACE = _DEADLINE


def _prepare() -> None:
    """Imports every module that a run imports, with pyroute2 if it is installed."""
    for package in (module_utils, modules):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    with contextlib.suppress(ImportError):
        for name in library.MODULES[library.PYROUTE2]:
            importlib.import_module(f"{library.PYROUTE2}.{name}")
    gc.freeze()


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        return file.read()


def enter(pid: int) -> None:
    """Enters the network and mount namespaces of the node of process ``pid``."""
    libc = ctypes.CDLL(None, use_errno=True)
    places = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in ("net", "mnt")]
    for place in places:
        if libc.setns(place, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(place)
    os.chdir("/")


def serve() -> None:
    """Performs requests until an empty line. The caller sends one line at a time: none may be in a buffer at a fork."""
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl: PR_SET_CHILD_SUBREAPER")
    current: list[tuple[Supervisor, Stopped]] = []
    print("ready", flush=True)
    while line := sys.stdin.readline().strip():
        print(json.dumps(perform(json.loads(line), current)), flush=True)


def main() -> None:
    """A line with a number names the process of the node for the next requests; 0 is this machine."""
    _prepare()
    while line := sys.stdin.readline():
        node = os.fork()
        if not node:
            if int(line):
                enter(int(line))
            serve()
            os._exit(0)
        os.waitpid(node, 0)


if __name__ == "__main__":
    main()
