# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a packet meets if a rule, a route or another line of ``ip`` that a twin lacks may decide about it."""

from __future__ import annotations

import functools
import ipaddress
import typing as t

from .._routing import rt_names
from .._snapshot.assumption import ADDRESS, FAMILY, LINK, PREFIX, ROUTE, ROUTES, SET, Assumption, Concern
from .._snapshot.snapshot import IPSEC, Unread
from .._snapshot.values import PolicyRule, Route, network
from .substitutions import POLICY, UNREAD, replaced

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
    """Return the prefixes that contain an address, from the one of length 0 to the address itself, in CIDR notation."""
    network = ipaddress.ip_network(address)
    return tuple(str(network.supernet(new_prefix=length)) for length in range(network.prefixlen + 1))


def by_rule(rule: PolicyRule) -> Concern:
    """Return what each packet meets that a rule may select."""
    return Concern(FAMILY, rule.family) if rule.is_inverted else _by_prefixes((rule.source, rule.to), rule.family)


def _by_prefixes(prefixes: t.Iterable[str], family: str = "") -> Concern:
    """Return what each packet meets that has addresses of both prefixes, of which the longer one counts."""
    networks = [each for prefix in prefixes if (each := network(prefix))]
    longest = max(networks, key=lambda each: each.prefixlen, default=None)
    return Concern(PREFIX, str(longest)) if longest else Concern(FAMILY, family)


def by_route(route: Route) -> Concern:
    """Return what each packet meets that a route may lead."""
    table = str(rt_names.TABLES.get(route.table, route.table))
    destination = network(DEFAULTS.get(route.family, "") if route.to == "default" else route.to)
    return Concern(ROUTE, f"{table} {destination}") if destination else Concern(ROUTES, table)


def by_unread(unread: Unread) -> Assumption | None:
    """Return the fact about what could not be read of a ruleset or of a link; None if others are about it."""
    subset, name, reason = unread
    first, _blank, selected = name.partition(" ")
    if first == IPSEC:
        return replaced(POLICY, f"{name}: {reason}", _by_prefixes(selected.split()), subject=selected)
    # What a program of iptables does not print of nf_tables, nft lists; what neither shows is an entry of nftables.
    if subset not in ASKED or (subset not in RULESETS and name) or name.endswith("(nft)"):
        return None
    family = name.partition(" ")[0]
    concerns = [Concern(FAMILY, FAMILIES[family])] if family in FAMILIES else []
    concerns += [Concern(SET, name)] if subset == "ipsets" and name else []
    subject = f"{subset} {name}".strip()
    fact = replaced(UNREAD, f"{subject}: {reason}", *concerns, subject=subject)
    return fact._replace(ask=ASKED[subset])


def by_line(family: str, line: str) -> frozenset[Concern]:
    """Return what each packet meets that depends on a line for ``ip -batch``. family: -4 or -6."""
    kind, verb, *words = line.split()
    values = {"family": f"ipv{family[1:]}", **dict(zip(words, words[1:]))}
    if kind == "rule" and verb == "add":
        return frozenset([by_rule(PolicyRule.of({"priority": 0, **values, "not": "not" in words}))])
    if kind == "route":
        to = next((word for word in words if word == "default" or network(word)), "")
        return frozenset([by_route(Route.of({**values, "to": to}))])
    links = {Concern(LINK, values["dev"])} if "dev" in values else set()
    addresses = {Concern(ADDRESS, word.partition("/")[0]) for word in words if network(word)}
    return frozenset(links | addresses) or frozenset([Concern(FAMILY, values["family"])])
