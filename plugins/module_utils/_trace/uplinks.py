# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the elastic network interfaces (ENIs) of a node by the links, rules and routes of its snapshot, without metadata."""

from __future__ import annotations

import typing as t

from .._cloud import eni, eni_layout
from .._cni import foreign_marks, marks
from .._cni.foreign_marks import ForeignMark
from .._core import fields
from .._discovery.uplinks import Link, NodeState
from .._profiles.symmetric_routing import TABLE
from .._routing.policy import PROTOCOL
from .._ruleset import observed
from .._snapshot import values
from .._snapshot.values import Entry
from .._twin import blueprint
from .._twin.pod_links import is_machine

FREE_MARKS = ("0x2", "0x4", "0x40", "0x1000")  # bits that no known CNI uses
# The beginnings of the names that CNIs and container runtimes give to the node's ends of pods' links.
POD_PREFIXES = ("azv", "cali", "eni", "gw", "lxc", "veth", "vlan")
OFFSETS = {"aws_vpc_cni": 1, "cilium": 10}  # of a table's number from the device number of its ENI, by layout


class Uplinks(t.NamedTuple):
    """Describe the ENIs of a node whose pods share them.

    enis: the option ``enis`` of the profile eni_policy_routing, the primary ENI first. pod_interfaces: names or patterns of pods'
    links. layout, priorities: of the profile. marks: that rules of the CNI set. tables: numbers of the secondary ENIs' routing
    tables, in the order of these. names: of the links that the options name without a pattern.
    """

    enis: list[dict[str, t.Any]]
    pod_interfaces: list[str]
    layout: str
    priorities: dict[str, int]
    marks: list[marks.Marks]
    tables: list[int]
    names: list[str]

    @property
    def primary(self) -> str:
        return str(self.enis[0]["name"])

    @property
    def secondary(self) -> list[str]:
        return [str(entry["name"]) for entry in self.enis[1:]]

    @property
    def lacks_addresses(self) -> bool:
        """Return whether a secondary ENI has no IPv4 address on the node, so that only the metadata would name it."""
        return not all(entry.get("ipv4") for entry in self.enis[1:])


def of(snapshot: Entry) -> Uplinks | None:
    """Return the ENIs; None for a node that has no uplink with a routing table of its own."""
    defaults = [route for route in values.routes(snapshot) if route.to == "default" and route.dev]
    main = sorted((route for route in defaults if route.table == values.MAIN), key=_rank)
    if not main:
        return None
    primary = main[0].dev
    others: dict[str, dict[str, t.Any]] = {}
    for route in defaults:
        if route.via and route.dev != primary and _number(route.table) not in eni.OF_THE_NODE:
            entry = others.setdefault(route.dev, {"name": route.dev, "table": _number(route.table), "gateway": {}})
            if entry["table"] == _number(route.table):
                entry["gateway"].setdefault(route.family, route.via)
    links = {link.name: link for link in values.links(snapshot)}
    enis = [{"name": primary, "primary": True}, *others.values()]
    for entry in enis:
        entry.update(_addresses(links.get(entry["name"], values.Link())))
    tables = [int(entry["table"]) for entry in others.values()]
    priorities = _priorities(snapshot, tables)
    if not others or priorities is None:
        return None
    uplinks = [str(entry["name"]) for entry in enis]
    pods = {name: _pattern(name, uplinks) for name in _pod_links(snapshot, links, uplinks)}
    names = [*uplinks, *(name for name, pattern in pods.items() if name == pattern)]
    options = enis, [*dict.fromkeys(pods.values())], "custom", priorities
    return _in_layout(Uplinks(*options, _marks(snapshot), tables, names))


def _rank(route: values.Route) -> tuple[bool, int]:
    return route.family != "ipv4", int(route.metric or 0)


def _number(table: str) -> int:
    return int(table) if table.isdigit() else 0


def _addresses(link: values.Link) -> dict[str, list[str]]:
    """Return the addresses of a link by family, without link-local ones; families without any are left out."""
    return {family: addresses for family in fields.FAMILIES if (addresses := link.of_family(family))}


