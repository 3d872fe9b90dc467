# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""nft's JSON objects, reduced to those that the packets of a trace can reach."""

from __future__ import annotations

import typing as t

from .reachable import ADDRESS, OTHER, PORT, PROTOCOL, Chain, Element, Reach, Rule, Table, packed

Entry = t.Mapping[str, t.Any]
Place = tuple[str, str]  # family and name of a table
# Statements that change neither the addresses nor the ports of a packet.
HARMLESS = frozenset(
    (
        "accept", "continue", "counter", "ct count", "ct timeout", "drop", "dup", "flow", "fwd", "goto", "jump", "last", "limit",
        "log", "masquerade", "queue", "quota", "reject", "return", "secmark", "set", "synproxy", "tproxy",
    )
)  # fmt: skip
HARMLESS_KEYS = frozenset(("meta", "exthdr", "ip option", "tcp option"))  # of a packet, which statements set
ADDRESSES, PORTS = ("saddr", "daddr"), ("sport", "dport")
HEADERS, TRANSPORT_HEADERS = ("ip", "ip6"), ("th", "tcp", "udp", "sctp", "dccp")
_OPEN = Rule(is_open=True)


def tables(objects: t.Sequence[Entry]) -> dict[Place, Table] | None:
    """Return the tables of nft's objects; None if an object could add to what the others show."""
    result: dict[Place, Table] = {}
    for kind, body in _bodies(objects):
        if kind == "element":
            return None
        place = _place(kind, body)
        table = result.setdefault(place, Table({}, {}, _rule))
        chains, maps = t.cast("dict[str, Chain]", table.chains), t.cast("dict[str, t.Any]", table.maps)
        if kind == "chain":
            rules = chains[_name(body)].rules if _name(body) in chains else []
            chains[_name(body)] = Chain("hook" in body, body.get("type") == "nat", rules)
        elif kind == "rule":
            chains.setdefault(str(body.get("chain")), Chain(False, False, [])).rules.append(body.get("expr"))
        elif kind == "map" and _has_verdicts(body):
            maps[_name(body)] = [*map(_element, body.get("elem") or ())]
    return result


def reduced(objects: t.Sequence[Entry], places: t.Sequence[Place], reach: Reach) -> list[Entry]:
    """Return the objects that can be reached. places: of the first tables of the reach."""
    numbers = {place: number for number, place in enumerate(places)}
    remaining = list[Entry]()
    for kind, body in _bodies(objects):
        number = numbers[_place(kind, body)]
        name = _name(body) if kind != "rule" else str(body.get("chain"))
        if kind in ("chain", "rule"):
            is_reached = name in reach.chains[number]
        else:
            is_reached = kind not in ("set", "map") or name in reach.sets[number]
        if is_reached:
            is_searched = kind == "map" and _has_verdicts(body)
            remaining.append({kind: _with(body, reach.elements[number].get(name, ())) if is_searched else body})
    return remaining


def _bodies(objects: t.Iterable[Entry]) -> t.Iterator[tuple[str, Entry]]:
    return ((kind, body) for entry in objects for kind, body in entry.items())


def _has_verdicts(body: Entry) -> bool:
    return body.get("map") == "verdict"


def _name(body: Entry) -> str:
    return str(body.get("name"))


def _place(kind: str, body: Entry) -> Place:
    return str(body.get("family")), str(body.get("name" if kind == "table" else "table"))


def _with(body: Entry, places: t.Collection[int]) -> Entry:
    """Return a map with some of its elements. nft takes no empty list of them."""
    remaining = [element for place, element in enumerate(body.get("elem") or ()) if place in places]
    return {**{key: value for key, value in body.items() if key != "elem"}, **({"elem": remaining} if remaining else {})}


def _element(entry: t.Any) -> Element:
    key, verdict = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
    if isinstance(key, dict) and isinstance(key.get("elem"), dict):
        key = key["elem"].get("val")
    parts = key.get("concat", [key]) if isinstance(key, dict) else [key]
    return Element(tuple(map(_text, parts if isinstance(parts, list) else [parts])), "".join(_targets(verdict)))


