# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A route in a table. Two routes are equal if no packet could tell them apart."""

from __future__ import annotations

import functools
import struct
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import ANY, FAMILIES, IPV4, IPV6, UINT32, Prefix, Unfit
from .._netlink.attributes import attributes, u32
from . import rt_names

# include/uapi/linux/rtnetlink.h
UNICAST, LOCAL, BLACKHOLE, UNREACHABLE, PROHIBIT, THROW = 1, 2, 6, 7, 8, 9
TYPES = {
    "unicast": UNICAST, "local": LOCAL, "blackhole": BLACKHOLE, "unreachable": UNREACHABLE, "prohibit": PROHIBIT,
    "throw": THROW,
}  # fmt: skip
GLOBAL, LINK, HOST = 0, 253, 254
SCOPES = {"global": GLOBAL, "site": 200, "link": LINK, "host": HOST}
RTM_F_CLONED = 0x200
RTNH_F_ONLINK = 4
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH = 1, 4, 5, 6, 7, 8, 9
RTA_SRC, RTA_CACHEINFO, RTA_TABLE, RTA_PREF, RTA_EXPIRES = 2, 12, 15, 20, 23
RTA_NH_ID = 30  # of a nexthop object, whose next hops the kernel lists too, unless net.ipv4.nexthop_compat_mode is 0
RTAX_LOCK, RTAX_MTU = 1, 2
BROADCAST, ANYCAST = 3, 4  # types that only the kernel creates
KNOWN = frozenset(
    (RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH, RTA_CACHEINFO, RTA_TABLE, RTA_PREF)
)  # fmt: skip
# Names of attributes and metrics that this module cannot read, for messages.
UNREAD = {
    RTA_SRC: "from", 11: "realms", 18: "via inet6", RTA_PREF: "pref", 22: "encap", RTA_EXPIRES: "expires", 29: "ttl-propagate",
    RTA_NH_ID: "nhid",
}  # fmt: skip
METRICS = {
    RTAX_LOCK: "a lock", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd", 8: "advmss", 9: "reordering",
    10: "hoplimit", 11: "initcwnd", 12: "features", 13: "rto_min", 14: "initrwnd", 15: "quickack", 16: "congctl",
    17: "fastopen_no_cookie",
}  # fmt: skip
NEXT_HOPS = "its next hops"  # of a nexthop object that was not read
# Unread attributes that do not decide where a packet goes, where the next hops of a nexthop object are known.
HARMLESS = frozenset((UNREAD[RTA_NH_ID], UNREAD[RTA_EXPIRES], *METRICS.values()))
UNREAD_TYPE = "its type"
OTHER_TYPES = {0: "unspec", BROADCAST: "broadcast", ANYCAST: "anycast", 5: "multicast", 10: "nat"}
IPV6_METRIC = 1024  # IP6_RT_PRIO_USER, what the kernel takes where none is given
HEADER = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, weight - 1, link's index
# nhmsg: family, scope, protocol, reserved, flags; nexthop_grp: number, weight - 1 (include/uapi/linux/nexthop.h)
NEXTHOP_OBJECT, GROUP_ENTRY = struct.Struct("=BBBBI"), struct.Struct("=IBxxx")
NHA_ID, NHA_GROUP, NHA_BLACKHOLE, NHA_OIF, NHA_GATEWAY, NHA_ENCAP = 1, 2, 4, 5, 6, 8
CACHE_EXPIRES = struct.Struct("=8xi")  # rta_cacheinfo: clntref, lastuse, expires


class Hop(t.NamedTuple):
    """The next hop of a packet: out by link ``dev``, to the neighbour ``via`` if there is one.

    dev: empty in a desired route if the link is to be looked up by the gateway.
    """

    dev: str
    via: bytes = b""
    onlink: bool = False
    weight: int = 1

    def words(self) -> str:
        return " ".join(
            filter(
                None,
                (
                    f"via {fields.show(self.via)}" if self.via else "",
                    f"dev {self.dev}" if self.dev else "",
                    f"weight {self.weight}" if self.weight != 1 else "",
                    "onlink" if self.onlink else "",
                ),
            )
        )


