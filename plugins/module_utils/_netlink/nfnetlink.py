# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads and deletes nftables objects without the program nft.

Looks for a table and deletes it: for a node where nft was removed or is broken and the table remains. Lists and deletes a
table's rules by handle: nft's own listing omits the contents of ebtables extensions, and takes longer than the rest of a run.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import typing as t

from .._core.errors import Failure, Uncertain
from .attributes import attributes, text

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
NETLINK_NETFILTER = 12
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x4, 0x300, 0x10
NLMSG_ERROR, NLMSG_DONE = 2, 3
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NFTABLES = 10  # NFNL_SUBSYS_NFTABLES
GET_TABLE, DELETE_TABLE = NFTABLES << 8 | 1, NFTABLES << 8 | 2
GET_CHAIN = NFTABLES << 8 | 4
GET_RULE, DELETE_RULE = NFTABLES << 8 | 7, NFTABLES << 8 | 8
TABLE_NAME = 1  # NFTA_TABLE_NAME
CHAIN_TABLE, CHAIN_NAME = 1, 3
RULE_TABLE, RULE_CHAIN, RULE_HANDLE, RULE_EXPRESSIONS = 1, 2, 3, 4
FAMILIES = {"inet": 1, "ip": 2, "bridge": 7, "ip6": 10}
# No such table; before Linux 4.16 a family whose module is not loaded has none (net/netfilter/nf_tables_api.c).
NOT_THERE = (errno.ENOENT, errno.EAFNOSUPPORT)
NOT_PERMITTED = "Another program may own the table (its flags in `nft list tables` say so), or the node blocks changes"
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
PATIENCE = 5.0  # seconds; the kernel answers at once
TRIES = 20  # attempts at a dump, which a change by another program may interrupt
BUFFER = 1 << 20  # bytes
SMALL = 65536  # bytes that every socket sends at once; a batch must go in one piece (net.core.wmem_default is 212992)
SO_SNDBUFFORCE = 32  # include/uapi/asm-generic/socket.h; Python has no name for it


def has_table(family: str, name: str) -> bool:
    """True if the kernel has the table. Call it only if the kernel has loaded nf_tables: the question would load it.

    Raises Failure if the kernel does not answer.
    """
    code = _ask([_message(GET_TABLE, NLM_F_ACK, 1, family, name)])
    if code not in (0, *NOT_THERE):
        raise Failure(f"the kernel does not say whether there is a table {family} {name}: {os.strerror(code)}")
    return code == 0


def delete_table(family: str, name: str) -> None:
    """Deletes a table with its contents. Raises Failure if the kernel refuses."""
    begin, end = (_batch(kind, number) for kind, number in ((BATCH_BEGIN, 1), (BATCH_END, 3)))
    code = _ask([begin, _message(DELETE_TABLE, NLM_F_ACK, 2, family, name), end])
    if code:
        hint = f". {NOT_PERMITTED}" if code == errno.EPERM else ""
        raise Failure(f"the kernel refused to remove table {family} {name}: {os.strerror(code)}{hint}")


