# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wall of privilege around a process: new namespaces of every kind, an empty root, and three capabilities inside.

This file imports nothing of the collection, so that it can be read and judged alone. The process inside calls, in this order:

1. enter(): new user, mount, network, PID, IPC and UTS namespaces. Root inside is a user of its own outside, who owns no file.
2. another_network(): the second network namespace, for a function that needs two.
3. close(): the root, in which nothing exists except what a Root names; then no capability except KEPT, no new privileges, limits.

Outside, a Gate serves the process until it ends. It gives nothing but the user, and large buffers of sockets.

The wall does not keep the kernel from loading modules: the kernel itself loads the module of a match or a set, for any user.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import stat
import struct
import typing as t

# include/uapi/linux/sched.h, mount.h, prctl.h, capability.h, seccomp.h, asm-generic/socket.h
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 0x1, 0x2, 0x4, 0x8, 0x20, 0x1000, 0x4000
MS_PRIVATE, MNT_DETACH = 0x40000, 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITY_VERSION = 0x20080522
KEPT = (10, 12, 13)  # CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, which hold in the namespaces alone
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
# By machine: pivot_root, seccomp, setsockopt, pidfd_getfd, and AUDIT_ARCH of audit.h.
CALLS = {"x86_64": (155, 317, 54, 438, 0xC000003E), "aarch64": (41, 277, 208, 438, 0xC00000B7)}
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND = 0xC0502100, 0xC0182101
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
NOTIFICATION, RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
CREDENTIALS, DESCRIPTOR = struct.Struct("=3i"), struct.Struct("=i")  # unix(7): SCM_CREDENTIALS, SCM_RIGHTS

FIRST_USER = 0x70000000  # user ids from here on have no owner (systemd.io/UIDS-GIDS: unused up to 0x7fffffff)
NULL, SELECTED = "/dev/null", "/.selected"
ROOT = ("/mnt", "/media", "/srv", "/tmp")  # the first that exists becomes the mount point of the new root
TEMPORARY = "size=64m,nr_inodes=16k,mode=755"
LARGEST_BUFFER = 128 << 20  # bytes of a socket's buffer; nf_tables takes all rules of a transaction in one message
LIMITS = {
    resource.RLIMIT_AS: 2 << 30,  # bytes of a process; a control group bounds all of them together, where one can be made
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 512 << 20,  # bytes; also of texts in memory, for programs and from them
    resource.RLIMIT_NPROC: 64,  # processes; the user has no others
}
WORD = 256  # bytes; more than any message between inside and outside


class Root(t.NamedTuple):
    """The new root.

    bound: files and folders that are visible at the same path, read-only. programs: by the path at which they are found inside,
    the file outside. settings: files and folders below /proc/sys that can be written. selected: by a folder in ``bound``, the
    names that are visible there. writable: folders that are empty and writable. files: contents by path.
    """

    bound: tuple[str, ...]
    programs: t.Mapping[str, str]
    settings: tuple[str, ...] = ()
    selected: t.Mapping[str, t.Sequence[str]] = {}
    writable: tuple[str, ...] = ()
    files: t.Mapping[str, bytes] = {}


class Unavailable(OSError):
    """The kernel or a container refuses a part of the wall. ``filename`` is the part, in the words of the messages."""


_libc = ctypes.CDLL(None, use_errno=True)


def enter(root: Root, outside: socket.socket) -> dict[str, int]:
    """Enter the namespaces, and return in process 1 of the new PID namespace. outside: the socket to the Gate.

    Returns descriptors of the files and folders of the root by their paths outside. They are opened while the process still has
    its former user, who may read the folders above them.
    """
    _call(_libc.unshare, CLONE_NEWUSER, purpose="a user namespace")
    spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
    _call(_libc.unshare, spaces, purpose="mount, network and PID namespaces")
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    sources = {}
    for path in (*root.bound, *root.programs.values(), NULL):
        with contextlib.suppress(OSError):  # the system lacks it
            sources[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    outside.send(b"entered")
    if not outside.recv(WORD):
        os._exit(1)  # the run has ended
    with contextlib.suppress(OSError):  # without root the groups stay, and are those that the run has anyway
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    _end_with_parent()
    descriptors = os.listdir("/proc/self/fd")  # before the child changes the root of both
    child = os.fork()
    if child:
        _close(descriptors)  # the run reads its pipe until every copy of the other end is closed
        os.waitpid(child, 0)
        os._exit(0)
    _end_with_parent()
    return sources


def _close(descriptors: t.Iterable[str]) -> None:
    """Close these descriptors. A range up to the limit would be a thousand million calls in some containers."""
    for name in descriptors:
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            os.close(int(name))


def _end_with_parent() -> None:
    """Make the kernel kill this process with its parent. The kernel forgets it if the process changes its user."""
    _call(_libc.prctl, PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0, purpose="an end with the run")


def another_network() -> None:
    _call(_libc.unshare, CLONE_NEWNET, purpose="a second network namespace")


def close(root: Root, sources: t.Mapping[str, int], outside: socket.socket) -> None:
    """Leave the old root, and give up all rights except KEPT. Raises OSError if the run has ended."""
    _change_root(root, sources)
    number = 0
    while number in KEPT or not _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0):
        number += 1
    capabilities = sum(1 << capability for capability in KEPT)
    header, sets = struct.pack("=Ii", CAPABILITY_VERSION, 0), struct.pack("=6I", capabilities, capabilities, 0, 0, 0, 0)
    _call(_libc.capset, header, sets, purpose="fewer capabilities")
    _call(_libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, purpose="no new privileges")
    for limit, most in LIMITS.items():
        resource.setrlimit(limit, (most, most))
    listener = _listener()
    socket.send_fds(outside, [b"closed"], [listener] if listener >= 0 else [])
    if listener >= 0:
        os.close(listener)


