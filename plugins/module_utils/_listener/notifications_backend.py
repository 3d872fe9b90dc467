# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What rtnetlink tells unasked of links, addresses, routes and rules. Without pyroute2, for a process that stays."""

from __future__ import annotations

import errno
import socket
import struct
import typing as t

# include/uapi/linux/rtnetlink.h, RTNLGRP_*; the address of a netlink socket is a mask of groups, the first is 1.
LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE = 1, 5, 7, 8, 9, 11, 19
GROUPS = sum(1 << group - 1 for group in (LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE))
SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h: beyond net.core.rmem_max, for root
KEPT = 4 << 20  # bytes that the kernel keeps for us: some 4,000 messages, a burst of a CNI
SPACE = 1 << 16  # bytes; a message on a link with many virtual functions is the longest
LENGTH = struct.Struct("=I")  # of a message, with its header


class Notifications:
    """The edge."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, KEPT)
        self._socket.setblocking(False)
        self._socket.bind((0, GROUPS))
        self._buffer = bytearray(SPACE)

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self, most: int) -> t.Iterator[bytes | None]:
        """At most ``most`` messages that have come; None where some were lost, as they came faster than they were read."""
        for _number in range(most):
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
                continue
            yield from _messages(bytes(self._buffer[:size]))


def _messages(data: bytes) -> t.Iterator[bytes]:
    (length,) = LENGTH.unpack_from(data)
    while len(data) > length >= 16:  # seldom: the kernel sends one at a time
        yield data[:length]
        data = data[(length + 3) & ~3 :]
        if len(data) < 16:
            return
        (length,) = LENGTH.unpack_from(data)
    yield data
