# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What iptables-save prints of a table, whole or cut, as a table. What is not understood has no values, and is no error."""

from __future__ import annotations

import array
import functools
import re
import typing as t

from .._core import fields, lines
from .._core.fields import Unfit
from .._netfilter import rule_words
from . import ruleset
from .ruleset import Bits, Chain, Lazy, Match, Rule, Selection, Statement, Table

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
_OPTION = re.compile(r"-\D")
_ADDING, _END = ("-A ", "-I "), "COMMIT"
_NO_MATCHES = ("-j", "-g", "--comment")
_TEXTS = ("--comment", "--log-prefix", "--nflog-prefix")  # whose value is a text of any form
_PORTS = ("--dport", "--sport", "--dports", "--sports")
LAST_PORT = 65535
_MARKS = {"mark": ruleset.PACKET_MARK, "connmark": ruleset.CONNECTION_MARK}
_TARGETS = {
    "ACCEPT": ruleset.ACCEPT,
    "DROP": ruleset.DROP,
    "REJECT": ruleset.REJECT,
    "RETURN": ruleset.RETURN,
    "MASQUERADE": ruleset.MASQUERADE,
    "SNAT": ruleset.SNAT,
    "DNAT": ruleset.DNAT,
    "REDIRECT": ruleset.REDIRECT,
}
_TO = ("--to-source", "--to-destination", "--to-ports")
Places = t.MutableSequence[int]  # in a text
HOOKS = {"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting"}


def read(family: str, name: str, text: str, backend: str = ruleset.NFT) -> Table:
    """Return a table. family: ip or ip6. text: what iptables-save prints of it, or of all tables."""
    of_name = (table for table in tables(family, text, backend, name) if table.name == name)
    return next(of_name, Table(family, name, ruleset.IPTABLES, backend))


def tables(family: str, text: str, backend: str = ruleset.NFT, first: str = "") -> t.Sequence[Table]:
    """Return the tables in what iptables-save prints of them. first: name of a table whose first line is cut off."""
    listing = _listing(family, text, "" if text.startswith("*") else first)
    return [Table(family, name, ruleset.IPTABLES, backend, of_table.chains) for name, of_table in listing.items() if name]


@functools.lru_cache(maxsize=32)  # as a table is read for several twins, and for each question about it
def _listing(family: str, text: str, first: str) -> dict[str, _Chains]:
    """Return what is in a text, by the names of the tables."""
    current = _Chains(family, first, text)
    listing = {first: current}
    for place, line in lines.each(text):
        if chain := _chain(line):
            (current.places.get(chain) or current.declare(chain)).append(place)
        elif line.startswith(":"):
            chain, policy, *_counters = f"{line[1:]} -".split()
            current.declare(chain, policy.strip("-").lower())
        else:
            if line.startswith("*"):
                name, current.end = line[1:].strip(), place
                current = listing.setdefault(name, _Chains(family, name, text))
                current.end = len(text)
            current.further.append(place)
    return listing


class _Chains:
    """The chains of a table, and places in the text, which are added while they are read.

    places: of rules, by chain. further: of lines about the table, of which the first begins it. end: behind it.
    """

    def __init__(self, family: str, name: str, text: str) -> None:
        self._family, self._text, self._kind = family, text, "nat" if name == "nat" else "filter"
        self.chains: dict[str, Chain] = {}
        self.places: dict[str, Places] = {}
        self.further: list[int] = []
        self.end = len(text)

    def declare(self, name: str, policy: str = "") -> Places:
        """Add a chain. Return its places."""
        places = self.places.setdefault(name, array.array("Q"))
        if policy or name not in self.chains:
            rules = _Rules(self._family, self._text, places)
            self.chains[name] = Chain(HOOKS.get(name, ""), self._kind, policy, rules)
        return places

    def selected(self, selection: Selection) -> t.Iterator[int]:
        """Yield the places of lines that remain."""
        yield from self.further
        for chain in selection.chains:
            head = self._text.find(f"\n:{chain} ", self.further[0], self.end) + 1
            yield from [head] if head else []
            yield from (place for number, place in enumerate(self.places[chain]) if number in selection.rules[chain])


class _Rules(Lazy[Rule]):
    """The rules of a chain, by the places of their lines in a text."""

    __slots__ = ("_family", "_text", "_places")

    def __init__(self, family: str, text: str, places: Places) -> None:
        super().__init__()
        self._family, self._text, self._places = family, text, places

    def _sources(self) -> list[str]:
        return [lines.at(self._text, place).rstrip("\r") for place in self._places]

    def _read(self, source: str) -> Rule:
        return rule(self._family, source)

    def __len__(self) -> int:
        return len(self._places)


def _chain(line: str) -> str:
    """Return the chain of a rule, before which its counters may stand; empty for another line."""
    if line[:1] == "[":
        line = _without_counters(line)
    return line.split(" ", 2)[1] if line[:3] in _ADDING else ""


def _without_counters(line: str) -> str:
    return line.partition("] ")[2] if line[:1] == "[" else line