def chains(family: str) -> list[tuple[str, str]]:
    """The chains of a family, as pairs of table and chain name. The kernel must have loaded nf_tables, as for has_table()."""
    body = struct.pack("=BBH", FAMILIES[family], 0, 0)
    question = HEADER.pack(HEADER.size + len(body), GET_CHAIN, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body
    for _try in range(TRIES):
        bodies = _dump(question)
        if bodies is not None:
            found = (attributes(body, 4) for body in bodies)
            return [(text(one, CHAIN_TABLE), text(one, CHAIN_NAME)) for one in found]
    raise Failure(
        f"the chains of {family} changed during each of {TRIES} attempts to read them; run again when they change less"
    )


class Rule(t.NamedTuple):
    """A rule as the kernel lists it. handle: the kernel never reuses it within the table. encoding: the expressions."""

    chain: str
    handle: int
    encoding: bytes


def rules(family: str, table: str) -> list[Rule]:
    """A table's rules, chain by chain, in order; empty if there is no table. Raises Failure if they change at every attempt."""
    for _try in range(TRIES):
        bodies = _dump(_message(GET_RULE, NLM_F_DUMP, 1, family, table))
        if bodies is not None:
            found = (attributes(body, 4) for body in bodies)
            return [
                Rule(
                    one[RULE_CHAIN].rstrip(b"\0").decode(),
                    int.from_bytes(one[RULE_HANDLE], "big"),
                    one.get(RULE_EXPRESSIONS, b""),
                )
                for one in found
            ]
    raise Failure(
        f"table {family} {table} changed during each of {TRIES} attempts to read it; run again when it changes less"
    )


class Doomed(t.NamedTuple):
    """A rule to delete."""

    table: str
    chain: str
    handle: int


def delete_rules(family: str, doomed: t.Sequence[Doomed]) -> int:
    """Deletes all rules in one transaction, or none. Returns 0, or the error number of the first rule that is refused."""
    messages = [_batch(BATCH_BEGIN, 0)]
    for number, rule in enumerate(doomed, 1):
        handle = _attribute(RULE_HANDLE, rule.handle.to_bytes(8, "big"))
        flags = NLM_F_ACK if number == len(doomed) else 0
        further = _attribute(RULE_CHAIN, rule.chain.encode() + b"\0") + handle
        messages.append(_message(DELETE_RULE, flags, number, family, rule.table, further))
    return _ask([*messages, _batch(BATCH_END, len(doomed) + 1)])


def _dump(question: bytes) -> list[bytes] | None:
    """The bodies of the messages; None if a change interrupted the dump. Raises Failure if the kernel refuses or is silent."""
    try:
        return _dumped(question)
    except OSError as error:  # also a timeout
        raise Failure(f"the kernel's netfilter socket: {error}") from error


def _dumped(question: bytes) -> list[bytes] | None:
    bodies: list[bytes] = []
    is_whole = True
    with _socket() as netlink:
        netlink.send(question)
        while True:
            answer, offset = netlink.recv(BUFFER), 0
            while offset < len(answer):
                length, kind, flags, _number, _port = HEADER.unpack_from(answer, offset)
                body = answer[offset + HEADER.size : offset + length]
                is_whole = is_whole and not flags & NLM_F_DUMP_INTR
                if kind == NLMSG_DONE:
                    return bodies if is_whole else None
                if kind == NLMSG_ERROR:
                    code = -int(struct.unpack_from("=i", body)[0])
                    if code == errno.EINTR:
                        return None
                    raise Failure(f"the kernel refused to list its rules: {os.strerror(code)}")
                bodies.append(body)
                offset += (length + 3) & ~3


def _message(kind: int, flags: int, number: int, family: str, table: str, further: bytes = b"") -> bytes:
    """A message about a table or a rule: both name the table by the same attribute."""
    body = struct.pack("=BBH", FAMILIES[family], 0, 0) + _attribute(TABLE_NAME, table.encode() + b"\0") + further
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, number, 0) + body


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _socket() -> socket.socket:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    netlink.settimeout(PATIENCE)
    return netlink


def _batch(kind: int, number: int) -> bytes:
    body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(NFTABLES))
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST, number, 0) + body


def _ask(messages: t.Sequence[bytes]) -> int:
    """The error number of the first answer; 0 for success, or for a reply with data. Raises Uncertain without an answer."""
    question = b"".join(messages)
    try:
        with _socket() as netlink:
            if len(question) > SMALL:
                netlink.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 2 * len(question))
            netlink.send(question)
            answer = netlink.recv(BUFFER)
    except OSError as error:
        raise Uncertain(f"the kernel's netfilter socket: {error}") from error
    _length, kind, _flags, _number, _port = HEADER.unpack_from(answer)
    return -int(struct.unpack_from("=i", answer, HEADER.size)[0]) if kind == NLMSG_ERROR else 0
