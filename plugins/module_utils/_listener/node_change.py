# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What changes on a node, read from the kernel's notifications, and all that changes between two audits.

A notification that repeats what was known, such as that of a link's statistics or of an address whose lifetime is renewed, is no
change. Nor is a neighbour that the kernel resolves. A route of the table local, which follows from an address, is no change of a
burst.
"""

from __future__ import annotations

import ipaddress
import struct
import sys
import typing as t
from types import MappingProxyType

from .._core.fields import IPV4, IPV6
from .._interfaces import link_message
from .._netlink.attributes import HEADER, attributes, text, u32
from .._routing import neighbour, route, rule
from .._snapshot import entries
from .change_event import AF_BRIDGE, DELADDR, DELLINK, DELROUTE, DELRULE, NEWADDR, NEWLINK, NEWROUTE, NEWRULE, REPLACE, RTA_OIF

LINK, ADDRESS, ROUTE, RULE, NEIGHBOUR = "link", "address", "route", "rule", "neighbour"
RULESET, SETTING, LOCAL_ROUTE = "ruleset", "setting", "local route"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"

# include/uapi/linux/rtnetlink.h, netconf.h, if.h, netfilter/nf_tables.h
NEWNEIGH, DELNEIGH, NEWNETCONF, GETNETCONF = 28, 29, 80, 82
SETTINGS = {2: "forwarding", 3: "rp_filter", 4: "mc_forwarding", 6: "ignore_routes_with_linkdown", 8: "bc_forwarding"}
PROXY = 5  # NETCONFA_PROXY_NEIGH
NETCONF_LINK = 1  # NETCONFA_IFINDEX
NETCONF_HEADER = 4
ALL, DEFAULT = -1, -2  # NETCONFA_IFINDEX_ALL, NETCONFA_IFINDEX_DEFAULT
IFF_UP, IFF_LOWER_UP = 1, 0x10000
IFLA_MTU = 4
LINK_HEADER = struct.Struct("=BxHiII")  # ifinfomsg
LOCAL_TABLE = 255
NEWGEN = 10 << 8 | 15  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN
GENERATION_PID, GENERATION_NAME = 2, 3  # NFTA_GEN_PROC_PID, NFTA_GEN_PROC_NAME
NFGENMSG = 4  # bytes
FLAGS = {"up": ["UP", "LOWER_UP"], "without carrier": ["UP"], "down": []}  # by LinkState.state
OF_PODS = ("veth", "netkit")  # kinds of links that come and go with pods

QUIET = 0.5  # seconds without a change after which a change is over: a CNI takes as long for a pod's link, routes and rules
OF_A_POD = 10.0  # seconds around the coming or going of a pod's link in which its routes and rules come or go
LONGEST = 3.0  # seconds after which an audit no longer waits for the end of a change
MOST = 2000  # changes that are told apart; a start of 100 pods has fewer


Entry = t.Mapping[str, t.Any]
NOTHING: Entry = MappingProxyType({})


class Change(t.NamedTuple):
    """text: the object as its tool prints it, or the setting with its value. link: the index of the link that it is about; 0 for
    none. address: that it is about alone; empty for none. port: of the netlink socket whose program asked for it; 0 if the kernel
    does not tell. program: what has that port; empty if it is not known. is_pods: whether it is a link as pods have.
    before, after: the part of a snapshot that has the object, or a list without it. Empty for what the kernel does not tell.
    """

    kind: str
    verb: str
    text: str
    link: int = 0
    address: bytes = b""
    port: int = 0
    program: str = ""
    is_pods: bool = False
    before: Entry = NOTHING
    after: Entry = NOTHING

    @property
    def sentence(self) -> str:
        return f"{self.text} {self.verb} by {self.program or 'a program that is not known'}"


class LinkState(t.NamedTuple):
    """state: up, without carrier or down. master: an index."""

    name: str
    kind: str
    state: str
    master: int
    mtu: int
    mac: str


class Reader:
    """Reads notifications. links, addresses, settings: the bodies of what the kernel lists of them now."""

    def __init__(self, links: t.Iterable[bytes], addresses: t.Iterable[bytes], settings: t.Iterable[bytes] = ()) -> None:
        self._links = dict(map(_link, links))
        self._names = {index: state.name for index, state in self._links.items()}
        self._addresses = set(map(_address, addresses))
        self._settings: dict[tuple[str, int], dict[str, int]] = {}  # by family and index
        for body in settings:
            self._of_settings(body)
        self._readers: dict[int, t.Callable[[bytes, bool], Change | None]] = {
            **dict.fromkeys((NEWLINK, DELLINK), self._of_link),
            **dict.fromkeys((NEWADDR, DELADDR), self._of_address),
            **dict.fromkeys((NEWROUTE, DELROUTE), self._of_route),
            **dict.fromkeys((NEWNEIGH, DELNEIGH), self._of_neighbour),
            **dict.fromkeys((NEWRULE, DELRULE), _of_rule),
            **{NEWNETCONF: lambda body, _is_removed: self._of_settings(body), NEWGEN: _of_ruleset},
        }

    @staticmethod
    def port(message: bytes) -> int:
        """Return the port of the socket whose program asked for what a message reports; 0 if the kernel does not tell."""
        port: int = HEADER.unpack_from(message)[-1]
        return port

    def change(self, message: bytes) -> Change | None:
        """Return the change that a message reports; None for none."""
        _length, kind, flags, _sequence, port = HEADER.unpack_from(message)
        body = message[HEADER.size :]
        if kind not in self._readers:
            return None
        change = self._readers[kind](body, kind in (DELLINK, DELADDR, DELROUTE, DELRULE, DELNEIGH))
        if change and kind == NEWROUTE and flags & REPLACE:  # the kernel does not say what it replaced
            change = change._replace(verb=CHANGED, before=NOTHING)
        return change._replace(port=port) if change and not change.program else change

    def _of_link(self, body: bytes, is_removed: bool) -> Change | None:
        if body[0] == AF_BRIDGE:
            return None
        index, state = _link(body)
        former = self._links.pop(index, None)
        change = Change(LINK, _verb(is_removed), f"link {state.name}", index, is_pods=state.kind in OF_PODS)
        change = _with_sides(change, is_removed, {"links": []}, {"links": [{"name": state.name}]})
        if is_removed:
            self._names.pop(index, None)
            for family in ("ipv4", "ipv6"):
                self._settings.pop((family, index), None)
            return change if former else None
        self._links[index], self._names[index] = state, state.name
        if former is None or former == state:
            return change if former is None else None
        pairs = zip(state._fields, former, state)
        differences = [f"{name} {before} is {after}" for name, before, after in pairs if before != after]
        objects = [{"links": [self._link_entry(each, former, state)]} for each in (former, state)]
        return Change(LINK, CHANGED, f"link {former.name}: {', '.join(differences)},", index, before=objects[0], after=objects[1])

    def _link_entry(self, link: LinkState, former: LinkState, state: LinkState) -> Entry:
        """Return what a snapshot has of a link, as far as two states of it differ."""
        values = {"flags": FLAGS[link.state], "master": self._names.get(link.master, ""), "mtu": link.mtu, "mac": link.mac}
        changed = {"flags": former.state != state.state, "master": former.master != state.master}
        changed |= {"mtu": former.mtu != state.mtu, "mac": former.mac != state.mac}
        return {"name": link.name, **{key: value for key, value in values.items() if changed[key]}}

    def _of_address(self, body: bytes, is_removed: bool) -> Change | None:
        address = link_message.address_from(body)
        entry = _address(body)
        if address.is_links_own or (entry in self._addresses) is not is_removed:
            return None
        (self._addresses.remove if is_removed else self._addresses.add)(entry)
        link = self._name(address.link)
        change = Change(ADDRESS, _verb(is_removed), f"{address} dev {link}", address.link, address.local)
        sides = [{"links": [{"name": link, "addresses": listed}]} for listed in ([], [entries.address(address)])]
        return _with_sides(change, is_removed, *sides)

    def _of_route(self, body: bytes, is_removed: bool) -> Change | None:
        read = route.from_message(body, self._names)
        if read is None:
            return None
        link = u32(attributes(body, route.HEADER.size), RTA_OIF)
        change = Change(
            LOCAL_ROUTE if read[0].table == LOCAL_TABLE else ROUTE, _verb(is_removed), str(read[0]), link, _alone(read[0].dst)
        )
        return _with_sides(change, is_removed, {"routes": []}, {"routes": [entries.route(*read)]})

    def _of_neighbour(self, body: bytes, is_removed: bool) -> Change | None:
        read = neighbour.from_message(body, self._names) if body[0] in (IPV4, IPV6) else None
        if read is None or not read.is_permanent:
            return None
        link = int.from_bytes(body[4:8], sys.byteorder)
        change = Change(NEIGHBOUR, _verb(is_removed), str(read), link, ipaddress.ip_address(read.address).packed)
        return _with_sides(change, is_removed, {"neighbors": []}, {"neighbors": [entries.neighbour(read)]})

    def _of_settings(self, body: bytes) -> Change | None:
        attrs = attributes(body, NETCONF_HEADER)
        (index,) = struct.unpack("=i", attrs.get(NETCONF_LINK, bytes(4)))
        family, proxy = ("ipv4", "proxy_arp") if body[0] == IPV4 else ("ipv6", "proxy_ndp")
        names = {**SETTINGS, PROXY: proxy}
        former = self._settings.setdefault((family, index), {})
        values = {name: u32(attrs, number) for number, name in names.items() if number in attrs}
        values = {name: value for name, value in values.items() if former.get(name) != value}
        before = {name: former[name] for name in values if name in former}
        former.update(values)
        link = {ALL: "all", DEFAULT: "default"}.get(index) or self._name(index)
        assignments = ", ".join(f"{name} = {value}" for name, value in values.items())
        sides = [{"settings": {family: {link: side}}} if side else NOTHING for side in (before, values)]
        text = f"net.{family}.conf.{link}: {assignments},"
        return Change(SETTING, CHANGED, text, max(index, 0), before=sides[0], after=sides[1]) if values else None

    def _name(self, index: int) -> str:
        return self._names.get(index) or f"if{index}"


def _verb(is_removed: bool) -> str:
    return REMOVED if is_removed else ADDED


def _with_sides(change: Change, is_removed: bool, without: Entry, having: Entry) -> Change:
    """Return a change of an object with the parts of a snapshot that lack it and have it."""
    return change._replace(before=having, after=without) if is_removed else change._replace(before=without, after=having)


def _link(body: bytes) -> tuple[int, LinkState]:
    """Return the index of a link and what counts of it."""
    link = link_message.link_from(body)
    flags, attrs = LINK_HEADER.unpack_from(body)[3], attributes(body, LINK_HEADER.size)
    state = "down" if not flags & IFF_UP else "up" if flags & IFF_LOWER_UP else "without carrier"
    return link.number, LinkState(link.name, link.kind, state, link.master, u32(attrs, IFLA_MTU), link.mac.hex(":"))


def _address(body: bytes) -> tuple[int, tuple[t.Any, ...]]:
    address = link_message.address_from(body)
    return address.link, address.key


def _alone(prefix: tuple[bytes, int]) -> bytes:
    """Return the only address of a prefix; empty if it has more."""
    return prefix[0] if prefix[0] and prefix[1] == len(prefix[0]) * 8 else b""


def _of_rule(body: bytes, is_removed: bool) -> Change:
    read, protocol = rule.from_message(body)
    change = Change(RULE, _verb(is_removed), str(read), 0, _alone(read.src) or _alone(read.dst))
    return _with_sides(change, is_removed, {"rules": []}, {"rules": [entries.rule(read, protocol)]})


def _of_ruleset(body: bytes, _is_removed: bool) -> Change:
    """nftables names the program, and does not say what it changed."""
    attrs = attributes(body, NFGENMSG)
    pid = int.from_bytes(attrs.get(GENERATION_PID, b""), "big")
    name = text(attrs, GENERATION_NAME)
    return Change(RULESET, CHANGED, "the ruleset of nftables", program=f"process {pid} ({name})" if name else "")


class Burst:
    """All that has changed since the last audit. What was added and is gone again is nothing.

    since, last: when the first and the newest change came, by a monotonic clock. is_lost: whether there is more than is told
    apart, or the kernel dropped notifications. has_pods: whether pods came or went. links, addresses: when links and addresses of
    pods last came or went before this burst.
    """

    def __init__(
        self, links: t.Mapping[int, float] = MappingProxyType({}), addresses: t.Mapping[bytes, float] = MappingProxyType({})
    ) -> None:
        self.since = self.last = 0.0
        self.is_lost = self.has_pods = False
        self._changes: dict[tuple[str, ...], tuple[Change, float]] = {}
        self._links, self._former = {**links}, addresses

    def __bool__(self) -> bool:
        return self.is_lost or bool(self._changes)

    @property
    def over(self) -> float:
        """Return when the change is over, or has been waited for long enough."""
        return min(self.last + QUIET, self.since + LONGEST)

    @property
    def changes(self) -> list[Change]:
        return [change for change, _time in self._changes.values()]

    def add(self, change: Change, now: float) -> None:
        if change.kind == LOCAL_ROUTE:
            return
        self._note(now)
        key = change.kind, change.text, change.program if change.kind == RULESET else ""
        former, _time = self._changes.pop(key, (None, 0.0))
        # A rule that was removed and added is the last of its priority.
        is_undone = former and {former.verb, change.verb} == {ADDED, REMOVED} and (former.verb, change.kind) != (REMOVED, RULE)
        if change.is_pods and len(self._links) < MOST:
            self._links[change.link], self.has_pods = now, True
        if len(self._changes) >= MOST:
            self.is_lost = True
        elif not is_undone:
            self._changes[key] = change, now

    def lose(self, now: float) -> None:
        """Note that the kernel dropped notifications."""
        self._note(now)
        self.is_lost = True

    def _note(self, now: float) -> None:
        self.since = self.since if self else now
        self.last = now

    def unusual(self, now: float, usual: t.Container[str] = ()) -> list[Change]:
        """Return the changes that do not come or go with a pod. One that has just happened may still prove to.

        usual: names of programs that change rulesets all the time.
        """
        addresses = self._addresses
        return [
            change
            for change, time in self._changes.values()
            if time <= now - QUIET
            and not _is_near(time, self._links.get(change.link))
            and not _is_near(time, addresses.get(change.address))
            and not (change.kind == RULESET and name_of(change.program) in usual)
        ]

    @property
    def _addresses(self) -> dict[bytes, float]:
        """Return when addresses of pods came or went."""
        of_pods = ((change, time) for change, time in self._changes.values() if _is_near(time, self._links.get(change.link)))
        return {**self._former, **{change.address: time for change, time in of_pods if change.address}}

    def rest(self, now: float) -> Burst:
        """Return the burst that follows, which has the changes that have just happened."""
        links = {link: time for link, time in self._links.items() if _is_near(now, time)}
        following = Burst(links, {address: time for address, time in self._addresses.items() if _is_near(now, time)})
        for change, time in self._changes.values():
            if time > now - QUIET and not self.is_lost:
                following.add(change, time)
        return following


def _is_near(time: float, other: float | None) -> bool:
    return other is not None and abs(time - other) <= OF_A_POD


def name_of(program: str) -> str:
    """Return the name of a program, as "process 812 (nft)" has it."""
    return program.partition("(")[2].rstrip(")")
