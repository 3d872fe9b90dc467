# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the sizes of packets: MTUs, and the ICMP errors by which senders learn them (path MTU discovery)."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import ipaddress
import re
import typing as t

from .._ruleset import passage
from .._snapshot import tunnels
from .._snapshot.values import Link, Route
from .._trace.culprit import Mtu, Object, RouteMtu
from .._trace.packet import OUTSIDE
from .._twin.pod_links import Network
from . import purpose
from .finding import check
from .node import FAMILIES, IPV4, IPV6, TABLES_OF, Node
from .suspicion import ERROR, NOTE, Remedy, Suspicion, Trial

# The hooks that an error passes, by the one that says for whom it is: for the node, for a pod, or of the node itself for a pod.
HOOKS = {
    "input": ("prerouting", "input"), "forward": ("prerouting", "forward", "postrouting"), "output": ("output", "postrouting"),
}  # fmt: skip
_CLAMPING = re.compile(r"TCPMSS|\bmaxseg\b")
# As rules name ICMP type 3 code 4 and ICMPv6 type 2 (RFC 792, 4443), which connection tracking takes for related.
_WORDS = {
    IPV4: {
        "meta l4proto": ("icmp", "1", "all"), "ip protocol": ("icmp", "1"), "meta nfproto": ("ipv4",), "meta protocol": ("ip",),
        "icmp type": ("destination-unreachable", "3"), "icmp code": ("frag-needed", "4"),
        "icmp --icmp-type": ("3/4", "3", "fragmentation-needed", "destination-unreachable", "any", "255"),
    },
    IPV6: {
        "meta l4proto": ("ipv6-icmp", "icmpv6", "58", "all"), "ip6 nexthdr": ("ipv6-icmp", "icmpv6", "58"),
        "meta nfproto": ("ipv6",), "meta protocol": ("ip6",),
        "icmpv6 type": ("packet-too-big", "2"), "icmp6 --icmpv6-type": ("2", "2/0", "packet-too-big"),
    },
}  # fmt: skip


@check(
    "tunnel-mtu",
    NOTE,
    "A tunnel's MTU and the head that it puts before each packet are larger than the MTU of the link that carries it.",
    "The kinds, addresses and MTUs of links, and the routes to the other ends of tunnels.",
    "A smaller MTU of the tunnel, in the configuration of the CNI.",
    "https://docs.tigera.io/calico/latest/networking/configuring/mtu",
    "Small packets arrive and large ones are lost, such as an answer of HTTPS or a file",
)
def _tunnel_mtu(node: Node) -> t.Iterator[Suspicion]:
    for tunnel in (link for link in purpose.with_heads(node) if "UP" in link.flags):
        head = tunnels.head(tunnel, not node.uplinks(IPV4))
        for carrier in map(node.link, tunnels.carriers(tunnel, functools.partial(_leading, node))):
            if node.mtu(tunnel.name) + head > node.mtu(carrier.name):
                size = carrier.mtu - head
                what = (
                    f"{tunnel.name} takes packets of {tunnel.mtu} bytes and puts {head} before each, and {carrier.name} carries"
                    f" {carrier.mtu}: one of more than {size} leaves in fragments, which many networks drop, or not at all."
                )
                text = f"Set the MTU of {tunnel.name} and of the pods to {size} in the configuration of the CNI"
                remedy = Remedy(operator=text, commands=(f"ip link set dev {tunnel.name} mtu {size}",))
                yield Suspicion(tunnel.name, what, (_line(tunnel), _line(carrier)), remedy)


def _line(link: Link) -> str:
    return f"{link.name} {link.kind} mtu {link.mtu}".replace("  ", " ")


def _leading(node: Node, address: str) -> list[str]:
    """Return the links of the longest route to an address in table main, or of the best default route for an empty text."""
    families = [IPV6 if ":" in address else IPV4] if address else [family for family in FAMILIES if node.uplinks(family)][:1]
    routes = [each for family in families for each in node.routes(family) if each.dev and each.to != "default"] if address else []
    to_end = [(network.prefixlen, each.dev) for each in routes if ipaddress.ip_address(address) in (network := _network(each))]
    return [max(to_end)[1]] if to_end else [route.dev for family in families for route in node.best_defaults(family)]


def _network(route: Route) -> Network:
    return ipaddress.ip_network(route.to)


@check(
    "mtu-of-paths",
    NOTE,
    "A link of pods takes larger packets than a link or a route by which they leave the node, and no rule clamps the MSS.",
    "The MTUs of links and routes, the rules that clamp, and the largest packet of a pod through the twin.",
    "The MTU of the way out for the pods, or a rule that clamps the MSS.",
    "https://docs.tigera.io/calico/latest/networking/configuring/mtu",
    "Small packets arrive and large ones are lost, such as an answer of HTTPS or a file",
    worst=ERROR,
)
def _mtu_of_paths(node: Node) -> t.Iterator[Suspicion]:
    """Yield links by which a pod's largest packet does not leave. It is lost for good only if the pod does not learn that."""
    for family in FAMILIES:
        for route, pods in _ways_out(node, family):
            sizes = {pod: node.largest(link) for pod, link in pods.items()}
            pod = max(sizes, key=lambda pod: sizes[pod], default="")
            least = min(filter(None, (node.mtu(route.dev), route.mtu))) if pod else 0
            if not pod or sizes[pod] <= least or _clamps(node, family):
                continue
            link, dropping = pods[pod], next(_dropping(node, family, "output"), "")
            learns = "the pod does not learn it, as a rule drops the node's ICMP" if dropping else "the node's ICMP tells the pod"
            what = (
                f"{link} takes packets of {sizes[pod]} bytes, and {route.dev} leads {least}: {learns}. Set the MTU of the pods to"
                f" {least} in the configuration of the CNI, or clamp the MSS (-j TCPMSS --clamp-mss-to-pmtu)."
            )
            to = OUTSIDE[family] if route.to == "default" else str(_network(route)[-2])
            packet = {"source": pod, "destination": to, "destination_port": 443, "interface": link}
            trial = Trial({**packet, "length": sizes[pod], "df": True}, culprit=functools.partial(_is_of, route.dev))
            evidence = (_line(node.link(link)), f"{route.dev} mtu {least}", *filter(None, (dropping,)))
            yield Suspicion(f"{family} {route.dev}", what, evidence, None, trial, ERROR if dropping else NOTE)