NOTHING: tuple[int, bytes, int] = (0, b"", 0)


class Route(t.NamedTuple):
    """A route as the kernel has it, without its protocol: that tells the owner, and not where the route leads.

    unread: names of the route's attributes that this module cannot read; empty for a route that it reads in full. A route with
        unread attributes equals no desired route.
    beside: the parts of the kernel's key that no desired route has: type of service, source prefix and its length.
    """

    family: int
    table: int
    dst: Prefix = ANY
    metric: int = 0
    type: int = UNICAST
    scope: int = GLOBAL
    src: bytes = b""
    mtu: int = 0
    hops: tuple[Hop, ...] = ()
    unread: tuple[str, ...] = ()
    beside: tuple[int, bytes, int] = NOTHING

    @property
    def key(self) -> tuple[t.Any, ...]:
        """Return the family, table, prefix and metric. Two routes with the same key and different meanings are in conflict."""
        return self[:KEY] if self.beside == NOTHING else (*self[:KEY], self.beside)

    @property
    def is_connected(self) -> bool:
        """Return whether the addresses in its prefix are neighbours on a link. For IPv4, the scope must say so as well."""
        is_near = self.family == IPV6 or self.scope >= LINK
        return self.type == UNICAST and is_near and any(not hop.via for hop in self.hops)

    @property
    def is_bare(self) -> bool:
        """Return whether it names a gateway without a link, which is then looked up."""
        return bool(self.hops) and not self.hops[0].dev  # sorted: a hop without dev comes first

    def is_like(self, other: Route) -> bool:
        """Return whether they are equal, except for links that one of them does not name."""
        if self == other:
            return True
        if not (self.is_bare or other.is_bare) or len(self.hops) != len(other.hops):
            return False
        either = [sorted(hop._replace(dev="") for hop in route.hops) for route in (self, other)]
        return either[0] == either[1] and self._replace(hops=()) == other._replace(hops=())

    @property
    def path(self) -> Route:
        """Return the route with nothing but what decides where a packet goes.

        ``onlink`` is not part of it: the kernel reads that flag when it accepts a gateway, and not when it sends a packet. Unread
        attributes in HARMLESS are not part of it either, nor is the MTU of a route that has them, which may be locked.
        """
        route = self
        if route.unread and route.beside == NOTHING and HARMLESS.issuperset(route.unread):
            route = route._replace(unread=(), mtu=0)
        if not any(hop.onlink for hop in route.hops):
            return route
        return route._replace(hops=tuple(sorted(hop._replace(onlink=False) for hop in route.hops)))

    @property
    def address(self) -> str:
        """Return the only address that it leads to; empty if it leads to more."""
        packed, length = self.dst
        return fields.show(packed) if packed and length == len(packed) * 8 and self.type == UNICAST else ""

    @property
    def links(self) -> frozenset[str]:
        """Return the names of the links of its next hops."""
        return frozenset(hop.dev for hop in self.hops)

    def __str__(self) -> str:
        """Show the route as ``ip route show table all`` prints it."""
        is_single = len(self.hops) == 1
        words = [
            f"ip{' -6' if self.family == IPV6 else ''} route",
            self._type if self.type != UNICAST else "",
            fields.show_prefix(self.dst, "default"),
            self.hops[0].words() if is_single else "",
            f"table {rt_names.table(self.table)}",
            f"scope {self._scope}" if self.scope != GLOBAL else "",
            f"src {fields.show(self.src)}" if self.src else "",
            f"metric {self.metric}" if self.metric else "",
            f"mtu {self.mtu}" if self.mtu else "",
            *([] if is_single else (f"nexthop {hop.words()}" for hop in self.hops)),
            f"with attributes that this collection cannot read: {', '.join(self.unread)}" if self.unread else "",
        ]
        return " ".join(filter(None, words))

    def options(self) -> dict[str, t.Any]:
        """Return the options that give this route, without defaults, as a file keeps them."""
        is_single = len(self.hops) == 1
        hop = self.hops[0] if is_single else Hop("")
        options = {
            "table": str(self.table),
            "family": "ipv6" if self.family == IPV6 else "ipv4",
            "to": fields.show_prefix(self.dst, "default"),
            "type": self._type if self.type != UNICAST else "",
            "via": fields.show(hop.via) if hop.via else "",
            "dev": hop.dev,
            "onlink": hop.onlink,
            "scope": self._scope if self.family == IPV4 else "",
            "src": fields.show(self.src) if self.src else "",
            "metric": self.metric,
            "mtu": self.mtu,
            "nexthops": [] if is_single else [_hop_options(hop) for hop in self.hops],
        }
        return {name: value for name, value in options.items() if value}

    @property
    def _type(self) -> str:
        return _TYPE_NAMES.get(self.type) or OTHER_TYPES.get(self.type, f"type {self.type}")

    @property
    def _scope(self) -> str:
        return _SCOPE_NAMES.get(self.scope, str(self.scope))


