# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An entry of a neighbour table: which MAC address the node sends to for an address on a link."""

from __future__ import annotations

import struct
import typing as t

from .._core import fields
from .._core.fields import IPV4, IPV6
from .._netlink.attributes import attributes

# include/uapi/linux/neighbour.h
HEADER = struct.Struct("=BxxxiHBB")  # ndmsg: family, link's index, state, flags, type
NDA_DST, NDA_LLADDR = 1, 2
INCOMPLETE, STALE, FAILED, NOARP, PERMANENT = 0x01, 0x04, 0x20, 0x40, 0x80
STATES = {
    INCOMPLETE: "INCOMPLETE", 0x02: "REACHABLE", STALE: "STALE", 0x08: "DELAY", 0x10: "PROBE", FAILED: "FAILED",
    PERMANENT: "PERMANENT",
}  # fmt: skip


class Neighbour(t.NamedTuple):
    """A neighbour. mac: empty if none was learned."""

    address: str
    link: str
    mac: str = ""
    state: int = PERMANENT

    @property
    def family(self) -> int:
        return IPV6 if ":" in self.address else IPV4

    @property
    def is_permanent(self) -> bool:
        return bool(self.state & PERMANENT)

    def __str__(self) -> str:
        """Show the neighbour as ``ip neigh`` prints it."""
        mac = f" lladdr {self.mac}" if self.mac else ""
        return f"{self.address} dev {self.link}{mac} {STATES.get(self.state, self.state)}"


def from_message(body: bytes, links: t.Mapping[int, str]) -> Neighbour | None:
    """Return the neighbour; None for one that the kernel created itself (NOARP) or is still resolving (INCOMPLETE).

    links: link names by index.
    """
    _family, index, state, _flags, _kind = HEADER.unpack_from(body)
    attrs = attributes(body, HEADER.size)
    if NDA_DST not in attrs or state in (NOARP, INCOMPLETE, 0):
        return None
    mac = attrs.get(NDA_LLADDR, b"") if state != FAILED else b""
    return Neighbour(fields.show(attrs[NDA_DST]), links.get(index) or f"if{index}", mac.hex(":"), state)
