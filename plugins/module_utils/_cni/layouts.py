# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Priorities, tables and marks that known programs use on nodes, and their purposes.

From the sources of amazon-vpc-cni-k8s 1.23 (pkg/networkutils), cilium (pkg/datapath/linux/linux_defaults), terway
(plugin/datapath, cmd/terway-cli), cni-ipvlan-vpc-k8s (plugin/unnumbered-ptp), amazon-ec2-net-utils 2.7 (lib/lib.sh),
NetworkManager (src/nm-cloud-setup) and kube-proxy.
"""

from __future__ import annotations

import typing as t

from .._core.fields import ANY
from .._routing.route import Route
from .._routing.rt_names import MAIN
from .._routing.rule import LOOKUP, Rule

Fits = t.Callable[[Rule], bool]


class Use(t.NamedTuple):
    """A program's use of a priority. fits: whether a given rule has the same purpose."""

    owner: str
    meaning: str
    fits: Fits


def _is_to_pod(rule: Rule) -> bool:
    return rule.dst != ANY and rule.action == LOOKUP and rule.table == MAIN


def _is_from_pod(rule: Rule) -> bool:
    return rule.src != ANY and rule.action == LOOKUP and rule.table != MAIN


def _is_marked(rule: Rule) -> bool:
    return bool(rule.fwmask) and rule.action == LOOKUP


def _is_local(rule: Rule) -> bool:
    return rule.action == LOOKUP and rule.table == 255


def _is_by_link(rule: Rule) -> bool:
    return bool(rule.iif)


PRIORITIES: dict[int, tuple[Use, ...]] = {
    9: (Use("Cilium", "proxied packets by mark", _is_marked),),
    10: (Use("amazon-vpc-cni", "security groups for pods by interface", _is_by_link),),
    20: (Use("amazon-vpc-cni", "the local table", _is_local), Use("Cilium", "to a pod lookup main", _is_to_pod)),
    100: (Use("Cilium", "the local table", _is_local),),
    109: (Use("Cilium", "node port replies by mark", _is_marked),),
    110: (Use("Cilium", "from a pod lookup its interface's table", _is_from_pod),),
    111: (Use("Cilium", "from a pod lookup its interface's table", _is_from_pod),),
    112: (Use("Cilium", "VTEP", lambda rule: False),),
    512: (
        Use("amazon-vpc-cni", "to a pod lookup main", _is_to_pod),
        Use("Terway", "to a pod lookup main", _is_to_pod),
        Use("cni-ipvlan-vpc-k8s", "node port replies by mark", _is_marked),
    ),
    600: (Use("Terway", "symmetric routing by mark", _is_marked),),
    1024: (
        Use("amazon-vpc-cni", "node port replies by mark", _is_marked),
        Use("cni-ipvlan-vpc-k8s", "from a pod by its interface", _is_by_link),
    ),
    1535: (Use("amazon-vpc-cni", "to external services lookup main", _is_to_pod),),
    1536: (Use("amazon-vpc-cni", "from a pod lookup its interface's table", _is_from_pod),),
    2048: (Use("Terway", "from a pod lookup its interface's table", _is_from_pod),),
    32765: (Use("amazon-vpc-cni", "from an interface's primary address lookup its table", _is_from_pod),),
}
# First, last, owner, meaning. The owner computes each number from an interface's, so another rule there may collide later.
RANGES = (
    (10000, 11599, "amazon-ec2-net-utils", "rules and tables of secondary interfaces"),
    (30200, 30499, "nm-cloud-setup", "rules and tables of interfaces"),
)
TABLES = {200: "Cilium (IPsec)", 201: "Cilium (WireGuard)", 202: "Cilium (VTEP)"}
# Mark, mask, owner, meaning, the table that the owner looks up by it (0: none).
MARKS = (
    (0x80, 0x80, "amazon-vpc-cni and Cilium", "node port replies", MAIN),
    (0x10, 0x10, "Terway", "symmetric routing", 100),
    (0x2000, 0x2000, "cni-ipvlan-vpc-k8s", "node port replies", MAIN),
    (0x4000, 0x4000, "kube-proxy", "packets to be masqueraded", 0),
    (0x8000, 0x8000, "kube-proxy", "packets to be dropped", 0),
    (0xF00, 0xF00, "Cilium", "its magic marks", 0),
)


def warnings(rules: t.Iterable[Rule], routes: t.Iterable[Route]) -> list[str]:
    """A sentence for each desired priority, table and mark that a known program uses for another purpose."""
    found: dict[str, None] = {}
    tables = {route.table for route in routes}
    for rule in rules:
        tables.add(rule.table)
        uses = PRIORITIES.get(rule.priority)
        if rule.fwmask or rule.priority >= RANGES[0][0] or (uses and not any(use.fits(rule) for use in uses)):
            found.update(dict.fromkeys((*_at_priority(rule), *_of_mark(rule))))
    for table in sorted(tables):
        owners = [TABLES[table]] if table in TABLES else [use[2] for use in RANGES if use[0] <= table <= use[1]]
        for owner in owners:
            found.setdefault(f"Table {table} is filled by {owner}. Choose another on nodes that run this software.")
    return list(found)


def _at_priority(rule: Rule) -> t.Iterator[str]:
    uses = PRIORITIES.get(rule.priority, ())
    if uses and not any(use.fits(rule) for use in uses):
        others = " and ".join(f"{use.owner} ({use.meaning})" for use in uses)
        yield f"Priority {rule.priority} has another purpose in {others}. Choose another on nodes that run this software."
    for first, last, owner, meaning in RANGES if rule.priority >= RANGES[0][0] else ():
        if first <= rule.priority <= last:
            yield (
                f"Priority {rule.priority} is in the range {first} to {last}, which {owner} uses for {meaning}."
                " Choose another on nodes that run this software."
            )


def _of_mark(rule: Rule) -> t.Iterator[str]:
    for mark, mask, owner, meaning, table in MARKS:
        is_same = (rule.fwmark, rule.fwmask) == (mark, mask) and table and rule.table == table
        if rule.fwmark & mask and not is_same:
            yield (
                f"Mark {rule.fwmark:#x}/{rule.fwmask:#x} has bits of {mark:#x}/{mask:#x}, which {owner} uses for {meaning}."
                " Choose other bits on nodes that run this software."
            )
