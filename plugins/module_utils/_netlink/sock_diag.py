# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists sockets, as ``ss`` does. It only reads.

Ask only for protocols whose kernel module is loaded or built in, such as tcp_diag: the question would load it.
"""

from __future__ import annotations

import functools
import socket
import struct
import typing as t

from . import wire

SOCK_DIAG, BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY: include/uapi/linux/netlink.h, sock_diag.h
# include/uapi/linux/inet_diag.h
REQUEST = struct.Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, extensions, states, the socket
ANSWER = struct.Struct("=B3x2s2x16s48x")  # inet_diag_msg: family, ..., port, ..., address, ...
ANY_STATE, LISTEN = 2**32 - 1, 1 << 10  # bits by the numbers of include/net/tcp_states.h
MODULE = "tcp_diag"

open_socket = functools.partial(wire.open_socket, SOCK_DIAG)


def listed(protocol: int, states: int = ANY_STATE, opener: wire.Opener = open_socket) -> t.Iterator[bytes]:
    """Yield the kernel's messages about the sockets of a protocol. opener: of another network namespace. Raises Failure."""
    for family in (socket.AF_INET, socket.AF_INET6):
        yield from wire.dump(BY_FAMILY, REQUEST.pack(family, protocol, 0, states), "the sockets", opener)


def port(body: bytes) -> int:
    """Return the port of a socket in such a message."""
    return int.from_bytes(ANSWER.unpack_from(body)[1], "big")


def listeners(opener: wire.Opener = open_socket) -> list[tuple[bytes, int]]:
    """Return the addresses and ports of TCP sockets that listen. Raises Failure, also for a kernel that lists no sockets.

    Reading /proc/net/tcp takes milliseconds, and longer with more memory: the kernel walks its table of all connections, in
    which those of all network namespaces are, for each namespace.
    """
    sockets = []
    for body in listed(socket.IPPROTO_TCP, LISTEN, opener):
        family, _port, address = ANSWER.unpack_from(body)
        sockets.append((address if family == socket.AF_INET6 else address[:4], port(body)))
    return sockets
