# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which chains, rules and elements of maps the packets of a trace can reach, whatever their links, routes and marks, and which
routes, policy rules and neighbours lead them.

A rule or an element is left out only if it names an address, a protocol or a port that no packet of the trace can have: neither
at first, nor by a translation that can be reached, nor in a reply. Each translation leads to further chains, so all tables are
searched again until there is nothing new. What is not understood can be reached.
"""

from __future__ import annotations

import functools
import itertools
import socket
import typing as t

from .._core import memo
from .._ruleset import iptables_save, nft_blocks, nft_json, nft_text, ruleset
from .._ruleset.nft_blocks import Place
from .._ruleset.ruleset import ByName, Element, Rule, Selection, Statement, Table
from .._snapshot.assumption import Assumption
from . import addressed, bounds, foreign_tables, legacy_half
from .blueprint import RESTORES, Blueprint

ADDRESS, PROTOCOL, PORT, OTHER = "address", "protocol", "port", "other"
ADDRESSES = tuple(f"{header} {field}" for header in ("ip", "ip6") for field in ("saddr", "daddr"))
KINDS = {**dict.fromkeys(ADDRESSES, ADDRESS), ruleset.PROTOCOL: PROTOCOL, "th dport": PORT}  # by field
PORTS = ("th sport", "th dport")
MULTICAST = {4: 224, 16: 255}  # by the length of an address, the least first byte
# Statements that change neither the addresses nor the ports of a packet, besides those that write another field.
HARMLESS = frozenset(
    (
        *ruleset.VERDICTS, ruleset.MASQUERADE, ruleset.VMAP, "counter", "dup", "flow", "fwd", "last", "limit", "log", "quota",
        "secmark", "set", "synproxy", "tproxy", "checksum", "classify", "connsecmark", "dscp", "ecn", "hl", "nflog", "nfqueue",
        "rateest", "tcpmss", "tcpoptstrip", "tee", "tos", "trace", "ttl",
    )
)  # fmt: skip
# A rule that matches by chance counts where packets choose among rules, and one with a set where the set is open.
COUNTED = ("statistic --mode", "set")
UNTRACKING = ("notrack", "ct")
COPYING = ("dup", "fwd", "tee")  # a copy is sent to another address
TRANSLATING = frozenset((ruleset.DNAT, ruleset.SNAT, ruleset.REDIRECT, *ADDRESSES, *PORTS))


_FAMILIES = {RESTORES[family]: family for family in ("ip", "ip6")}  # by program


class Flow(t.NamedTuple):
    """The fields of all packets of a trace before any translation.

    addresses: in network order, with those of the node. protocols: names. ports: of destinations; None if a packet has none.
    near: further addresses to which only routes lead, such as those for whose MAC addresses pods ask. has_rules: whether changes
    may name any policy rule.
    """

    addresses: frozenset[bytes]
    protocols: frozenset[str]
    ports: frozenset[str] | None
    near: frozenset[bytes] = frozenset()
    has_rules: bool = False


class Condition(t.NamedTuple):
    """What a packet needs to match a rule, as far as it is certain.

    needs: kinds of fields, each with values of which the packet has one. is_new: whether it begins a connection.
    """

    rule: Rule
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    is_new: bool


class Reach:
    """What can be reached of some tables. is_known: False if a packet may get any address, so that all can be reached. is_copied:
    whether copies of packets are sent elsewhere.

    chains: by table and name, whether packets come there that do not begin a connection. elements: the places of elements by
    table and map. sets: names by table.
    """

    def __init__(self, flow: Flow, tables: t.Sequence[Table]) -> None:
        self._flow, self._tables = flow, tables
        self.addresses, self._ports, self.is_copied = set(flow.addresses), set(flow.ports or ()), False
        self._conditions: dict[tuple[int, str], list[Condition]] = {}
        self.is_known, self._is_tracked = True, True
        self.chains: list[dict[str, bool]] = [{} for _table in tables]
        self.elements: list[dict[str, set[int]]] = [{} for _table in tables]
        self.sets: list[set[str]] = [set() for _table in tables]
        state: tuple[int, int, bool] | None = None
        while self.is_known and state != (state := (len(self.addresses), len(self._ports), self._is_tracked)):
            self._search()

    def selection(self, number: int) -> Selection:
        """Return what can be reached of a table. Rules of nft all remain in their chains."""
        of_iptables = self.chains[number] if self._tables[number].program == ruleset.IPTABLES else {}
        rules = {
            chain: {place for place, condition in enumerate(self._rules(number, chain)) if self._may_fit(condition, is_any)}
            for chain, is_any in of_iptables.items()
        }
        return Selection(self.chains[number], self.sets[number], self.elements[number], rules)

    def _may_fit(self, condition: Condition, is_any: bool) -> bool:
        """Return whether a packet may match a rule. is_any: whether it may be one that does not begin a connection."""
        for kind, values in condition.needs:
            if not any(self._may_have(kind, value, is_any and not condition.is_new) for value in values):
                return False
        return True

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
            for condition in self._rules(number, name):
                if self._may_fit(condition, is_any):
                    inner = is_any and not condition.is_new
                    places = [(number, target, inner) for target in self._follow(number, condition.rule, inner)]
                    new = [place for place in dict.fromkeys(places) if place not in visited]
                    visited.update(new)
                    waiting += new

    def _follow(self, number: int, rule: Rule, is_any: bool) -> t.Iterator[str]:
        """Note the effects of a rule. Yield the chains to which it leads."""
        self.sets[number].update(rule.sets)
        self._note_sets(number, rule)
        for statement in rule.statements:
            self._note(statement)
            elements = [*statement.elements, *self._looked_up(number, statement, is_any)]
            for each in (statement, *(element.statement for element in elements)):
                if each and each.kind in (ruleset.JUMP, ruleset.GOTO) and each.target in self._tables[number].chains:
                    yield each.target

    def _note_sets(self, number: int, rule: Rule) -> None:
        """Note the elements that packets may be of sets that a text lacks: all, unless the rule compares an address with them."""
        sets = self._tables[number].sets
        left = [name for name in rule.sets if isinstance(sets, ByName) and name in sets.further]
        compared = {value for match in rule.matches if match.field in ADDRESSES for value in match.values}
        looked_up = {each.target for each in rule.statements if each.kind == ruleset.VMAP}
        for name in (name for name in left if f"@{name}" not in looked_up):
            met = self._met(sets[name]) if f"@{name}" in compared else range(len(sets[name]))
            self.elements[number].setdefault(name, set()).update(met)

    def _note(self, statement: Statement) -> None:
        """Note which address and port a packet may get, and whether its connection is still tracked as one."""
        kind = statement.kind
        self.is_copied |= kind in COPYING
        self.is_known &= not _is_unknown(statement)
        if kind in TRANSLATING:
            address, port = _translation(statement) or (b"", "")
            self.addresses.update([address] if address else ())
            self._ports.update([port] if port else ())
        elif kind in UNTRACKING or (kind.startswith("ct ") and kind.endswith(" zone")):
            self._is_tracked = False

    def _looked_up(self, number: int, statement: Statement, is_any: bool) -> t.Iterator[Element]:
        """Note and yield the elements of a map that may be found."""
        name = statement.target[1:]
        if statement.kind != ruleset.VMAP or not name:
            return
        kinds = tuple(KINDS.get(field, OTHER) for field in statement.key.split(" . "))
        places, elements = self.elements[number].setdefault(name, set()), self._tables[number].sets.get(name, ())
        for place in self._met(elements) if kinds[0] == ADDRESS else range(len(elements)):
            element = elements[place]
            parts = zip(kinds, element.key) if len(kinds) == len(element.key) else ()
            if all(self._may_have(kind, value, is_any) for kind, value in parts):
                places.add(place)
                yield element

    def _met(self, elements: t.Sequence[Element]) -> list[int]:
        """Return the places of the elements whose keys begin with an address that a packet may have."""
        by_address = _places(elements)
        return [place for address in (b"", *self.addresses) for place in by_address.get(address, ())]

    def _rules(self, number: int, name: str) -> list[Condition]:
        place = number, name
        if place not in self._conditions:
            table = self._tables[number]
            self._conditions[place] = [_condition(table, rule) for rule in table.chains[name].rules]
        return self._conditions[place]

    def _may_have(self, kind: str, value: str, is_any: bool) -> bool:
        if kind == ADDRESS:
            address = packed(value)
            return not address or address in self.addresses or address[0] >= MULTICAST[len(address)]
        if kind == PROTOCOL:
            return value not in ruleset.TRANSPORTS or value in self._flow.protocols
        # The port of a reply may be any: masquerading chooses it. A reply of TCP begins no connection (nf_conntrack_proto_tcp.c).
        is_certain = not is_any and self._flow.ports is not None and (self._is_tracked or self._flow.protocols == {"tcp"})
        return kind != PORT or not is_certain or not value.isdigit() or value in self._ports


@memo.of_part
def _places(elements: t.Sequence[Element]) -> dict[bytes, list[int]]:
    """Return the places of elements by the address with which the key begins; by an empty one if any packet may be meant."""
    places = dict[bytes, list[int]]()
    for place, element in enumerate(elements):
        address = packed(element.key[0])
        is_any = not address or address[0] >= MULTICAST[len(address)]
        places.setdefault(b"" if is_any else address, []).append(place)
    return places


def _condition(table: Table, rule: Rule) -> Condition:
    needs = list[tuple[str, tuple[str, ...]]]()
    for field, values, is_negated in rule.matches if table.program == ruleset.IPTABLES else ():
        if field in COUNTED:
            needs.clear()
            break
        if field in KINDS and values and not is_negated:
            needs.append((KINDS[field], values))
    return Condition(rule, tuple(needs), ruleset.NEW in rule.matches)


def _translation(statement: Statement) -> tuple[bytes, str] | None:
    """Return an address and a port that a packet gets; None for a range and for an expression."""
    target, kind = statement.target, statement.kind
    host, _colon, port = ("", "", target) if kind in PORTS else (target, "", "") if packed(target) else target.rpartition(":")
    address = packed(host.strip("[]"))
    has_address = bool(address) or (not host and kind in (ruleset.REDIRECT, *PORTS))
    has_port = port.isdigit() or (not port and kind not in PORTS)
    return (address, port) if has_address and has_port else None


@functools.lru_cache(maxsize=20_000)
def packed(address: str) -> bytes:
    """Return the address in network order; empty for another text, such as a prefix."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        return b""


