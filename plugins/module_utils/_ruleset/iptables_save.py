# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What iptables-save prints of a table, whole or cut, as a table. What is not understood has no values, and is no error."""

from __future__ import annotations

import functools
import typing as t

from .._core import fields
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
    Selection,
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
_LONG = {
    **{"--jump": "-j", "--goto": "-g", "--match": "-m", "--protocol": "-p", "--source": "-s", "--destination": "-d"},
    **{"--in-interface": "-i", "--out-interface": "-o"},
}
_NO_MATCHES = ("-j", "-g", "--comment")
_TEXTS = ("--comment", "--log-prefix", "--nflog-prefix")  # whose value is a text of any form
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
    """Return a table. family: ip or ip6. text: what iptables-save prints of it, or of all tables."""
    named = (table for table in tables(family, text, backend, name) if table.name == name)
    return next(named, Table(family, name, IPTABLES, backend))


def tables(family: str, text: str, backend: str = NFT, first: str = "") -> list[Table]:
    """Return the tables in what iptables-save prints of them. first: name of a table whose first line is cut off."""
    rules: dict[str, list[tuple[str, str]]] = {}
    bases: dict[str, dict[str, Chain]] = {}
    name = first
    for line in text.splitlines():
        if line.startswith("*"):
            name = line[1:].strip()
        elif line.startswith(":"):
            chain, policy, *_counters = f"{line[1:]} -".split()
            bases.setdefault(name, {})[chain] = _base(name, chain, policy.strip("-").lower())
        elif appended := _appended(line):
            rules.setdefault(name, []).append(appended)
    for name, listing in rules.items():
        of_table = bases.setdefault(name, {})
        undeclared = {chain for chain, _line in listing if chain in HOOKS}.difference(of_table)
        of_table.update({chain: _base(name, chain) for chain in sorted(undeclared)})
    reading = functools.partial(rule, family)
    return [
        table(family, name, of_table, reading, rules.get(name, ()), program=IPTABLES, backend=backend)
        for name, of_table in bases.items()
    ]


def _base(name: str, chain: str, policy: str = "") -> Chain:
    return Chain(HOOKS.get(chain, ""), "nat" if name == "nat" else "filter", policy)


def _appended(line: str) -> tuple[str, str] | None:
    """Return the chain of a rule and the rule without its counters, which may come first; None for another line."""
    line = line.partition("] ")[2] if line.startswith("[") else line
    return (line.split(" ", 2)[1], line) if line.startswith(("-A ", "-I ")) else None


def select(family: str, text: str, selections: t.Mapping[tuple[str, str], Selection]) -> str:
    """Return the lines of selected chains and rules. selections: by family and name of a table."""
    lines = list[str]()
    places: dict[tuple[str, str], int] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("*"):
            name = line[1:].strip()
        appended = _appended(line)
        if line.startswith(":"):
            if line[1:].split(" ", 1)[0] not in selections[family, name].chains:
                continue
        elif appended:
            chain = appended[0]
            place = places[name, chain] = places.get((name, chain), -1) + 1
            if chain not in selections[family, name].chains or place not in selections[family, name].rules[chain]:
                continue
        lines.append(line)
    return "\n".join([*lines, ""])


def rule(family: str, line: str) -> Rule:
    """Read one rule. line: with ``-A CHAIN`` in front."""
    words = _words(line)
    matches: list[Match] = []
    values: dict[str, str] = {}
    extension, is_negated, place = "", False, 2
    while place < len(words):
        name = _LONG.get(words[place], words[place])
        end = _end_of_value(words, place + 1)
        value = words[place + 1] if end == place + 2 else " ".join(words[place + 1 : end])
        place = end
        if name == "!":
            is_negated = True
            continue
        values[name] = value
        if name == "-m":
            extension = value
        elif name not in _NO_MATCHES and not {"-j", "-g"} & values.keys():
            matches.append(_match(family, extension, name, value, is_negated))
        is_negated = False
    return Rule(words[1] if len(words) > 1 else "", tuple(matches), (*_statements(values),), values.get("--comment", ""), line)


def _words(line: str) -> list[str]:
    try:
        return rule_words.split(line)
    except Unfit:  # a quote without its end
        return line.split()


def _end_of_value(words: t.Sequence[str], place: int) -> int:
    """Return the place behind the words of an option's value. A text is what follows its option, whatever it is."""
    if words[place - 1] in _TEXTS:
        return min(place + 1, len(words))
    while place < len(words) and words[place] != "!" and not _is_option(words[place]):
        place += 1
    return place


def _is_option(word: str) -> bool:
    return word[:1] == "-" and not word[1:2].isdigit() and len(word) > 1


@functools.lru_cache(maxsize=10_000)  # most options are in many rules
def _match(family: str, extension: str, name: str, value: str, is_negated: bool) -> Match:
    if name not in _FIELDS:
        return Match(f"{extension} {name}".strip(), (value,) if value else (), is_negated)
    field = _MARKS.get(extension, "") if name == "--mark" else _FIELDS[name]
    field = f"{family} {field}" if field in ("saddr", "daddr") else field
    return Match(field, tuple(_values(name, value)), is_negated)


def _values(name: str, value: str) -> t.Iterable[str]:
    if name == "--match-set":
        return [f"@{value}"]
    if name == "--mark":
        return ["/".join(str(_number(number)) for number in value.split("/"))]
    if name in ("-i", "-o"):
        return [f"{value[:-1]}*" if value.endswith("+") else value]
    if name in ("-s", "-d"):
        return [value.removesuffix("/32").removesuffix("/128")]
    return map(_ports, value.split(",")) if name in _PORTS else value.lower().split(",")


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
        yield Statement(_TARGETS[target], f":{address}" if "--to-ports" in values else address)
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
        return fields.number(word, 0, ALL)
    except Unfit:
        return ALL
