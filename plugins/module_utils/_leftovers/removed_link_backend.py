# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restores azure-vnet's links and addresses."""

from __future__ import annotations

import itertools
import socket
import struct
import typing as t

from .._core import fields
from .._core.errors import Failure
from .._core.plan import UndoBackend
from .._interfaces import link_message
from .._interfaces.link_backend import LinkMessages, Restore
from .._interfaces.link_message import Link, Message, Request, Scene
from .._netlink.attributes import attributes, pack, u32
from .._platform.sysctl import Sysctl, Write
from .leftover import ADDRESS, LINK

VETH_INFO_PEER = 1  # include/uapi/linux/veth.h


class End(t.NamedTuple):
    """A link. number: its index. master: the name of the bridge that it is in; empty for none."""

    name: str
    number: int
    mac: str
    mtu: int
    is_up: bool
    master: str


class RestoreLink(t.NamedTuple):
    """Create a removed link again, with the objects that the kernel removed with it. Those that exist are left.

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

    def report(self) -> dict[str, str]:
        """Return the link as the module returns it."""
        return {"kind": LINK, "place": "links", "text": self.name}

    def has_made(self, link: Link) -> bool:
        """Return whether an existing link is one of those that were removed, by name and MAC."""
        return (link.name, link.mac.hex(":")) in {(end.name, end.mac) for end in self.ends}


class RestoreAddress(t.NamedTuple):
    """Give a link an address with its length and its flags, unless it has the address."""

    link: str
    address: str
    flags: int

    @property
    def name(self) -> str:
        return f"{self.address} on {self.link}"

    def report(self) -> dict[str, str]:
        """Return the address as the module returns it."""
        return {"kind": ADDRESS, "place": f"link {self.link}", "text": self.address}


Operation = t.Union[RestoreLink, RestoreAddress]


class RemovedLinks(UndoBackend):
    """The backend of these operations."""

    OPERATIONS = (RestoreLink, RestoreAddress)
    VALUES = (End,)

    def __init__(self) -> None:
        self._links = LinkMessages()
        self._sysctl = Sysctl()

    def perform(self, operation: Operation) -> None:
        """Send what is missing. Raises Failure with the refused messages and the kernel's answers."""
        self._links.perform(Restore(missing_messages(operation, self._links.scene())))
        for write in _settings(operation):
            self._sysctl.perform(write)

    def verify(self, operation: Operation) -> list[str]:
        """Return what is still missing; see UndoBackend."""
        missing = missing_messages(operation, self._links.scene())
        settings = [difference for write in _settings(operation) for difference in self._sysctl.verify(write)]
        return [*(f"the kernel does not show the result of: {message.summary}" for message in missing), *settings]


def _settings(operation: Operation) -> list[Write]:
    return [Write(key, value) for key, value in operation.settings] if isinstance(operation, RestoreLink) else []


def link_restoration(
    scene: Scene, name: str, peer: str, going: t.Collection[str], settings: t.Iterable[tuple[str, int]]
) -> RestoreLink:
    """Return the operation that restores a link of the scene. peer: the name of the other end of a veth pair, or empty.

    going: all links that are removed.
    """
    by_name = {link.name: link for link in scene.links}
    link = by_name[name]
    names = {other.number: other.name for other in scene.links}
    neighbours = [neighbour for neighbour in scene.neighbours if neighbour.link == link.number and neighbour.is_permanent]
    return RestoreLink(
        tuple(_end(by_name[end], names) for end in (name, peer) if end),
        tuple(port.name for port in scene.links if port.master == link.number and port.name not in going),
        tuple((str(address), _flags(address)) for address in _addresses(scene, link.number) if not address.is_links_own),
        tuple((fields.show(neighbour.address), neighbour.mac.hex(":")) for neighbour in neighbours),
        tuple(settings),
    )


def address_restoration(scene: Scene, name: str, text: str) -> RestoreAddress:
    """Return the operation that restores an address of a link of the scene."""
    (link,) = (candidate for candidate in scene.links if candidate.name == name)
    (address,) = (candidate for candidate in _addresses(scene, link.number) if str(candidate) == text)
    return RestoreAddress(name, text, _flags(address))


def removal_message(scene: Scene, operation: Operation) -> Message:
    """Return the message that removes the link or the address from the scene.

    The kernel removes a link's objects with it, so that a killed run leaves all of them or none.
    """
    if isinstance(operation, RestoreAddress):
        (addition,) = missing_messages(operation, scene._replace(addresses=()))
        return addition.inverse()._replace(summary=f"remove {operation.address} from {operation.link}")
    (link,) = (candidate for candidate in scene.links if candidate.name == operation.name)
    return Message(f"remove {operation.name}", link.delete(), None)


def missing_messages(operation: Operation, scene: Scene) -> tuple[Message, ...]:
    """Return the messages that do what the scene shows to be undone. Raises Failure if there is no such link."""
    numbers = {link.name: link.number for link in scene.links}
    if isinstance(operation, RestoreLink):
        return tuple(_link_messages(operation, _with_indexes(numbers, operation.ends), scene))
    if operation.link not in numbers:
        raise Failure(f"{operation.address} cannot be restored: there is no link {operation.link}")
    return tuple(_address_messages(scene, operation.link, numbers[operation.link], [(operation.address, operation.flags)]))


