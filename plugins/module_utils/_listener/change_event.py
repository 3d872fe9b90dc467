# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which rtnetlink notifications affect a policy, the set of rules and routes of one protocol.

The kernel announces every rule, route and link of every pod. So a message is first judged by single bytes, and its attributes
are parsed only if these do not decide.
"""

from __future__ import annotations

import struct
import typing as t

from .._interfaces import eni_link
from .._interfaces.eni_link import EniLink
from .._netlink.attributes import HEADER, attributes, text, u32

# include/uapi/linux/netlink.h, rtnetlink.h
REPLACE = 0x100
NEWLINK, DELLINK, NEWADDR, DELADDR, NEWROUTE, DELROUTE, NEWRULE, DELRULE = 16, 17, 20, 21, 24, 25, 32, 33
# The offset of the attributes: after ifinfomsg, ifaddrmsg, rtmsg and fib_rule_hdr.
OF_LINK, OF_ADDRESS, OF_ROUTE, OF_RULE = (HEADER.size + length for length in (16, 8, 12, 12))
LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, link's index
ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
RULE = struct.Struct("=BBB")  # fib_rule_hdr: family, dst_len, src_len, ...
IFLA_IFNAME, IFA_ADDRESS, IFA_LOCAL = 3, 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH, RTA_TABLE = 1, 4, 5, 6, 9, 15
FRA_DST, FRA_SRC, FRA_PRIORITY, FRA_PROTOCOL = 1, 2, 6, 21
IFF_UP = 1
RTM_F_CLONED = 0x200
AF_BRIDGE = 7  # under this family a bridge announces its ports

MAIN = 254

ANY_LINK = ""
RULE_REMOVED, ROUTE_REMOVED = "a rule was removed", "a route was removed"
RULE_ADDED, ROUTE_ADDED = "a rule with our protocol was added", "a route with our protocol was added"
ROUTE_REPLACED = "a route was replaced"
CONTESTED = frozenset({RULE_REMOVED, ROUTE_REMOVED, RULE_ADDED, ROUTE_ADDED, ROUTE_REPLACED})
KERNEL = 0  # the port in messages about what the kernel does by itself


class Dependencies(t.NamedTuple):
    """What a policy depends on besides its own rules and routes, in types that JSON has.

    links: by name, the index (0 if there is no such link) and whether it is up; ANY_LINK if a gateway's link is not known yet.
    tables: the tables of its routes. sources: the preferred source addresses of its routes, in hexadecimal.
    open: the keys, by rule_key() and route_key(), of desired rules and routes that are not installed: a foreign object satisfies
        or blocks them, or they wait.
    waits: whether a desired rule or route cannot be loaded yet.
    eni_links: the node's network interfaces (index, name, MAC), if the policy follows from its ENIs.
    pods: name patterns of the links of pods, which are not counted among ``eni_links``; None if the policy follows from no ENIs.
    uplinks: names of the links from whose addresses and routes the policy follows.
    """

    links: t.Mapping[str, tuple[int, bool]] = {}
    tables: t.Sequence[int] = ()
    sources: t.Sequence[str] = ()
    open: t.Sequence[str] = ()
    waits: bool = False
    eni_links: t.Sequence[tuple[int, str, str]] = ()
    pods: t.Sequence[str] | None = None
    uplinks: t.Sequence[str] = ()


class ChangeEvent(t.NamedTuple):
    """A reason to load the policy again.

    clause: what happened. port: the netlink port of the socket that requested the change; KERNEL if none did.
    """

    clause: str
    port: int = KERNEL

    @property
    def is_contest(self) -> bool:
        """Return whether a program changed the policy's rules or routes.

        False if the kernel did: it removes routes together with their link.
        """
        return self.port != KERNEL and self.clause in CONTESTED


def rule_key(family: int, priority: int, source: tuple[bytes, int], destination: tuple[bytes, int]) -> str:
    """Return a key that identifies a rule well enough to decide whether a message matters.

    source, destination: address, length.
    """
    return f"rule {family} {priority} {source[0].hex()}/{source[1]} {destination[0].hex()}/{destination[1]}"


def route_key(family: int, table: int, destination: tuple[bytes, int], metric: int) -> str:
    return f"route {family} {table} {destination[0].hex()}/{destination[1]} {metric}"


class EventFilter:
    """Decides which messages affect the policy of ``protocol``. It tracks the state of the links from message to message."""

    def __init__(self, protocol: int, interest: Dependencies) -> None:
        self._protocol = protocol
        self._tag = struct.pack("=HHB", 5, FRA_PROTOCOL, protocol)
        self._links = {name: (index, is_up) for name, (index, is_up) in interest.links.items()}
        self._tables = frozenset(interest.tables)
        self._sources = frozenset(map(bytes.fromhex, interest.sources))
        self._open = frozenset(interest.open)
        self._waits = interest.waits
        self._eni_links = {number: EniLink(number, name, mac) for number, name, mac in interest.eni_links}
        self._pods = interest.pods
        self._uplinks = frozenset(interest.uplinks)

    @property
    def eni_links(self) -> frozenset[EniLink]:
        """Return the node's current network interfaces; empty if the policy does not follow from ENIs."""
        return frozenset(self._eni_links.values())

    def concern(self, message: bytes) -> ChangeEvent | None:
        """Return the event that an rtnetlink message reports; None if it does not affect the policy."""
        _length, kind, flags, _sequence, port = HEADER.unpack_from(message)
        clause = ""
        if kind in (NEWRULE, DELRULE):
            clause = self._of_rule(kind, message)
        elif kind in (NEWROUTE, DELROUTE):
            clause = self._of_route(kind, flags, message)
        elif kind in (NEWLINK, DELLINK):
            clause = self._of_link(kind, message)
        elif kind in (NEWADDR, DELADDR):
            clause = self._of_address(kind, message)
        if not clause:
            return None
        # Who adds a link or an address is of no interest.
        return ChangeEvent(clause, KERNEL if kind in (NEWLINK, NEWADDR) else port)

    def _of_rule(self, kind: int, message: bytes) -> str:
        if self._tag in message:
            return RULE_REMOVED if kind == DELRULE else RULE_ADDED
        if kind == NEWRULE or not self._open:
            return ""
        family, dst_len, src_len = RULE.unpack_from(message, HEADER.size)
        attrs = attributes(message, OF_RULE)
        source, destination = (attrs.get(FRA_SRC, b""), src_len), (attrs.get(FRA_DST, b""), dst_len)
        is_open = rule_key(family, u32(attrs, FRA_PRIORITY), source, destination) in self._open
        return "a rule of another program was removed" if is_open else ""

    def _of_route(self, kind: int, flags: int, message: bytes) -> str:
        family, dst_len, _src_len, _tos, table, protocol, _scope, _type, route_flags = ROUTE.unpack_from(message, HEADER.size)
        if route_flags & RTM_F_CLONED:
            return ""
        if protocol == self._protocol:
            return ROUTE_REMOVED if kind == DELROUTE else ROUTE_ADDED
        is_replacing = kind == NEWROUTE and flags & REPLACE
        if not (is_replacing or self._waits or self._open or self._uplinks):
            return ""
        attrs = attributes(message, OF_ROUTE)
        table = u32(attrs, RTA_TABLE) or table
        if self._uplinks and (table == MAIN or not dst_len) and self._is_of_uplinks(attrs):
            return "a route that the uplinks' tables follow changed"
        if is_replacing and table in self._tables:
            return ROUTE_REPLACED
        if kind == NEWROUTE:
            return self._arrival("a route", u32(attrs, RTA_OIF))
        key = route_key(family, table, (attrs.get(RTA_DST, b""), dst_len), u32(attrs, RTA_PRIORITY))
        return "a route of another program was removed" if key in self._open else ""

    def _of_link(self, kind: int, message: bytes) -> str:
        """Evaluate a message about a link. A renamed link counts as removed under its former name, and as new under the other."""
        family, device, index, flags, _change = LINK.unpack_from(message, HEADER.size)
        if family == AF_BRIDGE:
            return ""
        attrs = attributes(message, OF_LINK)
        if self._pods is not None:
            self._eni_links.pop(index, None)
            interface = eni_link.of(device, index, attrs, self._pods) if kind == NEWLINK else None
            if interface:
                self._eni_links[index] = interface
        name = text(attrs, IFLA_IFNAME)
        former = next((link for link, (number, _up) in self._links.items() if number == index), name)
        state = (index, bool(flags & IFF_UP)) if kind == NEWLINK else (0, False)
        clause = ""
        if (former != name or kind == DELLINK) and self._links.get(former, (0, False))[0] == index:
            self._links[former] = (0, False)
            clause = f"link {former} went away"
        if kind == NEWLINK and name in self._links and self._links[name] != state:
            is_new = self._links[name][0] != index
            clause = f"link {name} {'is new' if is_new else 'came up' if state[1] else 'went down'}"
            self._links[name] = state
        return clause

    def _of_address(self, kind: int, message: bytes) -> str:
        """Evaluate a message about an address.

        The kernel removes routes with their source address, and all routes of a link with the link's last address.
        """
        *_rest, index = ADDRESS.unpack_from(message, HEADER.size)
        attrs = attributes(message, OF_ADDRESS)
        if self._name(index) in self._uplinks:
            return "an address of an uplink changed"
        if kind == NEWADDR:
            is_source = self._waits and attrs.get(IFA_LOCAL, attrs.get(IFA_ADDRESS)) in self._sources
            return "an address is new" if is_source else self._arrival("an address", index)
        if attrs.get(IFA_LOCAL, attrs.get(IFA_ADDRESS)) in self._sources:
            return "a source address went away"
        name = self._name(index)
        return f"an address of {name} went away" if name else ""

    def _is_of_uplinks(self, attrs: dict[int, bytes]) -> bool:
        """Return whether a route leads over an uplink, or by a gateway. Routes to the node's own pods do neither."""
        return not {RTA_GATEWAY, RTA_MULTIPATH}.isdisjoint(attrs) or self._name(u32(attrs, RTA_OIF)) in self._uplinks

    def _arrival(self, noun: str, index: int) -> str:
        """Evaluate a new route or address. A new route or address on a link matters only while a rule or route waits."""
        if self._waits and (self._name(index) or ANY_LINK in self._links):
            return f"{noun} is new"
        return ""

    def _name(self, index: int) -> str:
        return next((name for name, (number, _up) in self._links.items() if number == index and number), "")
