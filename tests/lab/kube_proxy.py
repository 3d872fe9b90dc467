# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole rules of kube-proxy for many Services of all kinds, in nftables and in iptables mode.

In the form of Kubernetes 1.31 and newer: names, hooks, priorities and the order of rules.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.node import NamespaceNode

PODS, NODE = "10.244.0.0/16", "10.0.0.4"
PORT, TARGET = 80, 8080
KINDS = (
    "plain", "three", "node port", "plain", "load balancer", "three", "source ranges", "affinity", "local", "no endpoints",
)  # fmt: skip
"""By the number of a Service, again and again."""


@dataclasses.dataclass(frozen=True)
class Service:
    """A Service of a kind. endpoints: addresses of pods, of which the first is on the node."""

    number: int

    @property
    def kind(self) -> str:
        return KINDS[self.number % len(KINDS)]

    @property
    def name(self) -> str:
        return f"ns{self.number % 7}/svc{self.number}"

    @property
    def token(self) -> str:
        return f"{self.number:08X}"

    @property
    def address(self) -> str:
        return f"10.96.{self.number // 250}.{self.number % 250 + 1}"

    @property
    def node_port(self) -> int:
        has_port = self.kind in ("node port", "load balancer", "source ranges", "local", "no endpoints")
        return 30000 + self.number % 2768 if has_port and self.number < 2768 else 0

    @property
    def balancer(self) -> str:
        """Address of the load balancer; empty for none."""
        has_balancer = self.kind in ("load balancer", "source ranges", "local")
        return f"198.{51 + self.number // 60000}.{self.number // 250 % 250}.{self.number % 250 + 1}" if has_balancer else ""

    @property
    def ranges(self) -> str:
        return "203.0.113.0/24" if self.kind == "source ranges" else ""

    @property
    def endpoints(self) -> list[str]:
        count = {"no endpoints": 0, "three": 3, "affinity": 2, "local": 2}.get(self.kind, 1)
        return [f"10.244.{self.number // 80}.{self.number % 80 * 3 + place + 1}" for place in range(count)]

    @property
    def local_endpoints(self) -> list[str]:
        return self.endpoints[:1] if self.kind == "local" else self.endpoints

    @property
    def chain(self) -> str:
        return f"{self.token}-{self.name}/tcp/p80"


MODES = ("nftables", "iptables")


def load(node: NamespaceNode, mode: str, listed: Sequence[Service]) -> None:
    """Load the rules of a mode into a node."""
    is_nft = mode == "nftables"
    node.run_from_host(["nft", "-f", "-"] if is_nft else ["iptables-nft-restore"], (nft if is_nft else iptables)(listed))


def services(count: int) -> list[Service]:
    return [Service(number) for number in range(count)]


def nft(listed: Sequence[Service]) -> str:
    """The table as ``nft -f`` takes it."""
    clusters = ", ".join(service.address for service in listed)
    maps = {"no-endpoint-services": _unserved(listed), "firewall-ips": _firewalled(listed), "service-ips": _served(listed)}
    ports = {
        "no-endpoint-nodeports": [
            f"tcp . {service.node_port} {_rejected(service)}" for service in _with_ports(listed) if not service.endpoints
        ],
        "service-nodeports": [
            f"tcp . {service.node_port} : goto external-{service.chain}" for service in _with_ports(listed) if service.endpoints
        ],
    }
    blocks = [
        f' set cluster-ips {{ type ipv4_addr; comment "Active ClusterIPs"; {_elements([clusters] if clusters else [])} }}',
        f' set nodeport-ips {{ type ipv4_addr; comment "IPs that accept NodePort traffic"; elements = {{ {NODE} }} }}',
        *(
            f" map {name} {{ type ipv4_addr . inet_proto . inet_service : verdict; {_elements(entries)} }}"
            for name, entries in maps.items()
        ),
        *(f" map {name} {{ type inet_proto . inet_service : verdict; {_elements(entries)} }}" for name, entries in ports.items()),
        *itertools.chain.from_iterable(map(_nft_service, listed)),
    ]
    return "\n".join(["table ip kube-proxy {", ' comment "rules for kube-proxy"', *blocks, _NFT_CHAINS, "}", ""])


