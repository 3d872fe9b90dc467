# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the marks that sockets (SO_MARK) and WireGuard links give to their packets. It only reads.

Ask only for protocols and kinds of links whose kernel module is loaded, such as udp_diag: the question would load it.
"""

from __future__ import annotations

import functools
import struct
import typing as t

from .._core.errors import Failure
from . import sock_diag, wire
from .attributes import attributes, message, pack, u32

MARK = 15  # INET_DIAG_MARK, include/uapi/linux/inet_diag.h


def of_sockets(protocol: int) -> dict[int, int]:
    """Map the marks of a protocol's sockets, as ``ss`` lists them, to the port of one of them each. Raises Failure.

    The kernel does not list the sockets of its own links, such as those of WireGuard.
    """
    marked = ((u32(attributes(body, sock_diag.ANSWER.size), MARK), body) for body in sock_diag.listed(protocol))
    return {mark: sock_diag.port(body) for mark, body in marked if mark}


GENERIC = 16  # NETLINK_GENERIC, include/uapi/linux/netlink.h
GENL = struct.Struct("=BBH")  # genlmsghdr: command, version, reserved
CONTROLLER, GET_FAMILY, FAMILY_ID, FAMILY_NAME = 16, 3, 1, 2  # include/uapi/linux/genetlink.h
GET_DEVICE, DEVICE_NAME, DEVICE_MARK = 0, 2, 7  # include/uapi/linux/wireguard.h; other attributes are keys and peers


_open_generic = functools.partial(wire.open_socket, GENERIC)


def of_wireguard(links: t.Iterable[str]) -> dict[str, int]:
    """Map the links to the marks of their outer packets, without those that give none, by generic netlink.

    Raises Failure if the kernel does not answer.
    """
    names = [*links]
    family = _family() if names else 0
    read = {link: _mark(family, link) for link in names} if family else {}
    return {link: mark for link, mark in read.items() if mark}


def _family() -> int:
    """Return the number that the kernel gave to the family wireguard; 0 if it has none."""
    question = message(CONTROLLER, 0, GENL.pack(GET_FAMILY, 1, 0) + pack({FAMILY_NAME: b"wireguard\0"}))
    with wire.connected(_open_generic) as netlink:
        answer = next(wire.answers(netlink, question))
    return 0 if answer.kind == wire.ERROR else u32(attributes(answer.body, GENL.size), FAMILY_ID)


def _mark(family: int, link: str) -> int:
    """Return the mark of a link; 0 if it is not there any more. The kernel repeats no mark in the parts with further peers."""
    body = GENL.pack(GET_DEVICE, 1, 0) + pack({DEVICE_NAME: link.encode("utf-8", "surrogateescape") + b"\0"})
    try:
        answers = wire.dump(family, body, f"the WireGuard link {link}", _open_generic)
    except Failure:
        return 0
    return max((u32(attributes(answer, GENL.size), DEVICE_MARK) for answer in answers), default=0)
