# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option ``uplinks``, and the rules and routes by which each reply leaves by the uplink of its request, without a cloud.

The permanent file keeps the option instead of rules and routes: each load reads the node's addresses, routes and leases.

The table of an uplink has its default route, and copies of main's routes to its networks and to the pods of other nodes, which
its router does not know. A packet is looked up there by the mark of its connection, or by its source address.
"""

from __future__ import annotations

import functools
import itertools
import operator
import typing as t
from types import MappingProxyType

from .._core import fields, names
from .._core.errors import Invalid
from .._core.fields import FAMILIES, UINT32, Unfit
from .._core.option import Parsed
from .._routing import policy, rt_names
from .._routing.gateways import Gateways
from .._routing.policy import Entry
from .._routing.route import UNICAST, Hop, Route
from .discovery import DerivedPolicy

MARK_PRIORITY, SOURCE_PRIORITY = 1200, 1400  # those of the layout custom, between the priorities of known CNIs
FIRST_TABLE = 1000  # a table's number is this and the link's index, unless it is given or another program fills that table
# The sums of the bits that neither kube-proxy nor a known CNI uses: 0x2, 0x4, 0x40 and 0x1000. Few uplinks take few bits.
MARKS = tuple(high | low for high in (0, 0x40, 0x1000, 0x1040) for low in (0, 0x2, 0x4, 0x6) if high | low)

Uplink = t.Mapping[str, t.Any]  # an entry of the option in normal form; plain data, because it is stored as JSON
OF_CNIS = ("cilium_", "lxc")  # names of links of a CNI that may have addresses and routes with a gateway
GATEWAYS = {"ipv4": "gateway", "ipv6": "gateway6"}  # the key of an entry, by family


class Link(t.NamedTuple):
    """What the node has on a link.

    number: the link's index. addresses: those of global scope. leases: gateways by family, as DHCP clients and the files of
    network daemons name them. master: the bridge, bond or VRF that it is in, by which its packets come in.
    """

    number: int
    addresses: tuple[str, ...] = ()
    leases: t.Mapping[str, str] = {}
    master: str = ""


class NodeState(t.NamedTuple):
    """links: by name. routes: those of the kernel that are not this collection's. marks: those of own rules, by uplink."""

    links: t.Mapping[str, Link]
    routes: t.Sequence[Route]
    marks: t.Mapping[str, int] = MappingProxyType({})


class Occupied(t.NamedTuple):
    """The marks that other programs have. bits: of marks that are tested bit by bit. whole: the union of those of all 32 bits.

    A rule for own marks tests some bits, and takes a packet with a whole mark that has those of the own mark, and no other one.
    """

    bits: int = 0
    whole: int = 0

    def permits(self, mark: int) -> bool:
        return not mark & self.bits and bool(mark & ~self.whole)


NONE_OCCUPIED = Occupied()
NO_MARKS: t.Mapping[str, int] = MappingProxyType({})


class Uplinks(Parsed):
    """The normal form of the option: a list of Uplink, each with a mark. unmarked: names of those whose mark was left out."""

    unmarked: t.Collection[str] = ()


def from_option(
    entries: t.Sequence[t.Mapping[str, t.Any]], occupied: Occupied = NONE_OCCUPIED, former: t.Mapping[str, int] = NO_MARKS
) -> Uplinks:
    """Return the normal form of the option ``uplinks``. Raises Invalid.

    occupied: marks that are not given to an uplink whose mark was left out. former: by uplink, the mark to give again.
    """
    if isinstance(entries, Uplinks):
        return entries
    if not entries:
        raise Invalid("uplinks", [], "a list of at least one network interface")
    uplinks: list[dict[str, t.Any]] = []
    listed_marks = {
        _number(f"uplinks[{index}].mark", entry["mark"], UINT32)
        for index, entry in enumerate(entries)
        if entry.get("mark") is not None
    }
    former_marks = {entry["name"]: former.get(entry["name"], 0) for entry in entries if entry.get("mark") is None}
    former_marks = {name: mark for name, mark in former_marks.items() if occupied.permits(mark) and mark not in listed_marks}
    permitted = [mark for mark in sorted(MARKS, key=lambda mark: bool(mark & occupied.whole)) if occupied.permits(mark)]
    free = (mark for mark in permitted if mark not in listed_marks.union(former_marks.values()))
    for index, entry in enumerate(entries):
        option = f"uplinks[{index}]"
        values = {key: value for key, value in entry.items() if value is not None}
        mark = former_marks.get(values["name"]) or (
            _number(f"{option}.mark", values["mark"], UINT32) if "mark" in values else next(free, None)
        )
        if mark is None:
            raise Invalid(f"{option}.mark", None, f"given, because only {len(permitted)} marks are free")
        uplink: dict[str, t.Any] = {"name": names.network_interface(f"{option}.name", values["name"]), "mark": f"{mark:#x}"}
        if "table" in values:
            uplink["table"] = _table(f"{option}.table", values["table"])
        for family, key in GATEWAYS.items():
            if key in values:
                uplink[key] = _gateway(f"{option}.{key}", values[key], family)
        for key in ("name", "mark", "table"):
            if uplink.get(key) in (other[key] for other in uplinks if key in other):
                raise Invalid(f"{option}.{key}", uplink[key], "different from that of each other entry")
        uplinks.append(uplink)
    normal = Uplinks(uplinks)
    normal.unmarked = [entry["name"] for entry in entries if entry.get("mark") is None]
    return normal