KEY = Route._fields.index("metric") + 1
_TYPE_NAMES = {number: name for name, number in TYPES.items()}
_SCOPE_NAMES = {number: name for name, number in SCOPES.items()}


def _hop_options(hop: Hop) -> dict[str, t.Any]:
    options = {"via": fields.show(hop.via) if hop.via else "", "dev": hop.dev, "onlink": hop.onlink, "weight": hop.weight}
    return {name: value for name, value in options.items() if value}


class NextHops(t.NamedTuple):
    """The next hops of a nexthop object. unread: names of attributes of theirs that this module cannot read."""

    hops: tuple[Hop, ...]
    is_blackhole: bool = False
    unread: frozenset[str] = frozenset()


def nexthop_objects(bodies: t.Iterable[bytes], links: t.Mapping[int, str]) -> dict[int, NextHops]:
    """Return the nexthop objects by their numbers, from the messages of the kernel. links: link names by index."""
    objects, groups = dict[int, NextHops](), dict[int, bytes]()
    for body in bodies:
        attrs = attributes(body, NEXTHOP_OBJECT.size)
        number, flags = u32(attrs, NHA_ID), NEXTHOP_OBJECT.unpack_from(body)[4]
        if NHA_GROUP in attrs:
            groups[number] = attrs[NHA_GROUP]
        else:
            gateway = {RTA_GATEWAY: attrs[NHA_GATEWAY]} if NHA_GATEWAY in attrs else {}
            hops = () if NHA_BLACKHOLE in attrs else (_hop(u32(attrs, NHA_OIF), gateway, flags, 0, links),)
            unread = frozenset(["encap"] if NHA_ENCAP in attrs else ())
            objects[number] = NextHops(hops, NHA_BLACKHOLE in attrs, unread)
    for number, data in groups.items():
        entries = [GROUP_ENTRY.unpack_from(data, place) for place in range(0, len(data), GROUP_ENTRY.size)]
        members = [(objects[member], weight + 1) for member, weight in entries if member in objects]
        ways = sorted(hop._replace(weight=weight) for each, weight in members for hop in each.hops)
        lacking = [NEXT_HOPS] if len(members) < len(entries) else []
        objects[number] = NextHops(
            tuple(ways) if len(ways) > 1 else tuple(hop._replace(weight=1) for hop in ways),
            bool(members) and not ways,
            frozenset(lacking).union(*(each.unread for each, _weight in members)),
        )
    return objects


