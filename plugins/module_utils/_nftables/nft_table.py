# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An nftables table as a value, with its nft text and a parser for the JSON of ``nft -j list table``.

The parser knows only the statements that this collection's tables use. Everything else in a listing becomes ``Foreign``,
which equals no desired statement, so a rule that was added or altered always shows as a difference. Counter values,
handles, comments of rules and the order of a set's elements do not affect packets and are not part of the value.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import typing as t

# RFC 4861 section 4 (types) and nft's names for them. nft prints number or name, depending on its version and ``-n``.
ICMPV6_TYPES = {
    "nd-router-solicit": 133,
    "nd-router-advert": 134,
    "nd-neighbor-solicit": 135,
    "nd-neighbor-advert": 136,
    "nd-redirect": 137,
}
# include/uapi/linux/netfilter_ipv6.h: the hook priorities with a name in nft's listing of an ip6 table.
PRIORITY_NAMES = {-300: "raw", -150: "mangle", -100: "dstnat", 0: "filter", 50: "security", 100: "srcnat"}


# Named tuples, which Python creates in a fifth of the time of dataclasses. Named tuples of two classes are equal if their
# fields are equal; no two kinds of statements here have equal fields.


class Match(t.NamedTuple):
    """``expression`` (in nft's syntax, "ip6 saddr") equals one of ``values``, which are canonical and sorted.

    An expression that ends with "!=" equals none of them.
    """

    expression: str
    values: tuple[str, ...]

    def text(self) -> str:
        values = [_literal(self.expression, value) for value in self.values]
        if "&" in self.expression:
            return f"{self.expression} == {values[0]}"
        return f"{self.expression} {values[0]}" if len(values) == 1 else f"{self.expression} {{ {', '.join(values)} }}"


class VerdictMap(t.NamedTuple):
    """``expression`` equals the key of one of ``verdicts``, pairs that are sorted: its verdict. Otherwise the rule goes on."""

    expression: str
    verdicts: tuple[tuple[str, Verdict], ...]

    def text(self) -> str:
        elements = [f"{_literal(self.expression, key)} : {verdict.text()}" for key, verdict in self.verdicts]
        return f"{self.expression} vmap {{ {', '.join(elements)} }}"


class Mangle(t.NamedTuple):
    """Set ``expression`` to ``value``, a value or an expression. The kernel updates the checksum of a rewritten packet."""

    expression: str
    value: str

    def text(self) -> str:
        return f"{self.expression} set {self.value}"


class Counter(t.NamedTuple):
    """Counts packets and bytes. The counts are not part of the value."""

    word: str = "counter"

    def text(self) -> str:
        return self.word


class Verdict(t.NamedTuple):
    """Ends the evaluation of the chain: "accept", "drop", or "goto" and the name of a chain."""

    name: str

    def text(self) -> str:
        return self.name


class Foreign(t.NamedTuple):
    """A part of a listing that no desired table contains, kept as canonical JSON."""

    json: str

    def text(self) -> str:
        return f"# {self.json}"


# Expressions whose desired values may be prefixes.
PREFIXED = ("ip daddr", "ip6 daddr")

# A table flag such as "dormant". Which one is unknown: nft before 1.1 prints uninitialised memory for its name.
FLAGGED = Foreign('{"flags": true}')

# Stands for the content of a table that could not be read.
UNREAD = Foreign('{"unread": true}')

Statement = t.Union[Match, VerdictMap, Mangle, Counter, Verdict, Foreign]
Rule = tuple[Statement, ...]


class Chain(t.NamedTuple):
    """A chain with its rules in order. ``type``, ``hook`` and ``priority`` are None for a regular (not a base) chain."""

    name: str
    type: str | None
    hook: str | None
    priority: int | None
    rules: tuple[Rule, ...]
    policy: str = "accept"

    def text(self) -> str:
        priority = PRIORITY_NAMES.get(self.priority or 0, str(self.priority))
        lines = [f"type {self.type} hook {self.hook} priority {priority}; policy {self.policy};"] if self.hook else []
        lines += [" ".join(statement.text() for statement in rule) for rule in self.rules]
        return "".join([f"\tchain {self.name} {{\n", *(f"\t\t{line}\n" for line in lines), "\t}\n"])


class Table(t.NamedTuple):
    """A whole table. ``others``: its flags and named objects (sets, maps, flow tables); a desired table has none.

    comment: shows who made the table in a listing. All nft from 0.9.8 on know it.
    """

    family: str
    name: str
    chains: frozenset[Chain]
    others: frozenset[Foreign] = frozenset()
    comment: str = ""

    def text(self) -> str:
        """Return the table in nft's syntax and layout, base chains in the order in which a packet traverses them."""
        chains = sorted(self.chains, key=lambda chain: (HOOK_ORDER.index(chain.hook or ""), chain.name))
        comment = f'\tcomment "{self.comment}"\n\n' if self.comment else ""
        return f"table {self.family} {self.name} {{\n{comment}" + "\n".join(chain.text() for chain in chains) + "}\n"