def _priorities(snapshot: Entry, tables: t.Collection[int]) -> dict[str, int] | None:
    """Return the option ``priorities``, by which the rule for marks comes before the rules of pods; None if there is no place."""
    rules = [rule for rule in values.rules(snapshot) if not rule.fwmark]
    usual = eni_layout.LAYOUTS["custom"]
    from_pods = (rule.priority for rule in rules if rule.source and _number(rule.table) in tables)
    from_pod = min(from_pods, default=usual.from_pod)
    to_pods = (rule.priority for rule in rules if rule.to and rule.table in ("", values.MAIN))
    to_pod = max((number for number in to_pods if number < from_pod), default=0)
    if to_pod < usual.mark_priority < from_pod:
        return {}
    priorities = {"to_pod": to_pod or 1, "mark": from_pod - 1, "from_pod": from_pod}
    return priorities if priorities["to_pod"] < priorities["mark"] else None


def _pod_links(snapshot: Entry, links: t.Mapping[str, values.Link], uplinks: t.Collection[str]) -> list[str]:
    """Return the names of the links of pods."""
    of_main = (route for route in values.routes(snapshot) if route.table == values.MAIN)
    of_routes = {route.dev for route in of_main if route.to != "default" and not route.via}
    pods = [link for name, link in links.items() if name in of_routes and name not in uplinks]
    return [pod.name for pod in pods if (not pod.kind or is_machine(pod)) and not pod.master and not _addresses(pod)]


def _pattern(name: str, uplinks: t.Iterable[str]) -> str:
    """Return a pattern for a pod's link if its name has a usual beginning that no uplink has; else the name."""
    prefix = next((prefix for prefix in POD_PREFIXES if name.startswith(prefix)), "")
    is_common = any(uplink.startswith(prefix) for uplink in uplinks)
    return name if not prefix or is_common else f"{prefix}*"


def _marks(snapshot: Entry) -> list[marks.Marks]:
    return marks.find([*observed.of_nft(snapshot), *observed.of_iptables(snapshot, *marks.TABLES)])


def _in_layout(enis: Uplinks) -> Uplinks:
    """Return the same in the layout of the CNI whose rules mark connections, if its tables have the numbers of that layout."""
    owners = {entry.owner for entry in enis.marks}
    layout = next((name for name, cni in marks.CNIS.items() if cni.name in owners and name in OFFSETS), None)
    if layout is None:
        return enis
    numbers = [table - OFFSETS[layout] for table in enis.tables]
    if not all(1 <= number < 100 for number in numbers):
        return enis
    primary, *others = enis.enis
    secondary = [
        {**{name: value for name, value in entry.items() if name != "table"}, "device_number": number}
        for entry, number in zip(others, numbers)
    ]
    return enis._replace(enis=[primary, *secondary], layout=layout, priorities={})


def node_state(snapshot: Entry) -> NodeState:
    """Return the links and routes of a snapshot as the profile symmetric_routing reads them, without leases, which are files."""
    links = {link.name: Link(link.number, _global(link), master=link.master) for link in values.links(snapshot)}
    return NodeState(
        links, [route for route, owner in blueprint.parsed_routes(values.routes(snapshot), []) if owner != str(PROTOCOL)]
    )


def _global(link: values.Link) -> tuple[str, ...]:
    """Return the addresses of a link that other links may use."""
    return tuple(address for family in fields.FAMILIES for address in link.of_family(family, "", "global"))


def foreign_marks_of(snapshot: Entry) -> list[ForeignMark]:
    """Return the marks of other programs than this collection in the rules and chains of a snapshot."""
    rules = ((rule, 0) for rule in blueprint.parsed_rules(values.rules(snapshot)))
    return [*foreign_marks.of_rules(rules, PROTOCOL), *foreign_marks.of_tables(observed.tables(snapshot), TABLE)]


def has_address(snapshot: Entry, address: bytes) -> bool:
    """Return whether a link of the node has the address."""
    text = fields.show(address)
    return any(text in link.addresses for link in values.links(snapshot))
