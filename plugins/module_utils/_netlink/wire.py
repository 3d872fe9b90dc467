# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends netlink messages of any protocol and receives the kernel's answers. attributes.py has the messages as values."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import struct
import threading
import typing as t

from .._core.errors import Failure
from .attributes import HEADER, Message, attributes, message, messages

Opener = t.Callable[[], socket.socket]

# include/uapi/linux/netlink.h
ACK, DUMP = 0x4, 0x300
DUMP_INTERRUPTED, ACK_CAPPED, ACK_ATTRIBUTES = 0x10, 0x100, 0x200
ERROR, DONE = 2, 3
ROUTE, NETFILTER = 0, 12  # NETLINK_ROUTE, NETLINK_NETFILTER
SOL_NETLINK, CAP_ACK, EXT_ACK = 270, 10, 11
MESSAGE_TEXT = 1  # NLMSGERR_ATTR_MSG
TIMEOUT = 30.0  # seconds; the kernel answers at once, but each existing rule makes an insertion slower
BUFFER = 1 << 20  # bytes
TRIES = 20  # attempts at a dump, which a change by another program may interrupt
UNSUPPORTED = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)  # a kernel without IPv6, or without policy rules


class Refused(t.NamedTuple):
    """The kernel's refusal of a message."""

    code: int
    text: str


def open_socket(protocol: int = ROUTE) -> socket.socket:
    """Open a socket in the network namespace of the caller."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)


@contextlib.contextmanager
def connected(opener: Opener = open_socket) -> t.Iterator[socket.socket]:
    """Open a socket that names the reason of a refusal. Raises Failure for an error of the socket, a timeout included."""
    with opener() as netlink:
        netlink.settimeout(TIMEOUT)
        for option in (CAP_ACK, EXT_ACK):
            netlink.setsockopt(SOL_NETLINK, option, 1)
        try:
            yield netlink
        except OSError as error:
            raise Failure(f"netlink: {error}") from error


class _Buffer(threading.local):
    """What a socket received last. recv() would allocate as much for each answer, which takes longer than the kernel's work."""

    def __init__(self) -> None:
        self.bytes = memoryview(mmap.mmap(-1, BUFFER))  # of which only what is written takes memory


_buffer = _Buffer()


def answers(netlink: socket.socket, question: bytes) -> t.Iterator[Message]:
    """Send a request and yield the replies lazily."""
    netlink.send(question)
    while True:
        yield from messages(_received(netlink))


def _received(netlink: socket.socket) -> bytes:
    size = netlink.recv_into(_buffer.bytes)
    return bytes(_buffer.bytes[:size])


def error_code(answer: Message) -> int:
    """Return the error number in a message of the type ERROR; 0 in an acknowledgement."""
    return -int(struct.unpack_from("=i", answer.body)[0])


def dump(kind: int, body: bytes, objects: str, opener: Opener = open_socket) -> list[bytes]:
    """Return the bodies of all messages that answer a dump; none if the kernel lacks what is asked for.

    objects: their name, for errors. opener: opens the socket, which may be one in another network namespace.
    Raises Failure if the kernel refuses, or if the objects change during every attempt.
    """
    for _try in range(TRIES):
        with connected(opener) as netlink:
            bodies = _collected(netlink, message(kind, DUMP, body), objects)
            if bodies is not None:
                return bodies
    raise Failure(f"{objects} changed during each of {TRIES} attempts to read them; run again when they change less")


def _collected(netlink: socket.socket, question: bytes, objects: str) -> list[bytes] | None:
    """Return the bodies of the messages; None if a change interrupted the dump."""
    bodies: list[bytes] = []
    is_whole = True
    netlink.send(question)
    while True:
        data, offset = _received(netlink), 0
        while offset < len(data):  # as messages(), but without a value for each of thousands of messages
            length, kind, flags, _number, _port = HEADER.unpack_from(data, offset)
            body = data[offset + HEADER.size : offset + length]
            offset += (length + 3) & ~3
            is_whole = is_whole and not flags & DUMP_INTERRUPTED
            if kind == DONE:
                return bodies if is_whole else None
            if kind == ERROR:
                code = error_code(Message(kind, flags, 0, body))
                if code == errno.EINTR:
                    return None
                if code in UNSUPPORTED:
                    return []
                raise Failure(f"the kernel refused to list {objects}: {os.strerror(code)}")
            bodies.append(body)


def exchange(requests: list[bytes], opener: Opener = open_socket) -> dict[int, Refused]:
    """Send messages at once and return the refusals, by sequence number. opener: as for dump().

    The kernel processes the messages one by one, and does not stop at a refusal. It answers each message that it refuses, and
    the last one, which asks for an answer.
    """
    if not requests:
        return {}
    refused: dict[int, Refused] = {}
    length, kind, flags, last, port = HEADER.unpack_from(requests[-1])
    requests[-1] = HEADER.pack(length, kind, flags | ACK, last, port) + requests[-1][HEADER.size :]
    with connected(opener) as netlink:
        for answer in answers(netlink, b"".join(requests)):
            if answer.kind == ERROR:
                code = error_code(answer)
                if code:
                    refused[answer.number] = Refused(code, _text(answer))
                if answer.number == last:
                    break
    return refused


def _text(answer: Message) -> str:
    """Return the kernel's error text, or an empty string.

    The code is followed by the header of our message, and then by attributes.
    """
    if not (answer.flags & ACK_ATTRIBUTES and answer.flags & ACK_CAPPED):
        return ""
    return attributes(answer.body, 4 + HEADER.size).get(MESSAGE_TEXT, b"").rstrip(b"\0").decode(errors="replace")
