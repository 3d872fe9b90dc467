# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shell patterns as glob(7) has them, for one name (no ``/`` in it)."""

from __future__ import annotations

import functools
import re
import typing as t

CHARACTERS = "*?["  # what makes a word a pattern, to the shell, to systemd-sysctl and to sysctl(8) alike


class OneOf(t.NamedTuple):
    """One character out of ``characters``, or, if ``negated``, one that is not among them."""

    characters: frozenset[str]
    negated: bool = False

    def without(self, characters: frozenset[str]) -> OneOf:
        return OneOf(self.characters | characters if self.negated else self.characters - characters, self.negated)

    def meets(self, other: OneOf) -> bool:
        """Return whether some character matches both.

        Two negated ones always meet, because there are more characters than they name.
        """
        rest = self.without(other.characters)  # matched by ``self`` alone; if ``other`` is negated, by both
        return not rest.is_empty() if other.negated else rest != self

    def is_empty(self) -> bool:
        return not (self.characters or self.negated)

    def text(self) -> str:
        if not self.negated and len(self.characters) == 1 and not self.characters & {*CHARACTERS}:
            return next(iter(self.characters))
        # A ] is a member at the beginning, a - there and at the end, and ! and ^ anywhere else.
        members = sorted(
            self.characters, key=lambda character: (character != "]", character in "!^-", character == "-", character)
        )
        characters = "".join(members if members and members[0] not in "!^" else reversed(members))
        return f"[{'!' if self.negated else ''}{characters}]" if characters else "?"

    def expression(self) -> str:
        """Return the same as a regular expression.

        It contains NUL, which no name has, because ``[]`` and ``[^]`` are not valid.
        """
        return f"[{'^' if self.negated else ''}\0{re.escape(''.join(sorted(self.characters)))}]"


STAR = None  # any characters, or none
Glob = tuple[t.Optional[OneOf], ...]
ANY_CHARACTER = OneOf(frozenset(), True)
# A class, or a character that may be quoted. A ``[`` that no ``]`` closes stands for itself.
_PART = re.compile(r"\[([!^]?)(\][^\]]*|[^\]]+)\]|(\\(?=.))?(.)", re.S)


def is_glob(word: str) -> bool:
    return any(character in word for character in CHARACTERS)


@functools.cache
def parse(text: str) -> Glob:
    parts: list[OneOf | None] = []
    for negation, members, quote, character in _PART.findall(text):
        if members:
            parts.append(OneOf(_expanded(members), bool(negation)))
        elif character == "*" and not quote:
            parts += [STAR] if parts[-1:] != [STAR] else []
        else:
            parts.append(ANY_CHARACTER if character == "?" and not quote else OneOf(frozenset(character)))
    return tuple(parts)


def _expanded(members: str) -> frozenset[str]:
    """Return a class with its ranges written out."""
    characters: set[str] = set()
    for first, last, single in re.findall(r"(.)-(.)|(.)", members, re.S):
        characters.update(single or (chr(code) for code in range(ord(first), ord(last) + 1)))
    return frozenset(characters)


def text(glob: Glob) -> str:
    return "".join(part.text() if part else "*" for part in glob)


def matches(pattern: str, name: str) -> bool:
    """Return whether ``name`` matches. As in glob(7), a leading dot is matched by a dot alone."""
    if not is_glob(pattern):
        return pattern == name
    glob = parse(pattern)
    return (not name.startswith(".") or glob[0] == OneOf(frozenset("."))) and _matches(glob, name)


def _matches(glob: Glob, name: str) -> bool:
    return bool(_expression(glob).fullmatch(name))


@functools.cache
def _expression(glob: Glob) -> re.Pattern[str]:
    return re.compile("".join(part.expression() if part else ".*" for part in glob), re.S)


def without(glob: Glob, names: t.Collection[str]) -> list[Glob]:
    """Return globs that together match what ``glob`` matches, except ``names``: a glob cannot say "not this word" by itself."""
    names = [name for name in names if _matches(glob, name)]
    if not names:
        return [glob]
    if not glob:
        return []
    first, rest = glob[0], glob[1:]
    if first is STAR:
        return [*without(rest, names), *without((ANY_CHARACTER, *glob), names)]
    starts = frozenset(name[0] for name in names)
    complement = first.without(starts)
    globs = [] if complement.is_empty() else [(complement, *rest)]
    for start in sorted(starts):
        tails = without(rest, [name[1:] for name in names if name[0] == start])
        globs += [(OneOf(frozenset(start)), *tail) for tail in tails]
    return globs


@functools.cache
def overlap(first: Glob, other: Glob) -> bool:
    """Return whether some name matches both."""
    if not first or not other:
        return all(part is STAR for part in first + other)
    if first[0] is STAR or other[0] is STAR:
        return overlap(first[1:], other) or overlap(first, other[1:])
    return first[0].meets(other[0]) and overlap(first[1:], other[1:])
