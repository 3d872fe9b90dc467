# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The batches of a rollout, as a play's ``serial`` takes them."""

from __future__ import annotations

import re
import typing as t

DEFAULT = ("1", "25%")
ENTRY = re.compile("[1-9][0-9]*%?")


class Unusable(ValueError):
    """The text is a sentence without its full stop."""


def parse(value: t.Any, name: str = "batches") -> list[str]:
    """Return the sizes of batches from a number, a percentage, or a list of these, also as text. Raises Unusable.

    name: of the variable.
    """
    words = [str(word).strip() for word in (value if isinstance(value, (list, tuple)) else _words(str(value)))]
    if words and all(map(ENTRY.fullmatch, words)):
        return words
    raise Unusable(f"{name} is {value!r}; it must be a number of nodes, a percentage, or a list of these, as [1, 25%]")


def _words(text: str) -> list[str]:
    inside = re.fullmatch(r"\s*\[(.*)\]\s*", text)
    return [word.strip(" \"'") for word in inside[1].split(",")] if inside else [text]


def sizes(words: t.Sequence[str], total: int) -> list[int]:
    """Return the number of nodes in each batch, as Ansible splits ``total`` nodes."""
    batches: list[int] = []
    while (rest := total - sum(batches)) > 0:
        word = words[min(len(batches), len(words) - 1)]
        size = int(total * int(word[:-1]) / 100) or 1 if word.endswith("%") else int(word)
        batches.append(min(size, rest))
    return batches


def in_pairs(words: t.Sequence[str], total: int) -> list[str]:
    """Return batches of at least two nodes after the first one.

    Ansible ends a run in which all nodes of a batch are lost. With one node in a batch, no node may be lost.
    """
    first, *further = sizes(words, total)
    return [str(first), *(str(max(size, 2)) for size in further)]


def lonely(words: t.Sequence[str], total: int) -> int:
    """Return the number, from 1, of a batch of one node between the first batch and the last one; 0 if there is none."""
    batches = sizes(words, total)
    return next((number for number, size in enumerate(batches, 1) if size == 1 and 1 < number < len(batches)), 0)


def text(words: t.Sequence[str]) -> str:
    """Return the sizes as a part of a sentence: "1, 25 %"."""
    return ", ".join(word.replace("%", " %") for word in words)
