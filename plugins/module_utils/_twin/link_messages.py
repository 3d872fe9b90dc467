# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages to the kernel that create the links of a twin. A link is a bridge, or one end of a veth whose other end is in the
world."""

from __future__ import annotations

import struct
import typing as t

from .._core.fields import IPV4, IPV6
from .._interfaces.link_message import (
    CREATE,
    DELLINK,
    DELNEIGH,
    EXCL,
    IFF_UP,
    IFINFO,
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    INFO_DATA,
    INFO_KIND,
    NDA_DST,
    NEIGHBOUR,
    NEWLINK,
)
from .._netlink.attributes import attributes, message, pack

IFLA_OPERSTATE, IFLA_GROUP, IFLA_NET_NS_FD, VETH_INFO_PEER, IFF_NOARP = 16, 27, 28, 1, 0x80
IF_OPER_UP = 6  # include/uapi/linux/if.h
FORWARD_DELAY = 1  # IFLA_BR_FORWARD_DELAY; with 0 a port forwards at once (net/bridge/br_stp_if.c)
_SIZES = {5: "=I", 7: "=B", 9: "=H", 22: "=B", 23: "=B", 36: "=B", 37: "=B", 38: "=B"}  # of the settings of a bridge


class NewLink(t.NamedTuple):
    """A link to create. number: its index, as on the node and in the world. kind: "bridge" or "veth".

    master: the index of its bridge, or 0. settings: of a bridge, by number. has_carrier: whether the other end is up, as is that
    of a link that is down. far_mtu: of the other end.
    """

    number: int
    name: str
    kind: str
    mac: bytes = b""
    mtu: int = 0
    is_up: bool = True
    has_carrier: bool = True
    has_arp: bool = True
    master: int = 0
    settings: t.Mapping[int, int] = {}
    far_mtu: int = 0


def create_link(link: NewLink, world: int, number: int, group: int) -> bytes:
    """Create a bridge, or a veth pair whose other end is in a world. Its settings are those of the link on the node.

    world: descriptor of the network namespace of the other end. number: of the message. group: of the other end.
    """
    attributes = {IFLA_IFNAME: link.name.encode() + b"\0"}
    if link.mac:
        attributes[IFLA_ADDRESS] = link.mac
    if link.mtu:
        attributes[IFLA_MTU] = struct.pack("=I", link.mtu)
    if link.master:
        attributes[IFLA_MASTER] = struct.pack("=I", link.master)
    info = {INFO_KIND: link.kind.encode()}
    if link.kind == "bridge":
        data = {kind: struct.pack(_SIZES[kind], value) for kind, value in link.settings.items()}
        info[INFO_DATA] = pack({FORWARD_DELAY: struct.pack("=I", 0), **data})
    else:
        info[INFO_DATA] = pack({VETH_INFO_PEER: _other_end(link, world, group)})
    flags = IFF_UP * link.is_up | IFF_NOARP * (not link.has_arp)
    body = IFINFO.pack(0, 0, link.number, flags, flags) + pack({**attributes, IFLA_LINKINFO: pack(info)})
    return message(NEWLINK, CREATE | EXCL, body, number)


def _other_end(link: NewLink, world: int, group: int) -> bytes:
    """Describe the other end of a veth pair: w and the link's number is its name, and the number its index, too."""
    attributes = {
        IFLA_IFNAME: f"w{link.number}".encode() + b"\0",
        IFLA_NET_NS_FD: struct.pack("=I", world),
        IFLA_GROUP: struct.pack("=I", group),
    }
    if link.far_mtu:
        attributes[IFLA_MTU] = struct.pack("=I", link.far_mtu)
    return IFINFO.pack(0, 0, link.number, 0, 0) + pack(attributes)


def set_link_up(index: int, number: int) -> bytes:
    """Set a link up that exists. number: of the message."""
    return message(NEWLINK, 0, IFINFO.pack(0, 0, index, IFF_UP, IFF_UP), number)


def set_mtu(link: NewLink, number: int) -> bytes:
    """Set the MTU of a link that exists. number: of the message."""
    return message(NEWLINK, 0, IFINFO.pack(0, 0, link.number, 0, 0) + pack({IFLA_MTU: struct.pack("=I", link.mtu)}), number)


def operational_links(bodies: t.Iterable[bytes]) -> set[int]:
    """Return the indexes of the links that packets pass, from the kernel's list of links.

    A link with a carrier gets its queue, and becomes a port that forwards, when the kernel's linkwatch has worked on it.
    """
    states = ((IFINFO.unpack_from(body)[2], attributes(body, IFINFO.size).get(IFLA_OPERSTATE)) for body in bodies)
    return {index for index, state in states if state == bytes([IF_OPER_UP])}


def down_links(bodies: t.Iterable[bytes]) -> set[int]:
    """Return the indexes of the links that are down, from the kernel's list of links."""
    return {index for _family, _type, index, flags, _change in map(IFINFO.unpack_from, bodies) if not flags & IFF_UP}


def delete_group(group: int, number: int) -> bytes:
    """Delete all links of a group, and the other end of each."""
    return message(DELLINK, 0, IFINFO.pack(0, 0, 0, 0, 0) + pack({IFLA_GROUP: struct.pack("=I", group)}), number)


def delete_neighbour(address: bytes, index: int) -> bytes:
    """Delete a neighbour that did not answer, so that the next packet asks for it again."""
    family = IPV6 if len(address) == 16 else IPV4
    return message(DELNEIGH, 0, NEIGHBOUR.pack(family, index, 0, 0, 0) + pack({NDA_DST: address}))