def remarked(uplinks: t.Sequence[Uplink], occupied: Occupied, former: t.Mapping[str, int]) -> Uplinks:
    """Return the uplinks, those whose mark was left out with a mark that is free on the node. Raises Invalid.

    The other arguments are those of from_option().
    """
    unmarked = uplinks.unmarked if isinstance(uplinks, Uplinks) else ()
    entries = [
        {key: value for key, value in uplink.items() if key != "mark" or uplink["name"] not in unmarked} for uplink in uplinks
    ]
    chosen = from_option(entries, occupied, former)
    return uplinks if isinstance(uplinks, Uplinks) and chosen == uplinks else chosen


def mask(uplinks: t.Sequence[Uplink]) -> int:
    """Return the bits of all marks."""
    return functools.reduce(operator.or_, (int(uplink["mark"], 0) for uplink in uplinks))


def candidates(node: NodeState) -> Uplinks:
    """Return an uplink for each link of the node that has an address and a gateway, by name. Raises Invalid."""
    entries = [
        {"name": name}
        for name, link in sorted(node.links.items())
        if link.addresses and not link.master and not name.startswith(OF_CNIS)
    ]
    routers_of = gateways(entries, node)
    listed = [entry for entry in entries if routers_of[entry["name"]]]
    return from_option(listed) if listed else Uplinks()


def gateways(uplinks: t.Iterable[Uplink], node: NodeState) -> dict[str, dict[str, str]]:
    """Map the uplinks to their known gateways by family."""
    neighbours, routers_of = Gateways(node.routes), {}
    for uplink in uplinks:
        by_family = {family: _gateway_of(uplink, node, neighbours, family) for family in FAMILIES}
        routers_of[uplink["name"]] = {family: address for family, address in by_family.items() if address}
    return routers_of


def _gateway_of(uplink: Uplink, node: NodeState, neighbours: Gateways, family: str) -> str:
    """Return the gateway of an uplink, empty if none is known: that of the option, of a default route in any table, or of a
    lease. An address that the kernel refuses as a gateway is none."""
    name, number = uplink["name"], FAMILIES[family]
    defaults = (route for route in node.routes if not route.dst[1] and route.family == number)
    ranked = sorted(defaults, key=lambda route: (route.table != rt_names.MAIN, route.metric))
    routed = (fields.show(hop.via) for route in ranked for hop in _hops(route, name) if hop.via)
    leased = node.links.get(name, Link(0)).leases.get(family, "")
    addresses = [uplink[GATEWAYS[family]]] if GATEWAYS[family] in uplink else [*routed, *filter(None, [leased])]
    return next((address for address in addresses if not _lack(neighbours, name, address)), "")


def _lack(neighbours: Gateways, name: str, address: str) -> str:
    """Return what a gateway over a link must be, as the end of "must be ..."; empty if the kernel takes it."""
    family, packed = fields.address(address)
    return neighbours.lack(Route(family, FIRST_TABLE), Hop(name, packed, onlink=True))


def check(uplinks: t.Sequence[Uplink], node: NodeState) -> None:
    """Raise Invalid for an uplink of the option that this node cannot have."""
    neighbours = Gateways(node.routes)
    for number, uplink in enumerate(uplinks):
        name, option = uplink["name"], f"uplinks[{number}]"
        if name not in node.links:
            continue
        master = node.links[name].master
        if master:
            raise Invalid(
                f"{option}.name", name, f"a link in no bridge, bond or VRF; it is in {master}, by which packets come in"
            )
        for key in GATEWAYS.values():
            lack = _lack(neighbours, name, uplink[key]) if key in uplink else ""
            if lack:
                raise Invalid(f"{option}.{key}", uplink[key], lack)


def doubts(uplinks: t.Iterable[Uplink], node: NodeState) -> t.Iterator[str]:
    """Yield a sentence for each gateway of the option that is in no network of its uplink, unless the uplink has none either."""
    networks = policy.networks_of_links(node.routes)
    for uplink in uplinks:
        for key in (key for key in GATEWAYS.values() if key in uplink):
            family, packed = fields.address(uplink[key])
            prefixes = [
                prefix for of_family, prefix in map(fields.prefix, networks.get(uplink["name"], ())) if of_family == family
            ]
            if prefixes and not _is_link_local(packed) and not any(fields.contains(prefix, packed) for prefix in prefixes):
                yield (
                    f"The {key} {uplink[key]} of {uplink['name']} is in no network of {uplink['name']}. Unless its router answers"
                    f" there for this address, replies by {uplink['name']} are lost."
                )


