# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Who sent a netlink request: the process behind a socket's port.

While the socket is open, those are asked for who hold it: systemd opens systemd-networkd's, which then has the number of
process 1. Otherwise a port is by default the number of the socket's process (net/netlink/af_netlink.c, netlink_autobind), as
the process itself sees it. In a container that is another number than here, so that all are named that it can have been.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

MOST = 3  # processes that are named
NETLINK_ROUTE = "0"
PID_MAX_LIMIT = 1 << 22  # include/linux/threads.h; the second socket of a process gets a port far above it


def of(port: int) -> str:
    """As "process 812 (ip)", read at once: it may end with its request. What can not be told is said so."""
    first = _numbered(str(port), port)  # it may be gone when all have been looked at
    inode = _inode(port)
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    holders = [pid for pid in pids if _holds(pid, inode)] if inode else []
    if holders:
        names = [
            f"process {pid} ({_status(pid).get('Name', '?')})" for pid in holders if pid != "1" or holders == ["1"]
        ]
    else:
        names = [first] if first else []
        names += [name for pid in pids if pid != str(port) and (name := _numbered(pid, port))]
    ended = f"process {port}, which has ended" if port < PID_MAX_LIMIT else "a process that has ended"
    return " or ".join(names[:MOST]) or ended


def _inode(port: int) -> str:
    """Of the socket with that port; empty where none is open any more."""
    with open("/proc/net/netlink", encoding="ascii") as file:
        for line in file:
            # sk, Eth (the protocol), Pid (the port), Groups, Rmem, Wmem, Dump, Locks, Drops, Inode
            words = line.split()
            if words[1:3] == [NETLINK_ROUTE, str(port)]:
                return words[-1]
    return ""


def _holds(pid: str, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") == wanted:
                    return True
    return False


def _numbered(pid: str, port: int) -> str:
    """The process, where it has that number for itself, our network, and a program, unlike a thread of the kernel."""
    status = _status(pid)
    numbers = status.get("NStgid", pid).split()
    if "VmSize" not in status or numbers[-1] != str(port):
        return ""
    try:
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return ""
    except OSError:
        return ""
    inside = f", {port} in its container" if len(numbers) > 1 else ""
    return f"process {pid} ({status['Name']}{inside})"


def _status(pid: str) -> t.Mapping[str, str]:
    """proc_pid_status(5); empty for a process that has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}
