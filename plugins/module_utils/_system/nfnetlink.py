# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""nftables without nft: whether a table is there, and taking it away. For a node from which nft has gone and its table not."""

from __future__ import annotations

import os
import socket
import struct
import typing as t

from .._model.problem import Failure

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
NETLINK_NETFILTER = 12
NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLMSG_ERROR = 2
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NFTABLES = 10  # NFNL_SUBSYS_NFTABLES
GET_TABLE, DELETE_TABLE = NFTABLES << 8 | 1, NFTABLES << 8 | 2
TABLE_NAME = 1  # NFTA_TABLE_NAME
FAMILIES = {"inet": 1, "ip": 2, "ip6": 10}
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
PATIENCE = 5.0  # seconds; the kernel answers at once


def has_table(family: str, name: str) -> bool:
    """Whether the kernel holds the table. It must have nf_tables ready, or this would load it."""
    return _ask([_message(GET_TABLE, NLM_F_ACK, 1, family, name)]) == 0


def delete_table(family: str, name: str) -> None:
    """Takes a table away, with all that is in it. Raises Failure."""
    begin, end = (_batch(kind, number) for kind, number in ((BATCH_BEGIN, 1), (BATCH_END, 3)))
    code = _ask([begin, _message(DELETE_TABLE, NLM_F_ACK, 2, family, name), end])
    if code:
        raise Failure(f"the kernel refused to remove table {family} {name}: {os.strerror(code)}")


def _message(kind: int, flags: int, number: int, family: str, name: str) -> bytes:
    text = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), TABLE_NAME) + text + bytes(-len(text) % 4)
    body = struct.pack("=BBH", FAMILIES[family], 0, 0) + attribute
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, number, 0) + body


def _batch(kind: int, number: int) -> bytes:
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(NFTABLES))
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST, number, 0) + body


def _ask(messages: t.Sequence[bytes]) -> int:
    """The error number of the first answer: 0 for done, or for what was asked for."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER) as netlink:
        netlink.settimeout(PATIENCE)
        netlink.send(b"".join(messages))
        answer = netlink.recv(65536)
    _length, kind, _flags, _number, _port = HEADER.unpack_from(answer)
    return -int(struct.unpack_from("=i", answer, HEADER.size)[0]) if kind == NLMSG_ERROR else 0
