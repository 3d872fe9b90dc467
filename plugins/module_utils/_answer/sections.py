# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Sections of a text for a terminal, and its colours."""

from __future__ import annotations

import typing as t

GREEN, RED, YELLOW, BOLD, FAINT = "32", "31", "33", "1", "2"  # of ECMA-48, Select Graphic Rendition
Paint = t.Callable[[str, str], str]  # gives words a colour


class Section(t.NamedTuple):
    """entries: lines that belong together."""

    title: str
    entries: list[list[str]]


def painter(colours: bool) -> Paint:
    return _paint if colours else _plain


def shown(sections: t.Iterable[Section], paint: Paint) -> t.Iterator[str]:
    """Yield the lines of each section: an empty line, its title, and its entries."""
    for section in sections:
        yield ""
        yield paint(section.title, BOLD)
        yield from (f"  {line}" for entry in section.entries for line in entry)


def _paint(words: str, colour: str) -> str:
    return f"\x1b[{colour}m{words}\x1b[0m" if words else ""


def _plain(words: str, _colour: str) -> str:
    return words
