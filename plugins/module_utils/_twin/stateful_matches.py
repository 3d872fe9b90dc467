# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Matches of iptables whose state is outside of the ruleset: their answers stand in the rules of a twin in their place.

nfacct counts, and is true where there is no quota (xt_nfacct.c), which iptables does not set. recent is true for a packet whose
address has a record under the name (xt_recent.c), such as that of a client that keeps its endpoint. No packet of a twin depends
on the one before.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._core.fields import Unfit
from .._netfilter import rule_words
from .._netfilter.rule_words import IPTABLES

NFACCT, RECENT, DEFAULT = "nfacct", "recent", "DEFAULT"  # the last is the name of records for which a rule has none
_STATEFUL = re.compile(rf"^.* (?:{NFACCT}|{RECENT}) .*$", re.MULTILINE)


def resolved(saved: str, recorded: tuple[str, ...] = ()) -> str:
    """Return an output of iptables-save without these matches, and without rules that do not match because of one.

    recorded: the names under which the packet has a record.
    """
    return _STATEFUL.sub(lambda match: _resolved(match[0], recorded), saved)


def _resolved(line: str, recorded: tuple[str, ...]) -> str:
    words, counting = _without(_words(line), NFACCT)
    words, matches = _without(words, RECENT)
    if not all(_is_true(match, recorded) for match in matches):
        return ""
    return " ".join(map(rule_words.quote, words)) if counting or matches else line


@functools.lru_cache(maxsize=16)  # the tables of both families; each packet of a twin asks for all
def recent_by_chain(saved: str) -> t.Mapping[str, t.Sequence[str]]:
    """Return the names of the records that decide whether a rule matches, by chain."""
    names: dict[str, list[str]] = {}
    option = f" {RECENT} "
    for line in (line for line in saved.splitlines() if option in line):
        words, matches = _without(_words(line), RECENT)
        for match in matches:
            if "--set" not in match:
                names.setdefault(words[words.index("-A") + 1], []).append(_name(match))
    return names


def _words(line: str) -> list[str]:
    """Return the words of a rule with such a match; none for another line, and for one that is named when it is read."""
    try:
        words = rule_words.split(line)
    except Unfit:
        return []
    return words if "-A" in words[:2] else []  # counters may come first


def _is_true(match: t.Sequence[str], recorded: t.Container[str]) -> bool:
    return ("--set" in match or _name(match) in recorded) != ("!" in match)


def _name(match: t.Sequence[str]) -> str:
    place = match.index("--name") + 1 if "--name" in match else len(match)
    return match[place] if place < len(match) else DEFAULT


def _without(words: t.Sequence[str], name: str) -> tuple[list[str], list[list[str]]]:
    """Return the words of a rule without a match, and the words behind its name, each time that the rule has it."""
    options = IPTABLES.matches[name]
    remaining, matches, place = list[str](), list[list[str]](), 0
    while place < len(words):
        if words[place] != "-m" or words[place + 1 : place + 2] != [name]:
            remaining.append(words[place])
            place += 1
            continue
        start = place = place + 2
        while True:
            option = place + (words[place : place + 1] == ["!"])
            if option >= len(words) or words[option] not in options:
                break
            place = option + 1 + options[words[option]]
        matches.append([*words[start:place]])
    return remaining, matches
