# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The JSON of nft (libnftables-json(5)) as tables. What is not understood has no values, and is no error."""

from __future__ import annotations

import typing as t

from .._core import memo
from . import ruleset
from .ruleset import Bits, Chain, Element, Listed, Match, Rule, Selection, Statement, Table, combined, listed, operand

Entry = t.Mapping[str, t.Any]
Place = tuple[str, str]  # family and name of a table
_BARE = ("iif", "iifname", "iifgroup", "iiftype", "oif", "oifname", "oifgroup", "oiftype")  # that nft lists without "meta"
_LOOKUPS = {ruleset.VMAP: "data", "set": "set"}  # the keys with the set that a statement uses
_OPTIONS = ("tcp option", "ip option", "sctp chunk", "dccp option")
_OPERATORS = ("&", "|", "^")
_NEGATED = "!="
_EQUAL = ("==", "in", _NEGATED)
_PORTS = ("sport", "dport")
_WORDS = {True: "exists", False: "missing"}


@memo.of_part
def tables(objects: t.Iterable[Entry]) -> t.Sequence[Table]:
    """Return the tables of a listing, in its order. What is no object is left out."""
    places: dict[Place, None] = {}
    rules: dict[Place, dict[str, list[Entry]]] = {}
    bases: dict[Place, dict[str, Chain]] = {}
    sets: dict[Place, dict[str, t.Sequence[Element]]] = {}
    asleep = set[Place]()
    for kind, body in _bodies(objects):
        place, name = place_of(kind, body), str(body.get("name"))
        places.setdefault(place)
        if kind == "table" and ruleset.DORMANT in flags(body):
            asleep.add(place)
        elif kind == "chain":
            hook, chain_type, policy = (str(body.get(key) or "") for key in ("hook", "type", "policy"))
            bases.setdefault(place, {})[name] = Chain(hook, chain_type, policy, devices=tuple(map(str, devices(body))))
        elif kind == "rule":
            rules.setdefault(place, {}).setdefault(str(body.get("chain")), []).append(body)
        elif kind in ("set", "map"):
            sets.setdefault(place, {})[name] = Listed(_element, listed(body.get("elem")))
    return [
        Table(
            *place,
            chains=_chains(bases.get(place, {}), rules.get(place, {})),
            sets=sets.get(place, {}),
            is_dormant=place in asleep,
        )
        for place in places
    ]


def dormant(objects: t.Iterable[Entry]) -> set[Place]:
    """Return the tables whose chains no packet meets."""
    return {place_of(kind, body) for kind, body in _bodies(objects) if kind == "table" and ruleset.DORMANT in flags(body)}


def flags(body: Entry) -> list[t.Any]:
    """Return the flags of a table or set."""
    return _several(body.get("flags"))


def devices(chain: Entry) -> list[t.Any]:
    """Return the links of a chain at ingress or egress."""
    return _several(chain.get("dev"))


def _several(value: t.Any) -> list[t.Any]:
    """Return values of which nft prints a single one alone, and not in a list."""
    return [value] if isinstance(value, str) else listed(value)


def _chains(bases: t.Mapping[str, Chain], rules: t.Mapping[str, list[Entry]]) -> dict[str, Chain]:
    return {name: bases.get(name, Chain())._replace(rules=Listed(_rule, rules.get(name, ()))) for name in {**bases, **rules}}


def _bodies(objects: t.Iterable[Entry]) -> t.Iterator[tuple[str, t.Any]]:
    listing = (entry for entry in objects if isinstance(entry, dict))
    return ((kind, body) for entry in listing for kind, body in entry.items() if isinstance(body, dict))


def place_of(kind: str, body: Entry) -> Place:
    return str(body.get("family")), str(body.get("name" if kind == "table" else "table"))


@memo.of_part
def is_complete(objects: t.Iterable[Entry]) -> bool:
    """Return whether no object adds elements to a set that stands elsewhere in the listing."""
    return not any("element" in entry for entry in objects)


@memo.of_part
def _placed(objects: t.Iterable[Entry]) -> list[tuple[str, t.Any, Place, str]]:
    """Return of each object its kind, itself, its table, and the name of itself or of the chain that it is in."""
    return [
        (kind, body, place_of(kind, body), str(body.get("chain" if kind == "rule" else "name")))
        for kind, body in _bodies(objects)
    ]


def select(objects: t.Iterable[Entry], selections: t.Mapping[Place, Selection]) -> list[Entry]:
    """Return the objects of selected chains and sets, and all others. selections: by family and name of a table."""
    remaining = list[Entry]()
    for kind, body, place, name in _placed(objects):
        selection = selections[place]
        names = selection.chains if kind in ("chain", "rule") else selection.sets
        if kind in ("chain", "rule", "set", "map") and name not in names:
            continue
        is_searched = kind == "map" and body.get("map") == "verdict"
        remaining.append({kind: _with(body, selection.elements.get(name, ())) if is_searched else body})
    return remaining