def from_message(
    body: bytes, links: t.Mapping[int, str], nexthop: t.Callable[[int], NextHops | None] = lambda _number: None
) -> tuple[Route, int] | None:
    """Return the route and its protocol; None for an entry of the kernel's route cache.

    links: link names by index. nexthop: returns an object by its number; None for one that is not known.
    """
    family, dst_len, src_len, tos, table, protocol, scope, kind, flags = HEADER.unpack_from(body)
    if flags & RTM_F_CLONED:
        return None
    attrs = attributes(body, HEADER.size)
    metrics = attributes(attrs.get(RTA_METRICS, b""))
    leads = kind not in _TYPE_NAMES or kind in (UNICAST, LOCAL)
    hops, unread = _hops(attrs, flags, links) if leads else ((), set())
    if leads and RTA_NH_ID in attrs and not attrs.keys() & {RTA_OIF, RTA_MULTIPATH}:
        found = nexthop(u32(attrs, RTA_NH_ID)) or NextHops((), False, frozenset([NEXT_HOPS]))
        hops, unread = found.hops, {*found.unread}
        kind = BLACKHOLE if found.is_blackhole else kind  # net/ipv4/fib_trie.c, fib_table_lookup
    if not KNOWN.issuperset(attrs) or kind not in _TYPE_NAMES or any(attrs.get(RTA_PREF, b"")) or _expires(attrs):
        unread |= set(_unread(attrs, kind))
    if metrics.keys() - {RTAX_MTU}:
        unread |= set(_unread_metrics(metrics))
    if tos:
        unread.add("tos")
    route = Route(
        family,
        u32(attrs, RTA_TABLE) or table,
        (attrs[RTA_DST], dst_len) if dst_len else ANY,
        u32(attrs, RTA_PRIORITY),
        kind,
        scope,
        attrs.get(RTA_PREFSRC, b""),
        u32(metrics, RTAX_MTU),
        hops,
    )
    if unread:
        route = route._replace(unread=tuple(sorted(unread)), beside=(tos, attrs.get(RTA_SRC, b""), src_len))
    return route, protocol


def _unread(attrs: t.Mapping[int, bytes], kind: int) -> t.Iterator[str]:
    """Yield the names of the attributes in a message that this module cannot read."""
    if kind not in _TYPE_NAMES:
        yield UNREAD_TYPE
    for number in attrs.keys() - KNOWN:
        yield UNREAD.get(number, f"attribute {number}")
    if any(attrs.get(RTA_PREF, b"")):
        yield UNREAD[RTA_PREF]
    if _expires(attrs):
        yield UNREAD[RTA_EXPIRES]


def _expires(attrs: t.Mapping[int, bytes]) -> bool:
    """Return True for a route that expires, such as one from a router advertisement."""
    return RTA_CACHEINFO in attrs and CACHE_EXPIRES.unpack_from(attrs[RTA_CACHEINFO])[0] != 0


def _unread_metrics(metrics: t.Mapping[int, bytes]) -> t.Iterator[str]:
    for number, data in metrics.items():
        if number != RTAX_MTU and any(data):
            yield METRICS.get(number, f"metric {number}")


def _hops(attrs: dict[int, bytes], flags: int, links: t.Mapping[int, str]) -> tuple[tuple[Hop, ...], set[str]]:
    """Return the next hops; and names of their attributes that this module cannot read, such as an encapsulation."""
    if RTA_MULTIPATH not in attrs:
        return (_hop(u32(attrs, RTA_OIF), attrs, flags, 0, links),), set()
    hops, unread, data = [], set(), attrs[RTA_MULTIPATH]
    while data:
        length, hop_flags, weight, index = NEXTHOP.unpack_from(data)
        of_hop = attributes(data[NEXTHOP.size : length])
        unread |= {UNREAD.get(number, f"attribute {number}") for number in of_hop.keys() - {RTA_GATEWAY}}
        hops.append(_hop(index, of_hop, hop_flags, weight, links))
        data = data[(length + 3) & ~3 :]
    return tuple(sorted(hops)), unread


