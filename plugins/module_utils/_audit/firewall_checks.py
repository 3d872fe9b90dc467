# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of services that flush rulesets or filter reverse paths, and of the number of tracked connections."""

from __future__ import annotations

import typing as t

from .._ruleset.ruleset import DROP, NFT, Match
from .._snapshot.firewalls import FIREWALLD, FIREWALLD_FILE, NFTABLES
from .._snapshot.values import Firewall
from .._trace.culprit import is_of_firewalld
from .finding import check
from .node import FAMILIES, IPV6, Node
from .reverse_path_checks import requests, severity_of_services
from .suspicion import COUNTER, ERROR, NOTE, Remedy, Suspicion, Unobserved

_RELOADS = {"FirewallBackend": "iptables", "FlushAllOnReload": "yes"}  # with which a reload flushes the rules of others
_STRICT = Match("fib saddr . mark . iif oif", ("missing",))  # of IPv6_rpfilter, in each of its strict modes
_PREROUTING = "filter_PREROUTING"  # where firewalld filters reverse paths, and nothing else
FULL = 0.9  # of the connections that the kernel tracks at most, or of the neighbours
FEW = 128  # neighbours, the gc_thresh1 of the kernel; fewer are not looked at, as a network namespace does not show its limit


@check(
    "flush-coming",
    NOTE,
    "A service flushes all tables of nftables or iptables at its next start, stop or reload.",
    "The units nftables.service and firewalld.service, their configuration, and the tables of others.",
    "nftables_package with service masked; for firewalld its own settings.",
    "https://github.com/rancher/rke2/issues/10469",
    "It works until the node reboots",
    "Services fail after the firewall was reloaded or restarted",
)
def _flush(node: Node) -> t.Iterator[Suspicion]:
    nftables, firewalld, others = node.firewall(NFTABLES), node.firewall(FIREWALLD), _tables(node)
    if others and _may_flush(nftables):
        state = "active" if nftables.is_active else "enabled"
        what = (
            f"{NFTABLES} is {state}, and flushes all tables when it starts, stops or is restarted by an upgrade: those of"
            f" {', '.join(others)} go with it."
        )
        evidence = (f"{NFTABLES}: {state}", *_flushing(nftables))
        yield Suspicion(NFTABLES, what, evidence, Remedy("nftables_package", {"service": "masked"}))
    if others and firewalld.is_active and not {*_RELOADS} <= firewalld.settings.keys():
        raise Unobserved(f"What {FIREWALLD_FILE} says is open.", f"head -v -n 9999 {FIREWALLD_FILE}")
    if others and firewalld.is_active and _RELOADS.items() <= firewalld.settings.items():
        what = f"firewalld's backend is iptables, and a reload flushes all rules of iptables: those of {', '.join(others)}."
        text = "Set FlushAllOnReload=no in /etc/firewalld/firewalld.conf, or disable firewalld on the node"
        evidence = tuple(f"{name}={value}" for name, value in _RELOADS.items())
        yield Suspicion(FIREWALLD, what, evidence, Remedy(operator=text))


def _may_flush(service: Firewall) -> bool:
    """Return whether a service may flush the ruleset. systemd no longer knows the commands of a masked one, which may be active
    until the next boot.
    """
    if service.is_enabled is None and not service.is_active:
        # An enabled one stays active from the boot on.
        raise Unobserved(f"Whether {NFTABLES} is enabled is open.", f"systemctl is-enabled {NFTABLES}", is_unlikely=True)
    if service.is_enabled or not service.is_active:
        return bool(service.is_enabled)
    if service.is_masked is None:
        raise Unobserved(f"Whether {NFTABLES} is masked is open.", f"systemctl is-enabled {NFTABLES}")
    return not service.is_masked


def _flushing(service: Firewall) -> list[str]:
    return [f"{service.file}: flush ruleset"] if service.flushes else []


def _tables(node: Node) -> list[str]:
    """Return the names of the tables in nf_tables that others than the services have made. One is enough."""
    of_iptables = [str(table) for table in node.filled_tables() if table.backend == NFT]
    tables = node.tables_of_nft() if of_iptables else node.listed_tables()
    return [*(str(table) for table in tables if table.name not in ("firewalld", "filter")), *of_iptables]


