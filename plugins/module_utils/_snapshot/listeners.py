# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The TCP sockets on which programs of the node listen, from /proc/net/tcp and tcp6.

ss asks the kernel by netlink instead, which loads a kernel module.
"""

from __future__ import annotations

import struct
import typing as t

from .._core import fields

PATHS = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"  # include/net/tcp_states.h


def parsed(text: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the listening sockets. text: of one of PATHS (net/ipv4/tcp_ipv4.c, net/ipv6/tcp_ipv6.c)."""
    for _number, local, _remote, state, *_rest in map(str.split, text.splitlines()[1:]):
        if state == LISTEN:
            address, _colon, port = local.partition(":")
            yield {"address": _address(address), "port": int(port, 16)}


def _address(digits: str) -> str:
    """Return an address, whose words of 32 bits are numbers of the machine."""
    words = (int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
    return fields.show(b"".join(struct.pack("=I", word) for word in words))
