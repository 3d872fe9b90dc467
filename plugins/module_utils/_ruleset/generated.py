# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What kube-proxy generates in nftables for each Service and endpoint, read by name: of 60,000 chains, a packet meets few.

The chains write no mark and translate no source but by a jump to a chain that all share, so that a question about all rules of a
node does without them.
"""

from __future__ import annotations

import functools
import typing as t

from . import nft_elements, nft_text
from .nft_blocks import CHAIN, Place
from .ruleset import ByName, Chain, Element, Selection, Table

KEY = "nftables_generated"  # beside nftables_text, in a snapshot that stays within a run
MOST = 4096  # blocks that are remembered: packets meet the same ones again


class Members(t.NamedTuple):
    """A set or a map. statements: besides its elements, or with those that are no values."""

    kind: str
    statements: t.Sequence[str]
    elements: t.Sequence[Element] = ()


class Readers(t.NamedTuple):
    """They read what the text of a snapshot lacks, by table and name, and raise Failure for what has changed.

    chain: returns the statements of a chain.
    """

    chain: t.Callable[[Place, str], t.Sequence[str]]
    members: t.Callable[[Place, str], Members]


class Generated:
    """The blocks that the text of a snapshot lacks. blocks: their names by table. state: another one after each change."""

    def __init__(self, blocks: t.Mapping[Place, Selection], readers: Readers, state: str) -> None:
        self.blocks, self.state = blocks, state
        self._statements = functools.lru_cache(maxsize=MOST)(readers.chain)
        self._members = functools.lru_cache(maxsize=MOST)(readers.members)
        self._chain = functools.lru_cache(maxsize=MOST)(self._read)

    def __str__(self) -> str:
        return self.state

    def lines(self, place: Place, selection: Selection) -> list[str]:
        """Return the lines of those blocks of a selection that the text lacks. Raises Failure."""
        lacking, lines = self.blocks[place], list[str]()
        for name in (name for name in selection.sets if name in lacking.sets):
            members = self._members(place, name)
            selected = selection.elements.get(name, range(len(members.elements)))
            shown = [f"{nft_elements.show(each)}," for number, each in enumerate(members.elements) if number in selected]
            elements = ["elements = {", *shown, "}"] if shown else []
            lines += [f"{members.kind} {name} {{", *members.statements, *elements, "}"]
        for name in (name for name in selection.chains if name in lacking.chains):
            lines += [f"{CHAIN} {name} {{", *self._statements(place, name), "}"]
        return lines

    def completed(self, table: Table) -> Table:
        """Return a table of the text with the chains and sets that it lacks."""
        place = table.family, table.name
        if place not in self.blocks:
            return table
        lacking = self.blocks[place]
        return table._replace(
            chains=ByName(table.chains, lacking.chains, lambda name: self._chain(place, name)),
            sets=ByName(table.sets, lacking.sets, lambda name: self._members(place, name).elements),
        )

    def _read(self, place: Place, name: str) -> Chain:
        return Chain(rules=[nft_text.rule(name, statement) for statement in self._statements(place, name)])


def of(snapshot: t.Mapping[str, t.Any]) -> Generated | None:
    """Return what the text of a snapshot lacks; None for one that has all, as one from elsewhere."""
    value = snapshot.get(KEY)
    return value if isinstance(value, Generated) else None