HOOK_ORDER = ("ingress", "prerouting", "input", "forward", "output", "postrouting", "egress", "")


def replacement(family: str, name: str, table_text: str) -> str:
    """Return the script that replaces the kernel's table by ``table_text`` in one transaction. An empty text removes the table.

    The script declares the table, deletes it and declares it again. That works from nft 0.9.8 to 1.1, whether the table
    exists or not, and unlike ``flush table`` it changes hooks and priorities and removes chains. nft 1.0.6 and older do not
    know ``destroy``.
    """
    return f"table {family} {name} {{}}\ndelete table {family} {name}\n{table_text}"


def from_listing(listing: t.Any) -> Table:
    """Parse the JSON of ``nft -j list table``. Raises ValueError if it is not a listing of one table."""
    try:
        return _from_listing(listing)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"it is not a listing of a table ({type(error).__name__}: {error})") from error


def _from_listing(listing: t.Mapping[str, t.Any]) -> Table:
    objects = [item for entry in listing["nftables"] for item in entry.items()]
    tables = [body for kind, body in objects if kind == "table"]
    if len(tables) != 1:
        raise ValueError(f"the listing has {len(tables)} tables instead of one")
    rules: dict[str, list[Rule]] = {}
    for kind, body in objects:
        if kind == "rule":
            rules.setdefault(body["chain"], []).append(tuple(map(_statement, body.get("expr", ()))))
    chains = [_chain(body, tuple(rules.pop(body["name"], ()))) for kind, body in objects if kind == "chain"]
    foreign = [_foreign({kind: body}) for kind, body in objects if kind not in ("metainfo", "table", "chain", "rule")]
    foreign += [_foreign({"rules of": name}) for name in rules]  # rules whose chain is not listed
    foreign += [FLAGGED] if "flags" in tables[0] else []
    return Table(tables[0]["family"], tables[0]["name"], frozenset(chains), frozenset(foreign))


def _chain(body: t.Mapping[str, t.Any], rules: tuple[Rule, ...]) -> Chain:
    priority = body.get("prio")
    names = {name: number for number, name in PRIORITY_NAMES.items()}
    if isinstance(priority, str):
        priority = names[priority] if priority in names else int(priority)
    return Chain(body["name"], body.get("type"), body.get("hook"), priority, rules, body.get("policy", "accept"))


def _statement(body: t.Any) -> Statement:
    """Parse one statement of a rule's ``expr``. A statement of another kind or shape becomes Foreign."""
    try:
        return _own_statement(body) or _foreign(body)
    except (AttributeError, LookupError, TypeError, ValueError):
        return _foreign(body)


def _own_statement(body: t.Mapping[str, t.Any]) -> Statement | None:
    ((kind, value),) = body.items()
    if kind == "counter" and not isinstance(value, str):  # a string is the name of a counter object
        return Counter()
    if kind in ("accept", "drop"):
        return Verdict(kind)
    if kind == "goto":
        return Verdict(f"goto {value['target']}")
    if kind == "vmap":
        expression, elements = (
            _expression(value["key"]),
            [(key, _own_statement(element)) for key, element in value["data"]["set"]],
        )
        verdicts = [(key, verdict) for key, verdict in elements if isinstance(key, (str, int)) and isinstance(verdict, Verdict)]
        return verdict_map(expression, verdicts) if expression and verdicts == elements else None
    if kind == "match" and value["op"] in ("==", "in", "!="):
        expression, values = _comparison(value["left"], value["right"])
        if expression and values:
            return match(f"{expression} !=" if value["op"] == "!=" else expression, *values)
    if kind == "mangle":
        expression, values = _expression(value["key"]), _elements(value["value"])
        computed = _expression(value["value"])
        if expression and (computed or len(values) == 1):
            return Mangle(expression, computed or canonical(expression, values[0]))
    return None


def _comparison(left: t.Any, right: t.Any) -> tuple[str | None, list[str | int]]:
    """Return the two sides of a match. nft before 1.1 lists a mark's mask as a prefix if the mask has only leading ones."""
    expression = _expression(left)
    if expression and expression.endswith(" mark") and isinstance(right, dict) and set(right) == {"prefix"}:
        prefix = right["prefix"]
        return f"{expression} & {mark_text(2**32 - 2 ** (32 - prefix['len']))}", [prefix["addr"]]
    if isinstance(right, dict) and set(right) == {"prefix"}:
        return expression, [f"{right['prefix']['addr']}/{right['prefix']['len']}"]
    if expression in PREFIXED and isinstance(right, dict):
        return expression, _intervals(right)
    return expression, _elements(right)