def _is_unknown(statement: Statement) -> bool:
    """Return whether a packet may get an address that the statement does not name, as far as it is understood."""
    kind = statement.kind
    if kind in TRANSLATING:
        return _translation(statement) is None
    # The name of a field has a blank, unless it is a place in the packet.
    return not (kind in UNTRACKING or kind in HARMLESS or (" " in kind and kind[0] != "@"))


def _sources(drawn: Blueprint) -> tuple[nft_blocks.Listing, list[t.Sequence[Table]]] | None:
    """Return the tables of nft's objects, of its text, and of each program; None if there is something that is not understood."""
    listing = nft_blocks.read(drawn.ruleset_text)
    if not listing.is_complete or not nft_json.is_complete(drawn.ruleset):
        return None
    saved = (iptables_save.tables(_FAMILIES[program], text) if program in _FAMILIES else [] for program, text in drawn.restores)
    of_programs = ([legacy_half.hooked(table, drawn.hooks) for table in tables] for tables in saved)
    return listing, [nft_json.tables(drawn.ruleset), _of_text(drawn), *of_programs]


def _of_text(drawn: Blueprint) -> list[Table]:
    tables = nft_text.tables(drawn.ruleset_text)
    return [*map(drawn.generated.completed, tables)] if drawn.generated else tables


