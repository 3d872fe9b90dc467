# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clients outside of a node, one of each class that its policy rules and routes distinguish."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import typing as t

from .._core import fields
from .._core.fields import ANY, Prefix
from .._routing import rt_names
from .._routing.rule import Rule
from .._snapshot import values
from .._trace.lookup import Query, Tables
from .._trace.packet import OUTSIDE
from .._twin import blueprint
from .node import IPV4, IPV6, Node, is_link_local
from .suspicion import Unobserved

# In no network of a node. The second of a family matters where a rule is about the first (RFC 5737, RFC 9637).
FAR = {IPV4: (OUTSIDE[IPV4], "203.0.113.7"), IPV6: (OUTSIDE[IPV6], "3fff::7")}
HOSTS = 8  # of a network, as smaller networks in it may have routes of their own
SAMPLES = 3  # networks of rules that decide alike, and of a table whose routes lead by the same links


class Client(t.NamedTuple):
    """is_observed: whether a route leads to the client by the link at which its requests come in."""

    address: str
    is_observed: bool


def of(node: Node, family: str, link: str, pod: str = "") -> list[Client]:
    """Return clients whose requests may come in by a link, the likeliest loss first. Raises Unobserved.

    pod: that answers; empty for one of each routing table. Clients are beyond routers, or in the networks of the link and of the
    interfaces that pods share: what other links lead to, such as a pod, sends nothing that comes in by the link.
    """
    node.rules(family)
    network = _Network(node, family, link, [pod] if pod else [])
    near = {*node.links_by_address(family), *(route.via for route in node.every_route())}
    with contextlib.suppress(
        Unobserved
    ):  # without the addresses of pods, the link behind which they are keeps most of them apart
        near.update(node.pods)
    classes: dict[t.Any, bytes] = {}
    far = (fields.address(text)[1] for text in FAR[family])  # tried though a VPN may have taken the default route
    for client in (*far, *filter(network.is_behind, network.candidates())):
        if _may_send(fields.show(client)) and fields.show(client) not in near:
            classes.setdefault((network.way_to(client), network.replies_to(client)), client)
    ranked = sorted(classes.items(), key=lambda item: all(link in links for links in item[0][1]))
    members = (Client(fields.show(client), network.leads_to(client)) for _class, client in ranked)
    return sorted(members, key=lambda client: not client.is_observed)


class _Network:
    """What is around a node, by its rules and routes."""

    def __init__(self, node: Node, family: str, link: str, pods: t.Sequence[str]) -> None:
        self._tables, self._family, self._link = _tables(node), fields.FAMILIES[family], link
        self._rules = [rule for rule in self._tables.rules if rule.family == self._family]
        one_each = {rule.table: rule.src[0] for rule in reversed(self._rules) if rule.src[1]}
        self._pods = [fields.address(pod)[1] for pod in pods] or [b"", *one_each.values()]
        self._ends = {pod: next(iter(self.way_to(pod)), "") if pod else "" for pod in self._pods}
        self._marks = sorted({0, *(rule.fwmark for rule in self._rules)})
        self._with_end = {link.name for link in node.links() if not all(map(is_link_local, link.peer.addresses))}
        self._outer = {link, *([node.enis.primary, *node.enis.secondary] if node.enis else ())}

    def candidates(self) -> t.Iterator[bytes]:
        """Yield some addresses of each network of the rules and of the routes that answers may meet."""
        rules = [rule for rule in self._rules if not rule.src[1] or any(_is_in(rule.src, pod) for pod in self._pods)]
        alike: dict[Rule, dict[Prefix, None]] = {}
        for rule in rules:
            alike.setdefault(rule._replace(priority=0, dst=ANY), {})[rule.dst] = None
        for networks in alike.values():
            for prefix in [*networks][:SAMPLES]:
                yield from _hosts(prefix)
        for table in dict.fromkeys([*(rule.table for rule in rules), rt_names.MAIN]):
            samples: dict[frozenset[str], list[Prefix]] = {}
            for route in self._tables.of_table(self._family, table):
                samples.setdefault(route.links, []).append(route.dst)
            for prefixes in samples.values():
                for prefix in prefixes[:SAMPLES]:
                    yield from _hosts(prefix)

    def way_to(self, client: bytes) -> frozenset[str]:
        """Return the links by which the node itself reaches a client, as its reverse-path filters see it."""
        route = self._tables.decide(Query(b"", client)).route
        return route.links if route else frozenset()

    def is_behind(self, client: bytes) -> bool:
        """Return whether a client is beyond routers, or in the network of the link or of an interface that pods share.

        Where the addresses of the other end are known, that end is alone in the network.
        """
        route = self._tables.decide(Query(b"", client)).route
        if not route or not route.dst[1]:
            return True
        is_no_end = route.is_connected and self._with_end.issuperset(route.links)
        return not self._outer.isdisjoint(route.links) and not is_no_end

    def replies_to(self, client: bytes) -> tuple[frozenset[str], ...]:
        """Return the links by which the answers of pods leave, with each mark that a rule tests."""
        queries = (Query(pod, client, iif, mark) for pod, iif in self._ends.items() for mark in self._marks)
        routes = (self._tables.decide(query).route for query in queries)
        return tuple(route.links if route else frozenset() for route in routes)

    def leads_to(self, client: bytes) -> bool:
        """Return whether a route of any table leads to a client by the link."""
        return self._tables.leads_to(client, self._link)


@functools.lru_cache(maxsize=1)  # for all checks of an audit
def _tables(node: Node) -> Tables:
    routes = (route for route, _protocol in blueprint.parsed_routes(values.routes(node.snapshot), []))
    return Tables(blueprint.parsed_rules(values.rules(node.snapshot)), routes)


def _is_in(prefix: Prefix, address: bytes) -> bool:
    return len(prefix[0]) == len(address) and fields.contains(prefix, address)


def _may_send(address: str) -> bool:
    """Return whether the kernel takes a packet from an address, and routers forward it."""
    number = ipaddress.ip_address(address)
    return not (number.is_link_local or number.is_multicast or number.is_reserved or number.is_loopback)


def _hosts(prefix: Prefix) -> t.Iterator[bytes]:
    """Yield addresses spread over a prefix, without its first and its last one; none of the prefix of all addresses."""
    packed, length = prefix
    first, size = int.from_bytes(packed, "big"), 2 ** (len(packed) * 8 - length)
    for number in range(min(size, HOSTS) if length else 0):
        offset = min(size * number // HOSTS + 7, size - 2) if size > 2 else number
        yield (first + offset).to_bytes(len(packed), "big")
