# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names that a person may have meant by one that is unknown, for an error that fits on a terminal."""

from __future__ import annotations

import difflib
import typing as t

MOST = 3  # names in an error
SIMILAR = 0.5  # of difflib


def names(word: str, known: t.Iterable[str], most: int = MOST) -> list[str]:
    """Return known names that contain the word or are similar to it; the first ones if none is, and all if they are few."""
    every = sorted(known)
    if len(every) <= most:
        return every
    near = [name for name in every if word and word in name]
    near += difflib.get_close_matches(word, every, most, SIMILAR)
    return [*dict.fromkeys(near or every)][:most]


def listed(word: str, known: t.Collection[str], most: int = MOST) -> str:
    """Return these names as the end of a sentence, with the number of those that it leaves out."""
    shown = names(word, known, most)
    rest = len({*known}) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
