# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The points at which a process changes the node, each seen by another process before it happens.

A point is a system call that creates, writes, renames or removes something, starts a program, or sends a netlink request
that is not a query. The kernel itself stops the caller at each: a seccomp filter (seccomp_unotify(2)) hands the call to a
supervisor, which lets the call go on or fail, or kills the caller first. The filter is inherited, so that the points
of child processes are seen too. It costs microseconds for each point, and nothing for all other calls.

Stands alone (standard library only, Python 3.9), as it also runs on nodes that are containers. x86_64 only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import typing as t

# asm/unistd_64.h: the number, and the condition under which a call changes something: an argument, and either the bits that
# the argument must have, or ("above") the number that it must exceed, or ("one of") the numbers that it may be. Standard streams
# are 0 to 2.
BPF_PROG_ATTACH, BPF_PROG_DETACH = 8, 9  # linux/bpf.h
_CREATES = os.O_CREAT | os.O_TRUNC
_CALLS: dict[int, tuple[str, tuple[int, str, t.Any] | None]] = {
    2: ("open", (1, "bits", _CREATES)),
    257: ("openat", (2, "bits", _CREATES)),
    1: ("write", (0, "above", 2)),
    18: ("pwrite64", (0, "above", 2)),
    20: ("writev", (0, "above", 2)),
    40: ("sendfile", (0, "above", 2)),
    326: ("copy_file_range", (2, "above", 2)),
    76: ("truncate", None),
    77: ("ftruncate", None),
    82: ("rename", None),
    264: ("renameat", None),
    316: ("renameat2", None),
    83: ("mkdir", None),
    258: ("mkdirat", None),
    84: ("rmdir", None),
    86: ("link", None),
    265: ("linkat", None),
    87: ("unlink", None),
    263: ("unlinkat", None),
    88: ("symlink", None),
    266: ("symlinkat", None),
    59: ("execve", None),
    44: ("sendto", None),
    46: ("sendmsg", None),
    321: ("bpf", (0, "one of", (BPF_PROG_ATTACH, BPF_PROG_DETACH))),
}
# The positions of the path, and of the folder to which it is relative, in the arguments; the path that is created is last.
_PATHS = {
    "open": (None, 0), "openat": (0, 1), "truncate": (None, 0), "mkdir": (None, 0), "mkdirat": (0, 1), "rmdir": (None, 0),
    "unlink": (None, 0), "unlinkat": (0, 1), "rename": (None, 1), "renameat": (2, 3), "renameat2": (2, 3),
    "link": (None, 1), "linkat": (2, 3), "symlink": (None, 1), "symlinkat": (1, 2),
}  # fmt: skip
# A rename within a folder needs no space.
_NEEDS_SPACE = frozenset({
    "open", "openat", "write", "pwrite64", "writev", "sendfile", "copy_file_range", "mkdir", "mkdirat", "symlink", "symlinkat",
    "link", "linkat",
})  # fmt: skip

# linux/bpf_common.h, linux/filter.h, linux/seccomp.h
_LOAD, _EQUAL, _ABOVE, _BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_ARGUMENT = 16  # offset in seccomp_data
_SECCOMP, _PIDFD_GETFD = 317, 438
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, number, architecture, instruction, arguments
_REPLY = struct.Struct("=QqiI")  # id, value, error, flags
_CONTINUE = 1
_LISTENER = "anon_inode:seccomp notify"

_NETLINK_HEADER = struct.Struct("=IHH")  # length, type, flags
_NETLINK_NETFILTER = 12
# By protocol and type: SOCK_DIAG_BY_FAMILY of linux/sock_diag.h (SOCK_DESTROY is another), XFRM_MSG_GETPOLICY of linux/xfrm.h.
_QUERIES = frozenset({(4, 20), (6, 0x15)})
# Messages that only ask, by subsystem: NFT_MSG_GET* of linux/netfilter/nf_tables.h; IPSET_CMD_PROTOCOL, LIST, SAVE, HEADER and
# TYPE of linux/netfilter/ipset/ip_set.h.
_NETFILTER_QUERIES = {10: frozenset({1, 4, 7, 10, 13, 16, 19, 23}), 6: frozenset({1, 7, 8, 12, 13})}

