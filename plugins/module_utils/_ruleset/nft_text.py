# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``nft list ruleset`` prints, whole or cut, as tables. What is not understood has no values, and is no error."""

from __future__ import annotations

import re
import typing as t

from .._core import fields, memo
from . import nft_blocks, nft_words, ruleset
from .nft_blocks import Block, Listing, split
from .ruleset import Bits, Chain, Element, Lazy, Match, Rule, Statement, Table, combined, operand

LARGEST = 2**64 - 1
_BASE = re.compile(r"type (\w+) hook (\w+)(?: devices?((?: (?!priority)\S+)*))?[^;]*(?:; ?)?(?:policy (\w+) ?;? ?)?")
_DEVICE = re.compile(r'[^\s"{},=]+')
_HOOK = " hook "
_DORMANT = re.compile(
    rf"^[ \t]*table (?:(\w+) )?(\S+) \{{\n(?:[ \t]*comment .*\n)?[ \t]*flags .*\b{ruleset.DORMANT}\b", re.MULTILINE
)
_COMMENT = "comment "  # the first word of a chain's own comment; that of a rule is its last
_JUMP = re.compile(r"\b(?:jump|goto) ")
_HANDLE = re.compile(r"\s*# handle \d+$")
# Fields of one word, and the first words of those of two.
_BARE = nft_words.words("iif iifname iifgroup iiftype oif oifname oifgroup oiftype")
_HEADS = nft_words.words(
    "ah arp comp ct dccp dst ether esp exthdr frag gre hbh icmp icmpv6 igmp ip ip6 ipsec mh meta osf rt sctp socket tcp th udp"
    " udplite vlan vxlan geneve gretap tunnel"
)
_PORTS = ("sport", "dport")
_COMPUTED = ("numgen", "jhash", "symhash")  # fields that the kernel computes, with words up to a comparison or a map
_FIRST = frozenset((*_BARE, *_HEADS, *_COMPUTED, "fib"))
_BASES, _RAW = ("ll", "nh", "th", "ih"), 6  # of fields by their place, and how many words such a field has
# Between the first word of a field and its name: directions, and headers of an inner packet.
_QUALIFIERS = ("original", "reply", "in", "out", "ip", "ip6", "ether", "tcp", "udp", "icmp", "icmpv6", "vlan")
_PRESENCE = ("exists", "missing")
_FIB_RESULTS = ("oif", "oifname", "type", "check")
_COMPARISONS = nft_words.words("== != < > <= >=")
_NEGATED = "!="
_EQUAL = ("", "==", _NEGATED)
_MASKS = ("&", "and")
_OPERATORS = {"&": "&", "and": "&", "|": "|", "or": "|", "^": "^", "xor": "^"}
_CONNECTORS = nft_words.words(", . - / : & | ^ << >>")  # after which a value goes on
_DYNAMIC = ("add", "update", "delete")  # of elements of a set, by a rule
_TRANSLATIONS = ("snat", "dnat", "redirect", "masquerade", "tproxy")
_ABOUT = ("comment", "timeout", "expires", "counter", "limit", "quota", "last")  # words behind the key of an element
_Value = t.TypeVar("_Value")


@memo.of_part
def tables(text: str) -> list[Table]:
    """Return the tables of a listing, in its order. Lines that belong to no table are left out."""
    listing = nft_blocks.read(text)
    asleep = {(family or "ip", name) for family, name in _DORMANT.findall(text)}
    return [_table(place, blocks, listing)._replace(is_dormant=place in asleep) for place, blocks in listing.tables]


def _table(place: nft_blocks.Place, blocks: t.Iterable[Block], listing: Listing) -> Table:
    chains = {block.name: _chain(listing, block) for block in blocks if block.kind == nft_blocks.CHAIN}
    sets = {block.name: _Elements(listing, block) for block in blocks if block.kind in ("set", "map")}
    return Table(*place, chains=chains, sets=sets)


def _chain(listing: Listing, block: Block) -> Chain:
    may_be_base = listing.text.find(_HOOK, block.first, block.last) >= 0
    base = next(filter(None, map(_BASE.match, listing.statements(block) if may_be_base else ())), None)
    chain = Chain(base[2], base[1], base[4] or "", devices=tuple(_DEVICE.findall(base[3] or ""))) if base else Chain()
    return chain._replace(rules=_Rules(listing, block))


