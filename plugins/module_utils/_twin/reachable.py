# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which chains, rules and elements of maps the packets of a trace can reach, whatever their links, routes and marks.

A rule or an element is left out only if it names an address, a protocol or a port that no packet of the trace can have: neither
at first, nor by a translation that can be reached, nor in a reply. Each translation leads to further chains, so all tables are
searched again until there is nothing new. What is not understood can be reached.
"""

from __future__ import annotations

import socket
import typing as t

from .._ruleset import ruleset
from .._ruleset.ruleset import (
    DNAT,
    GOTO,
    IPTABLES,
    JUMP,
    MASQUERADE,
    NEW,
    REDIRECT,
    SNAT,
    TRANSPORTS,
    VERDICTS,
    VMAP,
    Element,
    Match,
    Rule,
    Selection,
    Statement,
    Table,
)

ADDRESS, PROTOCOL, PORT, OTHER = "address", "protocol", "port", "other"
ADDRESSES = tuple(f"{header} {field}" for header in ("ip", "ip6") for field in ("saddr", "daddr"))
KINDS = {**dict.fromkeys(ADDRESSES, ADDRESS), ruleset.PROTOCOL: PROTOCOL, "th dport": PORT}  # by field
PORTS = ("th sport", "th dport")
MULTICAST = {4: 224, 16: 255}  # by the length of an address, the least first byte
# Statements that change neither the addresses nor the ports of a packet, besides those that write another field.
HARMLESS = frozenset(
    (
        *VERDICTS, MASQUERADE, VMAP, "counter", "dup", "flow", "fwd", "last", "limit", "log", "quota", "secmark", "set",
        "synproxy", "tproxy", "checksum", "classify", "connsecmark", "dscp", "ecn", "hl", "nflog", "nfqueue", "rateest", "tcpmss",
        "tcpoptstrip", "tee", "tos", "trace", "ttl",
    )
)  # fmt: skip
# A rule that matches by chance counts where packets choose among rules, and one with a set where the set is open.
COUNTED = ("statistic --mode", "set")
UNTRACKING = ("notrack", "ct")


class Flow(t.NamedTuple):
    """The fields of all packets of a trace before any translation.

    addresses: in network order, with those of the node. protocol: its name. ports: destination ports; None if it has none.
    """

    addresses: frozenset[bytes]
    protocol: str
    ports: frozenset[str] | None


class Effect(t.NamedTuple):
    """The effect of a rule, as far as it is not certain that it has none.

    needs: kinds of fields, each with values of which a packet that matches has one. addresses, ports: that a packet may get.
    is_new: whether the rule matches only packets that begin a connection. is_untracked: whether it ends connection tracking, or
    divides it into zones. is_open: whether a packet may get any address or port.
    """

    rule: Rule
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    addresses: tuple[bytes, ...] = ()
    ports: tuple[str, ...] = ()
    is_new: bool = False
    is_untracked: bool = False
    is_open: bool = False


class Reach:
    """What can be reached of some tables. is_known: False if a packet may get any address, so that all can be reached.

    chains: by table and name, whether packets come there that do not begin a connection. elements: the places of elements by
    table and map. sets: names by table.
    """

    def __init__(self, flow: Flow, tables: t.Sequence[Table]) -> None:
        self._flow, self._tables = flow, tables
        self._addresses, self._ports = set(flow.addresses), set(flow.ports or ())
        self._effects: dict[tuple[int, str], list[Effect]] = {}
        self.is_known, self._is_tracked = True, True
        self.chains: list[dict[str, bool]] = [{} for _table in tables]
        self.elements: list[dict[str, set[int]]] = [{} for _table in tables]
        self.sets: list[set[str]] = [set() for _table in tables]
        state: tuple[int, int, bool] | None = None
        while self.is_known and state != (state := (len(self._addresses), len(self._ports), self._is_tracked)):
            self._search()

    def selection(self, number: int) -> Selection:
        """Return what can be reached of a table. Rules of nft all remain in their chains."""
        of_iptables = self.chains[number] if self._tables[number].program == IPTABLES else {}
        rules = {
            chain: {
                place
                for place, effect in enumerate(self._rules(number, chain))
                if self._may_fit(effect.needs, is_any and not effect.is_new)
            }
            for chain, is_any in of_iptables.items()
        }
        return Selection(self.chains[number], self.sets[number], self.elements[number], rules)

    def _may_fit(self, needs: t.Iterable[tuple[str, tuple[str, ...]]], is_any: bool) -> bool:
        """Return whether a packet may have all fields. is_any: whether it may be one that does not begin a connection."""
        return all(any(self._may_have(kind, value, is_any) for value in values) for kind, values in needs)

    def _search(self) -> None:
        """Walk from all base chains with the addresses and ports that are known so far."""
        waiting = [
            (number, name, chain.kind != "nat")
            for number, table in enumerate(self._tables)
            for name, chain in table.chains.items()
            if chain.hook or chain.policy
        ]
        visited = set(waiting)
        while waiting:
            number, name, is_any = waiting.pop()
            self.chains[number][name] = self.chains[number].get(name, False) or is_any
            for effect in self._rules(number, name):
                inner = is_any and not effect.is_new
                if self._may_fit(effect.needs, inner):
                    places = [(number, target, inner) for target in self._follow(number, effect, inner)]
                    new = [place for place in dict.fromkeys(places) if place not in visited]
                    visited.update(new)
                    waiting += new

    def _follow(self, number: int, effect: Effect, is_any: bool) -> t.Iterator[str]:
        """Note the effects of a rule. Yield the chains to which it leads."""
        self._addresses.update(effect.addresses)
        self._ports.update(effect.ports)
        self._is_tracked &= not effect.is_untracked
        self.is_known &= not effect.is_open
        self.sets[number].update(effect.rule.sets)
        for statement in effect.rule.statements:
            elements = [*statement.elements, *self._looked_up(number, statement, is_any)]
            for each in (statement, *(element.statement for element in elements)):
                if each and each.kind in (JUMP, GOTO) and each.target in self._tables[number].chains:
                    yield each.target

    def _looked_up(self, number: int, statement: Statement, is_any: bool) -> t.Iterator[Element]:
        """Note and yield the elements of a map that may be found."""
        name = statement.target[1:]
        if statement.kind != VMAP or not name:
            return
        kinds = tuple(KINDS.get(field, OTHER) for field in statement.key.split(" . "))
        places = self.elements[number].setdefault(name, set())
        for place, element in enumerate(self._tables[number].sets.get(name, ())):
            parts = zip(kinds, element.key) if len(kinds) == len(element.key) else ()
            if all(self._may_have(kind, value, is_any) for kind, value in parts):
                places.add(place)
                yield element

    def _rules(self, number: int, name: str) -> list[Effect]:
        place = number, name
        if place not in self._effects:
            table = self._tables[number]
            self._effects[place] = [_effect(table, rule) for rule in table.chains[name].rules]
        return self._effects[place]

    def _may_have(self, kind: str, value: str, is_any: bool) -> bool:
        if kind == ADDRESS:
            address = packed(value)
            return not address or address in self._addresses or address[0] >= MULTICAST[len(address)]
        if kind == PROTOCOL:
            return value not in TRANSPORTS or value == self._flow.protocol
        # The port of a reply may be any: masquerading chooses it. A reply of TCP begins no connection (nf_conntrack_proto_tcp.c).
        is_certain = not is_any and self._flow.ports is not None and (self._is_tracked or self._flow.protocol == "tcp")
        return kind != PORT or not is_certain or not value.isdigit() or value in self._ports


def _effect(table: Table, rule: Rule) -> Effect:
    is_counted = table.program != IPTABLES or any(match.field in COUNTED for match in rule.matches)
    effect = Effect(
        rule,
        () if is_counted else tuple(_needs(rule.matches)),
        is_new=NEW in rule.matches,
        is_untracked=any(each.kind in UNTRACKING or _is_zone(each.kind) for each in rule.statements),
    )
    for statement in rule.statements:
        if statement.kind in (DNAT, SNAT, REDIRECT, *ADDRESSES):
            effect = _translated(effect, *statement.target.rpartition(":")[::2], statement)
        elif statement.kind in PORTS:
            effect = _translated(effect, "", statement.target, statement)
        elif not _is_harmless(statement.kind):
            return effect._replace(is_open=True)
    return effect


def _needs(matches: t.Iterable[Match]) -> t.Iterator[tuple[str, tuple[str, ...]]]:
    return (
        (KINDS[match.field], match.values) for match in matches if match.field in KINDS and not match.is_negated and match.values
    )


def _is_zone(kind: str) -> bool:
    return kind.startswith("ct ") and kind.endswith(" zone")


def _is_harmless(kind: str) -> bool:
    """Return whether a statement is one that changes neither address nor port. The name of a field has a blank."""
    return kind in HARMLESS or kind in UNTRACKING or (" " in kind and kind[0] != "@")


def _translated(effect: Effect, host: str, port: str, statement: Statement) -> Effect:
    """Return the effect with that of a translation. Ranges and expressions are not understood."""
    if packed(statement.target):
        host, port = statement.target, ""
    address = packed(host.strip("[]"))
    may_lack = statement.kind in (REDIRECT, *PORTS)
    if (not address and (host or not may_lack)) or (port and not port.isdigit()) or (statement.kind in PORTS and not port):
        return effect._replace(is_open=True)
    return effect._replace(addresses=(*effect.addresses, *filter(None, [address])), ports=(*effect.ports, *filter(None, [port])))


def packed(address: str) -> bytes:
    """Return the address in network order; empty for another text, such as a prefix."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        return b""
