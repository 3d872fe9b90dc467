# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts for people. What a node, a report or another program adds to them can change neither the terminal nor their order."""

from __future__ import annotations

import re
import typing as t

_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    """Return the text with control characters and direction marks as Python escapes them. Keeps line breaks and tabs."""
    return _UNUSUAL.sub(_as_code, text)


def in_one_line(text: str) -> str:
    """Return the printable text with its line breaks and tabs escaped, too: a name cannot pretend to be another line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def all_printable(value: t.Any) -> t.Any:
    """Return the value with each text inside its dictionaries and lists printable, keys included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {all_printable(key): all_printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_printable(item) for item in value]
    return value


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun. plural: without it, the noun takes an "s"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def first_of(names: t.Sequence[str], most: int) -> str:
    """Return the first names of a list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _as_code(match: t.Match[str]) -> str:
    sign = match[0]
    return sign if sign.isprintable() else sign.encode("unicode_escape", "backslashreplace").decode()
