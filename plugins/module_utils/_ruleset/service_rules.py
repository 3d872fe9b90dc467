# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Services that kube-proxy's rules name, with their cluster addresses.

From the source of kubernetes (pkg/proxy/iptables/proxier.go, pkg/proxy/nftables/proxier.go). In the mode ipvs, no rule names a
Service.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from .._core import fields
from .._core.fields import Unfit
from .ruleset import DNAT, GOTO, IPTABLES, JUMP, PROTOCOL, UNREAD, ByName, Chain, Rule, Table

_NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
_COMMENT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))? (?:cluster IP|has no endpoints)")  # of a rule of iptables
_CHAIN = re.compile(rf"(?:service|local)-[A-Z\d]{{8}}-{_NAME}/\w+/(?P<port_name>[\w-]*)")  # to which a map of nft sends
_PORT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))?")  # the comment of an element for a Service without endpoints
_REJECTING = "reject-chain"
_MAPS = ("service-ips", "no-endpoint-services")
# Chains of iptables: the two from which the others are reached, and the prefixes of those of a Service.
_OF_SERVICES, NODE_PORTS_CHAIN, _OF_ONE, _BEYOND = "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-SVC-", "KUBE-EXT-"
NODE_PORTS = "service-nodeports"  # the map of nft
# The names of chains and sets of one Service or endpoint, of which a node has thousands. Such chains mark nothing but by a jump
# to another chain.
_GENERATED = re.compile(
    r"KUBE-(?:SVC|SVL|SEP|EXT|FW|XLB)-[A-Z\d]{16}|(?:service|local|external|firewall|endpoint|affinity)-[A-Z\d]{8}-[\w./:-]+"
)
_ENDPOINT = "endpoint-"
_HASH = re.compile(r"^[a-z]+-[A-Z\d]{8}-")  # in the names of nft's chains, before the port of a Service
# The beginnings of the chains to which the addresses of load balancers lead.
_EXTERNAL = ("KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-", "external-")


def is_generated(name: str) -> bool:
    """Return whether a chain or a set is that of one Service or endpoint, by its name."""
    return bool(_GENERATED.fullmatch(name))


class Service(t.NamedTuple):
    """A port of a Service. name: NAMESPACE/NAME. port_name: empty if the port has none."""

    name: str
    address: str
    protocol: str
    port: int
    port_name: str


class _End(t.NamedTuple):
    """A rule or an element of kube-proxy for a port of a Service. named: by which it names the Service; None if it does not."""

    address: str
    protocol: str
    port: int
    named: re.Match[str] | None


class Entrance(t.NamedTuple):
    """A port at which requests from outside are for a Service. address: of a load balancer; empty for a port of the node.

    port: as a rule names it. chain: to which the rule leads.
    """

    address: str
    protocol: str
    port: str
    chain: str = ""


def entrances(table: Table) -> t.Iterator[Entrance]:
    """Yield the ports of the node first, then those of load balancers."""
    for rule in table.chains.get(NODE_PORTS_CHAIN, Chain()).rules:
        yield Entrance("", rule.value(PROTOCOL), rule.value("th dport"), rule.verdict.target if rule.verdict else "")
    for element in table.sets.get(NODE_PORTS, ()):
        yield Entrance("", element.key[0], element.key[-1], element.statement.target if element.statement else "")
    for rule in table.chains.get(_OF_SERVICES, Chain()).rules:
        if rule.verdict and rule.verdict.target.startswith(_EXTERNAL):
            yield Entrance(
                rule.value(f"{table.family} daddr").partition("/")[0] or UNREAD,
                rule.value(PROTOCOL),
                rule.value("th dport"),
                rule.verdict.target,
            )
    for element in table.sets.get(_MAPS[0], ()):
        if element.statement and element.statement.target.startswith(_EXTERNAL) and len(element.key) == 3:
            yield Entrance(*element.key, element.statement.target)


def for_pods(table: Table, pods: t.Collection[str]) -> t.Iterator[tuple[str, Entrance]]:
    """Yield each way from outside to pods: the address of a pod, and the entrance. pods: their addresses."""
    left = table.chains.further if isinstance(table.chains, ByName) else None
    ports = None if left is None else {*_ports_of(pods, left)}
    for entrance in entrances(table):
        if ports is None or _HASH.sub("", entrance.chain) in ports:
            yield from ((pod, entrance) for pod in endpoints(table, entrance.chain) if pod in pods)


