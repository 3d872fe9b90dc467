# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What rules of iptables and nft write into the marks of packets and connections, bit by bit."""

from __future__ import annotations

import functools
import re
import typing as t

from .._cni.mangle import ALL
from .._twin.blueprint import Entry
from .node import FAMILIES, IPV4, IPV6, Node
from .suspicion import Unobserved

OPERATORS = {"&": "&", "and": "&", "|": "|", "or": "|", "^": "^", "xor": "^"}
OF_TABLE = {"ip": (IPV4,), "ip6": (IPV6,)}  # families of packets by those of nft; of others, both
PACKET, CONNECTION = {"meta": {"key": "mark"}}, {"ct": {"key": "mark"}}
_NUMBER = r"(0x[0-9a-f]{1,8})\b"
_SET = re.compile(rf"-j (MARK|CONNMARK) --set-x?mark {_NUMBER}(?:/{_NUMBER})?")
_COPIED = re.compile(rf"-j CONNMARK --(save|restore)-mark(?: --nfmask {_NUMBER})?(?: --ctmask {_NUMBER})?")
# In a listing of nft.
_TABLE = re.compile(r"table (?:(\w+) )?(\S+) \{")
_CHAIN = re.compile(r"chain (\S+) \{")
_OF_NFT = re.compile(r"\b(meta|ct) mark set (.+)")
_OPERAND = re.compile(r"(?:meta )?(mark)\b|(ct mark)\b|(0x[0-9a-f]{1,8}|0|[1-9][0-9]{0,9})\b")


class Bits(t.NamedTuple):
    """Which bits of a mark may be set after a rule.

    kept: those that the mark keeps. constant: those that the rule names. restored: those that the mark of the connection has.
    """

    kept: int = 0
    constant: int = 0
    restored: int = 0


class Write(t.NamedTuple):
    """What a rule writes. families: of its packets. place: of the rule. value: as words. line: as its tool prints it.

    bits: of a packet's mark, or of the mark of a connection.
    """

    families: tuple[str, ...]
    place: str
    value: str
    line: str
    bits: Bits
    is_of_connection: bool = False


def of_node(node: Node) -> tuple[list[Write], list[Unobserved]]:
    """Return what rules write into the marks of packets, and what is not known of the rules."""
    sources = [functools.partial(_of_iptables, node, family, table) for family in FAMILIES for table in ("mangle", "nat")]
    writes, lacks = list[Write](), list[Unobserved]()
    for source in (*sources, functools.partial(_of_nft, node)):
        try:
            writes += source()
        except Unobserved as lack:
            lacks.append(lack)
    of_connections = (write.bits.kept | write.bits.constant for write in writes if write.is_of_connection)
    saved = ALL if lacks else functools.reduce(int.__or__, of_connections, 0)
    of_packets = (write for write in writes if not write.is_of_connection)
    return [write._replace(bits=write.bits._replace(restored=write.bits.restored & saved)) for write in of_packets], lacks


def _of_iptables(node: Node, family: str, table: str) -> t.Iterator[Write]:
    lines = (line for save in node.iptables(family, table) for line in save.splitlines() if line.startswith("-A "))
    yield from filter(None, (_of_line(family, line) for line in lines))


def _of_nft(node: Node) -> t.Iterator[Write]:
    objects, listing = node.ruleset()
    for table, chain, mark, value in (*_of_objects(objects), *_of_listing(listing)):
        families, shown = OF_TABLE.get(table.partition(" ")[0], FAMILIES), words(value)
        line = f"table {table}, chain {chain}: {mark} mark set {shown}"
        yield Write(families, f"{table} {chain}", shown, line, _bits(value), mark == "ct")