def _ways_out(node: Node, family: str) -> t.Iterator[tuple[Route, dict[str, str]]]:
    """Yield the best default routes, one route by each tunnel, and those of interfaces that pods share.

    Each with the links of the pods that may take it, by address.
    """
    pods, tables = node.pods_of(family), node.tables_of_enis() if family == IPV4 else {}
    table_of = {rule.pod: rule.table for rule in node.rules(family) if rule.table in tables} if tables else {}
    names = {link.name for link in purpose.with_heads(node)} if pods else ()
    by_tunnel = {route.dev: route for route in node.routes(family) if route.dev in names}
    to_networks = (each for each in by_tunnel.values() if each.to != "default" and _network(each).num_addresses > 2)
    for route in (*node.best_defaults(family), *to_networks) if pods else ():
        yield route, {pod: link for pod, link in pods.items() if pod not in table_of}
    for table in tables:
        behind = {pod: link for pod, link in pods.items() if table_of.get(pod) == table}
        yield from ((route, behind) for route in node.routes(family, table) if route.to == "default" and route.dev)


def _is_of(link: str, decider: Object | None) -> bool:
    """Return whether it is the MTU of a link, or of a route by it."""
    return isinstance(decider, Mtu) and decider.link == link or isinstance(decider, RouteMtu) and link in decider.route.links


def _clamps(node: Node, family: str) -> bool:
    """Return whether a rule sets the MSS of connections: TCPMSS of iptables, ``tcp option maxseg size set`` of nft."""
    statements = (
        each for table in node.tables([family], "mangle", "filter") for rule in table.rules(_CLAMPING) for each in rule.statements
    )
    return any(each.kind in ("tcpmss", "tcp option maxseg size") or each.target == "TCPMSS" for each in statements)


@check(
    "pmtu-filtered",
    NOTE,
    "A rule drops the ICMP errors by which a sender learns that its packets are too large (ICMP type 3 code 4, ICMPv6 type 2).",
    "The rules of nft and iptables that such an error meets, for the node and for its pods.",
    "A rule before it that accepts these errors.",
    "https://www.rfc-editor.org/rfc/rfc2923",
    "Small packets arrive and large ones are lost, such as an answer of HTTPS or a file",
)
def _pmtu_filtered(node: Node) -> t.Iterator[Suspicion]:
    kinds = {IPV4: "icmp --icmp-type fragmentation-needed", IPV6: "ipv6-icmp --icmpv6-type packet-too-big"}
    for family in FAMILIES:
        for hook in HOOKS:
            for line in _dropping(node, family, hook):
                what = (
                    f"A rule drops the {family} errors that tell the {'node' if hook == 'input' else 'pods'} the MTU of a path."
                )
                text = "Accept these errors before the rule"
                command = f"{TABLES_OF[family]}tables -I {hook.upper()} -p {kinds[family]} -j ACCEPT"
                yield Suspicion(f"{family} {hook}", what, (line,), Remedy(operator=text, commands=(command,)))


def _dropping(node: Node, family: str, hook: str) -> t.Iterator[str]:
    """Yield the rules that drop an error for the node, for a pod, or of the node for a pod, from whomever it comes."""
    packet = _error(node, family, hook)
    for table in node.tables([family], "raw", "mangle", "filter") if packet else ():
        for name, chain in table.chains.items():
            if chain.hook in HOOKS[hook] and chain.kind != "nat" and table.family in (TABLES_OF[family], "inet"):
                rule = passage.dropping(table, name, packet)
                if rule:
                    yield rule.line or f"table {table}, chain {rule.chain}"


def _error(node: Node, family: str, hook: str) -> passage.Packet:
    """Return an error that meets a hook; empty if the node has no uplink, or no pod for whom it is."""
    uplink, pods = next(iter(node.uplinks(family)), ""), node.pods_of(family) if hook != "input" else {}
    own, pod = next(iter(node.addresses(uplink, family)), ""), next(iter(pods), "")
    if not own or hook != "input" and not pod:
        return {}
    entrance, source = ("", own) if hook == "output" else (uplink, OUTSIDE[family])
    addresses = {"saddr": source, "daddr": pod or own}
    links = {**dict.fromkeys(("iifname", "iif"), entrance), **dict.fromkeys(("oifname", "oif"), node.entrance(pods.get(pod, "")))}
    return {
        **{field: words.__contains__ for field, words in _WORDS[family].items()},
        "ct state": "related".__eq__,
        **{field: functools.partial(fnmatch.fnmatchcase, link) for field, link in links.items()},
        **{f"{TABLES_OF[family]} {field}": functools.partial(_is_within, address) for field, address in addresses.items()},
    }


@functools.lru_cache(maxsize=4096)  # rules name the same addresses again and again
def _is_within(address: str, value: str) -> bool | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address) in ipaddress.ip_network(value, strict=False)
    return None  # a range