def _expression(body: t.Any) -> str | None:
    """Render an expression: ``{"payload": {"protocol": "ip6", "field": "saddr"}}`` -> "ip6 saddr"; None for an expression of
    another kind."""
    if not isinstance(body, dict) or len(body) != 1:
        return None
    ((kind, value),) = body.items()
    if kind in ("&", "|"):
        left = _expression(value[0])
        return f"{left} {kind} {mark_text(value[1])}" if left and isinstance(value[1], int) else None
    keys = set(value) if isinstance(value, dict) else set()
    if kind == "meta" and keys == {"key"}:
        return "meta mark" if value["key"] == "mark" else str(value["key"])
    if kind == "ct" and keys == {"key"}:
        return f"ct {value['key']}"
    if kind == "payload" and keys == {"protocol", "field"}:
        return f"{value['protocol']} {value['field']}"
    if kind == "fib" and keys == {"result", "flags"}:
        flags = value["flags"] if isinstance(value["flags"], list) else [value["flags"]]
        return f"fib {' . '.join(flags)} {value['result']}"
    return None


def _elements(body: t.Any) -> list[str | int]:
    """Return the right-hand side: one element, or the elements of an anonymous set.

    Empty for ranges, prefixes and other kinds.
    """
    elements = body["set"] if isinstance(body, dict) and set(body) == {"set"} else body
    elements = elements if isinstance(elements, list) else [elements]
    return elements if all(isinstance(element, (str, int)) for element in elements) else []


def _intervals(body: t.Mapping[str, t.Any]) -> list[str | int]:
    """Return elements like _elements(), with prefixes as ``ADDRESS/LENGTH`` and ranges as ``ADDRESS-ADDRESS``."""
    elements: list[t.Any] = []
    for element in body["set"] if set(body) == {"set"} else [body]:
        if isinstance(element, dict):
            ((kind, value),) = element.items()
            element = f"{value['addr']}/{value['len']}" if kind == "prefix" else "-".join(value) if kind == "range" else None
        elements.append(element)
    return elements if all(isinstance(element, str) for element in elements) else []


def prefixes(values: t.Iterable[str]) -> set[str]:
    """Return the fewest prefixes that contain the same addresses of one family. Raises ValueError for anything else.

    nft lists neighbouring prefixes of a set as a range, or not, depending on its version.
    """
    networks: list[t.Any] = []
    for value in values:
        first, is_range, last = value.partition("-")
        ends = [ipaddress.ip_address(first), ipaddress.ip_address(last)] if is_range else []
        networks += ipaddress.summarize_address_range(*ends) if ends else [ipaddress.ip_network(value)]
    collapsed = ipaddress.collapse_addresses(networks)
    return {str(network.network_address if network.prefixlen == network.max_prefixlen else network) for network in collapsed}


def match(expression: str, *values: str | int) -> Match:
    """Return a Match from values in any spelling and order, sorted as nft lists them: ICMPv6 types by their number."""
    spelled = {canonical(expression, value) for value in values}
    if expression in PREFIXED and any("/" in value or "-" in value for value in spelled):
        with contextlib.suppress(ValueError):  # an operator's "@set/"
            spelled = prefixes(spelled)
    return Match(expression, tuple(sorted(spelled, key=lambda value: (ICMPV6_TYPES.get(value, 0), value))))


def verdict_map(expression: str, verdicts: t.Iterable[tuple[str | int, Verdict]]) -> VerdictMap:
    """Return a VerdictMap from keys in any spelling and order."""
    return VerdictMap(expression, tuple(sorted((canonical(expression, key), verdict) for key, verdict in verdicts)))


def canonical(expression: str, value: str | int) -> str:
    """Return one spelling for values that nft versions and flags print in several: ICMPv6 types by name, addresses as in RFC
    5952."""
    text = str(value)
    if expression == "icmpv6 type":
        return {str(number): name for name, number in ICMPV6_TYPES.items()}.get(text, text)
    if expression in ("ip6 saddr", "ip6 daddr"):
        try:
            return str(ipaddress.IPv6Address(text))
        except ValueError:  # an operator's "@set" or "fe80::/10"
            return text
    if " mark" in expression and text.isdigit():
        return mark_text(int(text))
    return text


def _literal(expression: str, value: str) -> str:
    return f'"{value}"' if expression in ("iifname", "oifname") else value


def mark_text(number: int) -> str:
    """Return a mark or a mask as nft prints it: 0x00000080."""
    return f"0x{number:08x}"


def _foreign(body: t.Any) -> Foreign:
    """Return a Foreign without handles, which change each time the table is loaded."""
    return Foreign(json.dumps(_without_handles(body), sort_keys=True))


def _without_handles(body: t.Any) -> t.Any:
    if isinstance(body, dict):
        return {key: _without_handles(value) for key, value in body.items() if key != "handle"}
    return [_without_handles(value) for value in body] if isinstance(body, list) else body
