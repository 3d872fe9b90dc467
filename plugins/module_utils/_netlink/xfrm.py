# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the IPsec policies of the kernel, without the states and their keys."""

from __future__ import annotations

import socket
import struct
import typing as t

from .._core import fields
from . import wire

GET_POLICY = 0x15  # include/uapi/linux/xfrm.h: XFRM_MSG_GETPOLICY
XFRM = 6  # NETLINK_XFRM
# The beginning of xfrm_userpolicy_info: destination, source, 8 bytes of ports, family, lengths of both prefixes.
_SELECTOR = struct.Struct("=16s16s8xHBB")
_DIRECTION = struct.Struct("=160xBB")  # and what is done, behind the selector, lifetimes, the priority and the index
DIRECTIONS, ACTIONS = ("in", "out", "fwd"), ("allow", "block")


class Policy(t.NamedTuple):
    """direction: in, out or fwd. source, destination: prefixes. action: allow, which may mean to encrypt, or block."""

    direction: str
    source: str
    destination: str
    action: str


def policies() -> list[Policy]:
    """Return the policies of the network namespace, without those of a single socket. Raises Failure.

    The kernel must have loaded xfrm_user: the question would load it.
    """
    every = map(_policy, wire.dump(GET_POLICY, b"", "the IPsec policies", lambda: wire.open_socket(XFRM)))
    return [policy for policy in every if policy]


def _policy(body: bytes) -> Policy | None:
    destination, source, family, *lengths = _SELECTOR.unpack_from(body)
    direction, action = _DIRECTION.unpack_from(body)
    if direction >= len(DIRECTIONS):  # a socket's own
        return None
    size = 4 if family == socket.AF_INET else 16
    to, of = (f"{fields.show(address[:size])}/{length}" for address, length in zip((destination, source), lengths))
    return Policy(DIRECTIONS[direction], of, to, ACTIONS[action] if action < len(ACTIONS) else str(action))