_libc = ctypes.CDLL(None, use_errno=True)


class Point(t.NamedTuple):
    """call: the system call. what: its object. by: the program. needs_space: whether it fails if the disk is full.

    is_file: whether it changes a file system, and so fails if that is read-only.
    """

    call: str
    what: str
    by: str
    needs_space: bool = False
    is_file: bool = False

    @property
    def is_change(self) -> bool:
        """False for the start of a program, which may only read."""
        return self.call != "execve"

    def __str__(self) -> str:
        return f"{self.by}: {self.call} {self.what}"


class Stopped(t.NamedTuple):
    """A process at a point."""

    number: int
    pid: int
    point: Point


def _program() -> bytes:
    """The filter: asks the supervisor about each call in _CALLS whose condition holds; allows all other calls."""
    code = [(_LOAD, 0, 0, 0)]
    for number, (_name, condition) in _CALLS.items():
        if condition is None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
            continue
        argument, kind, value = condition
        if kind == "one of":
            tests = [line for each in value for line in ((_EQUAL, 0, 1, each), (_RETURN, 0, 0, _NOTIFY))]
            code += [
                (_EQUAL, 0, len(tests) + 2, number),
                (_LOAD, 0, 0, _ARGUMENT + 8 * argument),
                *tests,
                (_RETURN, 0, 0, _ALLOW),
            ]
            continue
        test = _BITS if kind == "bits" else _ABOVE
        code += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENT + 8 * argument), (test, 0, 1, value)]
        code += [(_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


def submit() -> None:
    """Put this process, and all that it starts, under a supervisor; returns when ``Supervisor`` has taken over."""
    code = _program()
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    flags = ctypes.c_ulong(_NEW_LISTENER | _WAIT_KILLABLE)
    if _libc.syscall(_SECCOMP, _SET_MODE_FILTER, flags, program) < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.kill(os.getpid(), signal.SIGSTOP)


class Supervisor:
    """Supervises a process that has called submit(). ``fileno`` is for poll(2): readable, or hung up at the end."""

    def __init__(self, pid: int) -> None:
        _pid, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"the process ended with {status} before it could be supervised")
        links = f"/proc/{pid}/fd"
        number = next(int(name) for name in os.listdir(links) if os.readlink(f"{links}/{name}") == _LISTENER)
        self.pid = pid
        self._listener = _fetched(pid, number)
        os.kill(pid, signal.SIGCONT)

    def fileno(self) -> int:
        return self._listener

    def close(self) -> None:
        """A process that waits at a point gets ENOSYS."""
        os.close(self._listener)

    def receive(self) -> Stopped | None:
        """The next process that waits at a point; None if the call was no point, and has continued."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the process was killed meanwhile
                return None
            raise
        number, pid, _flags, call, _architecture, _instruction, *arguments = _NOTIFICATION.unpack(buffer)
        try:
            point = _point(pid, self.pid, _CALLS[call][0], arguments)
        except OSError:  # it has died
            return None
        if point is None:
            self.answer(number)
            return None
        return Stopped(number, pid, point)

    def answer(self, number: int, error: int = 0) -> None:
        """Let the call go on, or fail."""
        reply = bytearray(_REPLY.pack(number, 0, -error, 0 if error else _CONTINUE))
        try:
            fcntl.ioctl(self._listener, _ANSWER, reply)
        except OSError as refused:
            if refused.errno != errno.ENOENT:  # it has died
                raise


def _fetched(pid: int, number: int) -> int:
    """A copy of another process's descriptor."""
    process = os.pidfd_open(pid)
    try:
        copy = _libc.syscall(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return int(copy)


def _point(pid: int, main: int, call: str, arguments: t.Sequence[int]) -> Point | None:
    """The point of the call; None if the call changes nothing."""
    by = "module" if pid == main else _comm(pid)
    if call == "execve":
        if by != "module" and _has_own_mounts(pid, main):  # it only asks: what it changes outside is a point
            return None
        return Point(call, " ".join(_strings(pid, arguments[1])), by)
    if call == "bpf":
        return Point(call, "attach" if arguments[0] == BPF_PROG_ATTACH else "detach", by)
    if call in ("sendto", "sendmsg"):
        request = _request(pid, call, arguments)
        return Point(call, request, by) if request else None
    if call in _PATHS:
        folder, place = _PATHS[call]
        path = _text(pid, arguments[place])
        if folder is not None and not path.startswith("/") and arguments[folder] < 1 << 31:
            path = os.path.join(os.readlink(f"/proc/{pid}/fd/{arguments[folder]}"), path)
    else:
        path = os.readlink(f"/proc/{pid}/fd/{arguments[2 if call == 'copy_file_range' else 0]}")
    if not path.startswith("/") or path.startswith(("/dev/", "/memfd:")) or _is_hidden(path, pid, main):
        return None
    is_file = not path.startswith("/proc/")
    return Point(call, path, by, is_file and call in _NEEDS_SPACE, is_file)


def _is_hidden(path: str, pid: int, main: int) -> bool:
    """Whether the path is on a file system that the process has mounted for itself: it ends with the process."""
    if not _has_own_mounts(pid, main):
        return False
    try:
        one, other = (os.stat(f"/proc/{process}/root{os.path.dirname(path)}").st_dev for process in (pid, main))
    except FileNotFoundError:  # one of them has no such folder
        return True
    return one != other


def _has_own_mounts(pid: int, main: int) -> bool:
    return os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink(f"/proc/{main}/ns/mnt")


def _comm(pid: int) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def _request(pid: int, call: str, arguments: t.Sequence[int]) -> str:
    """The netlink messages sent, with their types as numbers; empty for queries and for other sockets."""
    copy = _fetched(pid, arguments[0])
    with socket.socket(fileno=copy) as sender:
        if sender.family != socket.AF_NETLINK:
            return ""
        protocol = sender.proto
    place = arguments[1]
    if call == "sendmsg":  # struct msghdr: name, its length, vectors, how many
        (vectors,) = struct.unpack("@P", _memory(pid, place + 16, 8))
        (place,) = struct.unpack("@P", _memory(pid, vectors, 8))
    _length, kind, _flags = _NETLINK_HEADER.unpack(_memory(pid, place, _NETLINK_HEADER.size))
    if (protocol == socket.NETLINK_ROUTE and kind & 3 == 2) or (protocol, kind) in _QUERIES:
        return ""
    if protocol == _NETLINK_NETFILTER and kind & 0xFF in _NETFILTER_QUERIES.get(kind >> 8, ()):
        return ""
    if protocol == _NETLINK_NETFILTER and kind >> 8 > max(_NETFILTER_QUERIES):  # nft_compat, which is only queried
        return ""
    return f"netlink {protocol} type {kind}"


def _memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)


def _text(pid: int, address: int) -> str:
    """A string that ends with NUL, a page at a time: the next page may not be mapped."""
    found = b""
    while b"\0" not in found:
        start = address + len(found)
        found += _memory(pid, start, 4096 - start % 4096)
    return found.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _strings(pid: int, address: int, most: int = 6) -> list[str]:
    """The first of a list of strings that ends with a null pointer."""
    found: list[str] = []
    while len(found) < most:
        (pointer,) = struct.unpack("@P", _memory(pid, address + 8 * len(found), 8))
        if not pointer:
            break
        found.append(_text(pid, pointer))
    return found