@check(
    "firewalld-strict-ipv6",
    ERROR,
    "firewalld drops requests of IPv6 that come in by the primary interface, for pods that reply by another one.",
    "firewalld's filter of reverse paths, the rules of pods, and a request to one of these pods through the twin.",
    "IPv6_rpfilter=loose in firewalld.conf.",
    "https://github.com/firewalld/firewalld/issues/1508",
    "IPv6 requests time out beside firewalld",
)
def _strict6(node: Node) -> t.Iterator[Suspicion]:
    asked = [*requests(node, IPV6)]
    chain = _strict_chain(node) if asked else ""
    for name, rule, request in asked if chain else ():
        what = (
            f"firewalld filters reverse paths of IPv6 strictly, and the replies of pods behind {name} leave by {name}: requests"
            f" to them that come in by {request.packet['interface']} are dropped, such as from {request.client}."
        )
        text = "Set IPv6_rpfilter=loose in /etc/firewalld/firewalld.conf, which firewalld reads when it reloads"
        loose = f"nft insert rule inet firewalld {chain} meta nfproto ipv6 fib saddr . mark oif exists accept"
        remedy = Remedy(operator=text, commands=(loose,) if chain == _PREROUTING else ())
        evidence = (f"inet firewalld {chain}: {_STRICT.field} missing drop", str(rule))
        trial = request._replace(culprit=is_of_firewalld)
        yield Suspicion(FIREWALLD, what, evidence, remedy, trial, severity_of_services(node, trial))


def _strict_chain(node: Node) -> str:
    """Return the chain in which firewalld drops packets whose source has no route by their interface; empty for none."""
    rules = (rule for table in node.listed_tables() if table.name == "firewalld" for rule in table.rules())
    return next((rule.chain for rule in rules if _STRICT in rule.matches and rule.ends_with(DROP)), "")


@check(
    "conntrack-near-full",
    NOTE,
    "The node tracks nearly as many connections as it may, and drops the packets of further ones.",
    "The number of tracked connections and its limit.",
    "Raise net.netfilter.nf_conntrack_max.",
    "https://github.com/kubernetes/node-problem-detector/blob/master/config/plugin/network_problem.sh",
    'New connections fail under load, "nf_conntrack, table full"',
    worst=ERROR,
)
def _tracking(node: Node) -> t.Iterator[Suspicion]:
    count, most = (node.count("connections", name) or 0 for name in ("count", "max"))
    if most and count >= FULL * most:
        what = f"The kernel tracks {count} connections of at most {most}: packets of further ones are dropped."
        line = f"net.netfilter.nf_conntrack_count = {count}"
        yield _full("net.netfilter.nf_conntrack_max", count, most, what, line, "what opens the connections")


@check(
    "neighbours-near-full",
    NOTE,
    "The node has nearly as many neighbours as it may, and sends no packet to a further one.",
    "The number of neighbours of each family, and its limit.",
    "Raise gc_thresh1, gc_thresh2 and gc_thresh3.",
    "https://docs.kernel.org/networking/ip-sysctl.html",
    'New connections fail under load, "neighbour: arp_cache: neighbor table overflow!"',
    worst=ERROR,
)
def _neighbours(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        key = f"net.{family}.neigh.default.gc_thresh3"
        count = sum((":" in each.address) == (family == IPV6) for each in node.neighbors() if each.is_counted)
        most = node.sysctl(key) if count >= FULL * FEW else 0
        if most and count >= FULL * most:
            what = f"The node has {count} {family} neighbours of at most {most}: it sends no packet to a further one."
            yield _full(key, count, most, what, f"{count} {family} neighbours", "which network has so many")


def _full(key: str, count: int, most: int, what: str, line: str, cause: str) -> Suspicion:
    """Return the suspicion about a table that is nearly full. key: of its limit. cause: what the operator has to find."""
    remedy = Remedy(
        operator=f"Raise {key}, in a file of /etc/sysctl.d too, and find {cause}", commands=(f"sysctl -w {key}={2 * most}",)
    )
    severity = ERROR if count >= most else NOTE
    return Suspicion(key, what, (line, f"{key} = {most}"), remedy, severity=severity, proof=COUNTER)
