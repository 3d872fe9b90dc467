# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notifications of rtnetlink, as the kernel builds them."""

from __future__ import annotations

import socket
import struct

NEWLINK, DELLINK, NEWADDR, DELADDR, NEWROUTE, DELROUTE, NEWRULE, DELRULE = 16, 17, 20, 21, 24, 25, 32, 33


def packed(attributes: dict[int, bytes]) -> bytes:
    return b"".join(struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4) for kind, data in attributes.items())


def message(kind: int, header: bytes, attributes: dict[int, bytes], flags: int = 0, port: int = 812) -> bytes:
    body = header + packed(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, port) + body


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def rule(kind: int, protocol: int, priority: int = 700, src: str = "10.0.1.5") -> bytes:
    header = struct.pack("=BBBBBxxBI", socket.AF_INET, 0, 32, 0, 254, 1, 0)
    source = socket.inet_aton(src)
    return message(kind, header, {15: u32(254), 14: u32(0xFFFFFFFF), 21: bytes([protocol]), 6: u32(priority), 2: source})


def route(kind: int, protocol: int, table: int = 1003, link: int = 7, flags: int = 0, route_flags: int = 0) -> bytes:
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 24, 0, 0, min(table, 252), protocol, 253, 1, route_flags)
    return message(kind, header, {15: u32(table), 1: socket.inet_aton("10.9.0.0"), 4: u32(link)}, flags)


def link(kind: int, name: str, index: int, is_up: bool, family: int = 0) -> bytes:
    return message(kind, struct.pack("=BxHiII", family, 1, index, int(is_up), 0), {3: name.encode() + b"\0", 13: u32(0)})


def address(kind: int, index: int, text: str) -> bytes:
    packed = socket.inet_aton(text)
    return message(kind, struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, index), {1: packed, 2: packed, 3: b"eth\0"})
