# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The marks that other programs give to packets and test, by the node's policy rules, chains, links and sockets.

A rule tests some bits of a mark, and another program may set all 32: wg-quick gives 0xca6c to the packets of a tunnel, which a
rule for 0x4/0x6 then takes.
"""

from __future__ import annotations

import functools
import operator
import typing as t

from .._core import fields
from .._core.fields import Unfit
from .._routing.rule import Rule
from .._ruleset.ruleset import ALL, CONNECTION_MARK, PACKET_MARK, Table

FIELDS = (PACKET_MARK, CONNECTION_MARK)


class ForeignMark(t.NamedTuple):
    """owner: what sets or tests the mark, as words behind "the mark of"."""

    value: int
    mask: int
    owner: str

    @property
    def text(self) -> str:
        return f"{self.value:#x}" if self.is_whole else f"{self.value:#x}/{self.mask:#x}"

    @property
    def is_whole(self) -> bool:
        return self.mask == ALL

    def collides(self, mark: int, mask: int) -> bool:
        """Return whether packets with this mark are taken for those with ``mark``, or those for packets with this mark.

        mask: the bits that rules for ``mark`` test.
        """
        return self.value & mask == mark if self.is_whole else bool(self.value & mark)


def of_rules(rules: t.Iterable[tuple[Rule, int]], protocol: int) -> t.Iterator[ForeignMark]:
    """Yield the marks that policy rules test. rules: with their protocols. protocol: that of own rules."""
    yield from (ForeignMark(rule.fwmark, rule.fwmask, str(rule)) for rule, owner in rules if owner != protocol and rule.fwmark)


def of_tables(tables: t.Iterable[Table], own_table: str, comment: str = "") -> t.Iterator[ForeignMark]:
    """Yield the marks that rules of chains set, copy and test.

    own_table: name of the collection's table. comment: a part of those of rules that are not foreign; empty for none.
    """
    for table in tables:
        for rule in table.rules() if table.name != own_table else ():
            if not (comment and comment in rule.comment):
                owner = f"table {table}, chain {rule.chain}"
                written = (_written(each.bits, each.kind) for each in rule.statements if each.kind in FIELDS and each.bits)
                tested = (_tested(value) for match in rule.matches if match.field in FIELDS for value in match.values)
                yield from (ForeignMark(*bits, owner) for bits in (*written, *tested) if bits[0])


def _written(bits: t.Any, field: str) -> tuple[int, int]:
    """Return the mark and the mask that a rule writes; no mark for a copy of the whole mark, and for what was not understood.

    Each bit of a part that is copied may be set.
    """
    written, copied = (bits.packet, bits.connection) if field == PACKET_MARK else (bits.connection, bits.packet)
    value = (bits.constant if bits.constant != ALL else 0) | (copied if copied != ALL else 0)
    return value, ALL & ~written | value


def _tested(text: str) -> tuple[int, int]:
    """Return the mark and the mask of a match; no mark for a set and a range, whose marks the rules that set them show."""
    mark, _slash, mask = text.partition("/")
    try:
        return fields.number(mark, 0, ALL), fields.number(mask or ALL, 0, ALL)
    except Unfit:
        return 0, 0


def bits(marks: t.Iterable[ForeignMark]) -> int:
    """Return a number that has each bit which one of the marks has; 0 without marks."""
    return functools.reduce(operator.or_, (mark.value for mark in marks), 0)