def _of_line(family: str, line: str) -> Write | None:
    place = f"{family} {line.split(' ', 2)[1]}"
    match = _SET.search(line)
    if match:
        value, mask = int(match[2], 0), int(match[3] or hex(ALL), 0)
        return Write((family,), place, f"{value:#x}", line, Bits(ALL & ~mask, value), match[1] == "CONNMARK")
    match = _COPIED.search(line)
    if not match:
        return None
    of_packet, of_connection = (int(mask or hex(ALL), 0) for mask in match.groups()[1:])
    if match[1] == "save":
        return Write((family,), place, "mark", line, Bits(of_packet), is_of_connection=True)
    return Write((family,), place, "ct mark", line, Bits(ALL & ~of_packet, 0, of_connection))


def _of_objects(objects: t.Iterable[Entry]) -> t.Iterator[tuple[str, str, str, t.Any]]:
    """Yield table, chain, the kind of the mark and its value of each statement in the JSON of nft."""
    for rule in (entry["rule"] for entry in objects if "rule" in entry):
        expressions = rule.get("expr")
        for statement in expressions if isinstance(expressions, list) else ():
            mangle = statement.get("mangle") if isinstance(statement, dict) else None
            if isinstance(mangle, dict) and mangle.get("key") in (PACKET, CONNECTION):
                mark = "ct" if mangle["key"] == CONNECTION else "meta"
                yield f"{rule.get('family')} {rule.get('table')}", str(rule.get("chain")), mark, mangle.get("value")


def _of_listing(text: str) -> t.Iterator[tuple[str, str, str, t.Any]]:
    """Yield the same of a listing of nft."""
    table = chain = ""
    for line in text.splitlines():
        header, block, statement = _TABLE.match(line.strip()), _CHAIN.match(line.strip()), _OF_NFT.search(line)
        if header:
            table = f"{header[1] or 'ip'} {header[2]}"
        elif block:
            chain = block[1]
        elif statement:
            yield table, chain, statement[1], _parsed(statement[2])


def _parsed(text: str) -> t.Any:
    """Return an expression, which a listing has, as the JSON of nft has it; None for one that is not of marks and numbers."""
    match = _OPERAND.match(text)
    value = _operand(match) if match else None
    while match:
        text = text[match.end() :].lstrip()
        operator, _blank, text = text.partition(" ")
        match = _OPERAND.match(text) if operator in OPERATORS else None
        if match:
            value = {OPERATORS[operator]: [value, _operand(match)]}
    return value


def _operand(match: re.Match[str]) -> t.Any:
    return int(match[3], 0) if match[3] else PACKET if match[1] else CONNECTION


def words(value: t.Any) -> str:
    """Return an expression as nft prints it; the word "value" for one that is not of marks and numbers."""
    if isinstance(value, int):
        return f"{value:#x}"
    if value in (PACKET, CONNECTION):
        return "ct mark" if value == CONNECTION else "meta mark"
    operator, operands = _operation(value)
    return f" {operator} ".join(map(words, operands)) if operator else "value"


def _bits(value: t.Any) -> Bits:
    """Return what an expression leaves of a mark. One that is not of marks and numbers may have each bit."""
    if isinstance(value, int):
        return Bits(constant=value & ALL)
    if value in (PACKET, CONNECTION):
        return Bits(restored=ALL) if value == CONNECTION else Bits(kept=ALL)
    operator, operands = _operation(value)
    parts = [*map(_bits, operands)] or [Bits(constant=ALL)]
    if operator == "&":
        mask = functools.reduce(int.__and__, (functools.reduce(int.__or__, part) for part in parts[1:]), ALL)
        return Bits(*(bits & mask for bits in parts[0]))
    return Bits(*(functools.reduce(int.__or__, numbers) for numbers in zip(*parts)))


def _operation(value: t.Any) -> tuple[str, list[t.Any]]:
    """Return the operator and the operands of an expression; nothing for one of another kind."""
    if isinstance(value, dict) and len(value) == 1:
        ((operator, operands),) = value.items()
        if operator in OPERATORS and isinstance(operands, list):
            return operator, operands
    return "", []
