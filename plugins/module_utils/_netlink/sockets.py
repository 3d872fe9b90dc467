# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the marks of sockets (SO_MARK), as ``ss`` does. It only reads.

Call it only if the kernel has the module of the protocol, such as udp_diag: the question would load it. The kernel does not list
the sockets of its own links, such as those of WireGuard.
"""

from __future__ import annotations

import socket
import struct

from . import wire
from .attributes import attributes, u32

DIAGNOSIS, BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY: include/uapi/linux/netlink.h, sock_diag.h
# include/uapi/linux/inet_diag.h
REQUEST = struct.Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, extensions, states, the socket
ANSWER = struct.Struct("=4xH66x")  # inet_diag_msg: ..., port, ...
ANY_STATE, MARK = 2**32 - 1, 15


def marks(protocol: int) -> dict[int, int]:
    """Map the marks of a protocol's sockets to the port of one of them each. Raises Failure."""
    bodies = (
        body
        for family in (socket.AF_INET, socket.AF_INET6)
        for body in wire.dump(BY_FAMILY, REQUEST.pack(family, protocol, 0, ANY_STATE), "the sockets", _open)
    )
    marked = ((u32(attributes(body, ANSWER.size), MARK), body) for body in bodies)
    return {mark: socket.ntohs(ANSWER.unpack_from(body)[0]) for mark, body in marked if mark}


def _open() -> socket.socket:
    return wire.open_socket(DIAGNOSIS)
