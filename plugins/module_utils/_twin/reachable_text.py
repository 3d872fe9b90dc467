# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A text for nft, reduced to what the packets of a trace can reach. The text has the form in which nft lists a ruleset."""

from __future__ import annotations

import re
import typing as t

from .reachable import ADDRESS, OTHER, PORT, PROTOCOL, Chain, Element, Reach, Rule, Table, packed

_TABLE = re.compile(r"table (\S+ \S+) \{")
_BLOCK = re.compile(r"(\w+(?: \w+)?) (\S+) \{")
_BASE = re.compile(r"type (\w+) hook ")
_TEXT = re.compile(r'"[^"]*"')
_ELEMENT = re.compile(r'(?:"[^"]*"|[^,"])+')
_BEHIND_KEY = re.compile(r" (?:comment|timeout|expires|counter|limit|quota|last)\b.*")
_ELEMENTS = "elements = {"
_NEW = re.compile(r"\bct state new(?! ,)")
_TARGET = re.compile(r"\b(?:jump|goto) (\S+)")
_SET = re.compile(r"@ ?(\S+)")
_LOOKUP = re.compile(r"\bvmap @ ?(\S+)")
_HEADERS = "th|tcp|udp|sctp|dccp"
_PART = rf"(?:ip6? [sd]addr|meta l4proto|(?:{_HEADERS}) [sd]port)"
_KEY = re.compile(rf"(?:^| )({_PART}(?: \. {_PART})*) vmap @ ?(\S+)")
# Words before a field that make it another field: of an outer packet, of a connection, or a part of a longer key.
_OTHER_FIELD = re.compile(r"(?:\b(?:ipsec|vxlan|geneve|gre|gretap|original|reply|rt|socket|fib)\b|[.&|^]) .*vmap @")
_TO = re.compile(r"[sd]nat (?:ip6? )?to (?:\[([\da-f:]+)\]|([\d.]+)|([\da-f]*:[\da-f:]*))(?: ?: ?(\d+))?(?= |$)(?! [^rfpc])")
_REDIRECT = re.compile(r"(?<!type )\bredirect(?: to : (\d+))?(?= |$)(?! [^rfpc])")
_ADDRESS = re.compile(r"\bip6? [sd]addr set (\S+)(?= |$)(?! [^c])")
_PORT = re.compile(rf"\b(?:{_HEADERS}) [sd]port set (\d+)(?= |$)(?! [^c])")
# All statements that translate. Behind an operator, the same words are values of a connection's status or of a type of ICMP.
_TRANSLATING = re.compile(
    r"(?<![-,.:|&({=<>!] )(?<!\bstatus )(?<!\btype )(?<!\b(?:jump|goto) )(?<!\S)(?:[sd]nat|redirect)(?!\S)"
    r"|(?<!ether )\b[sd]addr set\b|\b[sd]port set\b|@ ?(?:nh|th|ih) ?,.* set\b"
)
_UNTRACKING = re.compile(r"\bnotrack\b|\bzone set\b")


class _Block(t.NamedTuple):
    """A part of a table, with the places of its first and its last line. kind: such as chain."""

    kind: str
    name: str
    first: int
    last: int


def tables(text: str) -> list[Table] | None:
    """Return the tables of a text that was read word for word; None if it has another form than a listing."""
    lines = [line.strip() for line in text.split("\n")]
    blocks = _blocks(lines)
    if blocks is None:
        return None
    result = []
    for parts in blocks.values():
        bodies = {(block.kind, block.name): lines[block.first + 1 : block.last] for block in parts}
        chains = {name: _chain(body) for (kind, name), body in bodies.items() if kind == "chain"}
        maps = {name: [*map(_element, _elements(body))] for (kind, name), body in bodies.items() if kind == "map"}
        result.append(Table(chains, maps, _rule))
    return result


def reduced(text: str, first: int, reach: Reach) -> str:
    """Return the lines that can be reached. first: number of the first table of the text in the reach."""
    lines = [line.strip() for line in text.split("\n")]
    remaining, place = list[str](), 0
    for number, parts in enumerate((_blocks(lines) or {}).values(), first):
        for block in parts:
            remaining += lines[place : block.first]
            place = block.last + 1
            body = lines[block.first : place]
            if block.kind == "map" and any(line.startswith("type") and line.endswith(" : verdict") for line in body):
                body = _with(body, reach.elements[number].get(block.name, ()))
            known = reach.chains[number] if block.kind == "chain" else reach.sets[number]
            remaining += body if block.kind not in ("chain", "set", "map") or block.name in known else []
    return "\n".join([*remaining, *lines[place:]])


