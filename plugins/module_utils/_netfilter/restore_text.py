# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables as iptables-save prints them, read line for line and rendered again for iptables-restore."""

from __future__ import annotations

import re
import typing as t

from .._core import lines
from .._core.fields import Unfit
from . import rule_words
from .rule_words import IPTABLES, Language

_COUNTERS = re.compile(r"\[\d{1,20}:\d{1,20}\]")
# Targets that label packets for SELinux or write to the audit log, and so decide nothing about them (iptables-extensions(8)).
_WITHOUT_EFFECT = re.compile(r" -j (?:CONNSECMARK --(?:save|restore)|SECMARK --selctx \S+|AUDIT --type \w+)$")
_PLACES = {"-A": 0, "-I": 1}  # with the most numbers that may follow the chain


class Restored(t.NamedTuple):
    """text: for the program that restores. refused: lines that are left out, with what is permitted in their place."""

    text: str
    refused: list[tuple[str, str]]


def read(saved: str, language: Language = IPTABLES) -> Restored:
    """Read the tables of an output of iptables-save. Lines that are not permitted are left out."""
    parts: list[str] = []
    refused: list[tuple[str, str]] = []
    shapes: set[str] = set()  # thousands of rules have a few shapes
    first = behind = 0  # the place of lines that stay as they are, and the one behind them
    for place, line in lines.each(saved):
        rendered = ""
        text = line.strip().replace("\t", " ")
        try:
            rendered = _rendered(text, language, shapes)
        except Unfit as unfit:
            refused.append((text, str(unfit)))
        if rendered != line or place != behind:
            parts += [saved[first:behind], f"{rendered}\n" if rendered and rendered != line else ""]
            first = place if rendered == line else place + len(line) + 1
        behind = place + len(line) + 1
    text = "".join(filter(None, [*parts, saved[first:behind]]))  # the same text as before, if all of it stays
    return Restored(f"{text}\n" if text and not text.endswith("\n") else text, refused)


def _rendered(text: str, language: Language, shapes: set[str]) -> str:
    """Return a line for the program; empty for one without effect. shapes: those of rules that are permitted. Raises Unfit."""
    if not text or text.startswith("#") or _is_without_effect(text):
        return ""
    if not text.isprintable():
        raise Unfit("a line of printable characters")
    shape = _shape(text, language)
    rendered = text if shape in shapes else _line(text, language)
    if shape:
        shapes.add(shape)
    return rendered


def _is_without_effect(text: str) -> bool:
    # Words first: thousands of lines have none of them.
    return ("SECMARK" in text or "AUDIT" in text) and bool(_WITHOUT_EFFECT.search(text))


def _shape(line: str, language: Language) -> str:
    """Return the shape of a line that appends a rule, whatever its chain and the chain or the target at its end; empty for
    others."""
    chain, _blank, rule = line[3:].partition(" ")
    if not line.startswith("-A ") or not rule_words.is_chain(chain):
        return ""
    head, jump, target = f" {rule}".rpartition(" -j ")
    is_last = bool(jump) and (target in language.targets or rule_words.is_chain(target))
    rule_shape = rule_words.shape(head if is_last else f" {rule}")
    return f"{rule_shape}\n" if rule_shape and is_last else rule_shape  # a mark that no text of a rule contains


def _line(line: str, language: Language) -> str:
    if line == "COMMIT":
        return line
    if line.startswith("*"):
        if line[1:] not in language.tables:
            raise Unfit(f"one of the tables {', '.join(language.tables)}")
        return line
    words = rule_words.split(line)
    if line.startswith(":"):
        return _chain(words, language)
    counters = [words.pop(0)] if _COUNTERS.fullmatch(words[0]) else []
    if len(words) < 2 or words[0] not in _PLACES or not rule_words.is_chain(words[1]):
        raise Unfit("a table, a chain with its policy, a rule that begins with -A, or COMMIT")
    first = 2 + (_PLACES[words[0]] and words[2:3] != [] and words[2].isdecimal())
    rule = rule_words.render(rule_words.rule(words[first:], language), language)
    return " ".join(filter(None, [*counters, *words[:first], rule]))


def _chain(words: t.Sequence[str], language: Language) -> str:
    name, policy = words[0][1:], "".join(words[1:2])
    if not rule_words.is_chain(name) or policy not in language.policies or not all(map(_COUNTERS.fullmatch, words[2:3])):
        raise Unfit(f"a chain with one of the policies {', '.join(language.policies)} and its counters")
    return " ".join(words[:3])
