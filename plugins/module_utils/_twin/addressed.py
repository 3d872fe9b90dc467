# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which routes, policy rules and neighbours packets with some addresses can meet: a dozen of a full table of the internet.

The kernel looks up an address in all tables and rules by the prefixes that contain it, so that no other route decides about it.
One more of each kind remains: what the kernel and a trace conclude from the presence of any route by a link, or of any rule to a
table, holds in both twins.
"""

from __future__ import annotations

import typing as t

from .._core.fields import ANY, Prefix
from .._routing.rule import Rule
from .blueprint import Blueprint

Entry = t.TypeVar("Entry")
# By the length of an address in bytes, the first one of groups or of a single link, as a number.
OF_GROUPS = {4: 0xE0 << 24, 16: 0xFE80 << 112}


class Addresses:
    """The addresses that packets may have, as numbers by the length of those of their family in bytes."""

    def __init__(self, addresses: t.Iterable[tuple[int, int]]) -> None:
        self.numbers: dict[int, set[int]] = {size: set() for size in OF_GROUPS}
        for size, number in addresses:
            self.numbers[size].add(number)
        self._networks: dict[tuple[int, int], set[int]] = {}

    def are_in(self, size: int, number: int, length: int) -> bool:
        """Return whether a prefix contains one of them, or addresses of groups or of one link, to which the kernel may send."""
        if not length or number >= OF_GROUPS[size]:
            return True
        rest = 8 * size - length
        if (size, rest) not in self._networks:
            self._networks[size, rest] = {each >> rest for each in self.numbers[size]}
        return number >> rest in self._networks[size, rest]

    def are_in_prefix(self, prefix: Prefix) -> bool:
        return self.are_in(*_number(prefix[0]), prefix[1])


def _number(packed: bytes) -> tuple[int, int]:
    return len(packed), int.from_bytes(packed, "big")


def reduced(drawn: Blueprint, addresses: t.Iterable[bytes], with_rules: bool) -> Blueprint:
    """Return the part of a blueprint that packets with some addresses can meet. with_rules: whether all rules remain."""
    met = Addresses(map(_number, addresses))
    routes = _alike((each, (each[0]._replace(dst=ANY), each[1]), met.are_in_prefix(each[0].dst)) for each in drawn.routes)
    targets = {rule.goto for _line, rule in drawn.rules if rule}
    rules = _alike((each, _kind(each[1]), not each[1] or _may_select(each[1], met, targets)) for each in drawn.rules)
    neighbours = [(line, address) for line, address in drawn.neighbours if met.are_in_prefix((address, 8 * len(address)))]
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
    return rule.invert or bool(rule.iif) or rule.priority in targets or addresses.are_in_prefix(prefix)
