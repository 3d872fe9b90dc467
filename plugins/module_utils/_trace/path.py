# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The objects of a node that a packet and its reply met."""

from __future__ import annotations

import typing as t

from .._snapshot.assumption import (
    ADDRESS,
    CHAIN,
    FAMILY,
    JUMP,
    LINK,
    POLICY,
    PREFIX,
    ROUTE,
    ROUTES,
    SET,
    SETTING,
    TABLE,
    Concern,
)
from .._twin import lacking
from .._twin.assumptions import FORWARDING

Answer = t.Mapping[str, t.Any]


class Path(t.NamedTuple):
    """entrances: links by which packets came in, and bridges of these. links: all that packets used, or that their routes name.

    chains, ended: families, tables and chains that were entered, and those of which the end was reached. jumps: each with the
    chain that was left, and the one that was entered. searched: routing tables.
    """

    entrances: frozenset[str]
    links: frozenset[str]
    chains: frozenset[str]
    ended: frozenset[str]
    jumps: frozenset[tuple[str, str]]
    searched: frozenset[str]
    addresses: frozenset[str]
    is_forwarded: bool


def of(answer: Answer) -> Path:
    """Return the path of the packet and its reply, on each of the ways that they take by chance."""
    ways = [way for first in (answer, *answer["branches"]) for way in (first, first["reply"]) if way]
    steps = [step for way in ways for step in (*way["steps"], *way.get("passed", ()))]
    entrances = {link for way in ways for link in (way["came_in_by"], way["bridge"])} - {""}
    jumps = frozenset((step["where"], _target(step)) for step in steps if step["verdict"].startswith(("jump ", "goto ")))
    return Path(
        frozenset(entrances),
        frozenset(entrances.union(*(way["links"] for way in ways))),
        frozenset(step["where"] for step in steps if step["kind"] in ("rule", "policy")).union(chain for _from, chain in jumps),
        frozenset(step["where"] for step in steps if step["kind"] == "policy"),
        jumps,
        frozenset(table for way in ways for table in way["searched"]),
        frozenset(str(end) for way in ways for end in way["addresses"]),
        any(_is_forwarded(way) for way in ways),
    )


def _target(step: t.Mapping[str, str]) -> str:
    """Return family, table and name of the chain to which a rule jumps."""
    return " ".join([*step["where"].split(" ")[:2], step["verdict"].split(" ", 1)[1]])


def _is_forwarded(way: Answer) -> bool:
    """Return whether a packet came in that is for another node, so that the setting by which a node forwards counts."""
    routes = [step["text"] for step in way["steps"] if step["kind"] == "route"]
    return bool(way["came_in_by"]) and not any(" route local " in text for text in routes)


def met(answer: Answer, family: str) -> frozenset[Concern]:
    """Return the objects that may be of concern to an assumption. family: of the packet."""
    path = of(answer)
    sets = {name for chain in path.chains for name in answer["matching"].get(chain, ())}
    prefixes = {prefix for address in path.addresses for prefix in lacking.prefixes(address)}
    names: dict[str, t.Iterable[str]] = {
        LINK: path.links,
        ADDRESS: path.addresses,
        FAMILY: [family],
        SETTING: [key for key, of_family in FORWARDING if of_family == family and path.is_forwarded],
        CHAIN: path.chains,
        JUMP: {f"{chain} {target.split(' ', 2)[2]}" for chain, target in path.jumps},
        POLICY: path.ended,
        TABLE: {chain.rpartition(" ")[0] for chain in path.chains},
        SET: sets,
        ROUTES: path.searched,
        PREFIX: prefixes,
        ROUTE: {f"{table} {prefix}" for table in path.searched for prefix in prefixes},
    }
    return frozenset(Concern(kind, name) for kind, of_kind in names.items() for name in of_kind)
