# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watches over a module under a checkpoint, whose ssh connection may die without an error.

If the node was restarted, or took over the controller's address, the connection is not closed: ssh(1) waits for hours. So a
thread asks the node over separate connections. If the node's answer means that the module cannot answer any more, the module's
connection is closed, and the run ends as after any broken connection: with AnsibleConnectionFailure.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import json
import math
import subprocess
import threading
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_backend import COMMAND
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable

CHECK = 1.0  # seconds; most runs have ended by then
FIRST_LOOK = 5.0  # seconds from the start of the module
PAUSE = 2.0  # seconds between two looks
SETTLING = 2.0  # seconds in which a run that the node has ended can still report that over its connection
OVERDUE = 10.0  # seconds after the deadline, in which the node may still be ending a run that hangs
TIMEOUT = 5  # seconds to connect
LOCAL = 5.0  # seconds for ssh to talk to its own master process

# Prints the answer of the node's program. If there is no program, prints the boot identity (kernel.boot_identity()), and the
# seconds since the boot.
BOOT_IDENTITY = ("cat /proc/sys/kernel/random/boot_id", "readlink /proc/self/ns/net", "cut -d ' ' -f 22 /proc/1/stat")
ASK = f"test -e {{command}} && exec sh {{command}} {{words}}; {'; '.join(BOOT_IDENTITY)}; cut -d ' ' -f 1 /proc/uptime"
TICKS = 100  # in a second: USER_HZ, on all processors that clusters have

SILENT = "silent"
STATES = ("armed", "confirmed", "rolled back", "none")  # of the node's program
LONGEST = 2000  # characters of its sentence


class Answer(t.NamedTuple):
    """state: one of the program's states, "gone" if there is no program, SILENT if the node could not be asked.

    told: a sentence, or with "gone" the boot identity. age: seconds since the event that is told, or since the boot.
    """

    state: str
    told: str
    age: float = 0.0


def question(*words: str) -> str:
    """Return a shell command whose output ``parse`` reads. words: quoted, for the node's program."""
    return ASK.format(command=COMMAND, words=" ".join(words))


def parse(stdout: str) -> Answer:
    """Read the output of question(). Raises AnsibleConnectionFailure for other text, so that the node is asked again."""
    lines = stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        try:
            return _checked(Answer(**json.loads(lines[-1])))
        except (OverflowError, RecursionError, TypeError, ValueError):
            raise AnsibleConnectionFailure(f"the node answered {lines[-1][:80]!r}") from None
    *boot_identity, uptime = lines[-len(BOOT_IDENTITY) - 1 :] or [""]
    try:
        age = float(uptime) - int(boot_identity[-1]) / TICKS
    except (IndexError, ValueError):
        age = math.inf  # not readable
    # Where lxcfs counts /proc/uptime from the container's start, a process's start is still counted from the host's.
    return Answer("gone", "\n".join(boot_identity)[:LONGEST], age if age >= 0 else math.inf)


def _checked(answer: Answer) -> Answer:
    """Return the answer of the node's program with its types. Raises ValueError for one that the program does not make."""
    age = float(answer.age)
    if answer.state not in STATES or not isinstance(answer.told, str) or not -2 < age < math.inf:
        raise ValueError(answer)
    return answer._replace(told=printable(answer.told[:LONGEST]), age=max(age, 0.0))


@contextlib.contextmanager
def options(connection: t.Any, **values: t.Any) -> t.Iterator[None]:
    """Set those of the options that the connection has, for the block."""
    values = {name: value for name, value in values.items() if connection.has_option(name)}
    former = {name: connection.get_option(name) for name in values}
    try:
        for name, value in values.items():
            connection.set_option(name, value)
        yield
    finally:
        for name, value in former.items():
            connection.set_option(name, value)


def keep_alive(pause: int) -> str:
    """Return arguments that end an ssh connection after three such pauses without an answer of the node."""
    return f"-o ServerAliveInterval={pause} -o ServerAliveCountMax=2"


