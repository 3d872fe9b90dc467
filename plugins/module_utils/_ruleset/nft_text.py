# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What ``nft list ruleset`` prints, whole or cut, as tables. What is not understood has no values, and is no error."""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._ruleset import nft_words
from .ruleset import (
    CONNECTION_MARK,
    GOTO,
    JUMP,
    PACKET_MARK,
    PROTOCOL,
    REJECT,
    TRANSPORTS,
    VERDICTS,
    VMAP,
    Bits,
    Chain,
    Element,
    Match,
    Rule,
    Statement,
    Table,
    combined,
    operand,
    table,
)

LARGEST = 2**64 - 1
_TABLE = re.compile(r"table (?:(\w+) )?(\S+) \{")
_BLOCK = re.compile(r"(chain|set|map) (\S+) \{")
_BASE = re.compile(r"type (\w+) hook (\w+)[^;]*;(?: policy (\w+);)?")
_HANDLE = re.compile(r"\s*# handle \d+$")
# Fields of one word, and the first words of those of two.
_BARE = nft_words.words("iif iifname iifgroup iiftype oif oifname oifgroup oiftype")
_HEADS = nft_words.words(
    "ah arp comp ct dccp dst ether esp exthdr frag gre hbh icmp icmpv6 igmp ip ip6 ipsec mh meta osf rt sctp socket tcp th udp"
    " udplite vlan vxlan geneve tunnel"
)
_PORTS = ("sport", "dport")
_COMPUTED = ("numgen", "jhash", "symhash")  # fields that the kernel computes, with words up to a comparison or a map
_DIRECTIONS = ("original", "reply")  # between ct and its field
_FIB_RESULTS = ("oif", "oifname", "type", "check")
_COMPARISONS = nft_words.words("== != < > <= >=")
_NEGATED = "!="
_MASKS = ("&", "and")
_OPERATORS = {"&": "&", "and": "&", "|": "|", "or": "|", "^": "^", "xor": "^"}
_CONNECTORS = nft_words.words(", . - / : & | ^ << >>")  # after which a value goes on
_DYNAMIC = ("add", "update", "delete")  # of elements of a set, by a rule
_TRANSLATIONS = ("snat", "dnat", "redirect", "masquerade", "tproxy")
_ABOUT = ("comment", "timeout", "expires", "counter", "limit", "quota", "last")  # words behind the key of an element


def tables(text: str) -> list[Table]:
    """Return the tables of a listing, in its order. Lines that belong to no table are left out."""
    result: list[Table] = []
    lines = iter(text.splitlines())
    for line in lines:
        header = _TABLE.match(line.strip())
        if header:
            result.append(_table(header[1] or "ip", header[2], lines))
    return result


def _table(family: str, name: str, lines: t.Iterator[str]) -> Table:
    rules: list[Rule] = []
    chains: dict[str, Chain] = {}
    sets: dict[str, tuple[Element, ...]] = {}
    for line in map(str.strip, lines):
        block = _BLOCK.match(line)
        if line == "}":
            break
        if block and block[1] == "chain":
            chains[block[2]], listed = _chain(block[2], lines)
            rules += listed
        elif block:
            sets[block[2]] = tuple(_elements(lines))
        elif line.endswith("{"):  # of another object
            _body(lines)
    return table(family, name, rules, chains, sets)


def _body(lines: t.Iterator[str]) -> list[str]:
    """Return the statements up to the end of a block. One with a set may be on several lines."""
    statements: list[str] = []
    depth = 0
    for line in map(str.strip, lines):
        if not depth and line == "}":
            break
        if depth:
            statements[-1] += f" {line}"
        elif line:
            statements.append(line)
        depth += line.count("{") - line.count("}")
    return statements


