# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Checks of the addresses of Services, to which a load balancer or a router outside leads packets."""

from __future__ import annotations

import ipaddress
import typing as t

from .._trace import service_rules
from .._twin import pod_links
from .finding import Check
from .node import FAMILIES, IPV4, IPV6, Node, route_line
from .reverse_path_checks import STRICT
from .routing_checks import OUTSIDE
from .suspicion import ERROR, RISK, Suspicion, Trial

ENDLESS = ("dummy",)  # the kind of kube-ipvs0, behind which there is nothing


def _reply_by_default(node: Node) -> t.Iterator[Suspicion]:
    """Yield interfaces with the address of a Service in their network whose replies leave by another one, each once."""
    covered = set[str]()
    for address, protocol, port in _services(node):
        family = IPV6 if ":" in address else IPV4
        uplink, link = next(iter(node.uplinks(family)), ""), _entrance(node, address)
        if not uplink or link in ("", uplink, *covered) or _is_of_cluster(node, address):
            continue
        covered.add(link)
        what = (
            f"Requests to {address}, the address of a Service, come in by {link}, in whose network it is, and the replies leave"
            f" by {uplink}, the way of the default route."
        )
        packet = {"source": OUTSIDE[family], "destination": address, "destination_port": port, "interface": link}
        severity = ERROR if family == IPV4 and node.filter_mode(link) == STRICT else RISK
        defaults = tuple(route_line(entry) for entry in node.routes(family) if entry.get("to") == "default")
        evidence = (f"{protocol} {address}:{port}", *defaults)
        yield Suspicion(link, what, evidence, None, Trial({**packet, "protocol": protocol}), severity)


def _services(node: Node) -> list[tuple[str, str, int]]:
    """Return the addresses, protocols and ports that kube-proxy translates."""
    for family in FAMILIES:
        node.iptables(family, "nat")
    node.ruleset()
    node.demand("ipvs")
    return [entry for entry in service_rules.translated(node.snapshot) if entry[1] in ("tcp", "udp")]


def _entrance(node: Node, address: str) -> str:
    """Return the interface in whose network an address is; empty if it is in several, or in none."""
    links = [link for link in node.all_links() if link.get("kind") not in ENDLESS]
    number = ipaddress.ip_address(address)
    names = [str(link["name"]) for link in links if any(number in network for network in pod_links.networks(link))]
    return names[0] if len(names) == 1 else ""


def _is_of_cluster(node: Node, address: str) -> bool:
    return any(ipaddress.ip_address(address) in network for network in node.context.service_ranges)


CHECKS = (
    Check(
        "service-reply-by-default",
        RISK,
        "Requests to the address of a Service come in by a second interface, and the replies leave by the default route.",
        "The addresses of Services, the networks of interfaces, and a request to such an address through the twin.",
        "nftables_connmark with a mark for the interface, and policy_routes with a table for it.",
        "https://github.com/metallb/metallb/issues/533",
        _reply_by_default,
    ),
)
