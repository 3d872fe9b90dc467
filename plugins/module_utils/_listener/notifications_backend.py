# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""rtnetlink notifications about links, addresses, routes and rules. Without pyroute2, to keep the listener small."""

from __future__ import annotations

import errno
import socket
import struct
import typing as t

# include/uapi/linux/rtnetlink.h, RTNLGRP_*. The address of a netlink socket is a bit mask of groups; group 1 is bit 0.
LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE = 1, 5, 7, 8, 9, 11, 19
GROUPS = sum(1 << group - 1 for group in (LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE))
KERNEL = 0  # netlink(7): the address of the kernel. With CAP_NET_ADMIN another process can send to the groups, too
SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h; lets root exceed net.core.rmem_max
BUFFER = 4 << 20  # bytes that the kernel buffers for the socket: some 4,000 messages, a burst of a CNI
SPACE = 1 << 16  # bytes; the longest message is that about a link with many virtual functions
LENGTH = struct.Struct("=I")  # of a message, header included


class Notifications:
    """The backend: a socket that has joined the groups above."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._socket.setblocking(False)
        self._socket.bind((0, GROUPS))
        self._buffer = bytearray(SPACE)

    def fileno(self) -> int:
        return self._socket.fileno()

    def pending(self, most: int) -> t.Iterator[bytes | None]:
        """Yield messages that have arrived, from at most ``most`` reads of the socket.

        None stands for messages that the kernel dropped because its buffer was full.
        """
        for _number in range(most):
            try:
                size, (sender, _groups) = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                yield None
                continue
            if sender == KERNEL:
                yield from _messages(bytes(self._buffer[:size]))


def _messages(data: bytes) -> t.Iterator[bytes]:
    (length,) = LENGTH.unpack_from(data)
    while len(data) > length >= 16:  # rare: the kernel sends one message at a time
        yield data[:length]
        data = data[(length + 3) & ~3 :]
        if len(data) < 16:
            return
        (length,) = LENGTH.unpack_from(data)
    yield data