_NFT_CHAINS = """\
 chain filter-prerouting-pre-dnat { type filter hook prerouting priority -110; ct state new jump firewall-check; }
 chain filter-input {
  type filter hook input priority -110
  ct state new jump nodeport-endpoints-check
  ct state new jump service-endpoints-check
 }
 chain filter-forward {
  type filter hook forward priority -110
  ct state new jump service-endpoints-check
  ct state new jump cluster-ips-check
 }
 chain filter-output {
  type filter hook output priority -110
  ct state new jump service-endpoints-check
  ct state new jump firewall-check
 }
 chain filter-output-post-dnat { type filter hook output priority -90; ct state new jump cluster-ips-check; }
 chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
 chain nat-output { type nat hook output priority -100; jump services; }
 chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }
 chain nodeport-endpoints-check { ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }
 chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
 chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
 chain services {
  ip daddr . meta l4proto . th dport vmap @service-ips
  ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
 }
 chain masquerading {
  meta mark and 0x4000 == 0 return
  meta mark set meta mark xor 0x4000
  masquerade fully-random
 }
 chain cluster-ips-check {
  ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
  ip daddr { 10.96.0.0/12 } drop comment "Drop traffic to unallocated ClusterIPs"
 }
 chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
 chain reject-chain { reject; }"""


def _elements(listed: Sequence[str]) -> str:
    return f"elements = {{ {', '.join(listed)} }}" if listed else ""


def _rejected(service: Service) -> str:
    return f'comment "{service.name}:p80" : goto reject-chain'


def _with_ports(listed: Sequence[Service]) -> list[Service]:
    return [service for service in listed if service.node_port]


def _unserved(listed: Sequence[Service]) -> list[str]:
    unserved = [service for service in listed if not service.endpoints]
    return [
        f"{address} . tcp . {PORT} {_rejected(service)}"
        for service in unserved
        for address in (service.address, service.balancer)
        if address
    ]


def _firewalled(listed: Sequence[Service]) -> list[str]:
    limited = [service for service in listed if service.ranges]
    return [
        f'{service.balancer} . tcp . {PORT} comment "{service.name}:p80" : goto firewall-{service.chain}' for service in limited
    ]


def _served(listed: Sequence[Service]) -> list[str]:
    served = [service for service in listed if service.endpoints]
    inner = [f"{service.address} . tcp . {PORT} : goto service-{service.chain}" for service in served]
    return inner + [
        f"{service.balancer} . tcp . {PORT} : goto external-{service.chain}" for service in served if service.balancer
    ]


def _nft_service(service: Service) -> Iterator[str]:
    if not service.endpoints:
        return
    ends = {address: f"endpoint-{service.token}-{service.name}/tcp/p80__{address}/{TARGET}" for address in service.endpoints}
    has_affinity = service.kind == "affinity"
    sets = {address: f"affinity-{service.token}-{service.name}/tcp/p80__{address}/{TARGET}" for address in service.endpoints}
    if has_affinity:
        yield from (f" set {name} {{ type ipv4_addr; flags dynamic,timeout; timeout 3h; }}" for name in sets.values())
    again = [f"  ip saddr @{sets[address]} goto {chain}" for address, chain in ends.items()] if has_affinity else []
    yield "\n".join(
        [
            f" chain service-{service.chain} {{",
            f"  ip daddr {service.address} tcp dport {PORT} ip saddr != {PODS} jump mark-for-masquerade",
            *again,
            f"  numgen random mod {len(ends)} vmap {{ {_numbered(ends.values())} }}",
            " }",
        ]
    )
    if service.node_port or service.balancer:
        yield from _nft_external(service, ends)
    for address, chain in ends.items():
        fill = [f"  update @{sets[address]} {{ ip saddr }}"] if has_affinity else []
        rules = [f"  ip saddr {address} jump mark-for-masquerade", *fill, f"  meta l4proto tcp dnat to {address}:{TARGET}"]
        yield "\n".join([f" chain {chain} {{", *rules, " }"])
    if service.ranges:
        yield f" chain firewall-{service.chain} {{\n  ip saddr != {{ {service.ranges} }} drop\n }}"