class _Block(Lazy[_Value]):
    """Values of a block of a text."""

    __slots__ = ("_listing", "_block")

    def __init__(self, listing: Listing, block: Block) -> None:
        super().__init__()
        self._listing, self._block = listing, block


class _Rules(_Block[Rule]):
    __slots__ = ()

    def _sources(self) -> list[str]:
        lines = ((line, _BASE.match(line)) for line in self._listing.statements(self._block) if not line.startswith(_COMMENT))
        return [*filter(None, (line[base.end() :] if base else line for line, base in lines))]

    def _read(self, source: str) -> Rule:
        return rule(self._block.name, _HANDLE.sub("", source))


class _Elements(_Block[Element]):
    __slots__ = ()

    def _sources(self) -> list[list[str]]:
        return [*nft_blocks.elements(self._listing.statements(self._block))]

    def _read(self, source: list[str]) -> Element:
        return _element(source)


def counted(
    text: str, excluded: t.Container[nft_blocks.Place] = ()
) -> dict[nft_blocks.Place, tuple[dict[str, int], dict[str, str], int]]:
    """Return what nft_json.counted() returns, without reading a rule. excluded: tables."""
    listing, jumps = nft_blocks.read(text), dict[nft_blocks.Place, int]()
    for place, blocks in listing.tables if text else ():
        if place in excluded:
            continue
        lines = (nft_blocks.QUOTED.sub("", line) for block in blocks for line in listing.lines(block.first, block.last))
        jumps[place] = sum(len(_JUMP.findall(line)) for line in lines)
    return {
        (table.family, table.name): (
            {name: len(chain.rules) for name, chain in table.chains.items()},
            {name: chain.policy for name, chain in table.chains.items()},
            jumps[table.family, table.name],
        )
        for table in tables(text)
        if (table.family, table.name) not in excluded
    }


