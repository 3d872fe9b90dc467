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
from .._snapshot.assumption import ADDRESS, FAMILY, LINK, PREFIX, ROUTE, ROUTES, SET, Assumption, Concern
from .substitutions import UNREAD, replaced

Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
FAMILIES = {"ip": "ipv4", "ip6": "ipv6", "arp": "arp"}  # of packets that meet a table; an IP packet meets none of ARP
RULESETS = ("nftables", "iptables", "ipsets")
# Subsets without which the path of a packet is open, with a command that shows them. Rules and routes are named by themselves.
ASKED = {
    "links": "ip -d addr", "rules": "ip rule", "routes": "ip route show table all", "settings": "sysctl -a",
    "nftables": "nft list ruleset", "iptables": "iptables-save", "ipsets": "ipset save", "ipvs": "ipvsadm -Ln",
    "bpf": "bpftool net", "filters": "tc filter show dev LINK ingress",
}  # fmt: skip
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


def by_unread(entry: t.Mapping[str, t.Any]) -> Assumption | None:
    """Return the fact about what could not be read of a ruleset or of a link; None if others are about it.

    entry: of a snapshot's ``unread``.
    """
    subset, name = (str(entry.get(key) or "") for key in ("subset", "object"))
    # What a program of iptables does not print of nf_tables, nft lists; what neither shows is an entry of nftables.
    if subset not in ASKED or (subset not in RULESETS and name) or name.endswith("(nft)"):
        return None
    family = name.partition(" ")[0]
    concerns = [Concern(FAMILY, FAMILIES[family])] if family in FAMILIES else []
    concerns += [Concern(SET, name)] if subset == "ipsets" and name else []
    subject = f"{subset} {name}".strip()
    fact = replaced(UNREAD, f"{subject}: {entry.get('reason')}", *concerns, subject=subject)
    return fact._replace(ask=ASKED[subset])


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