def _nft_external(service: Service, ends: dict[str, str]) -> Iterator[str]:
    if service.kind != "local":
        yield f" chain external-{service.chain} {{\n  jump mark-for-masquerade\n  goto service-{service.chain}\n }}"
        return
    local_ends = [ends[address] for address in service.local_endpoints]
    rules = [
        f'  ip saddr {PODS} goto service-{service.chain} comment "short-circuit pod traffic"',
        '  fib saddr type local jump mark-for-masquerade comment "masquerade local traffic"',
        f'  fib saddr type local goto service-{service.chain} comment "short-circuit local traffic"',
        f"  numgen random mod {len(local_ends)} vmap {{ {_numbered(local_ends)} }}",
    ]
    yield "\n".join([f" chain external-{service.chain} {{", *rules, " }"])


def _numbered(chains: Iterable[str]) -> str:
    return ", ".join(f"{number} : goto {chain}" for number, chain in enumerate(chains))


def iptables(listed: Sequence[Service]) -> str:
    """The tables as ``iptables-restore`` takes them."""
    chains = [f"KUBE-{kind}-{name}" for service in listed for kind, name in _iptables_chains(service)]
    nat = [
        *(f":{chain} ACCEPT [0:0]" for chain in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")),
        *(f":{chain} - [0:0]" for chain in (*_NAT_CHAINS, *chains)),
        *_NAT_RULES,
        *itertools.chain.from_iterable(map(_iptables_service, listed)),
        '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"'
        " -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
    ]
    unserved = [
        f'-A KUBE-SERVICES -d {service.address}/32 -p tcp -m comment --comment "{service.name}:p80 has no endpoints" -m tcp'
        f" --dport {PORT} -j REJECT --reject-with icmp-port-unreachable"
        for service in listed
        if not service.endpoints
    ]
    external = [
        f'-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment "{service.name}:p80 has no endpoints" -m addrtype'
        f" --dst-type LOCAL -m tcp --dport {service.node_port} -j REJECT --reject-with icmp-port-unreachable"
        for service in _with_ports(listed)
        if not service.endpoints
    ]
    firewalled = [
        f'-A KUBE-PROXY-FIREWALL -d {service.balancer}/32 -p tcp -m comment --comment "{service.name}:p80 traffic not accepted by'
        f' KUBE-FW-{_chain_name(service)}" -m tcp --dport {PORT} -j DROP'
        for service in listed
        if service.ranges
    ]
    filtered = ["*filter", *_FILTER, *unserved, *external, *firewalled, "COMMIT"]
    return "\n".join(["*nat", *nat, "COMMIT", *filtered, ""])


_NAT_CHAINS = ("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ")
_NAT_RULES = (
    '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
    "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
    '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
)
_FILTER = (
    *(f":{chain} ACCEPT [0:0]" for chain in ("INPUT", "FORWARD", "OUTPUT")),
    *(f":{chain} - [0:0]" for chain in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-PROXY-FIREWALL")),
    "-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
    "-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES",
    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
    "-A FORWARD -j KUBE-FORWARD",
    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES",
    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES",
    "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
    "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES",
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
    "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
)


def _chain_name(service: Service, place: int | None = None) -> str:
    return f"{service.number:016d}" if place is None else f"{service.number:012d}{place:04d}"


def _iptables_chains(service: Service) -> Iterator[tuple[str, str]]:
    if not service.endpoints:
        return
    name = _chain_name(service)
    yield "SVC", name
    if service.node_port or service.balancer:
        yield "EXT", name
    if service.kind == "local":
        yield "SVL", name
    if service.ranges:
        yield "FW", name
    yield from (("SEP", _chain_name(service, place)) for place in range(len(service.endpoints)))


def _iptables_service(service: Service) -> Iterator[str]:
    if service.endpoints:
        yield from _iptables_entries(service)
        yield from _iptables_external(service)
        yield from _iptables_endpoints(service)


def _of_cluster(service: Service) -> str:
    comment = f'-m comment --comment "{service.name}:p80 cluster IP"'
    return f"-d {service.address}/32 -p tcp {comment} -m tcp --dport {PORT}"


def _iptables_entries(service: Service) -> Iterator[str]:
    """The rules of chains that all Services share, and that of source ranges."""
    name, comment = _chain_name(service), f"-m comment --comment {service.name}:p80"
    yield f"-A KUBE-SERVICES {_of_cluster(service)} -j KUBE-SVC-{name}"
    if service.balancer:
        target = f"KUBE-FW-{name}" if service.ranges else f"KUBE-EXT-{name}"
        balanced = f'-m comment --comment "{service.name}:p80 loadbalancer IP"'
        yield f"-A KUBE-SERVICES -d {service.balancer}/32 -p tcp {balanced} -m tcp --dport {PORT} -j {target}"
    if service.ranges:
        yield f"-A KUBE-FW-{name} -s {service.ranges} {comment} -j KUBE-EXT-{name}"
        yield f'-A KUBE-FW-{name} -m comment --comment "other traffic to {service.name}:p80 will be dropped by the firewall"'
    if service.node_port:
        yield f"-A KUBE-NODEPORTS -p tcp {comment} -m tcp --dport {service.node_port} -j KUBE-EXT-{name}"


def _iptables_external(service: Service) -> Iterator[str]:
    name = _chain_name(service)
    chain = f"-A KUBE-EXT-{name}"
    if service.kind == "local":
        local = "-m addrtype --src-type LOCAL"
        yield f'{chain} -s {PODS} -m comment --comment "pod traffic for {service.name}:p80" -j KUBE-SVC-{name}'
        yield f'{chain} -m comment --comment "masquerade LOCAL traffic for {service.name}:p80" {local} -j KUBE-MARK-MASQ'
        yield f'{chain} -m comment --comment "route LOCAL traffic for {service.name}:p80" {local} -j KUBE-SVC-{name}'
        yield f"{chain} -j KUBE-SVL-{name}"
        yield f"-A KUBE-SVL-{name} -m comment --comment {service.name}:p80 -j KUBE-SEP-{_chain_name(service, 0)}"
    elif service.node_port or service.balancer:
        yield f'{chain} -m comment --comment "masquerade traffic for {service.name}:p80" -j KUBE-MARK-MASQ'
        yield f"{chain} -j KUBE-SVC-{name}"


def _iptables_endpoints(service: Service) -> Iterator[str]:
    chain, comment = f"-A KUBE-SVC-{_chain_name(service)}", f"-m comment --comment {service.name}:p80"
    has_affinity, by_source = service.kind == "affinity", "--mask 255.255.255.255 --rsource"
    ends = {f"KUBE-SEP-{_chain_name(service, place)}": address for place, address in enumerate(service.endpoints)}
    yield f"{chain} ! -s {PODS} {_of_cluster(service)} -j KUBE-MARK-MASQ"
    if has_affinity:
        recent = "-m recent --rcheck --seconds 10800 --reap"
        yield from (f"{chain} {comment} {recent} --name {end} {by_source} -j {end}" for end in ends)
    for left, (end, address) in zip(range(len(ends), 0, -1), ends.items()):
        chance = f" -m statistic --mode random --probability {1 / left:.11f}" if left > 1 else ""
        yield f'{chain} -m comment --comment "{service.name}:p80 -> {address}:{TARGET}"{chance} -j {end}'
    for end, address in ends.items():
        fill = f" -m recent --set --name {end} {by_source}" if has_affinity else ""
        yield f"-A {end} -s {address}/32 {comment} -j KUBE-MARK-MASQ"
        yield f"-A {end} -p tcp {comment}{fill} -m tcp -j DNAT --to-destination {address}:{TARGET}"