def sizes(text: str, excluded: t.Container[nft_blocks.Place] = ()) -> dict[tuple[str, str, str], int]:
    """Return the number of elements of each set and map that has a name, by family, table and name. excluded: tables."""
    every = (table for table in tables(text) if (table.family, table.name) not in excluded)
    return {(table.family, table.name, name): len(elements) for table in every for name, elements in table.sets.items()}


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
            elif self._take(ruleset.VMAP):
                statements.append(self._lookup(field))
            else:
                matches += [Match(ruleset.PROTOCOL, (head,))] if head in ruleset.TRANSPORTS and " . " not in field else []
                matches.append(self._match(field))
        sets = tuple(dict.fromkeys(name for mark, name in zip(self._words, self._words[1:]) if mark == "@"))
        return Rule(chain, tuple(matches), tuple(statements), comment, line, sets)

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
        word = self._next(ahead)
        return word in _FIRST or (word == "@" and self._next(ahead + 1) in _BASES)

    def _one_field(self) -> str:
        if not self._is_field():
            return ""
        if self._next() == "@":
            return self._raw()
        head = self._word()
        if head in _BARE:
            return head
        if head == "fib":
            return self._fib()
        if head in _COMPUTED:
            return self._computed(head)
        words = [head]
        while self._next() in _QUALIFIERS:
            words.append(self._word())
        name = self._word()
        if head == "meta" and name in _BARE:
            return name
        words[-1] = "th" if words[-1] in ruleset.TRANSPORTS and name in _PORTS and len(words) == 1 else words[-1]
        option = [self._word()] if name == "option" else []
        option += [self._word()] if option and self._next() not in _PRESENCE else []
        self._take("over")  # of a count of connections
        return " ".join([*words, name, *option])

    def _raw(self) -> str:
        """Read a field by its place in the packet, such as ``@nh,128,32``."""
        return "".join(self._word() for _word in range(_RAW))

    def _fib(self) -> str:
        words = ["fib"]
        while self._next() and words[-1] not in _FIB_RESULTS or words[-1:] == ["."] or self._next() == ".":
            words.append(self._word())
        return " ".join(words)

    def _computed(self, head: str) -> str:
        words = [head]
        while self._next() and self._next() not in _COMPARISONS and self._next() not in (ruleset.VMAP, "map"):
            words.append(self._word())
        return " ".join(words)

    def _match(self, field: str) -> Match:
        mask = ""
        if self._take(*_MASKS):
            mask = f"/{_number(self._word())}"
        comparison = self._word() if self._next() in _COMPARISONS else ""
        values = tuple(f"{value}{mask}" for value in self._values())
        return Match(field, values if comparison in _EQUAL else (), comparison == _NEGATED)

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
        return [_joined(member) for member in split(self._braced(), ",")]

    def _braced(self) -> list[str]:
        """Return the words up to the brace that ends a set."""
        words: list[str] = []
        depth = 1
        while self._next():
            word = self._word()
            depth += {"{": 1, "}": -1}.get(word, 0)
            if not depth:
                break
            words.append(word)
        return words

    def _lookup(self, key: str) -> Statement:
        """Read the map of a lookup: its name, or its elements."""
        if not self._take("{"):
            return Statement(ruleset.VMAP, self._set_name(), None, key)
        return Statement(ruleset.VMAP, "", None, key, tuple(map(_element, filter(None, split(self._braced(), ",")))))

    def _set_name(self) -> str:
        """Read the name of a set; empty for one in braces."""
        values = self._values()
        return values[0] if len(values) == 1 and values[0].startswith("@") else ""

    def _written(self, field: str) -> Statement:
        if field not in (ruleset.PACKET_MARK, ruleset.CONNECTION_MARK):
            value = self._field() or " ".join(self._values())
            return Statement(field, ruleset.UNREAD if self._mapped() else value)
        text, bits = self._mark()
        while self._next() in _OPERATORS:
            operator = _OPERATORS[self._word()]
            further, more = self._mark()
            text, bits = f"{text} {operator} {further}", combined(operator, [bits, more])
        self._mapped()
        return Statement(field, text, bits)

    def _mapped(self) -> bool:
        """Read the map in which the field before it is looked up. Return whether there is one."""
        is_mapped = self._take("map")
        if is_mapped:
            self._values()
        return is_mapped

    def _mark(self) -> tuple[str, Bits]:
        field = self._field()
        word = field or self._word()
        number = None if field else _integer(word)
        value = number if number is not None else word
        return (f"{number:#x}" if number is not None else field or "value"), operand(value)

    def _statement(self, kind: str) -> Statement:
        """Read a statement whose first word is read. The details of one that decides nothing are passed over."""
        if kind in (ruleset.JUMP, ruleset.GOTO):
            return Statement(kind, self._word().strip('"'))
        if kind in _DYNAMIC:
            name = self._set_name()
            self._values()
            return Statement("set", name)
        target = ""
        if kind == ruleset.REJECT and self._take("with"):
            self._place += 1 + (self._next(1) == "type") + 1  # such as "icmpx type admin-prohibited"
        if kind in _TRANSLATIONS:
            self._take("ip", "ip6")
            if self._take("to"):
                target = ":" * self._take(":") + "".join(self._values())
        while self._next() and not self._begins():
            self._place += 1
        return Statement(kind, target)

    def _begins(self) -> bool:
        """Return whether the next word begins a match, a verdict, a translation or the comment."""
        word = self._next()
        return word in ruleset.VERDICTS or word in _TRANSLATIONS or word in ("comment", "counter", "log") or self._is_field()


def _element(words: t.Sequence[str]) -> Element:
    verdict: list[str] = []
    for place, word in enumerate(words):
        if word == ":" and place:
            words, verdict = words[:place], [*words[place + 1 :]]
            break
    about = next((place for place, word in enumerate(words) if word in _ABOUT), len(words))
    behind = words[about:]
    comment = behind[behind.index("comment") + 1].strip('"') if "comment" in behind[:-1] else ""
    statement = (
        Statement(verdict[0], "".join(verdict[1:2]).strip('"') if verdict[0] in (ruleset.JUMP, ruleset.GOTO) else "")
        if verdict[:1] and verdict[0] in ruleset.VERDICTS
        else None
    )
    return Element(tuple(map(_joined, split(words[:about], "."))), statement, comment)


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
