# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only the kernel speaks to the listener: what another process sends to its netlink socket is refused or not read."""

from __future__ import annotations

import json
import sys
from typing import Any

from lab.collection import CHECKOUT
from lab.node import NamespaceNode

# Sends to the listener's own port and to the group of links as a user, and prints what came of it. Then a rule is added.
PROGRAM = """
import json, os, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
from plugins.module_utils._listener import listener_backend

def send(uid, data, port, groups):
    child = os.fork()
    if child == 0:
        try:
            os.setuid(uid)
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sender:
                sender.sendto(data, (port, groups))
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

listener = listener_backend.Notifications()
port = listener._socket.getsockname()[0]
sent = [send(int(sys.argv[2]), data, *to) for data in (b"", b"x", b"x" * 4096) for to in ((port, 0), (0, 1))]
read = len(list(listener.pending(100)))
subprocess.run(["ip", "rule", "add", "priority", "999", "table", "main"], check=True)
print(json.dumps({"sent": sent, "read": read, "of the kernel": len(list(listener.pending(100)))}))
"""


def speak(node: NamespaceNode, uid: int) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(node.run([sys.executable, "-c", PROGRAM, str(CHECKOUT), str(uid)]).stdout)
    return answer


def test_a_process_without_privileges_cannot_speak_to_the_listener(node: NamespaceNode) -> None:
    answer = speak(node, 65534)
    assert all(answer["sent"]) and answer["read"] == 0 and answer["of the kernel"] > 0


def test_a_message_that_no_kernel_sends_does_not_end_the_listener(node: NamespaceNode) -> None:
    answer = speak(node, 0)
    assert not all(answer["sent"]) and answer["read"] == 0 and answer["of the kernel"] > 0
