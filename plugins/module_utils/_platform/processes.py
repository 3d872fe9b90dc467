# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes of this node, identified although the kernel reuses pids."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

Process = tuple[int, int]  # its pid, and its start in clock ticks since the boot


def myself() -> Process:
    return find(os.getpid())


def find(pid: int) -> Process:
    """Return the process that has the pid now; (pid, 0) for none."""
    return pid, int(_fields(pid)[19] or 0)


def named(names: t.Collection[str], proc: str = "/proc") -> dict[str, str]:
    """Return the processes with these names, of which the kernel keeps 15 bytes (TASK_COMM_LEN), by pid.

    A node runs hundreds of processes. Buffered text files would take nearly twice the time, and pathlib still more.
    """
    processes = {}
    with contextlib.suppress(OSError):
        for pid in filter(str.isdigit, os.listdir(proc)):
            with contextlib.suppress(OSError), open(f"{proc}/{pid}/comm", "rb", buffering=0) as file:
                name = file.read().decode(errors="replace").rstrip("\n")
                if name in names:
                    processes[pid] = name
    return processes


def tell(process: Process, number: int) -> bool:
    """Send a signal; False if the process has ended."""
    if find(process[0]) != process:
        return False
    try:
        os.kill(process[0], number)
    except ProcessLookupError:
        return False
    return True


def network_namespace(pid: str = "self") -> tuple[int, int]:
    """Return the device and inode of a process's network namespace; (0, 0) if it may not be read."""
    try:
        return _network_namespace(pid)
    except OSError:
        return (0, 0)


def in_this_network(names: t.Collection[str]) -> dict[str, str]:
    """Return processes as named() does, but only those that may be in this process's network namespace."""
    return {pid: name for pid, name in named(names).items() if _may_share_network(pid)}


def _may_share_network(pid: str) -> bool:
    """Return whether a process may be in this process's network namespace.

    False if it has ended; True if its namespace cannot be read.
    """
    try:
        return _network_namespace(pid) == network_namespace()
    except PermissionError:
        return True
    except OSError:
        return False


def _network_namespace(pid: str) -> tuple[int, int]:
    status = os.stat(f"/proc/{pid}/ns/net")
    return status.st_dev, status.st_ino


class SshConnection(t.NamedTuple):
    """The two ends of a connection, as the variable SSH_CONNECTION tells them (ssh(1))."""

    client: str
    client_port: int
    server: str
    server_port: int


def ssh_connection() -> SshConnection | None:
    """Return the ssh connection in which this process runs; None if it runs in none.

    sudo removes SSH_CONNECTION from the environment, so the environments of the parent processes are read.
    """
    pid = os.getpid()
    while pid > 1:
        for variable in _read(pid, "environ").split(b"\0"):
            name, _equals, value = variable.decode(errors="replace").partition("=")
            words = value.split()
            if name == "SSH_CONNECTION" and len(words) == 4 and words[1].isdecimal() and words[3].isdecimal():
                return SshConnection(words[0], int(words[1]), words[2], int(words[3]))
        pid = int(_fields(pid)[1] or 0)
    return None


def ssh_peer() -> str:
    """Return the client's address of the ssh connection in which this process runs, or "the node itself"."""
    connection = ssh_connection()
    return connection.client if connection else "the node itself"


def _fields(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third on; empty strings if there is no process.

    A name may contain ``) ``.
    """
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split() or [""] * 50


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
