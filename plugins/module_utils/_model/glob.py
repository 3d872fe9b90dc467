# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Shell patterns as glob(7) has them, for one name (no ``/`` in it): as values that can be matched, met and cut."""

from __future__ import annotations

import functools
import re
import typing as t

CHARACTERS = "*?["  # what makes a word a pattern, to the shell, to systemd-sysctl and to sysctl(8) alike


class OneOf(t.NamedTuple):
    """One character out of ``characters``, or where ``negated`` one that is not among them."""

    characters: frozenset[str]
    negated: bool = False

    def takes(self, character: str) -> bool:
        return (character in self.characters) is not self.negated

    def without(self, characters: frozenset[str]) -> OneOf:
        if self.negated:
            return OneOf(self.characters | characters, True)
        return OneOf(self.characters - characters)

    def meets(self, other: OneOf) -> bool:
        if self.negated and other.negated:
            return True  # there are more characters than two sets name
        named, rest = (other, self) if self.negated else (self, other)
        return any(rest.takes(character) for character in named.characters)

    def text(self) -> str:
        if not self.negated and len(self.characters) == 1:
            return next(iter(self.characters))
        characters = "".join(sorted(self.characters, key=lambda one: (one == "-", one)))  # a final - is no range
        return f"[{'!' if self.negated else ''}{characters}]" if characters else "?"


class Star(t.NamedTuple):
    """Any characters, or none."""

    def text(self) -> str:
        return "*"


Glob = tuple[t.Union[OneOf, Star], ...]
ANY_CHARACTER = OneOf(frozenset(), True)
_CLASS = re.compile(r"\[([!^]?)(\][^\]]*|[^\]]+)\]")


def is_glob(word: str) -> bool:
    return any(character in word for character in CHARACTERS)


@functools.cache
def parse(text: str) -> Glob:
    """A ``[`` that no ``]`` closes stands for itself, as in glob(7)."""
    parts: list[OneOf | Star] = []
    position = 0
    while position < len(text):
        character, bracket = text[position], _CLASS.match(text, position)
        if bracket:
            parts.append(OneOf(_expanded(bracket.group(2)), bool(bracket.group(1))))
            position = bracket.end()
            continue
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = text[position]
            parts.append(OneOf(frozenset(character)))
        else:
            parts.append(
                Star() if character == "*" else ANY_CHARACTER if character == "?" else OneOf(frozenset(character))
            )
        position += 1
    return tuple(parts)


def _expanded(characters: str) -> frozenset[str]:
    """A class with its ranges written out."""
    found: set[str] = set()
    for first, last, single in re.findall(r"(.)-(.)|(.)", characters, re.S):
        found.update(single or (chr(code) for code in range(ord(first), ord(last) + 1)))
    return frozenset(found)


def text(glob: Glob) -> str:
    return "".join(part.text() for part in glob)


def matches(glob: Glob, name: str) -> bool:
    """Whether ``name`` matches. As in glob(7), a leading dot is matched by a dot alone."""
    if name.startswith(".") and glob and glob[0] != OneOf(frozenset(".")):
        return False
    return _matches(glob, name)


def _matches(glob: Glob, name: str) -> bool:
    """By the set of positions in ``glob`` that may come next: no pattern takes longer than its length times the name's."""
    positions = _past_stars(glob, {0})
    for character in name:
        stay = {position for position in positions if position < len(glob) and isinstance(glob[position], Star)}
        step = {position + 1 for position in positions if position < len(glob) and _takes(glob[position], character)}
        positions = _past_stars(glob, stay | step)
    return len(glob) in positions


def _takes(part: OneOf | Star, character: str) -> bool:
    return isinstance(part, OneOf) and part.takes(character)


def _past_stars(glob: Glob, positions: set[int]) -> set[int]:
    reached = set(positions)
    for position, part in enumerate(glob):
        if position in reached and isinstance(part, Star):
            reached.add(position + 1)
    return reached


def overlap(one: Glob, other: Glob) -> bool:
    """Whether some name matches both."""
    if not one or not other:
        return all(isinstance(part, Star) for part in one + other)
    if isinstance(one[0], Star) or isinstance(other[0], Star):
        return overlap(one[1:], other) or overlap(one, other[1:])
    return one[0].meets(other[0]) and overlap(one[1:], other[1:])


def without(glob: Glob, names: t.Collection[str]) -> list[Glob]:
    """Globs that together match what ``glob`` matches, but for ``names``: a glob cannot say "not this word" by itself."""
    names = [name for name in names if _matches(glob, name)]
    if not names:
        return [glob]
    if not glob:
        return []
    first, rest = glob[0], glob[1:]
    if isinstance(first, Star):
        return [*without(rest, names), *without((ANY_CHARACTER, *glob), names)]
    starts = frozenset(name[0] for name in names)
    others = first.without(starts)
    left = [(others, *rest)] if others.negated or others.characters else []
    for start in sorted(starts):
        tails = without(rest, [name[1:] for name in names if name[0] == start])
        left += [(OneOf(frozenset(start)), *tail) for tail in tails]
    return left
