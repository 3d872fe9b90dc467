# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of the lab: something with a name, a process that holds its namespaces, and a network stack."""

from __future__ import annotations

import ctypes
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from lab import entering
from lab.entering import LabError

_T = TypeVar("_T")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000  # linux/sched.h; os.setns() exists from Python 3.12 only


class Machine:
    """Anything in the lab that commands run on: a node, a pod, the load balancer, a client.

    Kinds of machines differ in the process that holds their namespaces and in which of them a command enters.
    """

    def __init__(self, name: str, pid: int, namespaces: Sequence[str] = entering.NETWORK_ONLY) -> None:
        self.name = name
        self.namespaces = tuple(namespaces)
        self._pid = pid

    @property
    def pid(self) -> int:
        """The process that holds the machine's namespaces."""
        return self._pid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, process {self.pid}>"

    # Commands

    def run(
        self,
        argv: Sequence[str],
        input: str | None = None,
        check: bool = True,
        timeout: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine. Raises LabError with its output if it fails and ``check`` is true.

        ``timeout`` is in seconds (subprocess.TimeoutExpired). ``environment`` is added to entering.ENVIRONMENT.
        """
        return self._run_in(self.namespaces, argv, input, check, timeout, environment)

    def run_from_host(self, argv: Sequence[str], input: str | None = None) -> str:
        """Run the host's own program in the machine's network; returns its stdout.

        The lab itself reads and configures a machine with the host's programs, so that it never runs a program that a test has
        replaced, counts or breaks on the machine.
        """
        return self._run_in(entering.NETWORK_ONLY, argv, input).stdout

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """The command line of the host, to be started with entering.ENVIRONMENT and ``environment``, that runs ``argv``.

        ``namespaces``: the machine's namespaces to enter; usually all.
        """
        return entering.command(self.pid, namespaces or self.namespaces, argv)

    def _run_in(
        self,
        namespaces: Sequence[str],
        argv: Sequence[str],
        input: str | None = None,
        check: bool = True,
        timeout: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            self.command(argv, namespaces, environment),
            input=input or "",
            text=True,
            errors="surrogateescape",
            capture_output=True,
            timeout=timeout,
            check=False,
            cwd="/",
            env={**entering.ENVIRONMENT, **(environment or {})},
        )
        if check and result.returncode != 0:
            raise LabError(f"{self.name}: {shlex.join(argv)} answered {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def last_lines(self) -> str:
        """What happened last on the machine, for the message of a wait that failed (lab.waiting.Witness)."""
        return f"{self.name} keeps no journal"

    # Files

    def read(self, path: str) -> str:
        """The text of a file on the machine."""
        return self.run(["cat", "--", path]).stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file on the machine; missing folders are made."""
        self.run(["sh", "-c", 'mkdir -p -- "${1%/*}/" && cat > "$1" && chmod "$2" -- "$1"', "sh", path, f"{mode:o}"], text)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its contents; a missing one is fine."""
        self.run(["rm", "-rf", "--", path])

    def exists(self, path: str) -> bool:
        """Whether the machine has something at this path, a dangling symlink included."""
        return self.run(["sh", "-c", 'test -e "$1" || test -L "$1"', "sh", path], check=False).returncode == 0

    # Network

    def ip(self, lines: Iterable[str]) -> None:
        """Run ``ip`` commands (without the leading ``ip``) in one process."""
        self.run_from_host(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def set_sysctls(self, values: Mapping[str, int]) -> None:
        """Set keys such as ``net.ipv6.conf.all.forwarding`` in the machine's network."""
        self.run_from_host(["sysctl", "-q", "-w", *(f"{key}={value}" for key, value in values.items())])

    def socket(self, family: socket.AddressFamily, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
        """Open a socket in the machine's network, for use from the lab's own process."""
        return self.in_network(lambda: socket.socket(family, kind, protocol))

    def in_network(self, make: Callable[[], _T]) -> _T:
        """The result of ``make`` in the machine's network.

        A socket stays in the network namespace of the thread that opened it, so a thread enters, opens and ends, and no thread
        has to return.
        """
        made: list[_T] = []
        errors: list[BaseException] = []

        def make_inside() -> None:
            try:
                self._enter_network()
                made.append(make())
            except BaseException as error:  # carried over to the caller's thread
                errors.append(error)

        thread = threading.Thread(target=make_inside, name=f"in the network of {self.name}")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return made[0]

    def _enter_network(self) -> None:
        entering.refuse_host(self.pid)
        namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
                code = ctypes.get_errno()
                raise LabError(f"{self.name}: setns to process {self.pid}: {os.strerror(code)}")
        finally:
            os.close(namespace)


class ThisMachine(Machine):
    """The machine that the lab runs on, as the builder of an image. It is only read."""

    def __init__(self) -> None:
        super().__init__("this machine", os.getpid())

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        return list(argv)

    def in_network(self, make: Callable[[], _T]) -> _T:
        return make()


NETSTAT = "/proc/net/netstat"


def tcp_ext(text: str, name: str) -> int:
    """A counter of TcpExt from the text of NETSTAT."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("TcpExt:"))
    return int(values[names.index(name)])