def names_all_addresses(drawn: Blueprint) -> bool:
    """Return whether the rules name each address that a packet may get by a translation, and send copies nowhere."""
    sources = None if drawn.generated and drawn.generated.blocks else _sources(drawn)
    tables = [table for tables in sources[1] for table in tables] if sources else []
    every = (statement for table in tables for statement in _statements(table))
    return sources is not None and not any(_is_unknown(each) or each.kind in COPYING for each in every)


def _statements(table: Table) -> t.Iterator[Statement]:
    """Yield the statements of rules, and those of the elements of maps."""
    for statement in (statement for rule in table.rules() for statement in rule.statements):
        yield statement
        yield from (element.statement for element in statement.elements if element.statement)
    yield from (element.statement for elements in table.sets.values() for element in elements if element.statement)


def reduced(drawn: Blueprint, flow: Flow) -> Blueprint:
    """Return the part of a blueprint that packets can reach; all of it if there is something that is not understood.

    The packets meet the same rules in the same order in a twin of it. Raises Failure.
    """
    understood = _sources(drawn)
    if understood is None:
        return whole(drawn)
    listing, sources = understood
    reach = Reach(flow, [table for tables in sources for table in tables])
    if not reach.is_known:
        return whole(drawn)
    numbers = itertools.count()
    of_objects, of_text, *of_programs = (
        {(table.family, table.name): reach.selection(next(numbers)) for table in tables} for tables in sources
    )
    drawn = drawn._replace(
        ruleset=nft_json.select(drawn.ruleset, of_objects),
        ruleset_text=listing.select(of_text),
        restores=[
            (program, iptables_save.select(_FAMILIES[program], text, selections) if program in _FAMILIES else text)
            for (program, text), selections in zip(drawn.restores, of_programs)
        ],
    )
    drawn = _completed(drawn, of_text)
    return drawn if reach.is_copied else addressed.reduced(drawn, reach.addresses | flow.near, flow.has_rules)


def whole(drawn: Blueprint) -> Blueprint:
    """Return a blueprint with all that its text lacks. Raises Failure."""
    return _completed(drawn, drawn.generated.blocks) if drawn.generated else drawn


def _completed(drawn: Blueprint, selections: t.Mapping[Place, Selection]) -> Blueprint:
    """Return a blueprint with what its text lacks of the selected parts of tables. Raises Failure, and Invalid for too much."""
    notes = list[Assumption]()
    further = foreign_tables.generated(drawn.generated, selections, drawn.sizes, notes) if drawn.generated else {}
    text = nft_blocks.find(drawn.ruleset_text).completed(further) if further else drawn.ruleset_text
    bounds.at_most("snapshot.nftables_text", text.count("\n"), bounds.LINES_OF_NFT, "lines")
    return drawn._replace(ruleset_text=text, generated=None, notes=[*drawn.notes, *notes])
