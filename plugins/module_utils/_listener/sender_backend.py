# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The process that sent a netlink request, by the port of its socket.

While the socket is open, the sender is the process that has it open. That process need not have the port as its id: systemd
opens the socket of systemd-networkd, whose port is therefore 1. After that, the sender is the process whose id equals the port:
by default a port is the id of the socket's process (net/netlink/af_netlink.c, netlink_autobind), as that process sees it. In a
container that differs from the id on the node, so several processes may match, and all of them are named.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

MOST = 3  # processes that a text names
NETLINK_ROUTE = "0"
PID_MAX_LIMIT = 1 << 22  # include/linux/threads.h; a process's second socket gets a port far above this


def of(port: int) -> str:
    """Return the sender as text, such as "process 812 (ip)". Call it at once, because the process may end after its request.

    If there is no such process any more, the text says so.
    """
    first = _numbered(str(port), port)  # before all others, because it may end while they are searched
    inode = _inode(port)
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    holders = [pid for pid in pids if _holds(pid, inode)] if inode else []
    if holders:
        names = [f"process {pid} ({_status(pid).get('Name', '?')})" for pid in holders if pid != "1" or holders == ["1"]]
    else:
        names = [first] if first else []
        names += [name for pid in pids if pid != str(port) and (name := _numbered(pid, port))]
    ended = f"process {port}, which has ended" if port < PID_MAX_LIMIT else "a process that has ended"
    return " or ".join(names[:MOST]) or ended


def _inode(port: int) -> str:
    """Return the inode number of the open socket with that port; empty if there is none."""
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
    """Return the process as text, if it sees ``port`` as its own id and is in our network namespace; else empty.

    Threads of the kernel have no memory (VmSize), and are left out.
    """
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
    """Return the fields of proc_pid_status(5); empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}
