# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes services of type LoadBalancer on a node, as kube-proxy writes them.

Rendered in kube-proxy's own style (kubernetes/kubernetes pkg/proxy/nftables/README.md and pkg/proxy/iptables), cut down
to node ports and load balancer addresses: the same hooks, priorities, maps, sets and marks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

Policy = Literal["Cluster", "Local"]
Backend = Literal["nftables", "iptables"]
PROTOCOLS = ("tcp", "udp")

MASQUERADE_MARK = "0x4000"
"""kube-proxy's --iptables-masquerade-bit, default 14."""


class Family(NamedTuple):
    """The parts of the rules that depend on the IP version. ``nodes`` holds the addresses on which node ports are served."""

    nft: str
    iptables: str
    address_type: str
    nodes: str


IPV4 = Family("ip", "iptables-nft", "ipv4_addr", "10.0.0.0/24")
IPV6 = Family("ip6", "ip6tables-nft", "ipv6_addr", "2001:db8:0:1::/64")


@dataclasses.dataclass(frozen=True)
class Service:
    """A node port, TCP and UDP, in front of pods, and the same at ``port`` of the load balancer's address, if it has one.

    ``endpoints`` are the pods that this node sends to: all of them under "Cluster", its own ones under "Local".
    """

    node_port: int
    endpoints: tuple[str, ...]
    target_port: int
    policy: Policy
    load_balancer_ip: str | None = None
    port: int = 80


def nft_ruleset(services: Sequence[Service], family: Family) -> str:
    """The whole table, to be loaded in place of the one before."""
    parts = [part for service in services for protocol in PROTOCOLS for part in _nft_chains(service, protocol)]
    ports = ",\n".join(_nft_port(service, protocol) for service in services for protocol in PROTOCOLS)
    balanced = [service for service in services if service.load_balancer_ip]
    addresses = [_nft_address(service, protocol) for service in balanced for protocol in PROTOCOLS]
    served = f"elements = {{ {', '.join(addresses)} }}" if addresses else ""
    missing = [_key(service, protocol) for service in services for protocol in PROTOCOLS if not service.endpoints]
    dropped = f"elements = {{ {', '.join(f'{key} : drop' for key in missing)} }}" if missing else ""
    return f"""\
table {family.nft} kube-proxy
delete table {family.nft} kube-proxy
table {family.nft} kube-proxy {{
  comment "rules for kube-proxy"
  set nodeport-ips {{ type {family.address_type}; flags interval; elements = {{ {family.nodes} }} }}
  set firewalled {{ type inet_proto . inet_service; }}
  map service-ips {{ type {family.address_type} . inet_proto . inet_service : verdict; {served} }}
  map service-nodeports {{ type inet_proto . inet_service : verdict; elements = {{ {ports} }} }}
  map no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; {dropped} }}
  chain mark-for-masquerade {{ meta mark set meta mark or {MASQUERADE_MARK}; }}
  chain masquerading {{
    meta mark and {MASQUERADE_MARK} == 0 return
    meta mark set meta mark xor {MASQUERADE_MARK}
    masquerade fully-random
  }}
  chain services {{
    {family.nft} daddr . meta l4proto . th dport vmap @service-ips
    {family.nft} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
  }}
  chain filter-prerouting {{
    type filter hook prerouting priority dstnat - 10; policy accept;
    ct state new {family.nft} daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
  }}
  chain nat-prerouting {{ type nat hook prerouting priority dstnat; policy accept; jump services; }}
  chain nat-output {{ type nat hook output priority -100; policy accept; jump services; }}
  chain nat-postrouting {{ type nat hook postrouting priority srcnat; policy accept; jump masquerading; }}
  {"  ".join(parts)}}}
"""


def iptables_rules(services: Sequence[Service]) -> str:
    """The same for ``iptables-restore --noflush`` and its sibling: chains named here are replaced, others are kept."""
    chains = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"]
    rules = [
        f"-A KUBE-MARK-MASQ -j MARK --or-mark {MASQUERADE_MARK}",
        f"-A KUBE-POSTROUTING -m mark ! --mark {MASQUERADE_MARK}/{MASQUERADE_MARK} -j RETURN",
        f"-A KUBE-POSTROUTING -j MARK --xor-mark {MASQUERADE_MARK}",
        "-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
    ]
    for service in services:
        for protocol in PROTOCOLS:
            chain = f"KUBE-EXT-{protocol.upper()}-{service.node_port}"
            chains.append(chain)
            rules += _iptables_service(service, protocol, chain)
    rules.append("-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
    return "\n".join(["*nat", *(f":{chain} - [0:0]" for chain in chains), *rules, "COMMIT", ""])


IPTABLES_JUMPS = (("PREROUTING", "KUBE-SERVICES"), ("OUTPUT", "KUBE-SERVICES"), ("POSTROUTING", "KUBE-POSTROUTING"))
"""Rules in the built-in chains of table nat; loaded once."""


def _key(service: Service, protocol: str) -> str:
    return f"{protocol} . {service.node_port}"


def _nft_port(service: Service, protocol: str) -> str:
    return f"{_key(service, protocol)} : goto external-{protocol}-{service.node_port}"


def _nft_address(service: Service, protocol: str) -> str:
    return f"{service.load_balancer_ip} . {protocol} . {service.port} : goto external-{protocol}-{service.node_port}"


def _nft_chains(service: Service, protocol: str) -> list[str]:
    name = f"{protocol}-{service.node_port}"
    count = len(service.endpoints)
    masquerade = "jump mark-for-masquerade;" if service.policy == "Cluster" else ""
    choices = ", ".join(f"{number} : goto endpoint-{name}-{number}" for number in range(count))
    choose = f"numgen random mod {count} vmap {{ {choices} }};" if count else ""
    endpoints = [
        f"chain endpoint-{name}-{number} {{ meta l4proto {protocol} dnat to {_target(service, address)}; }}\n"
        for number, address in enumerate(service.endpoints)
    ]
    external = f"chain external-{name} {{ {masquerade} goto service-{name}; }}\n"
    return [*endpoints, f"chain service-{name} {{ {choose} }}\n", external]


def _iptables_service(service: Service, protocol: str, chain: str) -> list[str]:
    rules = [f"-A KUBE-NODEPORTS -p {protocol} -m {protocol} --dport {service.node_port} -j {chain}"]
    if service.load_balancer_ip:
        address = f"-d {service.load_balancer_ip} -p {protocol} -m {protocol} --dport {service.port}"
        rules.append(f"-A KUBE-SERVICES {address} -j {chain}")
    if service.policy == "Cluster":
        rules.append(f"-A {chain} -j KUBE-MARK-MASQ")
    for number, address in enumerate(service.endpoints):
        share = f"-m statistic --mode random --probability {1 / (len(service.endpoints) - number):.10f} "
        rules.append(f"-A {chain} -p {protocol} {share}-j DNAT --to-destination {_target(service, address)}")
    return rules


def _target(service: Service, address: str) -> str:
    return f"[{address}]:{service.target_port}" if ":" in address else f"{address}:{service.target_port}"
