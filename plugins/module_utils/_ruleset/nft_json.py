# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The JSON of nft (libnftables-json(5)) as tables. What is not understood has no values, and is no error."""

from __future__ import annotations

import typing as t

from .ruleset import (
    CONNECTION_MARK,
    PACKET_MARK,
    PROTOCOL,
    TRANSPORTS,
    VMAP,
    Bits,
    Chain,
    Element,
    Match,
    Rule,
    Statement,
    Table,
    combined,
    listed,
    operand,
    table,
)

_BARE = ("iif", "iifname", "iifgroup", "iiftype", "oif", "oifname", "oifgroup", "oiftype")  # that nft lists without "meta"
_LOOKUPS = {VMAP: "data", "set": "set"}  # the keys with the set that a statement uses
_OPERATORS = ("&", "|", "^")
_NEGATED = "!="
_PORTS = ("sport", "dport")
_WORDS = {True: "exists", False: "missing"}


def tables(objects: t.Iterable[t.Mapping[str, t.Any]]) -> list[Table]:
    """Return the tables of a listing, in its order."""
    names: dict[tuple[str, str], None] = {}
    rules: dict[tuple[str, str], list[Rule]] = {}
    chains: dict[tuple[str, str], dict[str, Chain]] = {}
    sets: dict[tuple[str, str], dict[str, tuple[Element, ...]]] = {}
    for kind, body in (item for entry in objects for item in entry.items()):
        if not isinstance(body, dict):
            continue
        place = str(body.get("family")), str(body.get("name" if kind == "table" else "table"))
        names.setdefault(place)
        if kind == "chain":
            hook, chain_type, policy = (str(body.get(key) or "") for key in ("hook", "type", "policy"))
            chains.setdefault(place, {})[str(body.get("name"))] = Chain(hook, chain_type, policy)
        elif kind == "rule":
            rules.setdefault(place, []).append(_rule(body))
        elif kind in ("set", "map"):
            sets.setdefault(place, {})[str(body.get("name"))] = tuple(map(_element, listed(body.get("elem"))))
    return [table(*place, rules.get(place, ()), chains.get(place, {}), sets.get(place, {})) for place in names]


def is_of_iptables(body: t.Mapping[str, t.Any]) -> bool:
    """Return whether a rule has an extension of iptables, of which nft shows the name alone."""
    return any("xt" in statement for statement in body["expr"])


def _rule(body: t.Mapping[str, t.Any]) -> Rule:
    matches, statements = list[Match](), list[Statement]()
    for entry in listed(body.get("expr")):
        for kind, value in entry.items() if isinstance(entry, dict) else ():
            if kind == "match":
                matches += _matches(value)
            else:
                statements.append(_statement(kind, value))
    return Rule(str(body.get("chain")), tuple(matches), tuple(statements), str(body.get("comment") or ""))


def _matches(body: t.Any) -> t.Iterator[Match]:
    """Yield a match, after that of the transport protocol that its field implies."""
    if not isinstance(body, dict):
        return
    left, mask = body.get("left"), ""
    if isinstance(left, dict) and isinstance(left.get("&"), list) and len(left["&"]) == 2:
        left, masked = left["&"]
        mask = "/" + ",".join(_values(masked))
    payload = left.get("payload") if isinstance(left, dict) else None
    if isinstance(payload, dict) and payload.get("protocol") in TRANSPORTS:
        yield Match(PROTOCOL, (str(payload["protocol"]),))
    values = tuple(f"{value}{mask}" for value in _values(body.get("right")))
    yield Match(_field(left), values, body.get("op") == _NEGATED)


def _statement(kind: str, body: t.Any) -> Statement:
    details = body if isinstance(body, dict) else {}
    if kind == "mangle":
        field, value = _field(details.get("key")), details.get("value")
        is_mark = field in (PACKET_MARK, CONNECTION_MARK)
        return Statement(field, words(value) if is_mark else " ".join(_values(value)), _bits(value) if is_mark else None)
    if kind in _LOOKUPS:
        name = details.get(_LOOKUPS[kind])
        return Statement(kind, name if isinstance(name, str) else "")
    if "target" in details:
        return Statement(kind, str(details["target"]))
    address, port = (",".join(_values(details.get(key))) for key in ("addr", "port"))
    address = f"[{address}]" if ":" in address and port else address
    return Statement(kind, f"{address}:{port}" if port else address)


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
    if kind == "payload":
        protocol, field = str(body.get("protocol")), str(body.get("field"))
        return f"{'th' if protocol in TRANSPORTS and field in _PORTS else protocol} {field}"
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
    return f"{expression:#x}" if isinstance(expression, int) else _field(expression) or "value"


def _operation(expression: t.Any) -> tuple[str, list[t.Any]]:
    """Return the operator and the operands of an expression; nothing for one of another kind."""
    if isinstance(expression, dict) and len(expression) == 1:
        ((operator, operands),) = expression.items()
        if operator in _OPERATORS and isinstance(operands, list) and operands:
            return operator, operands
    return "", []
