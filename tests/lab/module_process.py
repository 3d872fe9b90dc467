# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules in processes forked from one that has imported ansible-core, whose import takes longer than a module's work.

Each module has a process of its own, in the namespaces of a machine, with the collection's code as it is then on the disk.

    module_process.py NAME                  runs one module, by its full Python name, with its arguments as JSON on stdin
    module_process.py --serve DESCRIPTOR    serves requests from a socket until its other end is closed
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import typing as t

PROGRAM, SERVE = __file__, "--serve"
_LARGEST = 1 << 16  # bytes of a request, whose arguments travel in a file
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000  # linux/sched.h; os.setns() exists from Python 3.12 only


def run(
    pid: int, name: str, arguments: str, timeout: float, environment: t.Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a module, by its full Python name, in the network and mount namespaces of a process, as subprocess.run would.

    arguments: JSON. environment: all of it. Raises subprocess.TimeoutExpired.
    """
    with contextlib.ExitStack() as open_files:
        stdin, out, err = (open_files.enter_context(tempfile.TemporaryFile()) for _number in range(3))
        stdin.write(arguments.encode(errors="surrogateescape"))
        stdin.seek(0)
        own_end, theirs = (open_files.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        request = json.dumps({"pid": pid, "name": name, "environment": dict(environment)}).encode()
        descriptors = [file.fileno() for file in (stdin, out, err, theirs)]
        socket.send_fds(_server(), [request], descriptors)
        theirs.close()
        child = int(_received(own_end, 30, name))
        try:
            status = int(_received(own_end, timeout, name))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        texts = [file.read().decode(errors="surrogateescape") for file in (out, err)]
    return subprocess.CompletedProcess([name], status, *texts)


def _received(reply: socket.socket, timeout: float, name: str) -> str:
    if not select.select([reply], [], [], timeout)[0]:
        raise subprocess.TimeoutExpired(name, timeout)
    return reply.recv(64).decode()


@functools.cache
def _server() -> socket.socket:
    """This end of the socket to the server, which ends when this process does."""
    own_end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, __file__, SERVE, str(theirs.fileno())],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/", env={"LANG": "C.UTF-8"},
    )  # fmt: skip
    theirs.close()
    return own_end


# The server


def _serve(control: socket.socket) -> tuple[str, str] | None:
    """Returns in each new process the name of its module and the import path, and in the server, at its end, None."""
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(control, _LARGEST, 4)
        if not message:
            return None
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _begin(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _begin(request: dict[str, t.Any], stdin: int, out: int, err: int, answer: int) -> tuple[str, str]:
    """Returns in the module's process. This one waits for it, and tells its status."""
    reply = socket.socket(fileno=answer)
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # the test has stopped waiting
            reply.send(str(child).encode())
            _pid, status = os.waitpid(child, 0)
            reply.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    reply.close()
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = [(os.open(f"/proc/{request['pid']}/ns/{name}", os.O_RDONLY), kind) for name, kind in _SPACES]
    for descriptor, kind in spaces:
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), f"setns to process {request['pid']}")
        os.close(descriptor)
    for target, descriptor in enumerate((stdin, out, err)):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    return request["name"], request["environment"].get("PYTHONPATH", "")


_SPACES = (("net", _CLONE_NEWNET), ("mnt", _CLONE_NEWNS))


def _main() -> None:
    from ansible.module_utils import basic

    if sys.argv[1] == SERVE:
        control = socket.socket(fileno=int(sys.argv[2]))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the processes that wait for modules
        gc.freeze()
        work = _serve(control)
        if work is None:
            return
        sys.argv[1:] = work[:1]
        sys.path[1:1] = work[1].split(":")
    # A module gets the same variables as from ansible-core's own wrapper (AnsiballZ: _ANSIBLE_ARGS and, from 2.19,
    # _ANSIBLE_PROFILE, the name of the profile by which arguments and results are JSON).
    basic._ANSIBLE_ARGS = sys.stdin.buffer.read()
    basic._ANSIBLE_PROFILE = "legacy"
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
