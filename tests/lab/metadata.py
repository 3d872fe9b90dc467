# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud's metadata service in the network of a machine of the lab, with the faults that a test asks for.

Its threads belong to the lab's process and end with it; its socket is in the machine's network.
"""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from lab.machine import Machine
from lab.metadata_replies import DUAL_STACK, Azure, Cloud, Nic, Reply, Request

Fault = Literal["status", "garbage", "truncated", "silence", "refused"]
"""``status``: an error page. ``garbage``: 200 and no sense. ``truncated``: the right answer, cut in half, with a length
that says so. ``silence``: accepts and never answers. ``refused``: no process listens."""

ERROR_PAGE = "<!DOCTYPE html><html><body><h1>The service is not available</h1></body></html>\n"
GARBAGE = '\x00\x7f<{]["ipv6"'


@dataclass(frozen=True)
class Behaviour:
    """How the service answers from now on. ``delay``, ``up_after``: seconds before an answer, before it listens at all."""

    fault: Fault | None = None
    status: int = 500
    delay: float = 0.0
    up_after: float = 0.0


WELL = Behaviour()


class MetadataServer:
    """The service that one machine offers to its neighbours, from ``start()`` to ``stop()``.

    ``nics``: the interfaces that it reports. ``own``: by IPv4 address of the client, the interfaces that it reports instead.
    ``requests``: the requests so far, in order. All may be read and set at any time.
    """

    def __init__(self, machine: Machine, cloud: Cloud | None = None, nics: tuple[Nic, ...] = (DUAL_STACK,)) -> None:
        self.machine = machine
        self.cloud: Cloud = cloud or Azure()
        self.nics = nics
        self.own: dict[str, tuple[Nic, ...]] = {}
        self.requests: list[Request] = []
        self.behaviour = WELL
        self._listener: _Listener | None = None
        self._later: threading.Timer | None = None

    def __enter__(self) -> MetadataServer:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self, behaviour: Behaviour = WELL) -> None:
        """Give the machine the service's address and start to serve. On return it listens, unless ``behaviour`` delays that."""
        self.machine.ip([f"address replace {self.cloud.address}/32 dev lo", "link set lo up"])
        self.change(behaviour)

    def change(self, behaviour: Behaviour) -> None:
        """Behave differently from now on; connections that wait for an answer are closed."""
        self.stop()
        self.behaviour = behaviour
        if behaviour.fault == "refused":
            return
        if behaviour.up_after:
            self._later = threading.Timer(behaviour.up_after, self._listen)
            self._later.daemon = True
            self._later.start()
        else:
            self._listen()

    def stop(self) -> None:
        """No process listens any more: connections are refused."""
        if self._later:
            self._later.cancel()
            self._later.join()
            self._later = None
        if self._listener:
            self._listener.close()
            self._listener = None

    def _listen(self) -> None:
        opened = self.machine.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((self.cloud.address, 80))
        self._listener = _Listener(opened, self)


class _Listener(socketserver.ThreadingTCPServer):
    """http.server.HTTPServer would look its own name up (10 s where there is no resolver); this one does not."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, opened: socket.socket, service: MetadataServer) -> None:
        super().__init__(opened.getsockname(), _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = opened
        self.service = service
        self.closed = threading.Event()
        self.server_activate()
        threading.Thread(target=self.serve_forever, args=(0.02,), name="metadata service", daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has closed its connection."""


class _Connection(http.server.BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        service = self.server.service
        behaviour = service.behaviour
        request = Request(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        service.requests.append(request)
        if behaviour.fault == "silence":
            self.server.closed.wait()
            return
        time.sleep(behaviour.delay)
        if behaviour.fault == "status":
            self._send(Reply(behaviour.status, ERROR_PAGE, "text/html"))
        elif behaviour.fault == "garbage":
            self._send(Reply(200, GARBAGE, "application/json"))
        else:
            nics = service.own.get(self.client_address[0], service.nics)
            self._send(service.cloud.reply(request, nics), halve=behaviour.fault == "truncated")

    do_PUT = do_GET

    def _send(self, reply: Reply, halve: bool = False) -> None:
        body = reply.body.encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if halve else body)

    def log_message(self, format: str, *args: Any) -> None:
        """``requests`` has the request; stderr belongs to the tests."""
