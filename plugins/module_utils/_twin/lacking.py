# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a packet meets if a rule, a route or another line of ``ip`` that a twin lacks may decide about it."""

from __future__ import annotations

import functools
import ipaddress
import typing as t

from .._routing import rt_names
from .._snapshot.assumption import ADDRESS, FAMILY, LINK, PREFIX, ROUTE, ROUTES, Concern

Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
DEFAULTS = {"ipv4": "0.0.0.0/0", "ipv6": "::/0"}


@functools.lru_cache(maxsize=256)
def prefixes(address: str) -> tuple[str, ...]:
    """Return all prefixes that contain an address."""
    network = ipaddress.ip_network(address)
    return tuple(str(network.supernet(new_prefix=length)) for length in range(network.prefixlen + 1))


def by_rule(rule: t.Mapping[str, t.Any]) -> Concern:
    """Return what each packet meets that a rule may select. rule: as an entry of a snapshot.

    Of the rule's selectors, the longer prefix counts.
    """
    networks = [network for key in ("from", "to") if (network := _network(str(rule.get(key) or "")))]
    if not networks or rule.get("not"):
        return Concern(FAMILY, str(rule.get("family") or (f"ipv{networks[0].version}" if networks else "ipv4")))
    return Concern(PREFIX, str(max(networks, key=lambda network: network.prefixlen)))


def by_route(route: t.Mapping[str, t.Any]) -> Concern:
    """Return what each packet meets that a route may lead. route: as an entry of a snapshot."""
    name = str(route.get("table") or rt_names.MAIN)
    table, destination = str(rt_names.TABLES.get(name, name)), str(route.get("to") or "")
    family = str(route.get("family") or ("ipv6" if ":" in str(route.get("via")) else "ipv4"))
    network = _network(DEFAULTS.get(family, "") if destination == "default" else destination)
    return Concern(ROUTE, f"{table} {network}") if network else Concern(ROUTES, table)


def by_line(family: str, line: str) -> frozenset[Concern]:
    """Return what each packet meets that depends on a line for ``ip -batch``. family: -4 or -6."""
    kind, verb, *words = line.split()
    values = {"family": f"ipv{family[1:]}", **dict(zip(words, words[1:]))}
    if kind == "rule" and verb == "add":
        return frozenset([by_rule({**values, "not": "not" in words})])
    if kind == "route":
        to = next((word for word in words if word == "default" or _network(word)), "")
        return frozenset([by_route({**values, "to": to})])
    links = {Concern(LINK, values["dev"])} if "dev" in values else set()
    addresses = {Concern(ADDRESS, word.partition("/")[0]) for word in words if _network(word)}
    return frozenset(links | addresses) or frozenset([Concern(FAMILY, values["family"])])


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
