# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables, chains, rules and sets of nftables and iptables as values, the same whichever tool or kernel interface showed them.

A field of a packet has nft's name, also in a rule of iptables: ``ip saddr``, ``meta mark``, ``ct state``, ``iifname``,
``th dport`` for any transport protocol, ``fib saddr . mark . iif oif``. A value is nft's word, with numbers in decimal,
prefixes as ``10.0.0.0/8``, ranges as ``1-2``, a value under a mask as ``VALUE/MASK``, and ``@NAME`` for a set.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

ALL = 2**32 - 1  # the mask of a mark of 32 bits
PACKET_MARK, CONNECTION_MARK = "meta mark", "ct mark"
PROTOCOL = "meta l4proto"
TRANSPORTS = ("tcp", "udp", "sctp", "dccp", "udplite")  # whose ports are fields of "th", beside a match of the protocol
ACCEPT, DROP, REJECT, JUMP, GOTO, RETURN = "accept", "drop", "reject", "jump", "goto", "return"
VERDICTS = (ACCEPT, DROP, REJECT, JUMP, GOTO, RETURN, "continue", "queue")
MASQUERADE, SNAT, DNAT, REDIRECT, VMAP = "masquerade", "snat", "dnat", "redirect", "vmap"
DORMANT = "dormant"  # a flag of a table
NFT, LEGACY = "nft", "legacy"  # the backends of iptables; tables of nft itself have the first
IPTABLES = "iptables"
# Of lines of either program that write a mark, or translate the source of a packet.
WRITES_MARK = re.compile(r"\bmark\s+set\s|MARK\s+--")
TRANSLATES_SOURCE = re.compile(r"(?<![\w-])(?:masquerade|snat)\b|MASQUERADE|SNAT")
UNREAD = "value"  # in the place of an expression that a reader does not understand
_Value = t.TypeVar("_Value")
FAMILIES_OF = {"ip": ("ipv4",), "ip6": ("ipv6",)}  # the families of packets by those of tables; inet and others have both


class Bits(t.NamedTuple):
    """Which bits of a mark may be set after a rule wrote it, by where they come from: the packet's mark, the rule, or the
    connection's mark."""

    packet: int = 0
    constant: int = 0
    connection: int = 0


class Match(t.NamedTuple):
    """values: one of them must be equal; an empty tuple for a match that the reader does not understand."""

    field: str
    values: tuple[str, ...]
    is_negated: bool = False


NEW = Match("ct state", ("new",))  # of rules that only packets that begin a connection match


class Statement(t.NamedTuple):
    """kind: the name that nft has for it; of one that writes a field, the name of the field.

    target: the chain of a jump, the set of a lookup, the new address and ``:PORT`` of a translation, or the value that a field
    gets; UNREAD for one that the reader does not understand. bits: of a mark that is written. key: the fields of a lookup in a
    verdict map. elements: of a verdict map without a name.
    """

    kind: str
    target: str = ""
    bits: Bits | None = None
    key: str = ""
    elements: tuple[Element, ...] = ()

    @property
    def address(self) -> str:
        """Return the address to which a translation leads."""
        return self.target[1:].partition("]")[0] if self.target[:1] == "[" else self.target.partition(":")[0]


class Rule(t.NamedTuple):
    """line: as the tool prints it that showed the rule; empty if a program read it from the kernel.

    sets: names of all sets and maps of nft that the rule uses, in their order.
    """

    chain: str
    matches: tuple[Match, ...] = ()
    statements: tuple[Statement, ...] = ()
    comment: str = ""
    line: str = ""
    sets: tuple[str, ...] = ()

    @property
    def verdict(self) -> Statement | None:
        return next((each for each in self.statements if each.kind in VERDICTS), None)

    @property
    def link(self) -> str:
        """Return the name or the pattern of the link by which packets enter, as value()."""
        return self.value("iifname", "iif")

    def value(self, *fields: str) -> str:
        """Return the value that one of the fields must have; empty for any, for several, and if negated."""
        matches = [match for match in self.matches if match.field in fields]
        return matches[0].values[0] if len(matches) == 1 and len(matches[0].values) == 1 and not matches[0].is_negated else ""

    def translates_source(self) -> bool:
        return any(each.kind in (MASQUERADE, SNAT) for each in self.statements)

    def ends_with(self, verdict: str) -> bool:
        return any(each.kind == verdict for each in self.statements)

    def has_value(self, text: str) -> bool:
        """Return whether the rule compares with a value, or writes it."""
        return any(text in match.values for match in self.matches) or any(text == each.target for each in self.statements)