def _hop(index: int, attrs: t.Mapping[int, bytes], flags: int, weight: int, links: t.Mapping[int, str]) -> Hop:
    name = links.get(index) or f"if{index}"
    return Hop(name, attrs.get(RTA_GATEWAY, b""), bool(flags & RTNH_F_ONLINK), weight + 1)


_HOP_PARSERS: dict[str, t.Callable[[t.Any], t.Any]] = {
    "via": fields.node,
    "dev": fields.link,
    "onlink": fields.flag,
    "weight": functools.partial(fields.number, low=1, high=256),
}
_PARSERS: dict[str, t.Callable[[t.Any], t.Any]] = {
    **{key: _HOP_PARSERS[key] for key in ("via", "dev", "onlink")},
    "to": fields.prefix,
    "scope": functools.partial(fields.word, allowed=SCOPES),
    "src": fields.node,
    "metric": functools.partial(fields.number, low=0, high=UINT32),
    "mtu": functools.partial(fields.number, low=68, high=65535),
    "type": functools.partial(fields.word, allowed=TYPES),
    "family": functools.partial(fields.word, allowed=FAMILIES),
}


def from_options(option: str, entry: t.Mapping[str, t.Any], tables: t.Mapping[str, int]) -> Route:
    """Parse the route that an entry describes. ``option`` names the entry (``routes[3]``).

    Raises Invalid if it cannot be used.
    """
    values = {key: value for key, value in entry.items() if key not in ("nexthops", "table") and value is not None}
    parsed = _parse(option, values, _PARSERS, ("nexthops", "table"))
    try:
        table = fields.name_or_number(entry.get("table"), tables, "a table that the node knows", 1, UINT32)
    except Unfit as unfit:
        raise Invalid(f"{option}.table", entry.get("table"), str(unfit)) from None
    if "to" not in parsed:
        raise Invalid(f"{option}.to", None, "given: a prefix, or default")
    several = entry.get("nexthops") or ()
    if not isinstance(several, (list, tuple)):
        raise Invalid(f"{option}.nexthops", several, "a list of next hops")
    hops = [_parse(f"{option}.nexthops[{index}]", hop, _HOP_PARSERS, ()) for index, hop in enumerate(several)]
    family = _family(option, entry, parsed, hops)
    kind = parsed.get("type", UNICAST)
    _check_hops(option, entry, kind, parsed, hops)
    own_hop = [parsed] if {"dev", "via"} & parsed.keys() else []
    chosen = tuple(sorted(_desired_hop(hop) for hop in hops or own_hop))
    if family == IPV6 and hops:
        _check_ipv6_hops(option, entry, hops)
    return Route(
        family,
        table,
        parsed["to"][1],
        parsed.get("metric") or (IPV6_METRIC if family == IPV6 else 0),
        kind,
        _scope(option, entry, family, kind, parsed.get("scope"), chosen),
        parsed.get("src", (0, b""))[1],
        parsed.get("mtu", 0),
        chosen,
    )


def _parse(
    option: str, entry: t.Any, parsers: t.Mapping[str, t.Callable[[t.Any], t.Any]], further: tuple[str, ...]
) -> dict[str, t.Any]:
    if not isinstance(entry, dict):
        raise Invalid(option, entry, f"a dictionary with {', '.join(sorted([*parsers, *further]))}")
    parsed = {}
    for key, value in entry.items():
        if key not in parsers:
            permitted = ", ".join(sorted([*parsers, *further]))
            raise Invalid(f"{option}.{key}", value, f"left out; known here are {permitted}")
        try:
            if value is not None:
                parsed[key] = parsers[key](value)
        except Unfit as unfit:
            raise Invalid(f"{option}.{key}", value, str(unfit)) from None
    return parsed


