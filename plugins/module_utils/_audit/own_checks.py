# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what this collection has set on the node, against its records."""

from __future__ import annotations

import contextlib
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._routing import policy, rt_names
from .._routing.live_policy import LivePolicy, ObservedPolicy
from .._routing.policy import Policy
from .._routing.routing_backend import Netlink
from .._snapshot.values import Entry, PolicyRule, Route
from .finding import check
from .node import FAMILIES, IPV4, IPV6, Node
from .suspicion import NOTE, Remedy, Suspicion

SUBSET = "policies"
SHOWN = 3  # lines of evidence
REPLACED = "Have the other program remove its routes to these prefixes, and run policy_routes again"
_OWN_FILE = re.compile(r"/etc/sysctl\.d/\d+-kubenode-[^/]+\.conf")
_OF_LINK = re.compile(r"net\.(ipv4|ipv6)\.conf\.(.+)\.(\w+)")


@check(
    "own-drift",
    NOTE,
    "Another program removed or changed rules, routes or settings that a module of this collection keeps on the node.",
    "The records of policy_routes and the files of this collection in /etc/sysctl.d, and what the kernel has.",
    "policy_routes again, or the value of the setting again.",
    "https://github.com/kubenode/datapath/blob/main/docs/policy-routes.md",
    "A profile was applied, and the trouble came back",
)
def _drift(node: Node) -> t.Iterator[Suspicion]:
    yield from _changed_settings(node)
    for path, protocol, listed_rules, listed_routes in node.policies():
        kept = _policy(protocol, listed_rules, listed_routes)
        observed = _observed(node, kept)
        # What decides here that an object is there decides it for policy_routes.
        _desired, lacking = LivePolicy(Netlink(), _of_ready_links(node, kept)).changes(observed)
        rules, routes = lacking.rules.added, lacking.routes.added
        if rules or routes:
            what = (
                f"The kernel lacks rules or routes that policy_routes keeps in {path}: another program removed or changed them."
            )
            lines = (*(str(PolicyRule.of(each.options())) for each in rules), *(str(Route.of(each.options())) for each in routes))
            keys = {each.key for each in routes}
            is_replaced = any(current.key in keys for current, _protocol in observed.routes)
            options = {"protocol": kept.protocol, **_lists(kept), "permanent": False}
            remedy = Remedy(operator=REPLACED) if is_replaced else Remedy("policy_routes", options)
            yield Suspicion(f"protocol {kept.protocol}", what, lines[:SHOWN], remedy)
    node.demand_whole(SUBSET)


def _policy(protocol: object, listed_rules: t.Sequence[Entry], listed_routes: t.Sequence[Entry]) -> Policy:
    """Return the policy that policy_routes keeps in a file. Raises Invalid."""
    try:
        return policy.from_options(protocol, listed_rules, listed_routes, rt_names.TABLES)
    except Invalid as error:
        raise error.inside(f"snapshot.{SUBSET}") from None


def _lists(kept: Policy) -> dict[str, t.Any]:
    return {"rules": [rule.options() for rule in kept.rules or ()], "routes": [route.options() for route in kept.routes or ()]}


def _of_ready_links(node: Node, kept: Policy) -> Policy:
    """Return the policy without the routes that wait for a link that is missing or down."""
    ready = {link.name for link in node.all_links() if "UP" in link.flags}
    return kept._replace(routes=tuple(route for route in kept.routes or () if route.links - {""} <= ready))


def _observed(node: Node, kept: Policy) -> ObservedPolicy:
    """Return the rules and routes of the kernel. One that this version does not know is no object of the policy."""
    for route in kept.routes or ():
        node.routes(IPV6 if route.family == fields.IPV6 else IPV4, str(route.table))
    return ObservedPolicy(
        [*_parsed("rules", (rule for family in FAMILIES for rule in node.rules(family)))],
        [*_parsed("routes", node.every_route())],
        frozenset(link.name for link in node.links()),
    )


def _parsed(subset: str, listed: t.Iterable[PolicyRule | Route]) -> t.Iterator[tuple[t.Any, int]]:
    for each in listed:
        with contextlib.suppress(Invalid):
            yield each.parsed(f"snapshot.{subset}"), rt_names.protocol_number(each.protocol)


def _changed_settings(node: Node) -> t.Iterator[Suspicion]:
    """Yield the settings that a file of this collection sets and that have another value now."""
    for key, entry in node.boot("settings").items():
        current = _current(node, key) if _OWN_FILE.fullmatch(entry.file) and entry.value is not None else None
        if current is not None and current != entry.value:
            what = f"A module of this collection has set {key} to {entry.value}, and another program has changed it to {current}."
            command = f"sysctl -w {key}={entry.value}"
            text = f"Find what changed it, and set it again: {command}"
            evidence = (f"{key} = {current}", f"{entry.file}: {key} = {entry.value}")
            yield Suspicion(key, what, evidence, Remedy(operator=text, commands=(command,)))


def _current(node: Node, key: str) -> int | None:
    """Return the value of a setting; None for one of a link that the node does not have now, or for a pattern."""
    match = _OF_LINK.fullmatch(key)
    link = match[2].replace("/", ".") if match else ""
    if match:
        return node.setting(match[1], link, match[3]) if link in node.links_with_settings(match[1]) else None
    return node.sysctl(key) if key in node.links_with_settings("node") else None
