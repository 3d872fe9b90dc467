# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules, routes and addresses that a node with elastic network interfaces (ENIs) needs, in the layout of its CNI.

A layout gives the table of each ENI, the table for replies that are marked for the primary interface, and the priorities of
the rules. Rules for pods belong to the CNI. Only the layout "custom", which has no CNI, makes them.

Numbers are from the sources of amazon-vpc-cni-k8s 1.23 (pkg/networkutils), cilium (pkg/datapath/linux/linux_defaults and
routing) and terway (plugin/datapath, cmd/terway-cli/symmetric.go).
"""

from __future__ import annotations

import functools
import operator
import typing as t

from .._core import fields, names
from .._core.errors import Invalid
from .._core.fields import FAMILIES, UINT32, Unfit
from .._routing import policy
from .._routing.policy import MAIN, Entry
from . import eni
from .eni import Eni

# The parts of a layout: the rules that route by the mark, with their table; the rules and the table of each secondary ENI.
MARK_RULE, TABLES = PARTS = ("mark_rule", "tables")


class Layout(t.NamedTuple):
    """mark: MARK/MASK of replies that must leave by the primary interface.
    mark_priority: priority of the rule that routes by the mark.
    mark_table: the table of that rule: main, or a table with only the primary interface's default route.
    table_of: returns the number of an ENI's table, None if it needs none. Raises Invalid if the ENI lacks the data for it.
    is_onlink: if true, the default route has the flag onlink; if false, the gateway gets a route of its own.
    from_address: priority of the rule that looks an ENI's own address up in its table; 0 for no rule.
    to_pod, from_pod: priorities of the rules for pods; 0 if these belong to the CNI.
    pod_links: patterns for the names of the node's ends of pods' links.
    marks_itself: true if the CNI by default marks connections that come in by the primary interface.
    ipv6_gateway: the IPv6 router of each ENI, used if the metadata names none.
    clouds: the clouds whose metadata has all that table_of needs; empty for any cloud.
    """

    mark: str
    mark_priority: int
    table_of: t.Callable[[Eni], int | None]
    mark_table: int | str = MAIN
    is_onlink: bool = False
    from_address: int = 0
    to_pod: int = 0
    from_pod: int = 0
    pod_links: tuple[str, ...] = ()
    marks_itself: bool = False
    ipv6_gateway: str = ""
    clouds: tuple[str, ...] = ()

    @property
    def bits(self) -> tuple[int, int]:
        """Return the mark and the mask as numbers."""
        mark, mask = self.mark.split("/")
        return fields.number(mark, 1, UINT32), fields.number(mask, 1, UINT32)


def _of_device(interface: Eni) -> int:
    """Number the table as amazon-vpc-cni-k8s does: 2, 3, ... on the first network card."""
    number = _device_number(interface)
    card = interface.network_card or 0
    return 10000 + number + 100 * card if card else number + 1


def _of_interface(interface: Eni) -> int:
    """Number the table as Cilium does: RouteTableInterfacesOffset and the interface's number."""
    return 10 + _device_number(interface)


def _of_index(interface: Eni) -> int | None:
    """Number the table as Terway does: the link's index, which changes each time the ENI is plugged in."""
    return 1000 + interface.index if interface.index else None


def _as_given(interface: Eni) -> int:
    table = interface.table or _of_index(interface)
    if table is None:
        raise Invalid(f"{interface.option}.table", None, "given, unless the link's index is given, from which it follows")
    return table


def _device_number(interface: Eni) -> int:
    number = interface.device_number
    if number is None or (number == 0 and not interface.network_card):
        allowed = "given, 1 or more: the CNI numbers the ENI's table by it. AWS may report 0 for a new ENI; try again later"
        raise Invalid(f"{interface.option}.device_number", number, allowed)
    return number


LAYOUTS = {
    "aws_vpc_cni": Layout(
        mark="0x80/0x80",
        mark_priority=1024,
        table_of=_of_device,
        from_address=32765,
        pod_links=("eni*", "vlan*"),
        marks_itself=True,
        ipv6_gateway="fe80:ec2::1",
        clouds=("aws",),
    ),
    "cilium": Layout(
        mark="0x80/0x80",
        mark_priority=109,
        table_of=_of_interface,
        pod_links=("lxc*",),
        marks_itself=True,
        clouds=("aws",),
    ),
    "terway": Layout(
        mark="0x10/0x10",
        mark_priority=600,
        mark_table=100,
        table_of=_of_index,
        is_onlink=True,
        pod_links=("cali*",),
    ),
    # Priorities between those of known CNIs, in the order of AWS's.
    "custom": Layout(
        mark="0x80/0x80",
        mark_priority=1200,
        table_of=_as_given,
        is_onlink=True,
        from_address=1400,
        to_pod=1100,
        from_pod=1300,
    ),
}