def _family(option: str, entry: t.Mapping[str, t.Any], parsed: dict[str, t.Any], hops: list[dict[str, t.Any]]) -> int:
    said = [(f"{option}.{key}", entry[key], parsed[key][0]) for key in ("to", "via", "src") if key in parsed]
    said += [
        (f"{option}.nexthops[{i}].via", entry["nexthops"][i]["via"], hop["via"][0]) for i, hop in enumerate(hops) if "via" in hop
    ]
    addressed = [item for item in said if item[2]]
    family = int(parsed.get("family") or (addressed[0][2] if addressed else IPV4))
    for name, value, other in addressed:
        if other != family:
            raise Invalid(name, value, "of the same family as the route's other addresses and its option family")
    return family


def _check_hops(
    option: str, entry: t.Mapping[str, t.Any], kind: int, parsed: dict[str, t.Any], hops: list[dict[str, t.Any]]
) -> None:
    leads = kind in (UNICAST, LOCAL)
    if hops and (not leads or {"via", "dev", "onlink"} & parsed.keys()):
        raise Invalid(f"{option}.nexthops", entry["nexthops"], "left out if the route has dev, via, onlink or another type")
    if len(hops) == 1:
        raise Invalid(f"{option}.nexthops", entry["nexthops"], "two or more next hops; a single one is given by via and dev")
    if not leads and {"via", "dev", "onlink"} & parsed.keys():
        raise Invalid(f"{option}.type", entry["type"], "unicast or local if the route has dev, via or onlink")
    for where, hop in [(f"{option}.nexthops[{index}]", hop) for index, hop in enumerate(hops)] or [(option, parsed)]:
        if hop.get("onlink") and "via" not in hop:
            raise Invalid(f"{where}.onlink", True, "left out if there is no via")
        if leads and "dev" not in hop:
            _check_bare(where, kind, hop)


def _check_ipv6_hops(option: str, entry: t.Mapping[str, t.Any], hops: list[dict[str, t.Any]]) -> None:
    """Check what the kernel requires (net/ipv6/route.c, ip6_route_multipath_add)."""
    for index, hop in enumerate(hops):
        if "via" not in hop:
            raise Invalid(f"{option}.nexthops[{index}].via", None, "given: IPv6 shares traffic only among gateways")
    if len({(hop.get("dev"), hop["via"]) for hop in hops}) < len(hops):
        raise Invalid(f"{option}.nexthops", entry["nexthops"], "next hops with different gateways or links")


def _check_bare(option: str, kind: int, hop: dict[str, t.Any]) -> None:
    """Raise Invalid if the next hop must name its link. Only a gateway that can be found on one link may omit it."""
    if kind != UNICAST or "via" not in hop or hop.get("onlink"):
        allowed = "given: the link by which packets leave; only a unicast route with via and without onlink may omit it"
        raise Invalid(f"{option}.dev", None, allowed)
    family, gateway = hop["via"]
    if family == IPV6 and fields.is_link_local(gateway):
        raise Invalid(f"{option}.via", fields.show(gateway), "given with dev: each link has its own link-local addresses")


def _desired_hop(parsed: t.Mapping[str, t.Any]) -> Hop:
    via = parsed.get("via", (0, b""))[1]
    return Hop(parsed.get("dev", ""), via, bool(parsed.get("onlink")), parsed.get("weight", 1))


def _scope(option: str, entry: t.Mapping[str, t.Any], family: int, kind: int, scope: int | None, hops: tuple[Hop, ...]) -> int:
    """Return the scope; by default that of ``ip route add``. IPv6 routes have no scope, and the kernel keeps 0."""
    if family == IPV6:
        if scope not in (None, GLOBAL):
            raise Invalid(f"{option}.scope", entry["scope"], "left out: IPv6 routes have no scope")
        return GLOBAL
    if scope is not None:
        return scope
    if kind == LOCAL:
        return HOST
    return LINK if kind == UNICAST and not any(hop.via for hop in hops) else GLOBAL
