# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the packets of a load balancer's probe or of a client, and waits for the answer."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from lab.machine import Machine

_T = TypeVar("_T")


class _Echo(NamedTuple):
    """The protocol and its types of message."""

    protocol: int
    request: int
    reply: int


_ECHO_V4 = _Echo(socket.IPPROTO_ICMP, 8, 0)  # RFC 792
_ECHO_V6 = _Echo(socket.IPPROTO_ICMPV6, 128, 129)  # RFC 4443 section 4
_identifiers = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a server of the lab. ``peer`` is the source address that the server saw, ``host`` the name of a pod of
    Kubernetes; they are empty if another program answered."""

    status: int
    peer: str
    host: str = ""


@dataclasses.dataclass(frozen=True)
class Prober:
    """Sends from one machine, by one link and from one address; ``None`` leaves the choice to the machine.

    ``timeout`` is in seconds and per try. An error such as "no route to host" counts as no answer.
    """

    machine: Machine
    link: str | None = None
    source: str | None = None

    def tcp(self, address: str, port: int, timeout: float, tries: int) -> bool:
        """Whether a connection is accepted, as for a TCP probe."""

        def connect() -> bool:
            with self._socket(address, socket.SOCK_STREAM, timeout) as connection:
                connection.connect((address, port))
                return True

        return _first(connect, tries) is not None

    def http(self, address: str, port: int, timeout: float, tries: int, path: str = "/") -> Answer | None:
        """HTTP GET; None without an answer."""

        def fetch() -> Answer:
            with self._socket(address, socket.SOCK_STREAM, timeout) as connection:
                connection.connect((address, port))
                connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                reply = b"".join(iter(lambda: connection.recv(65535), b""))
            head, _blank, body = reply.partition(b"\r\n\r\n")
            if not body:
                raise ConnectionError("closed without an answer")
            said = json.loads(body)
            return Answer(int(head.split()[1]), said.get("peer", ""), said.get("host", ""))

        return _first(fetch, tries)

    def udp(self, address: str, port: int, timeout: float, tries: int) -> bool:
        """Whether a datagram comes back."""

        def echo() -> bool:
            question = os.urandom(16)
            with self._socket(address, socket.SOCK_DGRAM, timeout) as datagrams:
                datagrams.connect((address, port))
                datagrams.send(question)
                return _answered(datagrams, timeout, lambda data: data == question)

        return _first(echo, tries) is not None

    def icmp(self, address: str, timeout: float, tries: int) -> bool:
        """Whether an echo request is answered."""
        kind = _ECHO_V6 if ":" in address else _ECHO_V4

        def echo() -> bool:
            tail = struct.pack("!HH", os.getpid() & 0xFFFF, next(_identifiers) & 0xFFFF) + os.urandom(16)
            checksum = _checksum(struct.pack("!BBH", kind.request, 0, 0) + tail)
            with self._socket(address, socket.SOCK_RAW, timeout, kind.protocol) as raw:
                raw.connect((address, 0))
                raw.send(struct.pack("!BBH", kind.request, 0, checksum) + tail)
                # In IPv4, a raw socket returns the header too.
                return _answered(raw, timeout, lambda data: data.endswith(tail) and data[-len(tail) - 4] == kind.reply)

        return _first(echo, tries) is not None

    def _socket(self, address: str, kind: socket.SocketKind, timeout: float, protocol: int = 0) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        opened = self.machine.socket(family, kind, protocol)
        opened.settimeout(timeout)
        if self.link is not None:  # before bind: a link-local address is ambiguous without its link
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.link.encode())
        if self.source is not None:
            opened.bind((self.source, 0))
        return opened


def _checksum(message: bytes) -> int:
    """The checksum of RFC 1071, of an even number of bytes. For ICMPv6 the kernel computes it (RFC 3542 section 3.1)."""
    total = sum(struct.unpack(f"!{len(message) // 2}H", message))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _first(attempt: Callable[[], _T], tries: int) -> _T | None:
    """The first try that does not end in an error."""
    for _number in range(tries):
        try:
            return attempt()
        except OSError:
            continue
    return None


def _answered(receiver: socket.socket, timeout: float, is_answer: Callable[[bytes], bool]) -> bool:
    """Read until the answer is there; raises TimeoutError after ``timeout`` seconds, also if other data arrives."""
    for seconds in _remaining(timeout):
        receiver.settimeout(seconds)
        if is_answer(receiver.recv(65535)):
            return True
    raise TimeoutError


def _remaining(timeout: float) -> Iterator[float]:
    """Yields the seconds left, until there are none."""
    deadline = time.monotonic() + timeout
    while (seconds := deadline - time.monotonic()) > 0:
        yield seconds