def _blocks(lines: t.Sequence[str]) -> dict[str, list[_Block]] | None:
    """Return the blocks of each table; None if the lines have another form than a listing, or two parts of one name."""
    result: dict[str, list[_Block]] = {}
    names, name = set[tuple[str, ...]](), ""
    ends = [place for place, line in enumerate(lines) if line == "}"]
    place, end = 0, 0
    while place < len(lines):
        line = lines[place]
        table, block = _TABLE.fullmatch(line), _BLOCK.fullmatch(line)
        end += end < len(ends) and ends[end] < place
        if not name and table and table[1] not in result:
            name = table[1]
            result[name] = []
        elif name and line == "}":
            name = ""
        elif name and block and end < len(ends) and (name, *block.groups()) not in names:
            names.add((name, *block.groups()))
            result[name].append(_Block(block[1], block[2], place, ends[end]))
            if not _is_balanced(lines[place + 1 : ends[end]]):
                return None
            place = ends[end]
        elif line and (not name or {"{", "}"} & {*_TEXT.sub("", line)}):
            return None
        place += 1
    return None if name else result


def _is_balanced(body: t.Sequence[str]) -> bool:
    depth = 0
    for line in body:
        text = _TEXT.sub("", line)
        depth += text.count("{") - text.count("}")
        if depth < 0:
            return False
    return not depth


def _chain(body: t.Sequence[str]) -> Chain:
    base = next(filter(None, map(_BASE.match, body)), None)
    statements, depth = list[str](), 0
    for line in body:
        if depth:
            statements[-1] += f" {line}"
        elif line and not _BASE.match(line):
            statements.append(line)
        depth += line.count("{") - line.count("}")
    return Chain(base is not None, base is not None and base[1] == "nat", statements)


def _elements(body: t.Sequence[str]) -> list[str]:
    """Return the elements in the body of a map."""
    first, behind = _span(body)
    text = " ".join(body[first:behind])[len(_ELEMENTS) :].rpartition("}")[0]
    return [element.strip() for element in _ELEMENT.findall(text) if element.strip()]


def _span(body: t.Sequence[str]) -> tuple[int, int]:
    """Return the places of the first line with elements and of the line behind the last; twice the end if there are none."""
    first = next((place for place, line in enumerate(body) if line.startswith(_ELEMENTS)), len(body))
    last = next((place for place in range(first, len(body)) if _TEXT.sub("", body[place]).endswith("}")), len(body))
    return first, last + 1 if last < len(body) else last


def _element(text: str) -> Element:
    key, _colon, verdict = text.rpartition(" : ")
    target = _TARGET.match(verdict)
    return Element(tuple(_BEHIND_KEY.sub("", key).split(" . ")), target[1] if target else "")


def _with(block: t.Sequence[str], places: t.Collection[int]) -> list[str]:
    """Return the lines of a map with some of its elements."""
    body = block[1:-1]
    first, behind = _span(body)
    remaining = [element for place, element in enumerate(_elements(body)) if place in places]
    lines = [_ELEMENTS, *(f"{element} ," for element in remaining[:-1]), f"{remaining[-1]} }}"] if remaining else []
    return [block[0], *body[:first], *lines, *body[behind:], block[-1]]


def _rule(statement: str) -> Rule:
    text = _TEXT.sub('""', statement)
    effect = _translation(text) if _TRANSLATING.search(text) else Rule()
    keys = {} if _OTHER_FIELD.search(_KEY.sub(" vmap @", text)) else {name: _kinds(key) for key, name in _KEY.findall(text)}
    return effect._replace(
        jumps=tuple(_TARGET.findall(text)),
        lookups=tuple((name, keys.get(name, ())) for name in _LOOKUP.findall(text)),
        sets=tuple(_SET.findall(text)),
        is_new=bool(_NEW.search(text)),
        is_untracked=bool(_UNTRACKING.search(text)),
        is_open=effect.is_open or " ; " in text,
    )


def _translation(text: str) -> Rule:
    targets = [*_TO.finditer(text)]
    addresses = [packed(to[1] or to[2] or to[3]) for to in targets] + [packed(address) for address in _ADDRESS.findall(text)]
    ports = [*(to[4] for to in targets), *_REDIRECT.findall(text), *_PORT.findall(text)]
    for pattern in (_TO, _REDIRECT, _ADDRESS, _PORT):
        text = pattern.sub("counter", text)
    is_open = bool(_TRANSLATING.search(text)) or b"" in addresses
    return Rule(addresses=tuple(addresses), ports=tuple(filter(None, ports)), is_open=is_open)


def _kinds(key: str) -> tuple[str, ...]:
    return tuple(map(_kind, key.split(" . ")))


def _kind(part: str) -> str:
    if part == "meta l4proto":
        return PROTOCOL
    return ADDRESS if part.endswith("addr") else PORT if part.endswith("dport") else OTHER
