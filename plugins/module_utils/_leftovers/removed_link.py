# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""azure-vnet's links and addresses as a backup keeps them, and the messages that create and remove them. Pure."""

from __future__ import annotations

import socket
import struct
import typing as t

from .._core import fields
from .._interfaces import link_message
from .._interfaces.link_message import Link, Message, Request, Scene
from .._netlink.attributes import attributes, pack, u32

VETH_INFO_PEER = 1  # include/uapi/linux/veth.h
NOWHERE = Scene()


class End(t.NamedTuple):
    """A link. number: its index. master: the name of the bridge that it is in; empty for none."""

    name: str
    number: int
    mac: str
    mtu: int
    is_up: bool
    master: str


class RemovedLink(t.NamedTuple):
    """A link that was removed, with the objects that the kernel removed with it.

    ends: a bridge alone, or both ends of a veth pair. ports: names of links that were in the bridge and still exist.
    addresses: each with its length and its flags (IFA_F_*). neighbours: permanent ones, address and MAC.
    settings: keys below /proc/sys, with their values.
    """

    ends: tuple[End, ...]
    ports: tuple[str, ...] = ()
    addresses: tuple[tuple[str, int], ...] = ()
    neighbours: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        return self.ends[0].name


class Gateway(t.NamedTuple):
    """An address, with its length and its flags, that was removed from a link."""

    link: str
    address: str
    flags: int


def removed(scene: Scene, name: str, peer: str, going: t.Collection[str], settings: t.Iterable[tuple[str, int]]) -> RemovedLink:
    """Return a link as the backup keeps it. peer: the name of the other end of a veth pair, or empty.

    going: all links that are removed.
    """
    by_name = {link.name: link for link in scene.links}
    link = by_name[name]
    names = {other.number: other.name for other in scene.links}
    addresses = [address for address in scene.addresses if address.link == link.number and not address.is_links_own]
    neighbours = [neighbour for neighbour in scene.neighbours if neighbour.link == link.number and neighbour.is_permanent]
    return RemovedLink(
        tuple(_end(by_name[end], names) for end in (name, peer) if end),
        tuple(port.name for port in scene.links if port.master == link.number and port.name not in going),
        tuple((str(address), _flags(address)) for address in addresses),
        tuple((fields.show(neighbour.address), neighbour.mac.hex(":")) for neighbour in neighbours),
        tuple(settings),
    )


def gateway(scene: Scene, link: str, address: str) -> Gateway:
    """Return an address of a link, as a backup keeps it."""
    (number,) = (candidate.number for candidate in scene.links if candidate.name == link)
    (current,) = (candidate for candidate in scene.addresses if candidate.link == number and str(candidate) == address)
    return Gateway(link, address, _flags(current))


def _is_up(link: Link) -> bool:
    return bool(link_message.IFINFO.unpack_from(link.body)[3] & link_message.IFF_UP)


def _end(link: Link, names: t.Mapping[int, str]) -> End:
    attrs = attributes(link.body, link_message.IFINFO.size)
    mtu = u32(attrs, link_message.IFLA_MTU)
    return End(link.name, link.number, link.mac.hex(":"), mtu, _is_up(link), names.get(link.master, ""))


def _flags(address: link_message.Address) -> int:
    return address.flags & ~link_message.MANAGED