def _with(body: Entry, places: t.Container[int]) -> Entry:
    """Return a map with some of its elements. nft takes no empty list of them."""
    remaining = [element for place, element in enumerate(listed(body.get("elem"))) if place in places]
    return {**{key: value for key, value in body.items() if key != "elem"}, **({"elem": remaining} if remaining else {})}


def counted(objects: t.Iterable[Entry]) -> dict[Place, tuple[dict[str, int], dict[str, str], int]]:
    """Return of each table the number of rules by chain, the policies of base chains, and the number of jumps."""
    rules: dict[Place, dict[str, int]] = {}
    policies: dict[Place, dict[str, str]] = {}
    jumps: dict[Place, int] = {}
    for kind, body in _bodies(objects):
        if kind not in ("chain", "rule", "map"):
            continue
        place = place_of(kind, body)
        of_table = rules.setdefault(place, {})
        if kind == "chain":
            of_table.setdefault(body["name"], 0)
            policies.setdefault(place, {})[body["name"]] = body.get("policy") or ""
        elif kind == "rule":
            of_table[body["chain"]] = of_table.get(body["chain"], 0) + 1
            jumps[place] = jumps.get(place, 0) + _jumps(body.get("expr"))
        else:
            jumps[place] = jumps.get(place, 0) + _jumps(body.get("elem"))
    return {place: (of_table, policies.get(place, {}), jumps.get(place, 0)) for place, of_table in rules.items()}


def sizes(objects: t.Iterable[Entry]) -> dict[tuple[str, str, str], int]:
    """Return the number of elements of each set and map that has a name, by family, table and name."""
    return {
        (*place_of(kind, body), str(body.get("name"))): len(listed(body.get("elem")))
        for kind, body in _bodies(objects)
        if kind in ("set", "map")
    }


def _jumps(part: t.Any) -> int:
    """Return the number of jumps in the statements of a rule, or in the elements of a map: ``[[KEY, {"jump": ...}], ...]``."""
    count = 0
    for entry in listed(part):
        if isinstance(entry, list):
            entry = entry[-1]
        if isinstance(entry, dict):
            lookup = entry.get(ruleset.VMAP)
            data = lookup.get("data") if isinstance(lookup, dict) else None
            count += (ruleset.JUMP in entry) + (ruleset.GOTO in entry)
            count += _jumps(data.get("set")) if isinstance(data, dict) else 0
    return count


def is_within(entry: Entry, outer: Entry, is_table: bool) -> bool:
    """Return whether an object goes with another one: with a table, or with a chain whose rule it is.

    is_table: whether it goes with the table of the other one.
    """
    ((kind, body),), ((outer_kind, outer_body),) = entry.items(), outer.items()
    if is_table or outer_kind == "table":
        return place_of(kind, body) == place_of(outer_kind, outer_body)
    is_rule = (kind, outer_kind) == ("rule", "chain") and body.get("chain") == outer_body.get("name")
    return is_rule and place_of(kind, body) == place_of(outer_kind, outer_body)


def is_of_iptables(body: t.Mapping[str, t.Any]) -> bool:
    """Return whether a rule has an extension of iptables, of which nft shows the name alone."""
    return any("xt" in statement for statement in body["expr"])


def _rule(body: Entry) -> Rule:
    matches, statements = list[Match](), list[Statement]()
    for entry in listed(body.get("expr")):
        for kind, value in entry.items() if isinstance(entry, dict) else (("", None),):
            if kind == "match":
                matches += _matches(value)
            else:
                statements.append(_statement(kind, value))
    sets = tuple(dict.fromkeys(_sets(body.get("expr"))))
    return Rule(str(body.get("chain")), tuple(matches), tuple(statements), str(body.get("comment") or ""), "", sets)


def _sets(part: t.Any) -> t.Iterator[str]:
    """Yield the names of the sets and maps that a part of a rule has."""
    if isinstance(part, str):
        if part.startswith("@"):
            yield part[1:]
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _sets(inner)


def _matches(body: t.Any) -> t.Iterator[Match]:
    """Yield a match, after that of the transport protocol that its field implies."""
    if not isinstance(body, dict):
        return
    left, mask = body.get("left"), ""
    if isinstance(left, dict) and isinstance(left.get("&"), list) and len(left["&"]) == 2:
        left, masked = left["&"]
        mask = "/" + ",".join(_values(masked))
    payload = left.get("payload") if isinstance(left, dict) else None
    if isinstance(payload, dict) and payload.get("protocol") in ruleset.TRANSPORTS and "tunnel" not in payload:
        yield Match(ruleset.PROTOCOL, (str(payload["protocol"]),))
    is_equal = body.get("op") in _EQUAL
    values = tuple(f"{value}{mask}" for value in _values(body.get("right"))) if is_equal else ()
    yield Match(_field(left), values, body.get("op") == _NEGATED)