def select(family: str, text: str, selections: t.Mapping[tuple[str, str], Selection]) -> str:
    """Return the lines of selected chains and rules. selections: by family and name of a table."""
    listing = _listing(family, text, "")
    places = sorted(place for name, of_table in listing.items() if name for place in of_table.selected(selections[family, name]))
    return "\n".join([*(lines.at(text, place) for place in places), ""])


def with_rules(text: str, rules: t.Sequence[str], is_first: bool) -> str:
    """Return a table with rules before all others, or behind them, and with the built-in chains that they need.

    text: a table. rules: with ``-A`` and their chain.
    """
    text = text if text.endswith("\n") else f"{text}\n"
    ends = (place for place, line in lines.each(text) if line.rstrip() == _END or is_first and _chain(line))
    at = next(ends, len(text))
    lacking = (chain for chain in dict.fromkeys(map(_chain, rules)) if chain in HOOKS and not _head(chain).search(text))
    added = "".join(f"{line}\n" for line in (*(f":{chain} ACCEPT [0:0]" for chain in lacking), *rules))
    return f"{text[:at]}{added}{text[at:]}"


def with_policy(text: str, chain: str, policy: str) -> str:
    """Return a table with another policy of a chain. policy: ACCEPT or DROP."""
    return _head(chain).sub(lambda _head: f":{chain} {policy} [0:0]", text)


def _head(chain: str) -> re.Pattern[str]:
    """Return the pattern of the line that declares a chain."""
    return re.compile(rf"^:{re.escape(chain)}(?: .*)?$", re.MULTILINE)


def rule(family: str, line: str) -> Rule:
    """Read one rule. line: with ``-A CHAIN`` in front."""
    words = _words(_without_counters(line))
    matches: list[Match] = []
    values: dict[str, str] = {}
    extension, is_negated, place = "", False, 2
    last = len(words)
    while place < last:
        name = words[place]
        place += 1
        if name == "!":
            is_negated = True
            continue
        name = _LONG.get(name, name)
        start, place = place, _end_of_value(words, place, name)
        value = words[start] if place == start + 1 else " ".join(words[start:place])
        values[name] = value
        if name == "-m":
            extension = value
        elif name not in _NO_MATCHES and "-j" not in values and "-g" not in values:
            matches.append(_match(family, extension, name, value, is_negated))
        is_negated = False
    return Rule(words[1] if len(words) > 1 else "", tuple(matches), (*_statements(values),), values.get("--comment", ""), line)


def _words(line: str) -> list[str]:
    try:
        return rule_words.split(line)
    except Unfit:  # a quote without its end
        return line.split()


def _end_of_value(words: t.Sequence[str], place: int, name: str) -> int:
    """Return the place behind the words of an option's value. A text is what follows its option, whatever it is."""
    last = len(words)
    if name in _TEXTS:
        return min(place + 1, last)
    while place < last and words[place] != "!" and not (words[place][:1] == "-" and _OPTION.match(words[place])):
        place += 1
    return place


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
        yield Statement(ruleset.GOTO if "-g" in values else ruleset.JUMP, target)


def _mark(target: str, values: t.Mapping[str, str]) -> Statement:
    """Return what a rule writes into a mark."""
    field = ruleset.CONNECTION_MARK if target == "CONNMARK" else ruleset.PACKET_MARK
    of_packet, of_connection = (_number(values.get(option, values.get("--mask", ""))) for option in ("--nfmask", "--ctmask"))
    if "--save-mark" in values:
        return Statement(field, ruleset.PACKET_MARK, Bits(packet=of_packet, connection=ruleset.ALL & ~of_connection))
    if "--restore-mark" in values:
        bits = Bits(packet=ruleset.ALL & ~of_packet, connection=of_connection)
        return Statement(ruleset.PACKET_MARK, ruleset.CONNECTION_MARK, bits)
    constant, mask = _written(values)
    unmasked = ruleset.ALL & ~mask
    bits = Bits(connection=unmasked, constant=constant) if target == "CONNMARK" else Bits(packet=unmasked, constant=constant)
    return Statement(field, f"{constant:#x}", bits)


def _written(values: t.Mapping[str, str]) -> tuple[int, int]:
    """Return mark and mask of --set-xmark, as which iptables-save prints the other options; iptables -L prints them by name."""
    for option, pair in _OF_MARK.items():
        if option in values:
            return pair(_number(values[option]))
    mark, _slash, mask = values.get("--set-xmark", values.get("--set-mark", "")).partition("/")
    return _number(mark), _number(mask) | (_number(mark) if "--set-mark" in values else 0)


_OF_MARK: dict[str, t.Callable[[int], tuple[int, int]]] = {
    "--or-mark": lambda bits: (bits, bits),
    "--and-mark": lambda bits: (0, ruleset.ALL & ~bits),
    "--xor-mark": lambda bits: (bits, 0),
}


def _number(word: str) -> int:
    """Return a number of 32 bits; all bits for an absent one and for one that is none."""
    try:
        return fields.number(word, 0, ruleset.ALL)
    except Unfit:
        return ruleset.ALL
