# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of a text, one after another: as values that are kept, those of a large ruleset take three to five times its size."""

from __future__ import annotations

import re
import typing as t

_LINE = re.compile(".+")


def each(text: str) -> t.Iterator[tuple[int, str]]:
    """Yield the place of each line that is not empty, and what is on it."""
    return ((match.start(), match[0]) for match in _LINE.finditer(text))


def at(text: str, place: int) -> str:
    """Return what is on the line that begins at a place."""
    match = _LINE.match(text, place)
    return match[0] if match else ""
