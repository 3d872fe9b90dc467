# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What iptables-save prints of a table, whole or cut, as a table. What is not understood has no values, and is no error."""

from __future__ import annotations

import typing as t

from .._core.fields import Unfit
from .._netfilter import rule_words
from .ruleset import (
    ACCEPT,
    ALL,
    CONNECTION_MARK,
    DNAT,
    DROP,
    GOTO,
    IPTABLES,
    JUMP,
    MASQUERADE,
    NFT,
    PACKET_MARK,
    REDIRECT,
    REJECT,
    RETURN,
    SNAT,
    Bits,
    Chain,
    Match,
    Rule,
    Statement,
    Table,
    table,
)

_FIELDS = {
    "-s": "saddr",
    "-d": "daddr",
    "-i": "iifname",
    "-o": "oifname",
    "-p": "meta l4proto",
    "--dport": "th dport",
    "--sport": "th sport",
    "--dports": "th dport",
    "--sports": "th sport",
    "--ctstate": "ct state",
    "--state": "ct state",
    "--mark": "",  # of the match that was named last
    "--match-set": "set",
}
_PORTS = ("--dport", "--sport", "--dports", "--sports")
LAST_PORT = 65535
_MARKS = {"mark": PACKET_MARK, "connmark": CONNECTION_MARK}
_TARGETS = {
    "ACCEPT": ACCEPT,
    "DROP": DROP,
    "REJECT": REJECT,
    "RETURN": RETURN,
    "MASQUERADE": MASQUERADE,
    "SNAT": SNAT,
    "DNAT": DNAT,
    "REDIRECT": REDIRECT,
}
_TO = ("--to-source", "--to-destination", "--to-ports")
HOOKS = {"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting"}


def read(family: str, name: str, text: str, backend: str = NFT) -> Table:
    """Return a table. text: what iptables-save prints of it, or of all tables. family: ip or ip6."""
    rules: list[Rule] = []
    chains: dict[str, Chain] = {}
    current = name
    for line in text.splitlines():
        if line.startswith("*"):
            current = line[1:].strip()
        elif current != name:
            continue
        elif line.startswith(":"):
            chain, policy, *_counters = f"{line[1:]} -".split()
            chains[chain] = Chain(HOOKS.get(chain, ""), "nat" if name == "nat" else "filter", policy.strip("-").lower())
        elif line.startswith("-A "):
            rules.append(rule(family, line))
    return table(family, name, rules, chains, {}, IPTABLES, backend)


def rule(family: str, line: str) -> Rule:
    """Read one rule. line: with ``-A CHAIN`` in front."""
    try:
        words = rule_words.split(line)
    except Unfit:
        words = line.split()
    options = list(_options(words[2:]))
    values = {name: value for name, value, _is_negated in options}
    matches = tuple(match for match in _matches(family, options))
    return Rule(words[1] if len(words) > 1 else "", matches, tuple(_statements(values)), values.get("--comment", ""), line)


def _options(words: t.Sequence[str]) -> t.Iterator[tuple[str, str, bool]]:
    """Yield the name, the value and the negation of each option. Several values of one are divided by blanks."""
    name, is_negated, values = "", False, list[str]()
    is_next_negated = False
    for word in words:
        if word == "!":
            is_next_negated = True
        elif word[:1] == "-" and len(word) > 1 and not word[1].isdigit() and (name, values) not in (("--comment", []),):
            if name:
                yield name, " ".join(values), is_negated
            name, is_negated, values, is_next_negated = word, is_next_negated, [], False
        else:
            values.append(word)
    if name:
        yield name, " ".join(values), is_negated


def _matches(family: str, options: t.Iterable[tuple[str, str, bool]]) -> t.Iterator[Match]:
    extension = ""
    for name, value, is_negated in options:
        if name == "-m":
            extension = value
        elif name in ("-j", "-g"):
            return
        elif name in _FIELDS:
            field = _MARKS.get(extension, "") if name == "--mark" else _FIELDS[name]
            field = f"{family} {field}" if field in ("saddr", "daddr") else field
            yield Match(field, tuple(_values(name, value)), is_negated)
        elif name != "--comment":
            yield Match(f"{extension} {name}".strip(), (value,) if value else (), is_negated)


def _values(name: str, value: str) -> t.Iterator[str]:
    if name == "--match-set":
        yield f"@{value}"
    elif name == "--mark":
        yield "/".join(str(_number(number)) for number in value.split("/"))
    elif name in ("-i", "-o"):
        yield f"{value[:-1]}*" if value.endswith("+") else value
    elif name in ("-s", "-d"):
        yield value.removesuffix("/32").removesuffix("/128")
    elif name in _PORTS:
        yield from map(_ports, value.split(","))
    else:
        yield from value.lower().split(",")


def _ports(text: str) -> str:
    """Return a port, or a range of ports with both of its ends."""
    low, colon, high = text.partition(":")
    return f"{low or 0}-{high or LAST_PORT}" if colon else text


def _statements(values: t.Mapping[str, str]) -> t.Iterator[Statement]:
    target = values.get("-j", values.get("-g", ""))
    if target in ("MARK", "CONNMARK"):
        yield _mark(target, values)
    elif target in _TARGETS:
        address = next((values[option] for option in _TO if option in values), "")
        yield Statement(_TARGETS[target], address)
    elif target in rule_words.IPTABLES.targets:
        yield Statement(target.lower())
    elif target:
        yield Statement(GOTO if "-g" in values else JUMP, target)


def _mark(target: str, values: t.Mapping[str, str]) -> Statement:
    """Return what a rule writes into a mark. iptables-save prints --set-mark, --and-mark and --or-mark as --set-xmark."""
    field = CONNECTION_MARK if target == "CONNMARK" else PACKET_MARK
    of_packet, of_connection = (_number(values.get(option, values.get("--mask", ""))) for option in ("--nfmask", "--ctmask"))
    if "--save-mark" in values:
        return Statement(field, PACKET_MARK, Bits(packet=of_packet, connection=ALL & ~of_connection))
    if "--restore-mark" in values:
        return Statement(PACKET_MARK, CONNECTION_MARK, Bits(packet=ALL & ~of_packet, connection=of_connection))
    mark, _slash, mask = values.get("--set-xmark", values.get("--set-mark", "")).partition("/")
    constant, others = _number(mark), ALL & ~_number(mask)
    bits = Bits(connection=others, constant=constant) if target == "CONNMARK" else Bits(packet=others, constant=constant)
    return Statement(field, f"{constant:#x}", bits)


def _number(word: str) -> int:
    """Return a number of 32 bits; all bits for an absent one and for one that is none."""
    try:
        return int(word, 0) & ALL
    except ValueError:
        return ALL
