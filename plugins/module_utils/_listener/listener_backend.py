# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The listener's sources and its voice: netlink notifications and their senders, changes of files, its state for systemd.

It does without pyroute2, to keep the listener small.

While its socket is open, the sender of a request is the process that has the socket open. That process need not have the port as
its id: systemd opens the socket of systemd-networkd, whose port is therefore 1. After that, the sender is the process whose id
equals the port: by default a port is the id of the socket's process (net/netlink/af_netlink.c, netlink_autobind), as that process
sees it. In a container that differs from the id on the node, so several processes may match, and all of them are named.

The kernel reports changes in folders by dnotify (fcntl(2), F_NOTIFY): Python has it without ctypes.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import signal
import socket
import struct
import typing as t

# include/uapi/linux/rtnetlink.h, RTNLGRP_*. The address of a netlink socket is a bit mask of groups; group 1 is bit 0.
LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE = 1, 5, 7, 8, 9, 11, 19
GROUPS = sum(1 << group - 1 for group in (LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE))
KERNEL = 0  # netlink(7): the address of the kernel. With CAP_NET_ADMIN another process can send to the groups, too
SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h; lets root exceed net.core.rmem_max
BUFFER = 4 << 20  # bytes that the kernel buffers for the socket: some 4,000 messages, a burst of a CNI
SPACE = 1 << 16  # bytes; the longest message is that about a link with many virtual functions
LENGTH = struct.Struct("=I")  # of a message, header included
SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h


class Notifications:
    """The backend: a socket that has joined groups of a protocol. only: the type of the messages that it gets; 0 for all.

    Raises OSError.
    """

    def __init__(self, groups: int = GROUPS, protocol: int = socket.NETLINK_ROUTE, only: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._socket.setblocking(False)
        if only:
            self._permit(only)
        self._socket.bind((0, groups))
        self._buffer = bytearray(SPACE)

    def _permit(self, kind: int) -> None:
        """Let the kernel drop messages of other types before they take space in the buffer (networking/filter.rst)."""
        (as_loaded,) = struct.unpack(">H", struct.pack("=H", kind))  # a program loads in the order of networks
        # ldh [4], the type in nlmsghdr; jeq; ret all; ret nothing
        steps = ((0x28, 0, 0, 4), (0x15, 0, 1, as_loaded), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))
        # An array tells its address; Python may lack ctypes.
        program = array.array("B", b"".join(struct.pack("=HBBI", *step) for step in steps))
        address, _size = program.buffer_info()
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(steps), address))

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self, most: int) -> t.Iterator[bytes | None]:
        """Yield messages that have arrived, from at most ``most`` reads of the socket.

        None stands for messages that the kernel dropped because its buffer was full.
        """
        for _number in range(most):
            try:
                size, (sender, _groups) = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
                continue
            if sender == KERNEL:
                yield from _messages(bytes(self._buffer[:size]))


def _messages(data: bytes) -> t.Iterator[bytes]:
    (length,) = LENGTH.unpack_from(data)
    while len(data) > length >= 16:  # rare: the kernel sends one message at a time
        yield data[:length]
        data = data[(length + 3) & ~3 :]
        if len(data) < 16:
            return
        (length,) = LENGTH.unpack_from(data)
    yield data


MOST_SENDERS = 3  # processes that a text names
NETLINK_ROUTE = "0"
PID_MAX_LIMIT = 1 << 22  # include/linux/threads.h; a process's second socket gets a port far above this


def sender(port: int) -> str:
    """Return the sender as text, such as "process 812 (ip)". Call it at once, because the process may end after its request.

    If there is no such process any more, the text says so.
    """
    first = _process_numbered(str(port), port)  # before all others, because it may end while they are searched
    inode = _inode(port)
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    holders = [pid for pid in pids if _holds(pid, inode)] if inode else []
    if holders:
        names = [f"process {pid} ({_status(pid).get('Name', '?')})" for pid in holders if pid != "1" or holders == ["1"]]
    else:
        names = [first] if first else []
        names += [name for pid in pids if pid != str(port) and (name := _process_numbered(pid, port))]
    ended = f"process {port}, which has ended" if port < PID_MAX_LIMIT else "a process that has ended"
    return " or ".join(names[:MOST_SENDERS]) or ended


def sender_at_once(port: int) -> str:
    """Return the sender as text without a search of all processes; empty if that does not tell.

    A program such as ip ends a millisecond after its request.
    """
    name = _process_numbered(str(port), port)
    inode = _inode(port) if name else ""
    return name if not inode or _holds(str(port), inode) else ""


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


def _process_numbered(pid: str, port: int) -> str:
    """Return the process as text, if it sees ``port`` as its own id and is in our network namespace; else empty.

    Threads of the kernel have no memory (VmSize), and are left out.
    """
    status = _status(pid)
    numbers = status.get("NStgid", pid).split()
    is_zombie = status.get("State", "").startswith("Z")  # it has just ended, and has neither memory nor namespaces any more
    if not (is_zombie or "VmSize" in status) or numbers[-1] != str(port):
        return ""
    try:
        if not is_zombie and os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
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


FILE_EVENTS = fcntl.DN_RENAME | fcntl.DN_DELETE | fcntl.DN_MULTISHOT  # the collection replaces a file by a rename
ANY_FILE_EVENT = FILE_EVENTS | fcntl.DN_CREATE | fcntl.DN_MODIFY


def version(path: str) -> list[int]:
    """Return the inode number and mtime in ns, which tell one file at the path from the next; empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_mtime_ns]


def versions(folders: t.Iterable[str]) -> dict[str, list[int]]:
    """Return the versions of all files in some folders, by path."""
    paths = [os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    return {path: version(path) for path in sorted(paths)}


class WatchedFile:
    """The backend. A process may have only one, because it handles SIGIO.

    ``fileno`` becomes readable when a file in the folder of the watched file is renamed or removed, or when any file in one of
    the further folders changes. path: of the watched file.
    """

    def __init__(self) -> None:
        self.path = ""
        self._news, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGIO, lambda _number, _frame: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        return self._news

    def watch(self, path: str, folders: t.Iterable[str]) -> None:
        """Watch ``path`` from now on, in its current folder, and all files in ``folders``. A kernel without dnotify reports no
        change."""
        self.path = path
        while self._descriptors:
            os.close(self._descriptors.pop())
        for folder, events in ((os.path.dirname(path), FILE_EVENTS), *((folder, ANY_FILE_EVENT) for folder in folders)):
            with contextlib.suppress(OSError):
                self._descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                fcntl.fcntl(self._descriptors[-1], fcntl.F_NOTIFY, events)

    def version(self) -> list[int]:
        """Return the current version of the file. Discards the notifications that have arrived so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._news, 4096)
        return version(self.path)


def notify(*assignments: str) -> None:
    """Send a notification to systemd, such as ``notify("READY=1", "STATUS=...")``.

    Does nothing if systemd did not start this program or does not listen.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        if address.startswith("@"):  # the abstract namespace, unix(7)
            address = f"\0{address[1:]}"
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with socket.socket(socket.AF_UNIX, kind) as service_manager, contextlib.suppress(OSError):
            service_manager.sendto("\n".join(assignments).encode(), address)