class Element(t.NamedTuple):
    """An element of a set or a map. key: its parts. statement: the verdict of a verdict map. comment: empty for none."""

    key: tuple[str, ...]
    statement: Statement | None = None
    comment: str = ""


class Lazy(t.Sequence[_Value]):
    """Values that are read when the first of them is looked at: of a node's chains, a question concerns few."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: tuple[_Value, ...] | None = None

    def _sources(self) -> t.Sequence[t.Any]:
        """Return the values as a tool listed them."""
        raise NotImplementedError

    def _read(self, source: t.Any) -> _Value:
        """Read one value."""
        raise NotImplementedError

    def each(self, pattern: re.Pattern[str] | None = None) -> t.Iterator[_Value]:
        """Yield the values, and keep none that are read of a text. pattern: without it in its text, a value may be left out."""
        sources = self._sources() if self._values is None else ()
        if not isinstance(next(iter(sources), None), str):
            return iter(self)
        return (self._read(each) for each in sources if not pattern or pattern.search(each))

    def _all(self) -> tuple[_Value, ...]:
        if self._values is None:
            self._values = tuple(map(self._read, self._sources()))
        return self._values

    def __getitem__(self, place: t.Any) -> t.Any:
        return self._all()[place]

    def __iter__(self) -> t.Iterator[_Value]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._sources() if self._values is None else self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, t.Sequence) and self._all() == (*other,)

    __hash__ = None  # type: ignore[assignment]


class Listed(Lazy[_Value]):
    """Values of a list of sources. reader: reads one."""

    __slots__ = ("_reader", "_list")

    def __init__(self, reader: t.Callable[[t.Any], _Value], sources: t.Sequence[t.Any]) -> None:
        super().__init__()
        self._reader, self._list = reader, sources

    def _sources(self) -> t.Sequence[t.Any]:
        return self._list

    def _read(self, source: t.Any) -> _Value:
        return self._reader(source)


class ByName(t.Mapping[str, _Value]):
    """Values by name. further: the names of those that are read when they are asked for, and that it does not list."""

    def __init__(self, listed: t.Mapping[str, _Value], further: t.Collection[str], read: t.Callable[[str], _Value]) -> None:
        self._listed, self.further, self._read = listed, further, read

    def __getitem__(self, name: str) -> _Value:
        return self._read(name) if name in self.further else self._listed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._listed or name in self.further

    def __iter__(self) -> t.Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class Chain(t.NamedTuple):
    """hook, kind, policy: of a base chain, otherwise empty. kind: filter, nat or route. devices: links of one at ingress or
    egress."""

    hook: str = ""
    kind: str = ""
    policy: str = ""
    rules: t.Sequence[Rule] = ()
    devices: tuple[str, ...] = ()


class Table(t.NamedTuple):
    """family: as nft names it. program: that lists it, NFT or IPTABLES. backend: NFT, or LEGACY for iptables alone.

    is_dormant: no packet meets its chains.
    """

    family: str
    name: str
    program: str = NFT
    backend: str = NFT
    chains: t.Mapping[str, Chain] = {}
    sets: t.Mapping[str, t.Sequence[Element]] = {}
    is_dormant: bool = False

    def __str__(self) -> str:
        return f"{self.family} {self.name}"

    @property
    def families(self) -> tuple[str, ...]:
        """Return the families of the packets that the table may meet."""
        return FAMILIES_OF.get(self.family, ("ipv4", "ipv6"))

    def rules(self, pattern: re.Pattern[str] | None = None) -> t.Iterator[Rule]:
        """Yield the rules, and keep none of them: a question about all is asked once.

        pattern: rules may be left out in whose line it is not found. A table of thousands of rules has few of a kind.
        """
        for rules in (chain.rules for chain in self.chains.values()):
            yield from rules.each(pattern) if isinstance(rules, Lazy) else rules

    def has_value(self, text: str) -> bool:
        """Return whether a rule or a set has a value."""
        elements = (element for listed in self.sets.values() for element in listed)
        rules = self.rules(re.compile(re.escape(text)))
        return any(rule.has_value(text) for rule in rules) or any(text in element.key for element in elements)

    def unreferenced(self) -> list[str]:
        """Return the chains with rules, and the verdict maps with elements, to which neither a hook nor a rule refers.

        A table with a hook is listed as a whole: what nothing refers to there gets no packet.
        """
        if any(chain.hook for chain in self.chains.values()):
            return []
        targets = {each.target for rule in self.rules() for each in rule.statements}
        targets.update(each.statement.target for elements in self.sets.values() for each in elements if each.statement)
        used = {name for rule in self.rules() for name in rule.sets}
        chains = [name for name, chain in self.chains.items() if chain.rules and name not in targets]
        return [*chains, *(name for name, elements in self.sets.items() if name not in used and looked_up(elements))]

    def walk(self, first: str) -> t.Iterator[Rule]:
        """Yield the rules in the order in which a packet meets them, each chain once. first: the chain of the hook."""
        entered, waiting = {first}, [iter(self.chains.get(first, Chain()).rules)]
        while waiting:
            rule = next(waiting[-1], None)
            if rule is None:
                waiting.pop()
                continue
            yield rule
            verdict = rule.verdict
            if verdict and verdict.kind in (JUMP, GOTO) and verdict.target not in entered:
                entered.add(verdict.target)
                waiting.append(iter(self.chains.get(verdict.target, Chain()).rules))


class BaseChain(t.NamedTuple):
    """A chain that a table of nft gets besides its own. statement: that of its only rule."""

    family: str
    table: str
    hook: str
    kind: str
    priority: int
    statement: str

    def __str__(self) -> str:
        """Show the chain in its table, as nft lists it."""
        head = f"type {self.kind} hook {self.hook} priority {self.priority}; policy accept;"
        return f"table {self.family} {self.table} {{\nchain reached-at-{self.hook} {{ {head} {self.statement}; }}\n}}"


class Selection(t.NamedTuple):
    """The parts of a table that remain: names of chains and of sets, places of elements by map, places of rules by chain.

    A map or a chain that is not in the last two has all.
    """

    chains: t.Collection[str]
    sets: t.Collection[str]
    elements: t.Mapping[str, t.Container[int]] = {}
    rules: t.Mapping[str, t.Container[int]] = {}


def looked_up(elements: t.Iterable[Element]) -> str:
    """Return the fields that a rule looks up in a verdict map; empty for a set, or for keys of other kinds."""
    element = next((each for each in elements if each.statement), None)
    fields = [field_of(part) for part in element.key] if element else []
    return " . ".join(fields) if fields and all(fields) else ""


def field_of(part: str) -> str:
    """Return the field of a packet that a part of a key is about: its destination, protocol or port; empty for another one."""
    if part in TRANSPORTS:
        return PROTOCOL
    if part.isdigit():
        return "th dport"
    try:
        return "ip6 daddr" if ipaddress.ip_network(part, strict=False).version == 6 else "ip daddr"
    except ValueError:
        return ""


def combined(operator: str, operands: t.Sequence[Bits]) -> Bits:
    """Return what an expression of marks and numbers leaves of a mark. operator: ``&``, ``|`` or ``^``."""
    result, *further = operands
    for bits in further:
        if operator == "&":
            mask = bits.packet | bits.constant | bits.connection
            result = Bits(*(number & mask for number in result))
        else:
            # A bit that the rule sets no longer depends on a mark, unless ALL stands for what is not understood.
            cleared = bits.constant if operator == "|" and bits.constant != ALL else 0
            packet, constant, connection = (left | right for left, right in zip(result, bits))
            result = Bits(packet & ~cleared, constant, connection & ~cleared)
    return result


def operand(word: t.Any) -> Bits:
    """Return the bits of a mark, by its name, or of a number; all bits for what is neither."""
    if word == PACKET_MARK:
        return Bits(packet=ALL)
    return Bits(connection=ALL) if word == CONNECTION_MARK else Bits(constant=word & ALL if isinstance(word, int) else ALL)


def listed(value: t.Any) -> list[t.Any]:
    """Return a list of nft's JSON; an empty one in place of another value."""
    return value if isinstance(value, list) else []
