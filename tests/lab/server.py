# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of the lab: TCP and UDP, on nodes and in pods.

They are threads of the lab's process with sockets in the machine's network, so they listen before the call returns and
end with the process. TCP answers any HTTP request with a status and JSON that tells the peer's address as the server saw
it; UDP sends back what it gets.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import selectors
import socket
import threading
from collections.abc import Callable

from lab.machine import Machine

_REASONS = {200: "OK", 503: "Service Unavailable"}
_IPV6_TRANSPARENT = 75  # linux/in6.h; for IPv4 as well, as the two share a flag of the socket
_REQUEST_LIMIT = 5.0  # seconds that a connection may take to send its request


class Server:
    """One port of a machine, TCP and UDP. ``status`` is that of the next HTTP answer.

    ``transparent``: it may get packets for another address, and answers from that address (ip(7), IP_TRANSPARENT).
    """

    def __init__(self, machine: Machine, port: int, status: int, transparent: bool) -> None:
        self.machine = machine
        self.port = port
        self.status = status
        self.tcp = _bound(machine, socket.SOCK_STREAM, port, transparent)
        self.tcp.listen()
        self.udp = _bound(machine, socket.SOCK_DGRAM, port, transparent)

    def accept(self) -> None:
        """Answer a connection in a thread of its own: a client that sends nothing delays no other client."""
        connection, peer = self.tcp.accept()
        threading.Thread(target=self._answer, args=(connection, peer[0]), daemon=True).start()

    def echo(self) -> None:
        data, peer = self.udp.recvfrom(65535)
        self.udp.sendto(data, peer)

    def _answer(self, connection: socket.socket, peer: str) -> None:
        body = json.dumps({"peer": _plain(peer)}).encode()
        status_line = f"HTTP/1.0 {self.status} {_REASONS.get(self.status, 'Other')}"
        head = f"{status_line}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with connection, contextlib.suppress(OSError):  # a probe only connects, and may reset
            connection.settimeout(_REQUEST_LIMIT)
            if connection.recv(65535):
                connection.sendall(head.encode() + body)

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


class Servers:
    """All servers of a lab, waited for by one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._servers: list[Server] = []
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="lab servers", daemon=True)
        self._thread.start()

    def start(self, machine: Machine, port: int, status: int = 200, transparent: bool = False) -> Server:
        """Serve a port of the machine, IPv4 and IPv6. It listens when this returns."""
        server = Server(machine, port, status, transparent)
        self._selector.register(server.tcp, selectors.EVENT_READ, server.accept)
        self._selector.register(server.udp, selectors.EVENT_READ, server.echo)
        self._servers.append(server)
        return server

    def stop(self, server: Server) -> None:
        self._servers.remove(server)
        self._selector.unregister(server.tcp)
        self._selector.unregister(server.udp)
        server.close()

    def stop_all(self, machine: Machine) -> None:
        for server in [server for server in self._servers if server.machine is machine]:
            self.stop(server)

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        for server in list(self._servers):
            self.stop(server)
        self._selector.close()
        self._woken.close()

    def _serve(self) -> None:
        while True:
            for key, _events in self._selector.select():
                if key.fileobj is self._woken:
                    return
                handle: Callable[[], None] = key.data
                with contextlib.suppress(OSError):  # the peer is gone, or the server was stopped meanwhile
                    handle()


def _bound(machine: Machine, kind: socket.SocketKind, port: int, transparent: bool) -> socket.socket:
    listener = machine.socket(socket.AF_INET6, kind)
    listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, transparent)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("::", port))
    return listener


def _plain(peer: str) -> str:
    """``::ffff:192.0.2.1`` is ``192.0.2.1``; a link-local address loses its ``%zone``."""
    address = ipaddress.IPv6Address(peer.partition("%")[0])
    return str(address.ipv4_mapped or address)