class DesiredLayout(t.NamedTuple):
    """The desired state. rules, routes: options of policy_routes. The other fields are options for rp_filter and
    nftables_connmark that match these.

    mask: the bits of all marks.
    interfaces: name and mark of the other interfaces with a mark.
    marks_itself: true if the CNI by default marks connections that come in by the primary interface.
    addresses: the primary IPv4 address of each secondary ENI, an option of link_addresses.
    left_out: by name, why a secondary ENI has no rules and routes, as a sentence.
    """

    rules: list[Entry]
    routes: list[Entry]
    primary_interface: str
    pod_interfaces: list[str]
    mark: str
    mask: str
    interfaces: list[Entry]
    marks_itself: bool
    addresses: list[Entry]
    left_out: dict[str, str]


def desired(
    name: str,
    entries: object,
    mark: object = None,
    priorities: t.Mapping[str, object] | None = None,
    parts: t.Collection[str] = PARTS,
    interface_marks: t.Sequence[t.Mapping[str, object]] | None = None,
) -> DesiredLayout:
    """Return the desired state of a node with these ENIs in the layout of this name. Raises Invalid.

    Secondary ENIs without a link are skipped: they are not plugged in yet, or are in a pod's network namespace. Of two ENIs on
    different network cards that the layout gives one table, the first has it, and the second has neither rules nor routes.

    mark: replaces the layout's. priorities: replace those of the layout custom; keys "mark", "to_pod", "from_pod",
    "from_address". parts: of PARTS; the rules and routes of the others are left out. interface_marks: name and mark of each
    secondary ENI whose connections are marked, too. One that is not there, or has no table yet, has no rule.
    """
    layout = adapted(name, mark, priorities)
    ways = marks_of(layout, interface_marks)
    enis = eni.from_list("enis", entries)
    primary = next(interface for interface in enis if interface.primary)
    if primary.name in ways:
        raise Invalid("interface_marks", primary.name, "of secondary ENIs; the option mark is that of the primary ENI")
    secondary = [interface for interface in enis if interface.name and interface is not primary]
    for interface in enis:
        if interface.pods and (interface is primary or not layout.from_pod):
            why = "table main routes the primary ENI's pods" if interface is primary else f"{name} routes the ENI's pods itself"
            raise Invalid(f"{interface.option}.pods", list(interface.pods), f"left out: {why}")
    bits, mask = layout.mark.split("/")
    if ways:
        mask = f"{functools.reduce(operator.or_, ways.values(), layout.bits[1]):#x}"
    is_marked, has_tables = MARK_RULE in parts, TABLES in parts
    if has_tables:
        _check_room(layout, enis)
    left_out = _without_table(layout, secondary if has_tables or (is_marked and ways) else [])
    routed = [interface for interface in secondary if interface.name not in left_out]
    marked = [interface for interface in routed if interface.name in ways] if is_marked else []
    served = routed if has_tables else []
    return DesiredLayout(
        [
            *(_mark_rules(layout, primary) if is_marked else []),
            *(rule for interface in marked for rule in _way_rules(layout, interface, f"{ways[interface.name]:#x}/{mask}")),
            *(rule for interface in served for rule in _rules(layout, interface, _networks(layout, enis, interface))),
        ],
        [
            *(_mark_routes(layout, primary) if is_marked else []),
            *(route for interface in served for route in _routes(layout, interface)),
        ],
        primary.name,
        list(layout.pod_links),
        bits,
        mask,
        [{"name": name, "mark": f"{number:#x}"} for name, number in ways.items()],
        layout.marks_itself,
        [{"dev": interface.name, "address": address} for interface in secondary for address in interface.addresses["ipv4"][:1]],
        left_out if has_tables else {name: first for name, first in left_out.items() if name in ways},
    )


def lacks_exceptions(name: str, entries: object) -> bool:
    """Return whether rules by source in this layout lack their exceptions, because subnets of the ENIs are not known."""
    layout, enis = LAYOUTS[name], eni.from_list("enis", entries)
    by_source = [
        interface for interface in enis if not interface.primary and (interface.pods or any(interface.addresses.values()))
    ]
    return bool(layout.from_pod) and any(_networks(layout, enis, interface) is None for interface in by_source)


