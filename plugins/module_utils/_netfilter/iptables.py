# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules and chains of iptables, as iptables-save prints them in both backends."""

from __future__ import annotations

import collections
import re
import shlex
import typing as t

from .chain import ListedRule, Place, RemovedRules, merge

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

    def at(self, chain: str) -> Place:
        """Return the chain's place, for the backend."""
        return Place(self.backend, str(self), chain)

    @property
    def program(self) -> str:
        """Return the program that edits the table, with its option."""
        return f"{PROGRAMS[self.family]}-{self.backend} -w -t {self.name}"


class TableRemoval(t.NamedTuple):
    """Objects that are removed from a table. removed: by chain, with all rules of the chain. chains: names of chains that are
    then empty."""

    table: Table
    removed: tuple[RemovedRules, ...] = ()
    chains: tuple[str, ...] = ()

    def __str__(self) -> str:
        rules = sum(len(removed.gone) for removed in self.removed)
        return f"{rules} rules and {len(self.chains)} chains of table {self.table}"


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
        """Return the command that removes the rule, for a shell: iptables-save leaves "$" in a comment as it is."""
        return f"{self.table.program} -D {self.chain} {shlex.join(_words(self.text))}"


def table_at(place: str) -> Table | None:
    """Return the table at a place such as "ip nat (nft)"; None if iptables has no such table."""
    match = re.fullmatch(r"(ip6?) (raw|mangle|nat|filter|security) \((nft|legacy)\)", place)
    return Table(*match.groups()) if match else None


Meaning = t.Mapping[str, str]


Chains = t.Mapping[str, tuple[ListedRule, ...]]  # of one table


def removal_script(removal: TableRemoval, now: Chains) -> str:
    """Return the script for iptables-restore --noflush that removes them, all or none: the rules by their text, then the chains.

    now: the chains of the table. Rules and chains that do not exist are left out, and chains in which other rules are. Empty if
    nothing is left to remove.
    """
    counts = {chain: collections.Counter(rule.text for rule in rules) for chain, rules in now.items()}
    lines = []
    for removed in removal.removed:
        current = counts.get(removed.place.chain, collections.Counter())
        for text in removed.texts:
            if current[text]:
                current[text] -= 1
                lines.append(f"-D {removed.place.chain} {text}")
    lines += [f"-X {chain}" for chain in removal.chains if chain in counts and not any(counts[chain].values())]
    return _script(removal.table, lines) if lines else ""


def restoration_script(removal: TableRemoval, now: Chains) -> str:
    """Return the script that restores them beside their former neighbours, all or none; empty if all are there.

    now: the rules of each chain of the table. Rules and chains that exist are left.
    """
    lines = [f"-N {chain}" for chain in removal.chains if chain not in now]
    chains = dict(now)
    for removed in removal.removed:
        name = removed.place.chain
        merged = merge(chains.get(name, ()), removed)
        chains[name] = merged.rules
        lines += [f"-I {name} {number + 1} {merged.rules[number].text}" for number in merged.added]
    return _script(removal.table, lines) if lines else ""


def _script(table: Table, lines: t.Iterable[str]) -> str:
    return "\n".join([f"*{table.name}", *lines, "COMMIT", ""])


def chains(saved: str) -> dict[str, tuple[ListedRule, ...]]:
    """Return the chains in the output of iptables-save -t, with their rules."""
    rules_of: dict[str, list[ListedRule]] = {}
    for line in saved.splitlines():
        if line.startswith(":"):
            rules_of.setdefault(line[1:].split(" ", 1)[0], [])
        elif line.startswith("-A "):
            chain, _blank, text = line[3:].partition(" ")
            rules_of.setdefault(chain, []).append(ListedRule(text))
    return {chain: tuple(rules) for chain, rules in rules_of.items()}


def rules(table: Table, saved: str) -> list[Rule]:
    """Return the rules in the output of iptables-save -t, in order."""
    return [Rule(table, chain, rule.text) for chain, listed in chains(saved).items() for rule in listed]


def meaning(text: str) -> Meaning:
    """Return a rule's options with their values, in any order; a negated option begins with "! ". {} if the text has no options.

    Names of matches (-m) and comments are left out: the former follow from the options, and the latter match nothing.
    """
    values: dict[str, str] = {}
    name = ""
    is_negated = False
    for word in _words(text):
        if word == "!":
            is_negated = True
        elif word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            name, is_negated = ("! " if is_negated else "") + word, False
            values[name] = ""
        elif name:
            values[name] = f"{values[name]} {word}".strip()
    return {name: value for name, value in values.items() if name not in ("-m", "--comment")}


def _words(text: str) -> list[str]:
    """Return the words of a rule. iptables-save writes ' as \\' between double quotes, which no shell does."""
    try:
        return shlex.split(text.replace("\\'", "'"))
    except ValueError:  # a quote without its end
        return []


def jump(rule: Rule, chains: t.AbstractSet[tuple[Table, str]]) -> str:
    """Return the chain of these to which a rule jumps; empty if it jumps to none of them."""
    if not any((rule.table, word) in chains for word in rule.text.split()):
        return ""  # of most rules, without parsing them
    name = target(rule.text)
    return name if (rule.table, name) in chains else ""


def target(text: str) -> str:
    """Return the target of a rule, or the chain to which it jumps; empty if it has none."""
    values = meaning(text)
    return values.get("-j", values.get("-g", ""))


def by_table(removed: t.Sequence[RemovedRules], chains: t.Mapping[Table, t.Collection[str]]) -> list[TableRemoval]:
    """Return the removals of each table that loses rules or chains. chains: names, with an entry for each table."""
    removals = [
        TableRemoval(table, tuple(removal for removal in removed if removal.place.table == str(table)), tuple(names))
        for table, names in chains.items()
    ]
    return [removal for removal in removals if removal.removed or removal.chains]
