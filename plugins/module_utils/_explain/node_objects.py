# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects in a snapshot, each kind with what identifies an object, what counts of it, its text, and its commands.

Counters, ages and numbers of links are no part of what counts, because no packet depends on them.
"""

from __future__ import annotations

import json
import typing as t

from .._core.errors import Invalid
from .._core.fields import endpoint
from .._snapshot import values
from .._snapshot.values import Address, Entry, PolicyRule, Route

# Of a link, those that decide about packets, besides those that follow from them.
FLAGS = ("UP", "LOWER_UP", "NOARP")
ADDRESS_FLAGS = ("dadfailed", "deprecated", "tentative", "secondary", "temporary", "noprefixroute")
AGES = ("expires", "timeout", "counter", "last", "quota")  # of an element of a set, and statements that count
HANDLES = ("handle", "index")
PLACE = ("family", "table", "chain")  # of a rule of nft
IPV6_MTU = 1280  # of a link with IPv6, the least (RFC 8200, 5)


class Kind(t.NamedTuple):
    """A kind of objects. name: of a change. label: what it says before the text of an object.

    key: what two snapshots have in common of one object. value: what counts of it. add, remove, replace: commands, empty if there
    is none; the last gives a changed object its value, and None stands for a removal and an addition.
    """

    name: str
    label: str
    key: t.Callable[[t.Any], t.Hashable]
    value: t.Callable[[t.Any], t.Hashable]
    text: t.Callable[[t.Any], str]
    add: t.Callable[[t.Any], str]
    remove: t.Callable[[t.Any], str]
    replace: t.Callable[[t.Any], str] | None = None

    def words(self, entry: t.Any) -> str:
        return f"{self.label} {self.text(entry)}".strip()


def _no_command(_entry: t.Any) -> str:
    return ""


def whole(value: t.Any) -> str:
    """Return a text that is the same for equal entries."""
    return json.dumps(value, sort_keys=True, default=str)


def flags(entry: Entry) -> tuple[str, ...]:
    return tuple(flag for flag in FLAGS if flag in (entry.get("flags") or ()))


def _family(of: PolicyRule | Route) -> str:
    return "ip -6" if of.family == "ipv6" else "ip"


def _rule_command(verb: str) -> t.Callable[[Entry], str]:
    def command(entry: Entry) -> str:
        rule = PolicyRule.of(entry)
        priority, _colon, words = _rule_text(entry).partition(": ")
        return f"{_family(rule)} rule {verb} {words} priority {priority}"

    return command


def _rule_text(entry: Entry) -> str:
    try:
        return str(PolicyRule.of(entry))
    except Invalid:
        return " ".join(f"{key} {value}" for key, value in entry.items() if value)


RULE = Kind(
    "rule",
    "ip rule",
    lambda entry: whole({key: value for key, value in entry.items() if key != "protocol"}),
    lambda _entry: "",
    _rule_text,
    _rule_command("add"),
    _rule_command("del"),
)
RULES = {"ipv4": RULE, "ipv6": RULE._replace(label="ip -6 rule")}  # one of a mark alone has the same text in both families


def _route_key(entry: Entry) -> t.Hashable:
    route = Route.of(entry)
    link = route.dev if route.to.startswith(("fe80:", "ff")) else ""  # each link has its own network of these
    return route.family, route.table, route.to, route.metric, str(entry.get("tos") or ""), _route_role(route), link


def _route_role(route: Route) -> str:
    """Return the type of a route that stands beside those to a network, such as that of a broadcast address."""
    return route.type if route.type in ("local", "broadcast", "anycast", "multicast") else ""


def _route_text(entry: Entry) -> str:
    route = Route.of(entry)
    try:
        return str(route.parsed("route")).partition(" route ")[2].replace(" table main", "")
    except Invalid:
        return f"{route.type} {route}".strip()


def _route_command(verb: str) -> t.Callable[[Entry], str]:
    return lambda entry: f"{_family(Route.of(entry))} route {verb} {_route_text(entry)}"


ROUTE = Kind(
    "route",
    "route",
    _route_key,
    lambda entry: whole({key: value for key, value in entry.items() if key not in ("protocol", "expires")}),
    _route_text,
    _route_command("replace"),
    _route_command("del"),
    _route_command("replace"),
)


def addresses(link: str) -> Kind:
    """Return the kind of the addresses of a link."""

    def words(entry: Entry) -> str:
        peer = f" peer {entry['peer']}" if entry.get("peer") else ""
        return f"{entry['address'].partition('/')[0]}{peer}" if peer else str(entry["address"])

    def command(verb: str) -> t.Callable[[Entry], str]:
        def of_address(entry: Entry) -> str:
            family = "ip -6" if values.of_entry(Address, entry).is_ipv6 else "ip"
            return f"{family} addr {verb} {words(entry)} dev {link}"

        return of_address

    return Kind(
        "address",
        "address",
        lambda entry: (entry.get("address"), entry.get("peer") or ""),
        lambda entry: (entry.get("scope") or "", tuple(flag for flag in ADDRESS_FLAGS if flag in (entry.get("flags") or ()))),
        lambda entry: f"{words(entry)} dev {link}",
        command("replace"),
        command("del"),
    )


def _neighbor_text(entry: Entry) -> str:
    state = "FAILED" if entry.get("state") in ("FAILED", "INCOMPLETE") else f"lladdr {entry.get('mac') or '?'}"
    return f"{entry.get('address')} {state} dev {entry.get('dev')}"


def _neighbor_command(entry: Entry) -> str:
    state = " nud permanent" if entry.get("state") == "PERMANENT" else ""
    return f"ip neigh replace {_neighbor_text(entry)}{state}" if entry.get("mac") else ""


NEIGHBOR = Kind(
    "neighbor",
    "neighbor",
    lambda entry: (entry.get("dev"), entry.get("address")),
    lambda entry: (entry.get("mac") or "", entry.get("state") == "PERMANENT", entry.get("state") in ("FAILED", "INCOMPLETE")),
    _neighbor_text,
    _neighbor_command,
    lambda entry: f"ip neigh del {entry.get('address')} dev {entry.get('dev')}",
    _neighbor_command,
)


def is_learned(entry: Entry) -> bool:
    """Return whether the kernel found the MAC address of a neighbour, and forgets it in time."""
    return entry.get("state") not in ("PERMANENT", "FAILED", "INCOMPLETE", "PROXY")


def chain_rules(program: str, table: str, place: str) -> Kind:
    """Return the kind of the rules of iptables or ebtables, which are texts with ``-A CHAIN``. place: of the text of a rule."""
    return Kind(
        "iptables" if program != "ebtables" else "ebtables",
        f"rule of {place}:",
        lambda line: line,
        lambda _line: "",
        str,
        lambda line: f"{program} -t {table} {line}",
        lambda line: f"{program} -t {table} -D{line[2:]}",
    )


def without_counters(body: t.Any) -> t.Any:
    """Return an expression, a rule or an element of nft's JSON without what packets count, and without handles."""
    if isinstance(body, dict):
        inner = {key: None if key in AGES else without_counters(value) for key, value in body.items() if key not in HANDLES}
        return {key: value for key, value in inner.items() if key in ("counter", "quota", "last") or key not in AGES}
    return [*map(without_counters, body)] if isinstance(body, list) else body