def rules_and_routes(uplinks: t.Sequence[Uplink], node: NodeState) -> DerivedPolicy:
    """Return the rules and routes of the uplinks that the node has.

    An uplink whose gateway of a family is not known has none of that family, and is among the unfit.
    """
    rules, routes, unfit, tables = list[Entry](), list[Entry](), dict[str, str](), _tables(uplinks, node)
    networks, routers_of, bits = policy.networks_of_links(node.routes), gateways(uplinks, node), mask(uplinks)
    routers = {address for by_family in routers_of.values() for address in by_family.values()}
    neighbours, of_main = Gateways(node.routes), [route for route in node.routes if _is_of_main(route)]

    def is_node(hop: Hop) -> bool:
        """Cilium's routes to pods name the node's own address as their gateway."""
        address = fields.show(hop.via)
        return address not in routers and not _lack(neighbours, hop.dev, address)

    for uplink in (uplink for uplink in uplinks if uplink["name"] in node.links):
        name, link = uplink["name"], node.links[uplink["name"]]
        table = tables[name]
        other_networks = dict.fromkeys(
            prefix for other in uplinks if other is not uplink for prefix in networks.get(other["name"], ())
        )
        mark_rule = {"priority": MARK_PRIORITY, "fwmark": f"{uplink['mark']}/{bits:#x}", "table": table}
        for family, number in FAMILIES.items():
            addresses = [address for address in link.addresses if fields.address(address)[0] == number]
            if family in routers_of[name]:
                rules.append({**mark_rule, "family": family})
                rules += (
                    rule for address in addresses for rule in policy.source_rules(address, table, SOURCE_PRIORITY, other_networks)
                )
                routes.append({"table": table, "to": "default", "via": routers_of[name][family], "dev": name, "onlink": True})
                routes += _copies(name, table, (route for route in of_main if route.family == number), is_node)
            elif addresses:
                unfit[name] = "; ".join(filter(None, [unfit.get(name), _unfit(name, addresses[0], family)]))
    return DerivedPolicy(rules, routes, unfit, {})


def _tables(uplinks: t.Iterable[Uplink], node: NodeState) -> dict[str, int]:
    """Map the uplinks that the node has to the numbers of their tables: given, or the first that no other program fills."""
    tables = {uplink["name"]: uplink["table"] for uplink in uplinks if "table" in uplink}
    filled = {route.table for route in node.routes}
    for name in (uplink["name"] for uplink in uplinks if uplink["name"] in node.links):
        numbers = itertools.count(FIRST_TABLE + node.links[name].number)
        tables.setdefault(name, next(number for number in numbers if number not in filled.union(tables.values())))
    return tables


def _unfit(name: str, address: str, family: str) -> str:
    return (
        f"{name} has the address {address} and no known {family.replace('ip', 'IP')} gateway, so replies from it leave by the"
        f" default route. Give {GATEWAYS[family]} in uplinks"
    )


def _copies(name: str, table: int, routes: t.Iterable[Route], fits: t.Callable[[Hop], bool]) -> t.Iterator[Entry]:
    """Yield main's routes of a family for the table of an uplink, without default routes and link-local prefixes.

    They are those over the uplink, and those by gateways that are no routers of an uplink but other nodes, as to their pods. Of
    several routes with one prefix, those over the uplink come first, and then the lowest metric.

    fits: whether a gateway is that of another node.
    """
    over: dict[fields.Prefix, Hop] = {}
    for route in sorted(routes, key=lambda route: (not _hops(route, name), route.metric)):
        hops = _hops(route, name) or [hop for hop in route.hops if hop.via and fits(hop)]
        if hops and route.dst[1] and not _is_link_local(route.dst[0]):
            over.setdefault(route.dst, hops[0])
    for prefix, hop in over.items():
        entry = {"table": table, "to": fields.show_prefix(prefix, ""), "dev": hop.dev}
        yield {**entry, "via": fields.show(hop.via), "onlink": True} if hop.via else entry


def _is_of_main(route: Route) -> bool:
    return (route.table, route.type) == (rt_names.MAIN, UNICAST)


def _hops(route: Route, name: str) -> list[Hop]:
    return [hop for hop in route.hops if hop.dev == name]


def _is_link_local(address: bytes) -> bool:
    return len(address) == 16 and fields.is_link_local(address)


def _number(option: str, value: object, high: int) -> int:
    try:
        return fields.number(value, 1, high)
    except Unfit as unfit:
        raise Invalid(option, value, str(unfit)) from None


def _table(option: str, value: object) -> int:
    number = _number(option, value, UINT32)
    if number in rt_names.TABLES.values():
        raise Invalid(option, value, "a table other than default, main and local (253 to 255)")
    return number


def _gateway(option: str, value: object, family: str) -> str:
    try:
        of_family, packed = fields.node(value)
    except Unfit:
        of_family, packed = 0, b""
    if of_family != FAMILIES[family]:
        raise Invalid(option, value, f"the {family.replace('ip', 'IP')} address of the uplink's router")
    return fields.show(packed)