def _change_root(root: Root, sources: t.Mapping[str, int]) -> None:
    new = next(filter(os.path.isdir, ROOT), "/")
    _mount("tmpfs", new, "tmpfs", MS_NOSUID | MS_NODEV, TEMPORARY)
    for path in root.writable:
        os.makedirs(new + path, exist_ok=True)
        _mount("tmpfs", new + path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, TEMPORARY)
    _mount_proc(f"{new}/proc", root.settings)
    for path in (NULL, *root.bound, *dict.fromkeys(root.programs.values())):
        if os.path.islink(path):
            os.symlink(os.readlink(path), new + path)
        elif path in sources:
            _bind(sources[path], new + path, MS_NOSUID if path == NULL else MS_NOSUID | MS_NODEV | MS_RDONLY)
    for path, outside in root.programs.items():  # most are names of one file
        if path != outside:
            os.makedirs(os.path.dirname(new + path), exist_ok=True)
            os.symlink(outside, new + path)
    for number, (path, names) in enumerate(root.selected.items()):
        _select(path, new, f"{SELECTED}/{number}", names)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{new}/dev/{name}")
    for path, content in root.files.items():
        os.makedirs(os.path.dirname(new + path), exist_ok=True)
        with open(new + path, "wb") as file:
            file.write(content)
    _mount(None, new, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(new)
    _call(_libc.syscall, _calls()[0], b".", b".", purpose="a root of its own")
    _call(_libc.umount2, b".", MNT_DETACH, purpose="a root of its own")
    os.chdir("/")
    for descriptor in sources.values():
        os.close(descriptor)


def _mount_proc(path: str, settings: t.Iterable[str]) -> None:
    """Mount a /proc of the PID namespace, in which nothing but the settings can be written."""
    os.makedirs(path, exist_ok=True)
    try:
        _mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, purpose="a /proc of its own")
    except Unavailable as refusal:
        # Where a container covers a part of its /proc, the kernel gives a user namespace no other one (mount_too_revealing). Its
        # own one then serves, whose files are not this user's.
        if refusal.errno != errno.EPERM:
            raise
        _mount("/proc", path, None, MS_BIND | MS_REC)
    for setting in settings:
        if os.path.exists(f"{path}/sys/{setting}"):
            _mount(f"{path}/sys/{setting}", f"{path}/sys/{setting}", None, MS_BIND)
    _mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _select(path: str, new: str, aside: str, names: t.Iterable[str]) -> None:
    """Leave only some names visible in a folder: links to the folder itself, which is mounted aside."""
    os.makedirs(new + aside)
    _mount(new + path, new + aside, None, MS_BIND)
    _mount("tmpfs", new + path, "tmpfs", MS_NOSUID | MS_NODEV, TEMPORARY)
    for name in names:
        os.symlink(f"{aside}/{name}", f"{new}{path}/{name}")