def _ports_of(pods: t.Iterable[str], chains: t.Iterable[str]) -> t.Iterator[str]:
    """Yield the ports of Services that have pods as endpoints, as the names of chains tell, in which dots stand for colons."""
    words = {pod.replace(":", ".") for pod in pods}
    for port, _separator, end in (chain.rpartition("__") for chain in chains if chain.startswith(_ENDPOINT)):
        if end.partition("/")[0] in words:
            yield _HASH.sub("", port)


def endpoints(table: Table, chain: str) -> t.Iterator[str]:
    """Yield the addresses of the pods to which a chain leads, also by maps, whichever pod chance chooses."""
    entered, waiting = {chain}, [chain]
    while waiting:
        for rule in table.chains.get(waiting.pop(), Chain()).rules:
            for statement in rule.statements:
                if statement.kind == DNAT:
                    yield statement.address
                ends = [statement, *(element.statement for element in statement.elements if element.statement)]
                chains = {end.target for end in ends if end.kind in (JUMP, GOTO)} - entered
                entered |= chains
                waiting += chains


def services(tables: t.Iterable[Table]) -> list[Service]:
    """Return the ports of the Services, sorted."""
    ends = (end for end in _ends(tables) if end.named)
    return sorted({Service(end.named["name"], *end[:3], end.named["port_name"] or "") for end in ends if end.named})


def translated(tables: t.Sequence[Table], servers: t.Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Return the addresses, protocols and ports of Services, sorted, those of load balancers as well. servers: of IPVS."""
    of_nat = (table for table in tables if (table.program, table.name) == (IPTABLES, "nat"))
    lost = (_rule_end(table, rule) for table in of_nat for rule in _unled(table))
    ends = (*_ends(tables), *itertools.chain.from_iterable(lost))
    return sorted(end for end in {*(end[:3] for end in ends), *servers} if _is_end(*end))


def is_translated(tables: t.Iterable[Table], address: str, protocol: str, port: int) -> bool:
    """Return whether a rule of any program translates packets to an address, of this protocol and to this port."""
    of_address = (rule for table in tables for rule in table.rules(re.compile(re.escape(address))) if rule.ends_with(DNAT))
    return any(
        rule.value("ip daddr", "ip6 daddr").partition("/")[0] == address
        and rule.value(PROTOCOL) in ("", protocol)
        and rule.value("th dport") in ("", str(port))
        for rule in of_address
    )


def _unled(table: Table) -> t.Iterator[Rule]:
    """Yield the rules of chains of Services to which no rule for a cluster address leads any more, but one for a node port."""
    of_cluster, of_ports = (
        {rule.verdict.target for rule in _rules(table, name) if rule.verdict} for name in (_OF_SERVICES, NODE_PORTS_CHAIN)
    )
    for name in table.chains:
        beyond = {name, f"{_BEYOND}{name.removeprefix(_OF_ONE)}"}  # of releases before 1.24, and since
        if name.startswith(_OF_ONE) and name not in of_cluster and not beyond.isdisjoint(of_ports):
            yield from _rules(table, name)


def _rules(table: Table, chain: str) -> t.Sequence[Rule]:
    return table.chains.get(chain, Chain()).rules


def _is_end(address: str, _protocol: str, port: int) -> bool:
    try:
        fields.address(address)
    except Unfit:
        return False
    return 0 < port <= 65535


def _ends(tables: t.Iterable[Table]) -> t.Iterator[_End]:
    for table in tables:
        for rule in _rules(table, _OF_SERVICES) if table.program == IPTABLES else ():
            yield from _rule_end(table, rule)
        for element in (element for name in _MAPS for element in table.sets.get(name, ())):
            chain = element.statement.target if element.statement else ""
            found = _CHAIN.fullmatch(chain) or (_PORT.fullmatch(element.comment) if chain == _REJECTING else None)
            yield from _end(element.key, found)


def _rule_end(table: Table, rule: Rule) -> t.Iterator[_End]:
    words = (rule.value(f"{table.family} daddr"), rule.value(PROTOCOL), rule.value("th dport"))
    return _end(words, _COMMENT.fullmatch(rule.comment))


def _end(words: t.Sequence[str], found: re.Match[str] | None) -> t.Iterator[_End]:
    """Yield the end that an address, a protocol and a port name; nothing for other words."""
    if len(words) == 3 and all(words) and re.fullmatch(r"\d{1,5}", words[2], re.ASCII):
        yield _End(words[0].partition("/")[0], words[1], int(words[2]), found)