def _with_indexes(numbers: t.Mapping[str, int], ends: t.Iterable[End]) -> dict[str, int]:
    """Add the indexes of links to create: the former one, or a new one if another link has that now."""
    indexes = dict(numbers)
    missing = [end for end in ends if end.name not in numbers]
    free = itertools.count(max([*numbers.values(), *(end.number for end in missing)], default=0) + 1)
    for end in missing:
        indexes[end.name] = next(free) if end.number in indexes.values() else end.number
    return indexes


def _link_messages(former: RestoreLink, numbers: t.Mapping[str, int], scene: Scene) -> t.Iterator[Message]:
    current = {link.name: link for link in scene.links}
    links = [Link(numbers[end.name], end.name, "", 0, bytes.fromhex(end.mac.replace(":", "")), b"") for end in former.ends]
    if former.name not in current:
        yield Message(f"add {former.name}", _creating(former.ends, links), links[0].delete())
    for end, link in zip(former.ends, links):
        existing = current.get(end.name)
        if end.master in numbers and (existing is None or existing.master != numbers[end.master]):
            yield _enslaving(link, numbers[end.master], end.master)
        if end.is_up and not (existing and _is_up(existing)):  # not at creation: one end of a veth pair has no other yet
            yield Message(f"set {end.name} up", _setting_up(link, True), _setting_up(link, False))
    for port in former.ports:
        if port in current and current[port].master != links[0].number:
            yield _enslaving(current[port], links[0].number, former.name)
    yield from _address_messages(scene, former.name, links[0].number, former.addresses)
    present = {(entry.address, entry.mac) for entry in scene.neighbours if entry.link == links[0].number and entry.is_permanent}
    for text, mac in former.neighbours:
        family, packed = fields.address(text)
        entry = link_message.Neighbour(family, links[0].number, 0, 0, packed, bytes.fromhex(mac.replace(":", "")))
        if (packed, entry.mac) not in present:
            add, delete = entry.add(links[0], link_message.NUD_PERMANENT), entry.delete(links[0])
            yield Message(f"add {entry} on {former.name}", add, delete)


def _address_messages(scene: Scene, name: str, number: int, addresses: t.Iterable[tuple[str, int]]) -> t.Iterator[Message]:
    """Yield the messages that give a link the addresses that it lacks."""
    existing = {str(address) for address in _addresses(scene, number)}
    link = Link(number, name, "", 0, b"", b"")
    for text, flags in addresses:
        if text not in existing:
            host, _slash, length = text.partition("/")
            address = link_message.new_address(number, fields.address(host)[1], int(length), flags)
            yield Message(f"add {text} to {name}", address.add(link, link), address.delete(link))


def _addresses(scene: Scene, number: int) -> list[link_message.Address]:
    return [address for address in scene.addresses if address.link == number]


def _is_up(link: Link) -> bool:
    return bool(link_message.IFINFO.unpack_from(link.body)[3] & link_message.IFF_UP)


def _end(link: Link, names: t.Mapping[int, str]) -> End:
    attrs = attributes(link.body, link_message.IFINFO.size)
    mtu = u32(attrs, link_message.IFLA_MTU)
    return End(link.name, link.number, link.mac.hex(":"), mtu, _is_up(link), names.get(link.master, ""))


def _flags(address: link_message.Address) -> int:
    return address.flags & ~link_message.MANAGED


def _enslaving(link: Link, bridge: int, name: str) -> Message:
    return Message(f"add {link.name} to {name}", link.set_master(bridge), link.set_master(0))


def _creating(ends: t.Sequence[End], links: t.Sequence[Link]) -> Request:
    """Create a bridge with the kernel's default settings, or a veth pair."""
    info = {link_message.INFO_KIND: b"veth\0" if len(ends) > 1 else b"bridge\0"}
    if len(ends) > 1:
        info[link_message.INFO_DATA] = pack({VETH_INFO_PEER: _link_body(ends[1], links[1])})
    body = _link_body(ends[0], links[0]) + pack({link_message.IFLA_LINKINFO: pack(info)})
    return Request(link_message.NEWLINK, link_message.CREATE | link_message.EXCL, body)


def _setting_up(link: Link, is_up: bool) -> Request:
    flags = link_message.IFF_UP if is_up else 0
    header = link_message.IFINFO.pack(socket.AF_UNSPEC, 0, link.number, flags, link_message.IFF_UP)
    return Request(link_message.NEWLINK, 0, header)


def _link_body(end: End, link: Link) -> bytes:
    return link_message.IFINFO.pack(socket.AF_UNSPEC, 0, link.number, 0, 0) + pack(
        {
            link_message.IFLA_IFNAME: end.name.encode() + b"\0",
            link_message.IFLA_ADDRESS: link.mac,
            link_message.IFLA_MTU: struct.pack("=I", end.mtu),
        }
    )
