# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Checks of what this collection has set on the node, against its records."""

from __future__ import annotations

import json
import re
import typing as t

from .._core.errors import Invalid
from .._routing import policy, rt_names
from .._twin.blueprint import Entry, entries
from .finding import Check
from .node import ASK, FAMILIES, IPV4, MAIN, Node, route_line, rule_line
from .suspicion import RISK, Remedy, Suspicion, Unobserved

SUBSET = "policies"
SHOWN = 3  # lines of evidence
REPLACED = "Have the other program remove its routes to these prefixes, and run policy_routes again"
_OWN_FILE = re.compile(r"/etc/sysctl\.d/\d+-kubenode-[^/]+\.conf")
_OF_LINK = re.compile(r"net\.(ipv4|ipv6)\.conf\.(.+)\.(\w+)")


def _drift(node: Node) -> t.Iterator[Suspicion]:
    yield from _changed_settings(node)
    for entry in node.demand(SUBSET):
        options = _options(entry)
        rules, routes = _missing_rules(node, options["rules"]), _missing_routes(node, options["routes"])
        if rules or routes:
            what = (
                f"The kernel lacks rules or routes that policy_routes keeps in {entry.get('path')}: another program removed or"
                " changed them."
            )
            lines = (*map(rule_line, rules), *map(route_line, routes))
            is_replaced = any(_is_replaced(node, route) for route in routes)
            remedy = Remedy(operator=REPLACED) if is_replaced else Remedy("policy_routes", {**options, "permanent": False})
            yield Suspicion(f"protocol {options['protocol']}", what, lines[:SHOWN], remedy)
    for entry in entries(node.snapshot, "unread"):
        if entry.get("subset") == SUBSET:
            raise Unobserved(str(entry.get("reason")), ASK[SUBSET])


def _options(entry: Entry) -> dict[str, t.Any]:
    """Return the options of policy_routes that give a policy. Raises Invalid."""
    try:
        kept = policy.from_options(entry.get("protocol"), entry.get("rules"), entry.get("routes"), rt_names.TABLES)
    except Invalid as error:
        raise error.inside(f"snapshot.{SUBSET}") from None
    rules, routes = [rule.options() for rule in kept.rules or ()], [route.options() for route in kept.routes or ()]
    return {"protocol": kept.protocol, "rules": rules, "routes": routes}


def _changed_settings(node: Node) -> t.Iterator[Suspicion]:
    """Yield the settings that a file of this collection sets and that have another value now."""
    for key, entry in node.boot("settings").items():
        current = _current(node, key) if _OWN_FILE.fullmatch(str(entry["file"])) and entry["value"] is not None else None
        if current is not None and current != int(entry["value"]):
            what = (
                f"A module of this collection has set {key} to {entry['value']}, and another program has changed it to {current}."
            )
            command = f"sysctl -w {key}={entry['value']}"
            text = f"Find what changed it, and set it again: {command}"
            evidence = (f"{key} = {current}", f"{entry['file']}: {key} = {entry['value']}")
            yield Suspicion(key, what, evidence, Remedy(operator=text, commands=(command,)))


def _current(node: Node, key: str) -> int | None:
    """Return the value of a setting; None for one of a link that the node does not have now, or for a pattern."""
    match = _OF_LINK.fullmatch(key)
    link = match[2].replace("/", ".") if match else ""
    settings = node.demand("settings")
    if not match:
        value = (settings.get("node") or {}).get(key)
        return None if value is None else int(value)
    return node.setting(match[1], link, match[3]) if link in (settings.get(match[1]) or {}) else None


def _missing_rules(node: Node, rules: t.Sequence[Entry]) -> list[Entry]:
    current = {_meaning(entry) for family in FAMILIES for entry in node.rules(family)}
    return [entry for entry in rules if _meaning(entry) not in current]


def _missing_routes(node: Node, routes: t.Sequence[Entry]) -> list[Entry]:
    """Return the routes that the kernel lacks, without those that wait for a link that is missing or down."""
    ready = {link["name"] for link in node.all_links() if "UP" in (link.get("flags") or ())}
    listed = [entry for entry in routes if not entry.get("dev") or entry["dev"] in ready]
    current = {_meaning(entry) for place in {*map(_place, listed)} for entry in node.routes(*place)}
    return [entry for entry in listed if _meaning(entry) not in current]


def _place(route: Entry) -> tuple[str, str]:
    return str(route.get("family") or IPV4), str(route.get("table") or MAIN)


def _is_replaced(node: Node, route: Entry) -> bool:
    """Return whether the kernel has another route in the place of one, as the same prefix and metric."""
    return any(all(entry.get(key) == route.get(key) for key in ("to", "metric", "tos")) for entry in node.routes(*_place(route)))


def _meaning(entry: Entry) -> str:
    """Return a rule or a route as text, without its protocol: that of another program may mean the same."""
    return json.dumps({name: value for name, value in entry.items() if name != "protocol"}, sort_keys=True)


CHECKS = (
    Check(
        "own-drift",
        RISK,
        "Another program removed or changed rules, routes or settings that a module of this collection keeps on the node.",
        "The records of policy_routes and the files of this collection in /etc/sysctl.d, and what the kernel has.",
        "policy_routes again, or the value of the setting again.",
        "https://github.com/kubenode/datapath/blob/main/docs/policy-routes.md",
        _drift,
    ),
)
