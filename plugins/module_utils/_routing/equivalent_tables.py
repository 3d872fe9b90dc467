# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.
"""Rules of other programs that do the same as own rules by tables with other numbers.

Example: on EKS with Amazon Linux 2023, systemd-networkd looks up the address of an ENI in table 10001, and the layout of
amazon-vpc-cni in table 2 (awslabs/amazon-eks-ami, nodeadm). Both tables lead to the same gateway.
"""

from __future__ import annotations

import typing as t

from .policy import Policy
from .route import Route
from .rule import LOOKUP, Rule

Owned = tuple[t.Any, int]  # a rule or a route, and its protocol


def served(desired: Policy, missing: t.Iterable[Rule], rules: t.Iterable[Owned], routes: t.Sequence[Owned]) -> dict[Rule, Owned]:
    """Return the ``missing`` rules of ``desired`` that a foreign rule satisfies, because its table leads to the same gateways.

    rules, routes: those of the kernel.
    """
    wanted = {rule._replace(table=0): rule for rule in missing if rule.action == LOOKUP and rule.table}
    satisfying: dict[Rule, Owned] = {}
    for other, protocol in rules if wanted else ():
        rule = wanted.get(other._replace(table=0))
        if rule and protocol != desired.protocol and rule not in satisfying and _leads_alike(desired, rule, other.table, routes):
            satisfying[rule] = (other, protocol)
    return satisfying


def _leads_alike(desired: Policy, rule: Rule, table: int, routes: t.Iterable[Owned]) -> bool:
    """Return whether foreign routes of ``table`` lead to all gateways to which the desired routes of the rule's table lead."""
    ways = {
        _way(route)
        for route in desired.routes or ()
        if (route.family, route.table) == (rule.family, rule.table) and any(hop.via for hop in route.hops)
    }
    foreign = (route for route, protocol in routes if protocol != desired.protocol and route.table == table)
    return bool(ways) and ways.issubset(map(_way, foreign))


def _way(route: Route) -> t.Any:
    return route.path.unread, route.family, route.dst, route.type, frozenset((hop.dev, hop.via) for hop in route.hops)