def _text(value: t.Any) -> str:
    return str(value) if isinstance(value, (str, int)) else ""


def _targets(part: t.Any) -> t.Iterator[str]:
    """Yield the chains to which a part of a rule may lead."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in ("jump", "goto"):
                yield str(value.get("target")) if isinstance(value, dict) else ""
            else:
                yield from _targets(value)
    elif isinstance(part, list):
        for inner in part:
            yield from _targets(inner)


def _sets(part: t.Any) -> t.Iterator[str]:
    """Yield the names of the sets and maps that a part of a rule has."""
    if isinstance(part, str):
        if part.startswith("@"):
            yield part[1:]
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _sets(inner)


def _rule(expressions: t.Any) -> Rule:
    if not isinstance(expressions, list) or not all(
        isinstance(statement, dict) and len(statement) == 1 for statement in expressions
    ):
        return _OPEN
    effects = [_effect(*item) for statement in expressions for item in statement.items()]
    return Rule(
        (),
        tuple(_targets(expressions)),
        tuple(lookup for effect in effects for lookup in effect.lookups),
        tuple(_sets(expressions)),
        tuple(address for effect in effects for address in effect.addresses),
        tuple(port for effect in effects for port in effect.ports),
        any(effect.is_new for effect in effects),
        any(effect.is_untracked for effect in effects),
        any(effect.is_open for effect in effects),
    )


def _effect(kind: str, body: t.Any) -> Rule:
    if kind == "match":
        return Rule(is_new=_is_new(body))
    if kind in HARMLESS:
        return Rule()
    if kind == "notrack":
        return Rule(is_untracked=True)
    if kind == "vmap":
        data = body.get("data") if isinstance(body, dict) else None
        return Rule(lookups=((data[1:], _kinds(body.get("key"))),)) if isinstance(data, str) else Rule()
    if kind in ("dnat", "snat", "redirect"):
        return _translation(body or {})
    return _mangled(body) if kind == "mangle" else _OPEN


def _is_new(match: t.Any) -> bool:
    is_state = isinstance(match, dict) and match.get("left") == {"ct": {"key": "state"}} and match.get("op") in ("in", "==")
    return is_state and match.get("right") in ("new", ["new"])


def _translation(body: t.Any) -> Rule:
    address, port = (body.get("addr"), body.get("port")) if isinstance(body, dict) else ({}, {})
    target = packed(address) if isinstance(address, str) else b""
    if (address is not None and not target) or not isinstance(port, (int, type(None))):
        return _OPEN
    return Rule(addresses=(target,) if target else (), ports=() if port is None else (str(port),))


def _mangled(body: t.Any) -> Rule:
    key, value = (body.get("key"), body.get("value")) if isinstance(body, dict) else (None, None)
    if not isinstance(key, dict):
        return _OPEN
    if HARMLESS_KEYS & {*key}:
        return Rule()
    if "ct" in key:
        return Rule(is_untracked=isinstance(key["ct"], dict) and key["ct"].get("key") == "zone")
    payload = key.get("payload")
    if not isinstance(payload, dict) or "field" not in payload:
        return _OPEN
    if payload["field"] in ADDRESSES and payload.get("protocol") in HEADERS:
        return _translation({"addr": value if isinstance(value, str) else {}})
    return _translation({"port": value}) if payload["field"] in PORTS else Rule()


def _kinds(key: t.Any) -> tuple[str, ...]:
    """Return the kinds of the parts of a key; OTHER for one that is not understood."""
    parts = key.get("concat", [key]) if isinstance(key, dict) else []
    return tuple(map(_kind, parts)) if isinstance(parts, list) else ()


def _kind(part: t.Any) -> str:
    if part == {"meta": {"key": "l4proto"}}:
        return PROTOCOL
    payload = part.get("payload") if isinstance(part, dict) and len(part) == 1 else None
    if not isinstance(payload, dict) or payload.keys() != {"protocol", "field"}:
        return OTHER
    protocol, field = payload["protocol"], payload["field"]
    if protocol in HEADERS and field in ADDRESSES:
        return ADDRESS
    return PORT if protocol in TRANSPORT_HEADERS and field == "dport" else OTHER
