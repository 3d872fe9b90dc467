# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a Python program and records the netlink messages that it sends to the kernel.

    netlink_recorder.py LOG NUMBER SIGNAL PROGRAM ARGUMENT...

LOG gets a line for each message that may change something, which dumps and RTM_GETNSID do not: its type. With message number
NUMBER (0 for none) the program gets SIGNAL (SIGKILL, SIGINT), before it has read the answer; one message is then sent at a time.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.node import NamespaceNode

# The watcher runs in the interpreter that node.module puts behind it.
# In place of the Python of the module's own command line, $6, comes the watcher's.
_WATCH = 'python=$1 script=$2 log=$3 last=$4 signal=$5; shift 6; exec "$python" "$script" "$log" "$last" "$signal" "$@"'
_LOG = "/run/messages"

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_DUMP = 0x300
_GETNSID = 90  # include/uapi/linux/rtnetlink.h


class _Watched(socket.socket):
    count = 0
    is_struck = False

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        if self.family != socket.AF_NETLINK:
            return super().send(data, flags)
        offset = 0
        while offset < len(data):
            length, kind, message_flags, _sequence, _port = _HEADER.unpack_from(data, offset)
            if message_flags & _DUMP != _DUMP and kind != _GETNSID:
                _Watched.count += 1
                with open(LOG, "a", encoding="ascii") as log:
                    log.write(f"{kind}\n")
            offset += (length + 3) & ~3
        sent = super().send(data, flags)
        if LAST and _Watched.count == LAST and not _Watched.is_struck:
            _Watched.is_struck = True
            os.kill(os.getpid(), SIGNAL)
        return sent


def run(
    node: NamespaceNode, module: str, options: dict[str, Any], last: int = 0, struck_by: str = "SIGKILL"
) -> tuple[dict[str, Any], list[str]]:
    """A module's result, and the types of the messages that it sent, but questions; it gets the signal at message ``last``."""
    node.write(_LOG, "")
    watcher = [sys.executable, __file__, _LOG, str(last), struck_by]
    result = node.module(module, options, through=["sh", "-c", _WATCH, "sh", *watcher])
    messages = node.read(_LOG).split()
    node.remove(_LOG)
    return result, messages


if __name__ == "__main__":
    LOG, LAST, SIGNAL = sys.argv[1], int(sys.argv[2]), signal.Signals[sys.argv[3]]
    sys.argv = sys.argv[4:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    socket.socket = _Watched  # type: ignore[misc]
    if LAST:
        from ansible_collections.kubenode.datapath.plugins.module_utils._routing import routing_backend

        routing_backend.CHUNK = 1
    runpy.run_path(sys.argv[0], run_name="__main__")
