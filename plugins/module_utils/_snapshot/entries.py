# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules, routes and neighbours as plain data, under the names that the options of policy_routes have."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._netlink.attributes import attributes
from .._routing import route as routes
from .._routing import rt_names
from .._routing import rule as rules
from .._routing.neighbour import HEADER, NDA_DST, STATES, Neighbour
from .._routing.route import UNREAD_TYPE, Route
from .._routing.rule import Rule

_BESIDE = ("protocol", "unread", "tos", "from")  # keys of a route that no desired route has


def parsed_rule(option: str, entry: t.Mapping[str, t.Any]) -> tuple[Rule, int]:
    """Return the rule of an entry and its protocol. Raises Invalid. One with attributes that were not read equals no other."""
    values = {name: value for name, value in entry.items() if name not in ("protocol", "unread")}
    parsed = rules.from_options(option, values, rt_names.TABLES)
    return parsed._replace(opaque=b"unread" if entry.get("unread") else b""), rt_names.protocol_number(entry.get("protocol"))


def parsed_route(option: str, entry: t.Mapping[str, t.Any]) -> tuple[Route, int]:
    """Return the route of an entry and its protocol. Raises Invalid."""
    values = {name: value for name, value in entry.items() if name not in _BESIDE}
    if values.get("family") == "ipv6":
        values.pop("scope", None)
    parsed = routes.from_options(option, values, rt_names.TABLES)
    unread = (*map(str, entry.get("unread") or ()), *(name for name in ("tos", "from") if entry.get(name)))
    return parsed._replace(unread=tuple(sorted(unread))), rt_names.protocol_number(entry.get("protocol"))


def rule(current: Rule, protocol: int) -> dict[str, t.Any]:
    return {**current.options(), "protocol": rt_names.protocol(protocol), **_unread(current.unread)}


def kernels_rules(family: str) -> list[dict[str, t.Any]]:
    """Return the rules that the kernel adds to a network namespace (net/ipv4/fib_rules.c, net/ipv6/fib6_rules.c)."""
    tables = {0: "255", 32766: "254", **({32767: "253"} if family == "ipv4" else {})}
    return [{"priority": priority, "family": family, "table": table, "protocol": "kernel"} for priority, table in tables.items()]


def with_kernels_rules(rules: t.Iterable[t.Mapping[str, t.Any]], family: str) -> list[t.Mapping[str, t.Any]]:
    """Return the rules with those of the kernel for a family whose priorities are free, in order."""
    known = list(rules)
    taken = {int(entry["priority"]) for entry in known if entry.get("family") == family}
    added = (entry for entry in kernels_rules(family) if entry["priority"] not in taken)
    return sorted([*known, *added], key=lambda entry: int(entry["priority"]))


def route(current: Route, protocol: int) -> dict[str, t.Any]:
    tos, source, length = current.beside
    beside = {"tos": tos, "from": fields.show_prefix((source, length), "") if source else ""}
    shown = {name: value for name, value in beside.items() if value}
    return {**current.options(), "protocol": rt_names.protocol(protocol), **shown, **_unread(unread(current))}


def unread(current: Route) -> list[str]:
    """Return the names of the attributes that an entry lacks. It has the type of each route."""
    return [name for name in current.unread if name != UNREAD_TYPE]


def neighbour(current: Neighbour) -> dict[str, t.Any]:
    state = STATES.get(current.state, str(current.state))
    return {"address": current.address, "dev": current.link, "mac": current.mac, "state": state}


def proxy(body: bytes, links: t.Mapping[int, str]) -> dict[str, t.Any]:
    """Return an address for which the node answers on a link. links: names by index."""
    values = attributes(body, HEADER.size)
    dev = links.get(HEADER.unpack_from(body)[1], "")
    return {"address": fields.show(values[NDA_DST]), "dev": dev, "mac": "", "state": "PROXY"}


def _unread(names: t.Sequence[str]) -> dict[str, t.Any]:
    return {"unread": list(names)} if names else {}
