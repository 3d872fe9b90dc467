# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which routes, policy rules and neighbours packets with some addresses can meet: a dozen of a full table of the internet.

The kernel looks up an address in all tables and rules by the prefixes that contain it, so that no other route decides about it.
One more of each kind remains: what the kernel and a trace conclude from the presence of any route by a link, or of any rule to a
table, holds in both twins.
"""

from __future__ import annotations

import collections
import typing as t

from .._core import fields
from .._core.fields import ANY, Prefix
from .._routing.rule import Rule
from .blueprint import Blueprint

Entry = t.TypeVar("Entry")
OF_GROUPS = {4: b"\xe0", 16: b"\xfe\x80"}  # by the length of an address, the first ones of groups or of a single link


class Addresses:
    """The addresses in network order that packets may have."""

    def __init__(self, addresses: t.Iterable[bytes]) -> None:
        self._by_size: dict[int, set[bytes]] = collections.defaultdict(set)
        for address in addresses:
            self._by_size[len(address)].add(address)
        self._networks: dict[tuple[int, int], set[Prefix]] = {}

    def are_in(self, prefix: Prefix) -> bool:
        """Return whether a prefix contains one of them, or addresses of groups or of one link, to which the kernel may send."""
        packed, length = prefix
        if not length or packed[:2] >= OF_GROUPS[len(packed)]:
            return True
        place = len(packed), length
        if place not in self._networks:
            self._networks[place] = {fields.network(address, length) for address in self._by_size[len(packed)]}
        return prefix in self._networks[place]


def reduced(drawn: Blueprint, addresses: t.Iterable[bytes], with_rules: bool) -> Blueprint:
    """Return the part of a blueprint that packets with some addresses can meet. with_rules: whether all rules remain."""
    known = Addresses(addresses)
    routes = _alike((each, (each[0]._replace(dst=ANY), each[1]), known.are_in(each[0].dst)) for each in drawn.routes)
    targets = {rule.goto for _line, rule in drawn.rules if rule}
    rules = _alike((each, _kind(each[1]), not each[1] or _may_select(each[1], known, targets)) for each in drawn.rules)
    neighbours = [(line, address) for line, address in drawn.neighbours if known.are_in((address, 8 * len(address)))]
    return drawn._replace(routes=routes, rules=drawn.rules if with_rules else rules, neighbours=neighbours)


def _alike(entries: t.Iterable[tuple[Entry, t.Any, bool]]) -> list[Entry]:
    """Return the entries that are met, and the first other one of each kind.

    entries: each with its kind, and whether it is met.
    """
    kinds, remaining = set[t.Any](), list[Entry]()
    for entry, kind, is_met in entries:
        if is_met or kind not in kinds:
            remaining.append(entry)
        if not is_met:
            kinds.add(kind)
    return remaining


def _kind(rule: Rule | None) -> t.Any:
    """Return a rule without its place and the addresses by which it selects."""
    return rule and (rule._replace(priority=0, src=ANY, dst=ANY), rule.src[1], rule.dst[1])


def _may_select(rule: Rule, addresses: Addresses, targets: t.Container[int]) -> bool:
    """Return whether a rule may select a packet, or has more than its selector decide: as the target of another one, or for the
    link by which a packet comes in. Of a source and a destination, the source counts, which shows to whom a table belongs.
    """
    prefix = rule.src if rule.src[1] else rule.dst
    return rule.invert or bool(rule.iif) or rule.priority in targets or addresses.are_in(prefix)
