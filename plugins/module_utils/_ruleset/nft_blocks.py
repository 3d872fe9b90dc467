# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of ``nft list ruleset``, whole or cut, by the tables and the blocks that they belong to."""

from __future__ import annotations

import re
import typing as t

from .._core import lines as text_lines
from .._core import memo
from . import nft_words
from .ruleset import Selection

_TABLE = re.compile(r"table (?:(\w+) )?(\S+) \{")
_BLOCK = re.compile(r"(\w+(?: \w+)?) (\S+) \{")
QUOTED = re.compile(r'"[^"]*"')
_ELEMENTS = "elements = {"
CHAIN, SET, MAP = "chain", "set", "map"  # kinds of blocks
_SETS = (SET, MAP)
Place = tuple[str, str]  # family and name of a table


class Block(t.NamedTuple):
    """A part of a table, by places in the text. kind: such as chain.

    head: at which its first line begins. first: at which its statements begin. last: at which the line begins that ends it.
    """

    kind: str
    name: str
    head: int
    first: int
    last: int


class Listing(t.NamedTuple):
    """A text and the places of its blocks: its lines as values would take five times its size.

    is_complete: whether each line has the form in which nft lists a ruleset, so that parts of it can be selected.
    """

    text: str
    tables: list[tuple[Place, list[Block]]]
    is_complete: bool

    def lines(self, first: int, last: int) -> list[str]:
        """Return the lines between two places, without those that are empty."""
        return [*filter(None, map(str.strip, self.text[first:last].split("\n")))]

    def statements(self, block: Block) -> list[str]:
        """Return the statements of a block. One with a set may be on several lines."""
        statements = list[list[str]]()
        depth = 0
        for line in self.lines(block.first, block.last):
            if not depth:
                statements.append([])
            statements[-1].append(line)
            depth += _depth(line)
        return [*map(" ".join, statements)]

    def completed(self, further: t.Mapping[Place, t.Sequence[str]]) -> str:
        """Return the text with further blocks of its tables, by their lines, before the first one."""
        parts, place = list[str](), 0
        for table, blocks in self.tables:
            if further.get(table):
                parts += [self.text[place : blocks[0].head], "\n".join([*further[table], ""])]
                place = blocks[0].head
        return "".join([*parts, self.text[place:]])

    def select(self, selections: t.Mapping[Place, Selection]) -> str:
        """Return the lines of selected chains and sets, and all others."""
        remaining, place = list[str](), 0
        for table, blocks in self.tables:
            selection = selections[table]
            for block in blocks:
                if not self.text[place : block.head].isspace():
                    remaining += self.lines(place, block.head)
                place = _behind(self.text, block.last)
                if block.kind not in (CHAIN, *_SETS):
                    remaining += self.lines(block.head, place)
                elif block.name in (selection.chains if block.kind == CHAIN else selection.sets):
                    remaining += self._body(block, selection.elements.get(block.name, ()))
        return "\n".join([*remaining, *self.lines(place, len(self.text)), ""])

    def _body(self, block: Block, places: t.Container[int]) -> list[str]:
        """Return the lines of a block; those of a map with verdicts with some of its elements."""
        lines = self.lines(block.head, _behind(self.text, block.last))
        if block.kind != MAP or not any(line.startswith("type") and line.endswith(" : verdict") for line in lines):
            return lines
        result, count = [lines[0]], 0
        for statement, texts in _statements_of_map(self.text, self, block):
            selected = [text for place, text in enumerate(texts, count) if place in places]
            count += len(texts)
            statement = " ,\n".join([f"{_ELEMENTS}\n{' '.join(selected[:1])}", *selected[1:]]) + " }" if selected else statement
            result += [] if texts and not selected else [statement]
        return [*result, lines[-1]]


@memo.of_part
def _statements_of_map(_text: str, listing: Listing, block: Block) -> list[tuple[str, list[str]]]:
    """Return the statements of a map, each with the texts of its elements: a node's packets each meet other elements."""
    return [(statement, [*map(" ".join, elements([statement]))]) for statement in listing.statements(block)]


@memo.of_part
def read(text: str) -> Listing:
    """Find the blocks of a text that is read again. Lines that belong to no table are in no block."""
    return find(text)


def find(text: str) -> Listing:
    """Return what read() returns, and remember nothing."""
    tables, blocks = list[tuple[Place, list[Block]]](), list[Block]()
    is_inside, is_complete = False, True
    lines = ((place, line.strip()) for place, line in text_lines.each(text))
    for place, line in lines:
        block = _BLOCK.match(line) if is_inside else None
        header = _TABLE.match(line) if not block else None
        if block:
            is_complete &= _is_head(line)
            blocks.append(Block(block[1], block[2], place, _behind(text, place), _end(lines, len(text))))
        elif header:
            is_complete &= _is_head(line) and not is_inside
            is_inside, blocks = True, []
            tables.append(((header[1] or "ip", header[2]), blocks))
        elif line == "}":
            is_complete &= is_inside
            is_inside = False
        else:
            is_complete &= not line or (is_inside and "{" not in QUOTED.sub("", line))
    return Listing(text, tables, is_complete and not is_inside and _have_names_of_their_own(tables))


def _behind(text: str, place: int) -> int:
    """Return the place behind the line that begins at a place."""
    return text.find("\n", place) + 1 or len(text)


def _have_names_of_their_own(tables: t.Sequence[tuple[Place, list[Block]]]) -> bool:
    names = [(table, *block[:2]) for table, blocks in tables for block in blocks]
    return len({*names}) == len(names) and len({table for table, _blocks in tables}) == len(tables)


def _is_head(line: str) -> bool:
    return line.endswith("{") and line.count("{") == 1


def _end(lines: t.Iterable[tuple[int, str]], behind: int) -> int:
    """Read the lines up to the one that ends a block. Return its place; behind the last line if the block is cut off."""
    depth = 0
    for place, line in lines:
        if line == "}" and depth <= 0:
            return place
        depth += _depth(line)
    return behind


def _depth(line: str) -> int:
    """Return how many braces a line opens and does not close."""
    if "{" not in line and "}" not in line:
        return 0
    text = QUOTED.sub("", line)
    return text.count("{") - text.count("}")


def elements(statements: t.Iterable[str]) -> t.Iterator[list[str]]:
    """Yield the words of each element of a set or a map."""
    for statement in statements:
        if statement.startswith(_ELEMENTS):
            yield from filter(None, split(nft_words.tokens(statement)[3:-1], ","))


def split(words: t.Sequence[str], separator: str) -> t.Iterator[list[str]]:
    """Divide words at a separator that is in no inner set."""
    part: list[str] = []
    depth = 0
    for word in words:
        if word == separator and not depth:
            yield part
            part = []
            continue
        if word in "{}":
            depth += 1 if word == "{" else -1
        part.append(word)
    yield part