def _chain(name: str, lines: t.Iterator[str]) -> tuple[Chain, list[Rule]]:
    chain, rules = Chain(), []
    for line in _body(lines):
        base = _BASE.match(line)
        if base:
            chain = Chain(base[2], base[1], base[3] or "")
        else:
            rules.append(rule(name, _HANDLE.sub("", line)))
    return chain, rules


def rule(chain: str, line: str) -> Rule:
    """Read one rule. line: as nft lists it."""
    return _Reader(nft_words.tokens(line)).rule(chain, line)


class _Reader:
    """The words of a rule, read from the front."""

    def __init__(self, words: t.Sequence[str]) -> None:
        self._words, self._place = words, 0

    def rule(self, chain: str, line: str) -> Rule:
        matches: list[Match] = []
        statements: list[Statement] = []
        comment = ""
        while self._next():
            if self._take("comment"):
                comment = self._word().strip('"')
                continue
            head, field = self._next(), self._field()
            if not field:
                statements.append(self._statement(self._word()))
            elif self._take("set"):
                statements.append(self._written(field))
            elif self._take(VMAP):
                statements.append(Statement(VMAP, self._set_name()))
            else:
                matches += [Match(PROTOCOL, (head,))] if head in TRANSPORTS and " . " not in field else []
                matches.append(self._match(field))
        return Rule(chain, tuple(matches), tuple(statements), comment, line)

    def _next(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._words[place] if place < len(self._words) else ""

    def _word(self) -> str:
        self._place += 1
        return self._words[self._place - 1] if self._place <= len(self._words) else ""

    def _take(self, *words: str) -> bool:
        is_there = self._next() in words
        self._place += is_there
        return is_there

    def _field(self) -> str:
        """Read the field with which a match or a statement begins; empty, and nothing read, for a statement without one."""
        fields = [field for field in [self._one_field()] if field]
        while fields and self._next() == "." and self._is_field(1):
            self._place += 1
            fields.append(self._one_field())
        return " . ".join(fields)

    def _is_field(self, ahead: int = 0) -> bool:
        return any(self._next(ahead) in words for words in (_BARE, _HEADS, _COMPUTED, ("fib",)))

    def _one_field(self) -> str:
        if not self._is_field():
            return ""
        head = self._word()
        if head in _BARE:
            return head
        if head == "fib":
            return self._fib()
        if head in _COMPUTED:
            return self._computed(head)
        words = [head]
        if head == "ct" and self._next() in _DIRECTIONS:
            words.append(self._word())
            words += [self._word()] if self._next() in ("ip", "ip6") else []
        name = self._word()
        if head == "meta" and name in _BARE:
            return name
        return " ".join(["th" if head in TRANSPORTS and name in _PORTS else head, *words[1:], name])

    def _fib(self) -> str:
        words = ["fib"]
        while self._next() and words[-1] not in _FIB_RESULTS or words[-1:] == ["."] or self._next() == ".":
            words.append(self._word())
        return " ".join(words)

    def _computed(self, head: str) -> str:
        words = [head]
        while self._next() and self._next() not in _COMPARISONS and self._next() not in (VMAP, "map"):
            words.append(self._word())
        return " ".join(words)

    def _match(self, field: str) -> Match:
        mask = ""
        if self._take(*_MASKS):
            mask = f"/{_number(self._word())}"
        comparison = self._word() if self._next() in _COMPARISONS else ""
        values = tuple(f"{value}{mask}" for value in self._values())
        return Match(field, values, comparison == _NEGATED)

    def _values(self) -> list[str]:
        """Read a value, or the members of a set in braces."""
        if self._take("{"):
            return self._members()
        value = self._operand()
        while self._next() in _CONNECTORS and self._next(1):
            connector = self._word()
            value += f" {connector} {self._operand()}" if connector == "." else f"{connector}{self._operand()}"
        return value.split(",") if "," in value and "/" not in value else [value]

    def _operand(self) -> str:
        if self._take("{"):
            return ",".join(self._members())
        return f"@{self._word()}" if self._take("@") else _number(self._word().strip('"'))

    def _members(self) -> list[str]:
        words: list[str] = []
        depth = 1
        while self._next():
            word = self._word()
            depth += {"{": 1, "}": -1}.get(word, 0)
            if not depth:
                break
            words.append(word)
        return [_joined(member) for member in _split(words, ",")]

    def _set_name(self) -> str:
        """Read the map of a lookup; empty for one in braces."""
        values = self._values()
        return values[0] if len(values) == 1 and values[0].startswith("@") else ""

    def _written(self, field: str) -> Statement:
        if field not in (PACKET_MARK, CONNECTION_MARK):
            return Statement(field, " ".join(self._values()))
        shown, bits = self._mark()
        while self._next() in _OPERATORS:
            operator = _OPERATORS[self._word()]
            further, more = self._mark()
            shown, bits = f"{shown} {operator} {further}", combined(operator, [bits, more])
        return Statement(field, shown, bits)

    def _mark(self) -> tuple[str, Bits]:
        field = self._field()
        word = field or self._word()
        number = None if field else _integer(word)
        value = number if number is not None else word
        return (f"{number:#x}" if number is not None else field or "value"), operand(value)

    def _statement(self, kind: str) -> Statement:
        """Read a statement whose first word is read. The details of one that decides nothing are passed over."""
        if kind in (JUMP, GOTO):
            return Statement(kind, self._word().strip('"'))
        if kind in _DYNAMIC:
            name = self._set_name()
            self._values()
            return Statement("set", name)
        target = ""
        if kind == REJECT and self._take("with"):
            self._place += 1 + (self._next(1) == "type") + 1  # such as "icmpx type admin-prohibited"
        if kind in _TRANSLATIONS:
            self._take("ip", "ip6")
            if self._take("to"):
                target = f":{self._word()}" if self._take(":") else "".join(self._values())
        while self._next() and not self._begins():
            self._place += 1
        return Statement(kind, target)

    def _begins(self) -> bool:
        """Return whether the next word begins a match, a verdict, a translation or the comment."""
        word = self._next()
        return word in VERDICTS or word in _TRANSLATIONS or word in ("comment", "counter", "log") or self._is_field()


def _elements(lines: t.Iterator[str]) -> t.Iterator[Element]:
    for line in _body(lines):
        if line.startswith("elements = {"):
            words = nft_words.tokens(line)[3:-1]
            yield from map(_element, filter(None, _split(words, ",")))


def _element(words: t.Sequence[str]) -> Element:
    verdict: list[str] = []
    for place, word in enumerate(words):
        if word == ":" and place:
            words, verdict = words[:place], [*words[place + 1 :]]
            break
    about = next((place for place, word in enumerate(words) if word in _ABOUT), len(words))
    behind = words[about:]
    comment = behind[behind.index("comment") + 1].strip('"') if "comment" in behind[:-1] else ""
    statement = Statement(verdict[0], verdict[1].strip('"') if verdict[0] in (JUMP, GOTO) else "") if len(verdict) > 0 else None
    return Element(tuple(map(_joined, _split(words[:about], "."))), statement, comment)


def _split(words: t.Sequence[str], separator: str) -> t.Iterator[list[str]]:
    """Divide words at a separator that is in no inner set."""
    part: list[str] = []
    depth = 0
    for word in words:
        depth += {"{": 1, "}": -1}.get(word, 0)
        if word == separator and not depth:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _joined(words: t.Sequence[str]) -> str:
    """Return the words of a value: blanks are around the dots of a concatenation alone."""
    return "".join(f" {word} " if word == "." else _number(word.strip('"')) for word in words)


def _number(word: str) -> str:
    number = _integer(word) if word[:2] in ("0x", "0X") else None
    return word if number is None else str(number)


def _integer(word: str) -> int | None:
    try:
        return fields.number(word, 0, LARGEST)
    except fields.Unfit:
        return None