def _bind(source: int, inside: str, flags: int) -> None:
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(inside, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        os.close(os.open(inside, os.O_CREAT | os.O_CLOEXEC, stat.S_IRUSR))
    _mount(f"/proc/self/fd/{source}", inside, None, MS_BIND | MS_REC)
    # A user namespace may not take these flags off a mount; in a container /dev is noexec. statvfs(3) counts as mount(2) does.
    locked = os.fstatvfs(source).f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount(None, inside, None, MS_REMOUNT | MS_BIND | flags | locked)


def _mount(source: str | None, path: str, kind: str | None, flags: int, options: str = "", purpose: str = "") -> None:
    words = (word.encode() if word else None for word in (source, path, kind))
    _call(_libc.mount, *words, flags, options.encode() or None, purpose=purpose or f"a mount on {path}")


def _call(function: t.Callable[..., int], *arguments: object, purpose: str) -> int:
    result = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise Unavailable(number, os.strerror(number), purpose)
    return result


def _calls() -> tuple[int, int, int, int, int]:
    try:
        return CALLS[platform.machine()]
    except KeyError:
        raise Unavailable(errno.ENOSYS, os.strerror(errno.ENOSYS), f"a root of its own on {platform.machine()}") from None


def _listener() -> int:
    """Return a descriptor at which SO_SNDBUFFORCE and SO_RCVBUFFORCE of this process and its programs arrive; -1 without such.

    These options need CAP_NET_ADMIN outside, and without them a socket takes no more than 416 KiB at once. So the process outside
    sets them, which admits nothing else. It can do so if it is root.
    """
    _pivot, seccomp, setsockopt, _getfd, machine = _calls()
    # include/uapi/linux/bpf_common.h: load a word, jump if equal, return; seccomp_data: nr, arch, ip, args[6]
    load, equal, answer = 0x20, 0x15, 0x06
    lines = (
        (load, 0, 0, 4), (equal, 0, 7, machine), (load, 0, 0, 0), (equal, 0, 5, setsockopt),
        (load, 0, 0, 24), (equal, 0, 3, socket.SOL_SOCKET), (load, 0, 0, 32), (equal, 2, 0, SO_SNDBUFFORCE),
        (equal, 1, 0, SO_RCVBUFFORCE), (answer, 0, 0, ALLOW), (answer, 0, 0, NOTIFY),
    )  # fmt: skip
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(text)))
    return int(_libc.syscall(seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, program))


class Gate:
    """The outside of the wall. child: the process in enter(). inside: the other end of its socket."""

    def __init__(self, child: int, inside: socket.socket) -> None:
        self._child, self._inside = child, inside
        self._inner, self._listener = 0, -1
        self.descriptors = [inside.fileno()]  # those that serve() takes when they are readable
        self.stage = ""  # what the process inside does, as it says
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel says which process sends a message

    def serve(self, descriptor: int) -> None:
        """Answer one message from inside. Raises Unavailable."""
        is_open = _grant(self._listener) if descriptor == self._listener else self._receive()
        if not is_open:
            self.descriptors.remove(descriptor)  # it stays readable, and a poll would end at once

    def _receive(self) -> bool:
        """Answer one message of the processes inside. False if they have ended."""
        space = socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(DESCRIPTOR.size)
        message, more, _flags, _address = self._inside.recvmsg(WORD, space)
        extra = {kind: data for _level, kind, data in more}
        listener = DESCRIPTOR.unpack(extra[socket.SCM_RIGHTS])[0] if socket.SCM_RIGHTS in extra else -1
        if message == b"entered" and not self._inner:
            self._name_user()
            self._inside.send(b"admitted")
        elif message == b"closed" and not self._inner:
            self._inner, _user, _group = CREDENTIALS.unpack(extra[socket.SCM_CREDENTIALS])
            self._listener = listener
            self.descriptors += [listener] if listener >= 0 else []
        else:
            self.stage = message.decode(errors="replace") or self.stage
            if listener >= 0:
                os.close(listener)
        return bool(message)

    def end(self) -> None:
        """Kill what is left inside, and return when the last process has ended."""
        for pid in filter(None, (self._inner, 0 if self._inner else self._child)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self._child, 0)
        if self._listener >= 0:
            os.close(self._listener)

    def _name_user(self) -> None:
        if os.geteuid():
            _write(f"/proc/{self._child}/setgroups", "deny")
        for kind, number in (("uid", os.geteuid()), ("gid", os.getegid())):
            outside = number if os.geteuid() else _unused(kind, self._child)
            _write(f"/proc/{self._child}/{kind}_map", f"0 {outside} 1")


def _unused(kind: str, child: int) -> int:
    """Return a user or group ID without an owner. A container may have fewer."""
    with open(f"/proc/self/{kind}_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    return min(FIRST_USER + child, max(first + count - 1 for first, _outside, count in ranges))


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise Unavailable(error.errno, error.strerror, "a user of its own") from error


def _grant(listener: int) -> bool:
    """Answer one request of a program inside for a large buffer of a socket."""
    notification = bytearray(NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, notification)
    except OSError as error:
        return error.errno == errno.EINTR
    number, pid, _flags, _nr, _machine, _address, descriptor, _level, option, *_rest = NOTIFICATION.unpack(notification)
    failure = 0
    try:
        process = os.pidfd_open(pid)
        try:
            with socket.socket(fileno=_call(_libc.syscall, _calls()[3], process, descriptor, 0, purpose="a socket")) as taken:
                taken.setsockopt(socket.SOL_SOCKET, option, LARGEST_BUFFER)
        finally:
            os.close(process)
    except OSError as error:
        failure = -(error.errno or errno.EPERM)
    with contextlib.suppress(OSError):  # the program was killed meanwhile
        fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, bytearray(RESPONSE.pack(number, 0, failure, 0)))
    return True
