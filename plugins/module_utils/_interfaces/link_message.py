# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links, addresses, neighbours and routes as the kernel lists them, and the messages that move them to another link.

An object that moves to another link is sent back in the kernel's own encoding, as ``ip route save`` and ``ip route restore``
do. So flags, lifetimes, metrics and attributes that this program does not know are kept. Only the fields that name the link
are replaced. pyroute2 cannot do that: it keeps no data of an attribute that it does not know (in version 0.9.7 the number of a
route's nexthop object, and seven attributes of a veth).
"""

from __future__ import annotations

import socket
import struct
import typing as t

from .._core import fields
from .._core.fields import IPV6
from .._netlink.attributes import attributes, pack, text, u32
from .._routing import route as routes
from .._routing import rt_names

# include/uapi/linux/netlink.h, rtnetlink.h
REPLACE, CREATE, APPEND, EXCL = 0x100, 0x400, 0x800, 0x200
NEWLINK, DELLINK, SETLINK, NEWADDR, DELADDR = 16, 17, 19, 20, 21
NEWROUTE, DELROUTE, NEWNEIGH, DELNEIGH = 24, 25, 28, 29
DELETING = frozenset((DELLINK, DELADDR, DELROUTE, DELNEIGH))
# include/uapi/linux/if_link.h
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_MASTER, IFLA_TXQLEN, IFLA_LINKINFO, IFLA_AF_SPEC = 1, 3, 4, 10, 13, 18, 26
IFLA_CONF = {fields.IPV4: 1, IPV6: 2}  # IFLA_INET_CONF, IFLA_INET6_CONF
INFO_KIND, INFO_DATA, INFO_SLAVE_KIND, INFO_SLAVE_DATA = 1, 2, 4, 5
IFF_UP = 1
# The settings of a bridge (IFLA_BR_*). Its other attributes are state, and the kernel refuses to set some of them.
BRIDGE_SETTINGS = (*range(1, 10), 20, *range(22, 40), *range(41, 47), 49)
# A kernel without VLAN filtering lists these as off and refuses to set them, even to off.
BRIDGE_SWITCHES = (7, 46)
# The settings of a bridge's port: hairpin, guard, protect, fast leave, learning, the floods, proxy ARP, isolation.
PORT_SETTINGS = (4, 5, 6, 7, 8, 9, 10, 12, 27, 28, 30, 32, 33)
# include/uapi/linux/if_addr.h
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_FLAGS = 1, 2, 3, 8
SECONDARY, NODAD, NOPREFIXROUTE = 0x01, 0x02, 0x200
MANAGED = SECONDARY | 0x08 | 0x10 | 0x40 | 0x80  # DAD failed, deprecated, tentative, permanent
# include/uapi/linux/neighbour.h
NDA_DST, NDA_LLADDR = 1, 2
NUD_STALE, NUD_PERMANENT = 0x04, 0x80
NUD_LEARNED = 0x02 | NUD_STALE | 0x08 | 0x10  # reachable, stale, delayed, being probed
KERNEL, LINK_SCOPE = 2, 253
CLOCK_TICKS = 100  # per second, USER_HZ
RTA_VIA, RTA_NH_ID = 18, 30

IFINFO = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
IFADDR = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg: family, index, state, flags, type


class Request(t.NamedTuple):
    """A netlink message without length and sequence number. flags: in addition to NLM_F_REQUEST."""

    kind: int
    flags: int
    body: bytes


class Message(t.NamedTuple):
    """The request that makes a change and the request that undoes it, None for none. summary: "add 10.0.0.4/24 dev eth0"."""

    summary: str
    do: Request | None
    undo: Request | None

    def inverse(self) -> Message:
        return Message(f"undo {self.summary}", self.undo, self.do)


class Link(t.NamedTuple):
    """number: its index. kind: "bridge", "veth"...; empty for hardware. master: the index of its bridge, 0 for none."""

    number: int
    name: str
    kind: str
    master: int
    mac: bytes
    body: bytes

    def conf(self, family: int) -> bytes:
        """Return the values of the settings of a family, 32 bits each in the kernel's order; none without the family."""
        families = attributes(attributes(self.body, IFINFO.size).get(IFLA_AF_SPEC, b""))
        return attributes(families.get(family, b"")).get(IFLA_CONF[family], b"")

    def set_master(self, bridge: int) -> Request:
        master = pack({IFLA_MASTER: struct.pack("=I", bridge)})
        return Request(SETLINK, 0, IFINFO.pack(socket.AF_UNSPEC, 0, self.number, 0, 0) + master)

    def set_as_port(self) -> Request:
        """Set the link's settings as a bridge port to those that the kernel listed."""
        info = attributes(attributes(self.body, IFINFO.size).get(IFLA_LINKINFO, b""))
        settings = _chosen(info.get(INFO_SLAVE_DATA, b""), PORT_SETTINGS)
        nested = pack({INFO_SLAVE_KIND: b"bridge\0", INFO_SLAVE_DATA: settings})
        return Request(NEWLINK, 0, IFINFO.pack(socket.AF_UNSPEC, 0, self.number, 0, 0) + pack({IFLA_LINKINFO: nested}))

    def make(self) -> Request:
        """Create the same bridge again, with the same index, so that references to the index stay valid."""
        attrs = attributes(self.body, IFINFO.size)
        info = attributes(attrs.get(IFLA_LINKINFO, b""))
        basic = {kind: attrs[kind] for kind in (IFLA_IFNAME, IFLA_ADDRESS, IFLA_MTU, IFLA_TXQLEN) if kind in attrs}
        is_off = {kind for kind in BRIDGE_SWITCHES if not any(attributes(info.get(INFO_DATA, b"")).get(kind, b"")[:4])}
        settings = _chosen(info.get(INFO_DATA, b""), set(BRIDGE_SETTINGS) - is_off)
        basic[IFLA_LINKINFO] = pack({INFO_KIND: self.kind.encode() + b"\0", INFO_DATA: settings})
        _family, _type, _index, flags, _change = IFINFO.unpack_from(self.body)
        header = IFINFO.pack(socket.AF_UNSPEC, 0, self.number, flags & IFF_UP, IFF_UP)
        return Request(NEWLINK, CREATE | EXCL, header + pack(basic))

    def delete(self) -> Request:
        return Request(DELLINK, 0, IFINFO.pack(socket.AF_UNSPEC, 0, self.number, 0, 0))


def _chosen(data: bytes, settings: t.Collection[int]) -> bytes:
    return pack({kind: value for kind, value in attributes(data).items() if kind in settings})


class Address(t.NamedTuple):
    """An address of a link. link: the link's index."""

    family: int
    link: int
    scope: int
    flags: int
    local: bytes
    length: int
    body: bytes

    def __str__(self) -> str:
        return f"{fields.show(self.local)}/{self.length}"

    @property
    def key(self) -> tuple[int, bytes, int]:
        return self.family, self.local, self.length

    @property
    def is_links_own(self) -> bool:
        """Return True for an IPv6 link-local address: the kernel gives each link its own."""
        return self.family == IPV6 and self.scope == LINK_SCOPE

    def add(self, link: Link, former: Link, flags: int = 0) -> Request:
        """Add the address to ``link``. flags: IFA_FLAGS in addition to the address's own.

        If the label begins with the name of the ``former`` link, that part becomes the name of ``link``.
        """
        attrs = attributes(self.body, IFADDR.size)
        label = text(attrs, IFA_LABEL)
        if label.partition(":")[0] == former.name:
            attrs[IFA_LABEL] = (link.name + label[len(former.name) :]).encode()[:15] + b"\0"
        attrs[IFA_FLAGS] = struct.pack("=I", self.flags & ~MANAGED | flags)
        return Request(NEWADDR, CREATE | (REPLACE if self.family == IPV6 else EXCL), self._header(link) + pack(attrs))

    def delete(self, link: Link) -> Request:
        attrs = attributes(self.body, IFADDR.size)
        key = {kind: attrs[kind] for kind in (IFA_LOCAL, IFA_ADDRESS) if kind in attrs}
        return Request(DELADDR, 0, self._header(link) + pack(key))

    def _header(self, link: Link) -> bytes:
        return IFADDR.pack(self.family, self.length, 0, self.scope, link.number)


class Neighbour(t.NamedTuple):
    """A neighbour entry. link: the link's index. state: NUD_*."""

    family: int
    link: int
    state: int
    flags: int
    address: bytes
    mac: bytes

    def __str__(self) -> str:
        return f"neighbour {fields.show(self.address)}"

    @property
    def is_learned(self) -> bool:
        return bool(self.state & NUD_LEARNED and self.mac)

    @property
    def is_permanent(self) -> bool:
        return self.state == NUD_PERMANENT

    def add(self, link: Link, state: int) -> Request:
        return Request(NEWNEIGH, CREATE | REPLACE, self._body(link, state))

    def delete(self, link: Link) -> Request:
        return Request(DELNEIGH, 0, self._body(link, 0))

    def _body(self, link: Link, state: int) -> bytes:
        header = NEIGHBOUR.pack(self.family, link.number, state, self.flags, 0)
        return header + pack({NDA_DST: self.address, **({NDA_LLADDR: self.mac} if state else {})})


class Route(t.NamedTuple):
    """A route. hops: the link's index and the gateway of each hop; the gateway is empty if there is none."""

    family: int
    table: int
    dst: fields.Prefix
    metric: int
    protocol: int
    type: int
    hops: tuple[tuple[int, bytes], ...]
    has_nexthop_object: bool
    body: bytes

    def __str__(self) -> str:
        """Show the route without the names of its links."""
        gateways = "".join(f" via {fields.show(via)}" for _index, via in self.hops if via)
        metric = f" metric {self.metric}" if self.metric else ""
        return (
            f"ip{' -6' if self.family == IPV6 else ''} route {fields.show_prefix(self.dst, 'default')}{gateways}"
            f" table {rt_names.table(self.table)}{metric}"
        )

    @property
    def has_gateway(self) -> bool:
        return any(via for _index, via in self.hops)

    def key(self, link: Link, former: Link) -> tuple[t.Any, ...]:
        """Return the key by which the kernel tells routes apart, after this route has moved from ``former`` to ``link``."""
        hops = tuple((link.number if index == former.number else index, via) for index, via in self.hops)
        return self.family, self.table, self.dst, self.metric, hops

    @property
    def is_links_own(self) -> bool:
        """Return True for a route that the kernel itself keeps for each link that is up, or for an address in the local table."""
        is_multicast = self.dst[0][:1] == b"\xff" or self.dst[0][:1] == b"\xfe"  # or link-local
        return self.type != routes.UNICAST or self.protocol == KERNEL and self.family == IPV6 and is_multicast

    @property
    def is_of_address(self) -> bool:
        """Return True for the route to an address's prefix, which the kernel adds and removes with the address."""
        return self.protocol == KERNEL and not self.has_gateway

    def add(self, link: Link, former: Link, flags: int) -> Request:
        return Request(NEWROUTE, CREATE | flags, self._over(link, former))

    def delete(self, link: Link, former: Link) -> Request:
        return Request(DELROUTE, 0, self._over(link, former))

    def _over(self, link: Link, former: Link) -> bytes:
        header = list(routes.HEADER.unpack_from(self.body))
        header[-1] &= routes.RTNH_F_ONLINK  # the other flags are state, which the kernel lists but does not accept
        attrs = attributes(self.body, routes.HEADER.size)
        if u32(attrs, routes.RTA_OIF) == former.number:
            attrs[routes.RTA_OIF] = struct.pack("=I", link.number)
        if routes.RTA_MULTIPATH in attrs:
            attrs[routes.RTA_MULTIPATH] = _hops_over(attrs[routes.RTA_MULTIPATH], link, former, self.family)
        seconds = _seconds_left(attrs.pop(routes.RTA_CACHEINFO, b""))
        if seconds:
            attrs[routes.RTA_EXPIRES] = struct.pack("=I", seconds)
        return routes.HEADER.pack(*header) + pack(attrs)


def _hops_over(data: bytes, link: Link, former: Link, family: int) -> bytes:
    """Return all next hops of an IPv4 route.

    Of an IPv6 route only the moved hops, because the kernel adds and deletes them singly.
    """
    hops = b""
    while data:
        length, flags, weight, index = routes.NEXTHOP.unpack_from(data)
        size = (length + 3) & ~3
        if index == former.number or family != IPV6:
            chosen = link.number if index == former.number else index
            header = routes.NEXTHOP.pack(length, flags & routes.RTNH_F_ONLINK, weight, chosen)
            hops += header + data[routes.NEXTHOP.size : size]
        data = data[size:]
    return hops


def _seconds_left(cacheinfo: bytes) -> int:
    """Return the remaining lifetime of a route in seconds; 0 for a route that does not expire."""
    ticks: int = routes.CACHE_EXPIRES.unpack_from(cacheinfo)[0] if cacheinfo else 0
    return max(ticks // CLOCK_TICKS, 1) if ticks else 0


class Scene(t.NamedTuple):
    """All links of the node, and the addresses, neighbours and routes that a change may affect."""

    links: tuple[Link, ...] = ()
    addresses: tuple[Address, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[Route, ...] = ()


def link_from(body: bytes) -> Link:
    _family, _type, index, _flags, _change = IFINFO.unpack_from(body)
    attrs = attributes(body, IFINFO.size)
    info = attributes(attrs.get(IFLA_LINKINFO, b""))
    name, kind, master = text(attrs, IFLA_IFNAME), text(info, INFO_KIND), u32(attrs, IFLA_MASTER)
    return Link(index, name, kind, master, attrs.get(IFLA_ADDRESS, b""), body)


def address_from(body: bytes) -> Address:
    family, length, flags, scope, index = IFADDR.unpack_from(body)
    attrs = attributes(body, IFADDR.size)
    local = attrs.get(IFA_LOCAL) or attrs[IFA_ADDRESS]
    return Address(family, index, scope, u32(attrs, IFA_FLAGS) or flags, local, length, body)


def new_address(index: int, local: bytes, length: int, flags: int) -> Address:
    """Return an Address of global scope that is not on the node yet, for the link with this index."""
    family = IPV6 if len(local) == 16 else fields.IPV4
    header = IFADDR.pack(family, length, 0, 0, index)
    return address_from(header + pack({IFA_LOCAL: local, IFA_ADDRESS: local, IFA_FLAGS: struct.pack("=I", flags)}))


def neighbour_from(body: bytes) -> Neighbour:
    family, index, state, flags, _type = NEIGHBOUR.unpack_from(body)
    attrs = attributes(body, NEIGHBOUR.size)
    return Neighbour(family, index, state, flags, attrs.get(NDA_DST, b""), attrs.get(NDA_LLADDR, b""))


def route_from(body: bytes) -> Route | None:
    """Parse a route message. None for an entry of the kernel's route cache."""
    family, length, _src, _tos, table, protocol, _scope, kind, flags = routes.HEADER.unpack_from(body)
    if flags & routes.RTM_F_CLONED:
        return None
    attrs = attributes(body, routes.HEADER.size)
    return Route(
        family,
        u32(attrs, routes.RTA_TABLE) or table,
        (attrs[routes.RTA_DST], length) if length else fields.ANY,
        u32(attrs, routes.RTA_PRIORITY),
        protocol,
        kind,
        tuple(_hops(attrs)),
        RTA_NH_ID in attrs,
        body,
    )


def _hops(attrs: dict[int, bytes]) -> t.Iterator[tuple[int, bytes]]:
    if routes.RTA_OIF in attrs:
        yield u32(attrs, routes.RTA_OIF), _gateway(attrs)
    data = attrs.get(routes.RTA_MULTIPATH, b"")
    while data:
        length, _flags, _weight, index = routes.NEXTHOP.unpack_from(data)
        yield index, _gateway(attributes(data[routes.NEXTHOP.size : length]))
        data = data[(length + 3) & ~3 :]


def _gateway(attrs: t.Mapping[int, bytes]) -> bytes:
    """Return the gateway's address, empty for none. RTA_VIA, a family and an address, is the IPv6 gateway of an IPv4 route."""
    return attrs.get(routes.RTA_GATEWAY) or attrs.get(RTA_VIA, b"")[2:]