def creation(former: RemovedLink, numbers: t.Mapping[str, int], scene: Scene = NOWHERE) -> tuple[Message, ...]:
    """Return the messages that create a link with everything that it had. numbers: indexes by name, also of links to be created.

    scene: the node. Objects that a killed run has created already are left out.
    """
    there = {link.name: link for link in scene.links}
    links = [_link(end, numbers) for end in former.ends]
    messages = [] if former.name in there else [Message(f"add {former.name}", _make(former.ends, links), links[0].delete())]
    for end, link in zip(former.ends, links):
        current = there.get(end.name)
        if end.master in numbers and (current is None or current.master != numbers[end.master]):
            messages.append(_into(link, numbers[end.master], end.master))
        if end.is_up and not (current and _is_up(current)):  # not at creation: one end of a veth pair has no other yet
            messages.append(Message(f"set {end.name} up", _up(link, True), _up(link, False)))
    for port in former.ports:
        if port in numbers and (port not in there or there[port].master != links[0].number):
            messages.append(_into(Link(numbers[port], port, "", 0, b"", b""), links[0].number, former.name))
    addresses = {str(address) for address in scene.addresses if address.link == links[0].number}
    messages += [_address(links[0], address, flags) for address, flags in former.addresses if address not in addresses]
    known = {(entry.address, entry.mac) for entry in scene.neighbours if entry.link == links[0].number and entry.is_permanent}
    for text, mac in former.neighbours:
        family, packed = fields.address(text)
        entry = link_message.Neighbour(family, links[0].number, 0, 0, packed, bytes.fromhex(mac.replace(":", "")))
        if (packed, entry.mac) not in known:
            add, delete = entry.add(links[0], link_message.NUD_PERMANENT), entry.delete(links[0])
            messages.append(Message(f"add {entry} on {former.name}", add, delete))
    return tuple(messages)


def deletion(former: RemovedLink, numbers: t.Mapping[str, int]) -> Message:
    """Remove a link. The kernel removes the link's objects with it, so that a killed run leaves all of them or none."""
    return Message(f"remove {former.name}", _link(former.ends[0], numbers).delete(), None)


def is_of(former: RemovedLink, link: Link) -> bool:
    """Return whether an existing link is one of those that were removed, by name and MAC."""
    return (link.name, link.mac.hex(":")) in {(end.name, end.mac) for end in former.ends}


def addition(gateway: Gateway, numbers: t.Mapping[str, int]) -> tuple[Message, ...]:
    """Return the message that gives a link an address."""
    return (_address(Link(numbers[gateway.link], gateway.link, "", 0, b"", b""), gateway.address, gateway.flags),)


def _link(end: End, numbers: t.Mapping[str, int]) -> Link:
    return Link(numbers[end.name], end.name, "", 0, bytes.fromhex(end.mac.replace(":", "")), b"")


def _into(link: Link, bridge: int, name: str) -> Message:
    return Message(f"add {link.name} to {name}", link.set_master(bridge), link.set_master(0))


def _address(link: Link, text: str, flags: int) -> Message:
    address, _slash, length = text.partition("/")
    message = link_message.new_address(link.number, fields.address(address)[1], int(length), flags)
    return Message(f"add {text} to {link.name}", message.add(link, link), message.delete(link))


def _make(ends: t.Sequence[End], links: t.Sequence[Link]) -> Request:
    """Create a bridge with the kernel's default settings, or a veth pair."""
    info = {link_message.INFO_KIND: b"veth\0" if len(ends) > 1 else b"bridge\0"}
    if len(ends) > 1:
        info[link_message.INFO_DATA] = pack({VETH_INFO_PEER: _described(ends[1], links[1])})
    body = _described(ends[0], links[0]) + pack({link_message.IFLA_LINKINFO: pack(info)})
    return Request(link_message.NEWLINK, link_message.CREATE | link_message.EXCL, body)


def _up(link: Link, is_up: bool) -> Request:
    flags = link_message.IFF_UP if is_up else 0
    header = link_message.IFINFO.pack(socket.AF_UNSPEC, 0, link.number, flags, link_message.IFF_UP)
    return Request(link_message.NEWLINK, 0, header)


def _described(end: End, link: Link) -> bytes:
    return link_message.IFINFO.pack(socket.AF_UNSPEC, 0, link.number, 0, 0) + pack(
        {
            link_message.IFLA_IFNAME: end.name.encode() + b"\0",
            link_message.IFLA_ADDRESS: link.mac,
            link_message.IFLA_MTU: struct.pack("=I", end.mtu),
        }
    )
