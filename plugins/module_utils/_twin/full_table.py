# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot with a part of a full table of the internet, whose million of routes takes seconds and gigabytes to read as values.

Of routes by gateways it has those that contain an address that the snapshot names anywhere else, or that is in question, and the
first ones of each kind. Packets have no other address, unless a rule translates to what it does not name: then it has all.
"""

from __future__ import annotations

import json
import re
import socket
import typing as t

from .._core.errors import Invalid
from .._snapshot.values import Entry
from . import blueprint, bounds, reachable, snapshot_form
from .addressed import Addresses

FEW = 4096  # routes that are soon read
ALIKE = 3  # routes of a kind, as many as an audit samples of a table, or has as evidence
OUTER = (None, "", "bond", "bridge", "team", "veth", "vlan")  # kinds of links to routers; by tunnels a CNI leads to nodes
HOSTS = 8  # addresses of a network that an audit samples
_TOKEN = re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]*)(?:/\d{1,3})?")


class Part(list[t.Any]):
    """Entries of routes. whole: all of them. addresses: those for which it has all routes that contain them."""

    def __init__(self, entries: t.Iterable[Entry], whole: t.Sequence[Entry], addresses: Addresses) -> None:
        super().__init__(entries)
        self.whole, self.addresses = whole, addresses


def _read(texts: t.Iterable[str]) -> t.Iterator[tuple[int, int]]:
    """Yield the addresses in words, of networks some, each by its length and as a number."""
    for text in texts:
        host, slash, length = text.partition("/")
        size, number = _number(host)
        if size:
            yield size, number
            yield from ((size, each) for each in (_hosts(number, size, int(length)) if slash else ()))


def _may_contain(prefix: t.Any, addresses: Addresses) -> bool:
    """Return whether a destination contains an address, or may do so, as what is no prefix."""
    host, slash, length = str(prefix).partition("/")
    size, number = _number(host)
    if not size or (slash and not (length.isdigit() and int(length) <= 8 * size)):
        return True
    return addresses.are_in(size, number, int(length) if slash else 8 * size)


def part(snapshot: Entry, texts: t.Iterable[str]) -> Entry:
    """Return a snapshot with the routes that matter for the addresses in some texts, and for those that it names.

    Raises Invalid for a snapshot of another form.
    """
    routes, links = snapshot.get("routes"), snapshot.get("links") or []
    if not isinstance(routes, list) or len(routes) <= FEW or {*map(type, (*routes, *links))} != {dict}:
        return snapshot
    bounds.at_most("snapshot.routes", len(routes), bounds.MOST["routes"], "entries")
    near, far = _by_kind(routes, {link.get("name") for link in links if link.get("kind") not in OUTER})
    small = {**snapshot, "routes": near}
    try:
        drawn = blueprint.draw(snapshot_form.read(small)._replace(routes=None))
    except Invalid:
        snapshot_form.check(snapshot)  # whose error numbers the entries as they are
        raise
    if not reachable.names_all_addresses(drawn):
        return snapshot
    addresses = Addresses(_read(_TOKEN.findall("\n".join([json.dumps(small, default=str), *texts]))))
    return {
        **small,
        "routes": Part([*near, *(each for each in far if _may_contain(each.get("to"), addresses))], routes, addresses),
    }


def with_addresses(snapshot: Entry, texts: t.Iterable[str]) -> Entry:
    """Return a snapshot with the routes that contain further addresses."""
    routes, further = snapshot.get("routes"), {*_read(texts)}
    if not isinstance(routes, Part):
        return snapshot
    former = {(size, number) for size, numbers in routes.addresses.numbers.items() for number in numbers}
    if further <= former:
        return snapshot
    present = {*map(id, routes)}
    addresses = Addresses(further)
    added = [each for each in routes.whole if id(each) not in present and _may_contain(each.get("to"), addresses)]
    return {**snapshot, "routes": Part([*routes, *added], routes.whole, Addresses(further | former))}


def _by_kind(routes: t.Iterable[dict[str, t.Any]], inner: t.Container[t.Any]) -> tuple[list[Entry], list[Entry]]:
    """Return the routes to what is on a link or behind an inner one, with the first ones of each kind of others; and the rest."""
    places: dict[t.Any, int] = {}
    near, far = list[Entry](), list[Entry]()
    for entry in routes:
        rest = entry.copy()
        rest.pop("to", None)
        kind: t.Any = (*rest.items(),)
        try:
            count = places.get(kind, 0)
        except TypeError:  # several next hops
            kind = repr(kind)
            count = places.get(kind, 0)
        if count < ALIKE:
            places[kind] = count + 1 if _is_far(entry, inner) else count
            near.append(entry)
        else:
            far.append(entry)
    return near, far


def _is_far(entry: Entry, inner: t.Container[t.Any]) -> bool:
    """Return whether a route leads by gateways alone, and by no inner link."""
    hops = entry.get("nexthops") or [entry]
    are_read = isinstance(hops, list) and all(isinstance(hop, dict) for hop in hops)
    return are_read and all(hop.get("via") and str(hop.get("dev")) not in inner for hop in hops)


def _number(host: str) -> tuple[int, int]:
    """Return the length of an address and its number; 0 for what is none."""
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, ValueError):
        return 0, 0
    return len(packed), int.from_bytes(packed, "big")


def _hosts(number: int, size: int, length: int) -> t.Iterator[int]:
    """Yield addresses of a network: the first and the last ones, and those that an audit samples."""
    count = 1 << max(8 * size - length, 0)
    first = number & -count
    yield from (first + offset for offset in (1, 2, count - 2, count - 1))
    yield from (first + min(count * part // HOSTS + 7, max(count - 2, 0)) for part in range(HOSTS))