def _check_room(layout: Layout, enis: t.Sequence[Eni]) -> None:
    """Raise Invalid if the exceptions of the rules for pods would come before the rule for marked packets."""
    first = layout.from_pod - policy.EXCEPTIONS
    has_exceptions = any(eni.pods and _networks(layout, enis, eni) is not None for eni in enis)
    if has_exceptions and layout.mark_priority >= first:
        order = {"mark": layout.mark_priority, "from_pod": layout.from_pod}
        raise Invalid(
            "priorities",
            order,
            f"with mark below from_pod - {policy.EXCEPTIONS}, as the rules before from_pod are its exceptions",
        )


def _without_table(layout: Layout, enis: t.Iterable[Eni]) -> dict[str, str]:
    """Map the names of the ENIs whose table an ENI on another network card has to the reason: Cilium numbers the ENIs of all
    cards in one range.

    Two ENIs of one number on one card are not among them: the metadata of an ENI that was attached a moment ago may be so.
    """
    holders: dict[int, Eni] = {}
    left_out = {}
    for interface in enis:
        table = layout.table_of(interface)
        holder = holders.setdefault(table, interface) if table is not None else interface
        if holder is not interface and (holder.network_card or 0) != (interface.network_card or 0):
            left_out[interface.name] = (
                f"{interface.name} (network card {interface.network_card or 0}) has no rules and routes: the layout gives"
                f" it table {table}, as {holder.name} (network card {holder.network_card or 0}), which comes first in the list"
                " of ENIs. Leave it to the CNI, or attach it with another device number"
            )
    return left_out