def nft_rules(place: str) -> Kind:
    """Return the kind of the rules of a chain of nft's JSON. place: family, table and chain."""

    def remove(body: Entry) -> str:
        return f"nft delete rule {place} handle {body['handle']}" if body.get("handle") else ""

    def text(body: Entry) -> str:  # as nft prints it, only nft knows
        return whole(without_counters({key: value for key, value in body.items() if key not in PLACE}))

    return Kind("nft", f"rule of {place}:", text, lambda _body: "", text, _no_command, remove)


def lines(name: str, label: str, add: t.Callable[[str], str] = _no_command, remove: t.Callable[[str], str] = _no_command) -> Kind:
    """Return a kind of objects that are texts."""
    return Kind(name, label, str, lambda _line: "", str, add, remove)


def entries(name: str, label: str, keys: t.Sequence[str], text: t.Callable[[Entry], str]) -> Kind:
    """Return a kind of objects without commands. keys: of an entry, which identify an object."""
    return Kind(
        name, label, lambda entry: tuple(str(entry.get(key) or "") for key in keys), whole, text, _no_command, _no_command
    )


def _listener_text(entry: Entry) -> str:
    return f"tcp {endpoint(str(entry.get('address')), entry.get('port'))}"


LISTENER = entries("listener", "listening socket", ("address", "port"), _listener_text)
