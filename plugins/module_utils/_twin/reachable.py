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

ADDRESS, PROTOCOL, PORT, OTHER = "address", "protocol", "port", "other"
TRANSPORTS = ("tcp", "udp", "sctp", "dccp", "udplite")
MULTICAST = {4: 224, 16: 255}  # by the length of an address, the least first byte
Part = tuple[str, str]  # its kind and its value


class Flow(t.NamedTuple):
    """The fields of all packets of a trace before any translation.

    addresses: in network order, with those of the node. protocol: its name. ports: destination ports; None if it has none.
    """

    addresses: frozenset[bytes]
    protocol: str
    ports: frozenset[str] | None


class Rule(t.NamedTuple):
    """The effect of a rule, as far as it is not certain that it has none.

    needs: without which a packet does not match. jumps: names of chains. lookups: maps with verdicts, and the kinds of the parts
    of a key; no kinds if they are not understood. sets: names of all sets and maps. addresses, ports: that a packet may get.
    is_new: whether it matches only packets that begin a connection. is_untracked: whether it ends connection tracking, or
    divides it into zones. is_open: whether a packet may get any address or port.
    """

    needs: tuple[Part, ...] = ()
    jumps: tuple[str, ...] = ()
    lookups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    sets: tuple[str, ...] = ()
    addresses: tuple[bytes, ...] = ()
    ports: tuple[str, ...] = ()
    is_new: bool = False
    is_untracked: bool = False
    is_open: bool = False


class Element(t.NamedTuple):
    """An element of a map with verdicts. key: its parts. chain: to which it leads; empty if it leads to none."""

    key: tuple[str, ...]
    chain: str


class Chain(t.NamedTuple):
    """is_base: whether the kernel calls it. is_nat: whether it does so only for packets that begin a connection.

    rules: as the table's ``read`` takes them.
    """

    is_base: bool
    is_nat: bool
    rules: list[t.Any]


class Table(t.NamedTuple):
    chains: t.Mapping[str, Chain]
    maps: t.Mapping[str, t.Sequence[Element]]
    read: t.Callable[[t.Any], Rule]


class Reach:
    """What can be reached of some tables. is_known: False if a packet may get any address, so that all can be reached.

    chains: by table and name, whether packets come there that do not begin a connection. elements: the places of elements by
    table and map. sets: names by table.
    """

    def __init__(self, flow: Flow, tables: t.Sequence[Table]) -> None:
        self._flow, self._tables = flow, tables
        self._addresses, self._ports = set(flow.addresses), set(flow.ports or ())
        self._read: dict[tuple[int, str], list[Rule]] = {}
        self.is_known, self._is_tracked = True, True
        self.chains: list[dict[str, bool]] = [{} for _table in tables]
        self.elements: list[dict[str, set[int]]] = [{} for _table in tables]
        self.sets: list[set[str]] = [set() for _table in tables]
        state: tuple[int, int, bool] | None = None
        while self.is_known and state != (state := (len(self._addresses), len(self._ports), self._is_tracked)):
            self._search()

    def may_match(self, table: int, chain: str, place: int) -> bool:
        """Return whether a packet may match a rule of a chain. place: of the rule in the chain."""
        is_any = self.chains[table].get(chain)
        if is_any is None:
            return False
        rule = self._rules(table, chain)[place]
        return self._may_fit(rule.needs, is_any and not rule.is_new)

    def _may_fit(self, parts: t.Iterable[Part], is_any: bool) -> bool:
        """Return whether a packet may have all parts. is_any: whether it may be one that does not begin a connection."""
        return all(self._may_have(kind, value, is_any) for kind, value in parts)

    def _search(self) -> None:
        """Walk from all base chains with the addresses and ports that are known so far."""
        waiting = [
            (number, name, not chain.is_nat)
            for number, table in enumerate(self._tables)
            for name, chain in table.chains.items()
            if chain.is_base
        ]
        visited = set(waiting)
        while waiting:
            number, name, is_any = waiting.pop()
            self.chains[number][name] = self.chains[number].get(name, False) or is_any
            for rule in self._rules(number, name):
                inner = is_any and not rule.is_new
                if self._may_fit(rule.needs, inner):
                    places = [(number, target, inner) for target in self._follow(number, rule, inner)]
                    new = [place for place in dict.fromkeys(places) if place not in visited]
                    visited.update(new)
                    waiting += new

    def _follow(self, number: int, rule: Rule, is_any: bool) -> list[str]:
        """Note the effects of a rule. Returns the chains to which it leads."""
        self._addresses.update(rule.addresses)
        self._ports.update(rule.ports)
        self._is_tracked &= not rule.is_untracked
        self.is_known &= not rule.is_open
        self.sets[number].update(rule.sets)
        targets = [*rule.jumps]
        for name, kinds in rule.lookups:
            places = self.elements[number].setdefault(name, set())
            for place, element in enumerate(self._tables[number].maps.get(name, ())):
                parts = zip(kinds, element.key) if len(kinds) == len(element.key) else ()
                if self._may_fit(parts, is_any):
                    places.add(place)
                    targets.append(element.chain)
        return [target for target in targets if target in self._tables[number].chains]

    def _rules(self, number: int, name: str) -> list[Rule]:
        place = number, name
        if place not in self._read:
            table = self._tables[number]
            self._read[place] = [table.read(rule) for rule in table.chains[name].rules]
        return self._read[place]

    def _may_have(self, kind: str, value: str, is_any: bool) -> bool:
        if kind == ADDRESS:
            address = packed(value)
            return not address or address in self._addresses or address[0] >= MULTICAST[len(address)]
        if kind == PROTOCOL:
            return value not in TRANSPORTS or value == self._flow.protocol
        # The port of a reply may be any: masquerading chooses it. A reply of TCP begins no connection (nf_conntrack_proto_tcp.c).
        is_certain = not is_any and self._flow.ports is not None and (self._is_tracked or self._flow.protocol == "tcp")
        return kind != PORT or not is_certain or not value.isdigit() or value in self._ports


def packed(address: str) -> bytes:
    """Return the address in network order; empty for another text, such as a prefix."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        return b""