class ConnectionWatch:
    """Entered while the module runs. seconds: of its checkpoint."""

    def __init__(self, action: ActionBase, seconds: int) -> None:
        self._action = action
        self._connection = action._connection
        self._seconds = seconds
        self._began = time.monotonic()
        self._connected: float | None = None  # when the connection was seen to stand
        self._silent: float | None = None  # when it was first known that the node does not answer
        self._deadline: float | None = None  # as the node reported it
        self._ended = threading.Event()

    def __enter__(self) -> ConnectionWatch:
        # The task's context, which ansible-core reads from context variables.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._watch,), name="watch", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()

    @property
    def latest(self) -> float:
        """Return the latest time at which an armed node rolls back, by the controller's monotonic clock."""
        if self._deadline is not None:
            return self._deadline
        return (time.monotonic() if self._silent is None else self._silent) + self._seconds

    def is_rolled_back(self, answer: Answer) -> bool:
        """Return whether this run's change was rolled back."""
        return answer.state == "rolled back" and answer.age < time.monotonic() - self._began

    def is_restarted(self, answer: Answer) -> bool:
        """Return whether the node was restarted after the module's connection was established."""
        if answer.state != "gone":
            return False
        patience = int(self._connection.get_option("timeout") or 0) if self._connection.has_option("timeout") else 0
        stood = self._began + patience if self._connected is None else self._connected
        return answer.age < time.monotonic() - stood

    def _watch(self) -> None:
        while not self._ended.wait(CHECK) and time.monotonic() < self._began + FIRST_LOOK:
            if self._connected is None and self._tell_master("check"):
                self._connected = time.monotonic()
        separate = None if self._ended.is_set() else beside(self._action)
        while not self._ended.is_set():
            if self._is_lost(self._look(separate)):
                if not self._ended.wait(SETTLING):
                    self._tell_master("exit")
                return
            self._ended.wait(PAUSE)

    def _look(self, separate: t.Any) -> Answer:
        try:
            completed = separate._low_level_execute_command(question("status"))
            answer = parse(completed["stdout"]) if completed["rc"] == 0 else Answer(SILENT, completed["stderr"])
        except Exception as error:  # also an unforeseen one: the thread must go on
            answer = Answer(SILENT, str(error))
        if answer.state != SILENT:
            self._silent = self._deadline = None
            armed = time.monotonic() - answer.age
            if answer.state == "armed" and armed > self._began:  # or it is the checkpoint of another task
                self._deadline = armed + self._seconds
        elif self._silent is None:
            self._silent = time.monotonic()  # the node may have been armed while it was asked
        return answer

    def _is_lost(self, answer: Answer) -> bool:
        """Return whether the module cannot answer any more."""
        if answer.state == SILENT:
            return time.monotonic() > self.latest
        if answer.state == "armed":
            return self._deadline is not None and time.monotonic() > self._deadline + OVERDUE
        return self.is_rolled_back(answer) or self.is_restarted(answer)

    def _tell_master(self, command: str) -> bool:
        """Return whether the ssh master process obeyed.

        It holds the module's connection; there is none without ControlPersist.
        """
        connection = self._connection
        try:
            argv = connection._build_command(
                connection.get_option("ssh_executable"), "ssh", "-O", command, connection.get_option("host")
            )
            completed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOCAL, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return completed.returncode == 0


def beside(action: ActionBase) -> t.Any:
    """Return a copy of the action with its own connection. Nothing is opened yet: each command starts a program of its own.

    Of ssh, no connection is shared. If an option of ssh is given several times, the first value counts.
    """
    separate = copy.copy(action)
    separate._connection = connection = copy.copy(action._connection)
    connection.become = copy.copy(getattr(connection, "become", None))
    if connection.has_option("ssh_args"):
        connection._options, connection._origins = dict(connection._options), dict(connection._origins)
        alone = f"-o ControlMaster=no -o ControlPath=none {keep_alive(2)}"
        connection.set_option("ssh_args", f"{alone} {connection.get_option('ssh_args') or ''}".strip())
        connection.set_option("timeout", TIMEOUT)
        connection.set_option("reconnection_retries", 0)
    return separate