def _statement(kind: str, body: t.Any) -> Statement:
    details = body if isinstance(body, dict) else {}
    if kind == "mangle":
        field, value = _field(details.get("key")), details.get("value")
        is_mark = field in (ruleset.PACKET_MARK, ruleset.CONNECTION_MARK)
        return Statement(field, words(value) if is_mark else " ".join(_values(value)), _bits(value) if is_mark else None)
    if kind in _LOOKUPS:
        name = details.get(_LOOKUPS[kind])
        elements = tuple(map(_element, listed(name.get("set")))) if kind == ruleset.VMAP and isinstance(name, dict) else ()
        key = _field(details.get("key")) if kind == ruleset.VMAP else ""
        return Statement(kind, name if isinstance(name, str) else "", None, key, elements)
    if "target" in details:
        return Statement(kind, str(details["target"]))
    address, port = (_translated(details.get(key)) for key in ("addr", "port"))
    address = f"[{address}]" if ":" in address and port else address
    return Statement(kind, f"{address}:{port}" if port else address)


def _translated(expression: t.Any) -> str:
    return "" if expression is None else ",".join(_values(expression)) or ruleset.UNREAD


def _element(entry: t.Any) -> Element:
    key, verdict = entry if isinstance(entry, list) and len(entry) == 2 else (entry, None)
    about = key.get("elem") if isinstance(key, dict) else None
    about = about if isinstance(about, dict) else {"val": key}
    value = about.get("val")
    parts = value.get("concat", [value]) if isinstance(value, dict) else [value]
    statement = next((_statement(*item) for item in verdict.items()), None) if isinstance(verdict, dict) else None
    return Element(tuple(" ".join(_values(part)) for part in listed(parts)), statement, str(about.get("comment") or ""))


def _field(expression: t.Any) -> str:
    """Return the name of a field as nft lists it; empty for an expression that is none."""
    if not isinstance(expression, dict) or len(expression) != 1:
        return ""
    ((kind, body),) = expression.items()
    if kind == "concat":
        return " . ".join(map(_field, listed(body)))
    if not isinstance(body, dict):
        return ""
    if kind == "payload" and "base" in body:
        return f"@{body['base']},{body.get('offset')},{body.get('len')}"
    if kind == "payload":
        protocol, field = str(body.get("protocol")), str(body.get("field"))
        header = "th" if protocol in ruleset.TRANSPORTS and field in _PORTS and "tunnel" not in body else protocol
        return f"{body['tunnel']} {header} {field}" if "tunnel" in body else f"{header} {field}"
    if kind == "numgen":
        offset = f" offset {body['offset']}" if body.get("offset") else ""
        return f"numgen {body.get('mode')} mod {body.get('mod')}{offset}"
    if kind in _OPTIONS:
        return " ".join([kind, *(str(body[key]) for key in ("name", "field") if key in body)])
    if kind == "fib":
        return f"fib {' . '.join(map(str, listed(body.get('flags'))))} {body.get('result')}"
    key = str(body.get("key"))
    direction = f"{body['dir']} " if kind == "ct" and "dir" in body else ""
    return key if key in _BARE else f"{kind} {direction}{key}"


def _values(expression: t.Any) -> list[str]:
    """Return the values that an expression stands for; none for one that is not understood."""
    if isinstance(expression, bool):
        return [_WORDS[expression]]
    if isinstance(expression, (str, int)):
        return [str(expression)]
    if isinstance(expression, list):
        return [value for each in expression for value in _values(each)]
    if not isinstance(expression, dict) or len(expression) != 1:
        return []
    ((kind, body),) = expression.items()
    if kind == "prefix" and isinstance(body, dict):
        return [f"{body.get('addr')}/{body.get('len')}"]
    if kind == "range" and isinstance(body, list):
        return ["-".join(map(str, body))]
    if kind == "concat":
        return [" . ".join(value for each in listed(body) for value in _values(each))]
    if kind == "elem" and isinstance(body, dict):
        return _values(body.get("val"))
    return _values(body) if kind == "set" else []


def _bits(expression: t.Any) -> Bits:
    operator, operands = _operation(expression)
    return combined(operator, [*map(_bits, operands)]) if operator else operand(_field(expression) or expression)


def words(expression: t.Any) -> str:
    """Return an expression of marks and numbers as nft prints it; the word "value" for another one."""
    operator, operands = _operation(expression)
    if operator:
        return f" {operator} ".join(map(words, operands))
    return f"{expression:#x}" if isinstance(expression, int) else _field(expression) or ruleset.UNREAD


def _operation(expression: t.Any) -> tuple[str, list[t.Any]]:
    """Return the operator and the operands of an expression; nothing for one of another kind."""
    if isinstance(expression, dict) and len(expression) == 1:
        ((operator, operands),) = expression.items()
        if operator in _OPERATORS and isinstance(operands, list) and operands:
            return operator, operands
    return "", []