def adapted(name: str, mark: object, priorities: t.Mapping[str, object] | None) -> Layout:
    """Return the layout of this name, with the user's mark and priorities. Raises Invalid."""
    if name not in LAYOUTS:
        raise Invalid("layout", name, f"one of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[name]
    if name != "custom" and priorities:
        raise Invalid("priorities", priorities, f"left out: the layout {name} has its own")
    if mark is not None:
        layout = layout._replace(mark=_mark(mark))
    if not isinstance(priorities or {}, dict):
        raise Invalid("priorities", priorities, f"a dictionary with {', '.join(PRIORITIES)}")
    changes: dict[str, t.Any] = {}
    for key, value in (priorities or {}).items():
        if key not in PRIORITIES:
            raise Invalid(f"priorities.{key}", value, f"left out; known here are {', '.join(PRIORITIES)}")
        least = policy.EXCEPTIONS + 1 if key.startswith("from") else 1
        changes[PRIORITIES[key]] = _number(f"priorities.{key}", value, least)
    layout = layout._replace(**changes)
    if name == "custom" and not layout.to_pod < layout.mark_priority < layout.from_pod:
        order = {"to_pod": layout.to_pod, "mark": layout.mark_priority, "from_pod": layout.from_pod}
        raise Invalid("priorities", order, "in the order to_pod, mark, from_pod, as the first rule that matches decides")
    return layout


def marks_of(layout: Layout, entries: object) -> dict[str, int]:
    """Return the marks of secondary ENIs by name, from a list of dictionaries with name and mark. Raises Invalid."""
    if not isinstance(entries or [], list):
        raise Invalid("interface_marks", entries, "a list of dictionaries with name and mark")
    marks: dict[str, int] = {}
    for index, entry in enumerate(t.cast("list[object]", entries or [])):
        option = f"interface_marks[{index}]"
        if not isinstance(entry, dict) or set(entry) != {"name", "mark"}:
            raise Invalid(option, entry, "a dictionary with name and mark")
        name = names.network_interface(f"{option}.name", str(entry["name"]))
        if name in marks:
            raise Invalid(f"{option}.name", name, "another ENI than that of another entry")
        try:
            mark = fields.number(entry["mark"], 1, UINT32)
        except Unfit as unfit:
            raise Invalid(f"{option}.mark", entry["mark"], str(unfit)) from None
        of_primary, mask = layout.bits
        if mark & mask == of_primary:
            raise Invalid(
                f"{option}.mark", entry["mark"], f"a mark that the rule of the primary ENI, {layout.mark}, does not match"
            )
        if mark in marks.values():
            raise Invalid(f"{option}.mark", entry["mark"], "another mark than that of another entry")
        marks[name] = mark
    return marks


PRIORITIES = {"to_pod": "to_pod", "mark": "mark_priority", "from_pod": "from_pod", "from_address": "from_address"}


def _number(option: str, value: object, least: int) -> int:
    try:
        return fields.number(value, least, 32765)  # the kernel's own rules have 32766 and 32767
    except Unfit as unfit:
        raise Invalid(option, value, str(unfit)) from None


def _mark(value: object) -> str:
    bits, slash, mask = str(value).partition("/")
    try:
        mark = fields.number(bits, 1, UINT32)
        if mark & ~fields.number(mask, 1, UINT32) if slash else 0:
            raise Unfit("within its mask")
    except Unfit:
        raise Invalid("mark", value, "MARK or MARK/MASK, numbers up to 0xffffffff, the mark within the mask") from None
    return f"{bits}/{mask or bits}"


def _mark_rules(layout: Layout, primary: Eni) -> list[Entry]:
    rule = {"priority": layout.mark_priority, "fwmark": layout.mark, "table": layout.mark_table}
    return [{**rule, "family": family} for family in _mark_families(layout, primary)]


def _way_rules(layout: Layout, interface: Eni, fwmark: str) -> t.Iterator[Entry]:
    """Yield the rules that look up replies to requests that came in by a secondary ENI in its table."""
    table = layout.table_of(interface)
    for family in _routed_families(layout, interface) if table is not None else ():
        yield {"priority": layout.mark_priority, "fwmark": fwmark, "table": table, "family": family}


def _mark_routes(layout: Layout, primary: Eni) -> list[Entry]:
    if layout.mark_table == MAIN:
        return []
    families = _mark_families(layout, primary)
    return [route for family in families for route in _default(layout, primary, family, layout.mark_table)]


def _mark_families(layout: Layout, primary: Eni) -> list[str]:
    return _used_families(primary) if layout.mark_table == MAIN else _routed_families(layout, primary)


def _used_families(interface: Eni) -> list[str]:
    """Return IPv4, which every cloud node has, and IPv6 if the ENI has an IPv6 address."""
    return [family for family in FAMILIES if family == "ipv4" or interface.addresses[family]]


def _rules(layout: Layout, interface: Eni, networks: list[str] | None) -> t.Iterator[Entry]:
    """Yield the rules that look up an ENI's packets in its table.

    networks: see _networks().
    """
    table = layout.table_of(interface)

    def by_source(source: str, priority: int) -> t.Iterable[Entry]:
        if table is None or networks is None:
            return [{"priority": priority, "from": source, "table": table}]
        return policy.source_rules(source, table, priority, networks)

    for pod in interface.pods:
        yield {"priority": layout.to_pod, "to": pod, "table": MAIN}
        yield from by_source(pod, layout.from_pod)
    for family in _routed_families(layout, interface) if layout.from_address else ():
        for address in interface.addresses[family][:1]:
            yield from by_source(address, layout.from_address)


def _networks(layout: Layout, enis: t.Iterable[Eni], interface: Eni) -> list[str] | None:
    """Return the subnets of the other ENIs, for the exceptions of rules by source.

    None for no exceptions: because the rules are those of a CNI, or because table main may have a subnet that is not known, and
    would then send packets to it by the wrong ENI.
    """
    other_enis = [other for other in enis if other.name and other is not interface]
    addressed = [other for other in other_enis if other.primary or any(other.addresses.values())]
    if not layout.from_pod or any(other.subnets is None for other in addressed):
        return None
    return [*dict.fromkeys(subnet for other in other_enis for subnet in other.subnets or ())]


def _routes(layout: Layout, interface: Eni) -> t.Iterator[Entry]:
    """Yield the routes in an ENI's table."""
    table = layout.table_of(interface)
    for family in _routed_families(layout, interface) if table is not None else ():
        yield from _default(layout, interface, family, t.cast(int, table))


def _routed_families(layout: Layout, interface: Eni) -> list[str]:
    """Return the families that an ENI's table needs.

    IPv6 only if its router is known or a pod needs it: the metadata of most clouds does not name the router, and pods may be IPv4
    only.
    """
    with_router = [family for family in _used_families(interface) if _gateway(layout, interface, family)]
    needed = [family for family in FAMILIES if interface.pods_of(family)] + (["ipv4"] if interface.addresses["ipv4"] else [])
    return [family for family in FAMILIES if family in (*with_router, *needed)]


def _gateway(layout: Layout, interface: Eni, family: str) -> str:
    return interface.gateway.get(family, "") or (layout.ipv6_gateway if family == "ipv6" else "")


def _default(layout: Layout, interface: Eni, family: str, table: int | str) -> list[Entry]:
    gateway = _gateway(layout, interface, family)
    if not gateway:
        raise Invalid(f"{interface.option}.gateway.{family}", None, "given, the router of this ENI's subnet")
    default = {"table": table, "to": "default", "via": gateway, "dev": interface.name}
    if layout.is_onlink:
        return [{**default, "onlink": True}]
    return [{"table": table, "to": gateway, "dev": interface.name}, default]
