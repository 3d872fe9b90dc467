# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Runs a function in a process of its own, in new network, mount and, without root, user namespaces.

The kernel removes the namespaces with their last process, and kills this process and the programs that it starts if the run is
killed. So nothing of a twin outlives the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import typing as t
from pathlib import Path

from .._core import errors
from .._core.errors import DatapathError, Failure
from .._netlink import wire
from .._platform.process import PR_SET_PDEATHSIG

# include/uapi/linux/sched.h, mount.h
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
EVERY_PROTOCOL = socket.htons(3)  # ETH_P_ALL
KINDS = (errors.Invalid, errors.MissingLibrary, errors.Refusal, errors.Failure)


class Isolated(t.NamedTuple):
    """Access to a second network namespace, the world, for the function: a packet socket, a netlink socket, and a descriptor."""

    packets: socket.socket
    netlink: socket.socket
    world: int


def run(work: t.Callable[[Isolated], dict[str, t.Any]], seconds: float) -> dict[str, t.Any]:
    """Calls ``work`` in the namespaces, and returns its result, which is plain data. Raises the DatapathError that it raised.

    seconds: after which the process is killed, and Failure is raised.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    run_pid = os.getpid()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(work, run_pid, writing)
    os.close(writing)
    try:
        answer = _answer(reading, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise Failure(f"the twin gave no answer within {seconds:g} s and was removed. Use a smaller snapshot, or run again")
    if "error" in answer:
        kind = next((one for one in KINDS if one.__name__ == answer["kind"]), Failure)
        raise kind(*answer["error"])
    return t.cast("dict[str, t.Any]", answer["result"])


def _answer(reading: int, seconds: float) -> dict[str, t.Any] | None:
    """The text that the child wrote; None if it wrote nothing in time, or ended without an answer."""
    poll, parts = select.poll(), list[bytes]()
    poll.register(reading, select.POLLIN)
    while poll.poll(seconds * 1000):
        part = os.read(reading, 1 << 20)
        if not part:
            return t.cast("dict[str, t.Any]", json.loads(b"".join(parts))) if parts else None
        parts.append(part)
    return None


def _child(work: t.Callable[[Isolated], dict[str, t.Any]], run_pid: int, writing: int) -> t.NoReturn:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != run_pid:
            os._exit(1)
        try:
            answer: dict[str, t.Any] = {"result": work(_isolated(libc))}
        except errors.Invalid as error:
            answer = {"kind": "Invalid", "error": error.values}
        except errors.MissingLibrary as error:
            answer = {"kind": "MissingLibrary", "error": [error.library, error.minimum]}
        except DatapathError as error:
            answer = {"kind": type(error).__name__, "error": [str(error)]}
        except Exception as error:
            import traceback

            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            answer = {"kind": "Failure", "error": [f"the twin failed ({reason}). This is an error of the collection: report it"]}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writing, data) :]
        os._exit(0)
    except BaseException:
        os._exit(1)


def _isolated(libc: ctypes.CDLL) -> Isolated:
    """Enters the namespaces. Raises Failure if the kernel or the container forbids them."""
    if os.geteuid():
        user, group = os.geteuid(), os.getegid()
        _unshare(
            libc, CLONE_NEWUSER, "a user namespace. Run as root, or permit user namespaces (sysctl user.max_user_namespaces)"
        )
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            _write(f"/proc/self/{name}", text)
    _unshare(libc, CLONE_NEWNET | CLONE_NEWNS, "network and mount namespaces. Run as root outside of a container")
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    # The world needs no addresses: links that are created later take this setting.
    _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, EVERY_PROTOCOL)
    world = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    netlink = wire.open_socket()
    _unshare(libc, CLONE_NEWNET, "a second network namespace")
    return Isolated(packets, netlink, world)


def _unshare(libc: ctypes.CDLL, flags: int, what: str) -> None:
    if libc.unshare(flags):
        raise Failure(f"the kernel refused {what}: {os.strerror(ctypes.get_errno())}")


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError), open(path, "w") as file:  # a kernel without IPv6
        file.write(text)


def hide(folders: t.Iterable[str], copied: t.Iterable[str] = (), kept: t.Iterable[str] = ()) -> None:
    """Mounts an empty file system, which only this process sees, on each folder, so that writing there changes no file of the
    node.

    copied: folders whose files, but not their folders, are copied into it. kept: folders that stay visible.
    """
    contents = {folder: {one.name: one.read_bytes() for one in _files(folder)} for folder in copied}
    opened = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in kept if os.path.isdir(folder)}
    for folder in folders:
        if os.path.isdir(folder):
            _mount("tmpfs", folder, "tmpfs", 0, "size=64m")
    for folder, files in contents.items():
        os.makedirs(folder, exist_ok=True)
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
    for folder, descriptor in opened.items():
        os.makedirs(folder, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", folder, "", MS_BIND | MS_REC)
        os.close(descriptor)


def protect(folder: str) -> None:
    """Makes the folder's contents read-only for this process."""
    if os.path.isdir(folder):
        _mount(folder, folder, "", MS_BIND)
        _mount("", folder, "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def _files(folder: str) -> list[Path]:
    return [one for one in Path(folder).iterdir() if one.is_file()] if os.path.isdir(folder) else []


def _mount(source: str, folder: str, kind: str, flags: int, options: str = "") -> None:
    """Raises Failure."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (one.encode() or None for one in (source, folder, kind))
    if libc.mount(*words, flags, options.encode() or None):
        raise Failure(f"{folder} could not be hidden from the twin: {os.strerror(ctypes.get_errno())}")
