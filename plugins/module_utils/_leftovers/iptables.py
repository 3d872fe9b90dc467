# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules and chains of iptables, as iptables-save prints them in both backends."""

from __future__ import annotations

import re
import shlex
import typing as t

PROGRAMS = {"ip": "iptables", "ip6": "ip6tables"}


class Table(t.NamedTuple):
    """family: ip or ip6. backend: nft or legacy."""

    family: str
    name: str
    backend: str

    def __str__(self) -> str:
        return f"{self.family} {self.name} ({self.backend})"

    def place(self, chain: str) -> str:
        return f"{self.family} {self.name} {chain} ({self.backend})"

    @property
    def program(self) -> str:
        """The program that edits the table, with its option."""
        return f"{PROGRAMS[self.family]}-{self.backend} -w -t {self.name}"


class Rule(t.NamedTuple):
    """text: what follows "-A CHAIN"."""

    table: Table
    chain: str
    text: str

    @property
    def place(self) -> str:
        return self.table.place(self.chain)

    @property
    def deletion(self) -> str:
        """The command that removes the rule, for a shell: iptables-save leaves "$" in a comment as it is."""
        return f"{self.table.program} -D {self.chain} {shlex.join(_words(self.text))}"


def table_at(place: str) -> Table | None:
    """The table at a place such as "ip nat (nft)"; None if iptables has no such table."""
    found = re.fullmatch(r"(ip6?) (raw|mangle|nat|filter|security) \((nft|legacy)\)", place)
    return Table(*found.groups()) if found else None


Meaning = t.Mapping[str, str]


def rules(table: Table, saved: str) -> list[Rule]:
    """The rules in the output of iptables-save -t, in order."""
    found = []
    for line in saved.splitlines():
        if line.startswith("-A "):
            chain, _blank, text = line[3:].partition(" ")
            found.append(Rule(table, chain, text))
    return found


def meaning(text: str) -> Meaning:
    """A rule's options with their values, in any order; a negated option begins with "! ". {} if the text has no options.

    Names of matches (-m) and comments are left out: the former follow from the options, and the latter match nothing.
    """
    found: dict[str, str] = {}
    name = ""
    is_negated = False
    for word in _words(text):
        if word == "!":
            is_negated = True
        elif word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            name, is_negated = ("! " if is_negated else "") + word, False
            found[name] = ""
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return {name: value for name, value in found.items() if name not in ("-m", "--comment")}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return []


def jump(rule: Rule, chains: t.AbstractSet[tuple[Table, str]]) -> str:
    """The chain of these to which a rule jumps; empty if it jumps to none of them."""
    if not any((rule.table, word) in chains for word in rule.text.split()):
        return ""  # of most rules, without parsing them
    given = meaning(rule.text)
    target = given.get("-j", given.get("-g", ""))
    return target if (rule.table, target) in chains else ""
