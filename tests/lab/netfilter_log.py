# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packets that a rule of nft logs (``log group 77 snaplen 2048 queue-threshold 1``), whole and in order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from lab.machine import Machine

GROUP = 77
# include/uapi/linux/netfilter/nfnetlink.h, nfnetlink_log.h
NETLINK_NETFILTER, PACKET, CONFIG = 12, 4 << 8 | 0, 4 << 8 | 1
COMMAND, MODE, PAYLOAD = 1, 2, 9  # NFULA_CFG_CMD, NFULA_CFG_MODE, NFULA_PAYLOAD
BIND, COPY_PACKET, LONGEST = 1, 2, 2048
BUFFER = 1 << 25  # bytes, for what comes between two readings


class NetfilterLog:
    """Receives from GROUP in a machine's network."""

    def __init__(self, machine: Machine) -> None:
        self._socket = machine.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, 33, BUFFER)  # SO_RCVBUFFORCE
        self._configure(COMMAND, struct.pack("=B", BIND))
        self._configure(MODE, struct.pack(">IBx", LONGEST, COPY_PACKET))
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def packets(self) -> Iterator[bytes]:
        """The packets that have been logged since the last call, from the header of IPv6 on."""
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            for kind, body in _parts(data, "=IHHII", 0):
                if kind == PACKET:
                    yield next(value for name, value in _parts(body, "=HH", 4) if name == PAYLOAD)

    def _configure(self, attribute: int, value: bytes) -> None:
        body = struct.pack(">BBH", 0, 0, GROUP) + struct.pack("=HH", 4 + len(value), attribute) + value
        body += bytes(-len(body) % 4)
        self._socket.send(struct.pack("=IHHII", 16 + len(body), CONFIG, 5, 0, 0) + body)  # NLM_F_REQUEST, NLM_F_ACK
        (error,) = struct.unpack_from("=i", self._socket.recv(4096), 16)
        assert error == 0, error


def _parts(data: bytes, header: str, offset: int) -> Iterator[tuple[int, bytes]]:
    """The type and body of messages or attributes, which Netlink pads to four bytes."""
    size = struct.calcsize(header)
    while offset + size <= len(data):
        length, kind = struct.unpack_from(header, data, offset)[:2]
        yield kind, data[offset + size : offset + length]
        offset += (max(length, size) + 3) & ~3
