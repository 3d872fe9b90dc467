# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Netlink messages as values: their header and their attributes, parsed and packed.

pyroute2 encodes the rules, routes and neighbours that a run writes. What the kernel lists is parsed here, because pyroute2 needs
45 microseconds for a rule and a sixth of a second to import: a run that changes nothing should not pay for either. An object that
goes back to the kernel as it was listed is packed here (_interfaces/link_message.py gives the reason).
"""

from __future__ import annotations

import struct
import sys
import typing as t

HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
REQUEST = 0x1  # NLM_F_REQUEST
ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER


class Message(t.NamedTuple):
    """A message of the kernel. number: of the message that it answers."""

    kind: int
    flags: int
    number: int
    body: bytes


def message(kind: int, flags: int, body: bytes, number: int = 1) -> bytes:
    """Return a request for the kernel. flags: besides REQUEST."""
    return HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, number, 0) + body


def messages(data: bytes) -> t.Iterator[Message]:
    """Yield the messages in what a socket received. Netlink pads messages to four bytes."""
    offset, end = 0, len(data)
    while offset < end:
        length, kind, flags, number, _port = HEADER.unpack_from(data, offset)
        yield Message(kind, flags, number, data[offset + HEADER.size : offset + length])
        offset += (length + 3) & ~3


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Return the payloads by attribute type. Netlink pads attributes to four bytes."""
    attrs = {}
    end, unpack = len(data), ATTRIBUTE.unpack_from
    while offset < end:
        length, kind = unpack(data, offset)
        attrs[kind & TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return attrs


def elements(data: bytes) -> list[bytes]:
    """Return the payloads of a list, whose attributes all have one type, in order."""
    payloads, offset = [], 0
    while offset < len(data):
        length, _kind = ATTRIBUTE.unpack_from(data, offset)
        payloads.append(data[offset + 4 : offset + length])
        offset += (length + 3) & ~3
    return payloads


def u32(attrs: dict[int, bytes], kind: int) -> int:
    """Return an integer attribute, in the node's byte order; 0 if it is missing."""
    return int.from_bytes(attrs.get(kind, b""), sys.byteorder)


def text(attrs: dict[int, bytes], kind: int) -> str:
    return attrs.get(kind, b"").rstrip(b"\0").decode(errors="replace")


def pack(attrs: t.Mapping[int, bytes]) -> bytes:
    """Return the attributes encoded for a message, with padding."""
    return b"".join(ATTRIBUTE.pack(4 + len(data), kind) + data + bytes(-len(data) % 4) for kind, data in attrs.items())
