# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packets a cloud's load balancer forwards to which node: Services, Nodes and probe results in, nft and ip(8) text out.

Pure: it reads what the Kubernetes API answers, and touches neither the API nor the network.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from lab.load_balancer import PROBE_SOURCE
from lab.service import IPV4, IPV6, Family

_K = TypeVar("_K")

FAMILIES = {"IPv4": IPV4, "IPv6": IPV6}
"""By the names of ``spec.ipFamilies``."""

FRONTEND_SUBNETS = {IPV4: ipaddress.ip_network("203.0.113.0/24"), IPV6: ipaddress.ip_network("2001:db8:fffe::/64")}
"""Documentation addresses, RFC 5737 and RFC 3849. No machine has them."""

_TABLE = "load-balancing"
NO_RULESET = f"table inet {_TABLE}\ndelete table inet {_TABLE}\n"
"""The nft text that removes what a ruleset has loaded, or does nothing."""

_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"  # a label, whatever its value


@dataclasses.dataclass(frozen=True)
class Balancer:
    """How the load balancer of a cloud treats a Service.

    ``floating_ip``: packets reach a node with the front-end address as their destination; otherwise they are translated to
    the node's own address and its node port. The source address stays in both cases.
    ``ingress``: what the Service's status shows. kube-proxy serves an ``ip`` on each node, so pods do not leave the node
    for it; it knows nothing of a ``hostname``.
    ``probe_sources``: where probes come from; in a family without an entry, from the load balancer's own address.
    """

    floating_ip: bool
    ingress: Literal["ip", "hostname"]
    probe_sources: Mapping[Family, str]


AZURE = Balancer(floating_ip=True, ingress="ip", probe_sources={IPV4: "168.63.129.16", IPV6: PROBE_SOURCE})
"""As cloud-provider-azure sets it up by default (``pkg/provider/azure_loadbalancer.go``)."""

AWS = Balancer(floating_ip=False, ingress="hostname", probe_sources={})
"""A network load balancer whose targets are instances, and which preserves the client's address."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A node that may be a backend. ``number``, from 1, is the mark of its packets and the routing table for them."""

    name: str
    number: int
    addresses: Mapping[Family, str]


@dataclasses.dataclass(frozen=True)
class Target:
    """A probed port of a node. ``http``: probed by GET /healthz, which must answer 200; otherwise by a TCP connection."""

    node: str
    address: str
    port: int
    http: bool


@dataclasses.dataclass(frozen=True)
class Port:
    """A port of a Service. ``protocol`` is tcp or udp."""

    protocol: str
    port: int
    node_port: int


@dataclasses.dataclass(frozen=True)
class Frontend:
    """A Service's address in one family. ``service`` is NAMESPACE/NAME; ``health_check_port`` is that of policy Local."""

    service: str
    family: Family
    number: int
    ports: tuple[Port, ...]
    health_check_port: int | None

    @property
    def address(self) -> str:
        return str(FRONTEND_SUBNETS[self.family][self.number])

    def match(self, port: Port) -> str:
        """The part of an nft rule that matches the port's packets."""
        return f"{self.family.nft} daddr {self.address} {port.protocol} dport {port.port}"

    def target(self, port: Port, node: Node) -> Target | None:
        """The target that decides whether the node gets this port's packets; None without a probe, as for UDP with policy
        Cluster."""
        if self.health_check_port:
            return Target(node.name, node.addresses[self.family], self.health_check_port, http=True)
        if port.protocol == "tcp":
            return Target(node.name, node.addresses[self.family], port.node_port, http=False)
        return None


def numbered(keys: Iterable[_K], before: Mapping[_K, int]) -> dict[_K, int]:
    """A number from 1 for each key: the one that it had before, or the lowest that is free."""
    wanted = list(keys)
    kept = {key: before[key] for key in wanted if key in before}
    free = (number for number in itertools.count(1) if number not in kept.values())
    return {key: kept[key] if key in kept else next(free) for key in wanted}


def frontends(services: Sequence[Mapping[str, Any]], before: Mapping[str, int]) -> list[Frontend]:
    """The front-end addresses of all Services of type LoadBalancer. ``before``: their numbers so far, by NAMESPACE/NAME."""
    balanced = {name_of(service): service for service in services if _is_balanced(service)}
    numbers = numbered(balanced, before)
    return [
        Frontend(name, FAMILIES[family], numbers[name], _ports(service), service["spec"].get("healthCheckNodePort"))
        for name, service in balanced.items()
        for family in service["spec"]["ipFamilies"]
    ]


def nodes(listed: Sequence[Mapping[str, Any]], before: Mapping[str, int]) -> list[Node]:
    """The nodes that a cloud provider hands to its load balancer: all that are Ready and not excluded by label.

    As getNodeConditionPredicate of Kubernetes 1.20 has it (vendor/k8s.io/cloud-provider/controllers/service/controller.go).
    ``before``: their numbers so far, by name.
    """
    eligible = {node["metadata"]["name"]: node for node in listed if _is_eligible(node)}
    numbers = numbered(eligible, before)
    return [Node(name, numbers[name], _addresses(node)) for name, node in eligible.items()]


def name_of(service: Mapping[str, Any]) -> str:
    return f"{service['metadata']['namespace']}/{service['metadata']['name']}"


def _is_balanced(service: Mapping[str, Any]) -> bool:
    return service["spec"]["type"] == "LoadBalancer" and "deletionTimestamp" not in service["metadata"]


def _ports(service: Mapping[str, Any]) -> tuple[Port, ...]:
    return tuple(Port(port["protocol"].lower(), port["port"], port["nodePort"]) for port in service["spec"]["ports"])


def _is_eligible(node: Mapping[str, Any]) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and _EXCLUDED not in node["metadata"].get("labels", {})


def _addresses(node: Mapping[str, Any]) -> dict[Family, str]:
    """The first internal address of each family."""
    internal = [entry["address"] for entry in node["status"].get("addresses", ()) if entry["type"] == "InternalIP"]
    return {(IPV6 if ":" in address else IPV4): address for address in reversed(internal)}


@dataclasses.dataclass(frozen=True)
class Forwarding:
    """All front ends and all nodes at one moment. The callers pass the ``healthy`` targets, which they know by probes."""

    cloud: Balancer
    frontends: Sequence[Frontend] = ()
    nodes: Sequence[Node] = ()

    def targets(self) -> set[Target]:
        """The targets to probe. Ports with the same answer share a probe."""
        targets = {
            frontend.target(port, node)
            for frontend in self.frontends
            for port in frontend.ports
            for node in self.candidates(frontend)
        }
        return {target for target in targets if target is not None}

    def candidates(self, frontend: Frontend) -> list[Node]:
        """The nodes that have an address of the front end's family."""
        return [node for node in self.nodes if frontend.family in node.addresses]

    def backends(self, frontend: Frontend, port: Port, healthy: Collection[Target]) -> list[Node]:
        """The nodes that get this port's packets."""
        candidates = [(node, frontend.target(port, node)) for node in self.candidates(frontend)]
        return [node for node, target in candidates if target is None or target in healthy]

    def ingress(self, service: str) -> list[dict[str, str]]:
        """``status.loadBalancer.ingress`` of a Service, which is empty for one that is not balanced."""
        of_service = [frontend for frontend in self.frontends if frontend.service == service]
        if self.cloud.ingress == "ip":
            return [{"ip": frontend.address} for frontend in of_service]
        namespace, _slash, name = service.partition("/")
        return [{"hostname": f"{name}.{namespace}.elb.example"}] if of_service else []

    def routes(self, family: Family) -> list[str]:
        """Lines for ``ip -batch``: each node's table leads to that node."""
        reachable = [node for node in self.nodes if family in node.addresses]
        return [f"route replace default via {node.addresses[family]} table {node.number}" for node in reachable]

    def ruleset(self, healthy: Collection[Target]) -> str:
        """The whole nft table, to be loaded in place of the one before.

        Connections go to the healthy nodes in turn. One that is answered stays with its node, whatever later probes say.
        Packets for a front end without a healthy node are dropped, and so are packets for a port that it does not have.
        """
        rules = [
            f"{frontend.match(port)} {self._send(frontend, port, chosen)}"
            for frontend in self.frontends
            for port in frontend.ports
            if (chosen := self.backends(frontend, port, healthy))
        ]
        if self.cloud.floating_ip:
            hook = "type filter hook prerouting priority mangle; policy accept;"
            rules = [hook, *(f"ct state new {rule}" for rule in rules), "ct direction original meta mark set ct mark"]
        else:
            rules = ["type nat hook prerouting priority dstnat; policy accept;", *rules]
        refused = [f"meta mark 0 {family.nft} daddr {subnet} drop" for family, subnet in FRONTEND_SUBNETS.items()]
        return "\n".join(
            [
                f"{NO_RULESET}table inet {_TABLE} {{",
                *("chain send {", *rules, "}"),
                *("chain refuse {", "type filter hook prerouting priority filter; policy accept;", *refused, "}"),
                "}\n",
            ]
        )

    def _send(self, frontend: Frontend, port: Port, chosen: Sequence[Node]) -> str:
        """The nft statement that gives a new connection to one of the nodes."""
        family = frontend.family
        values = [str(node.number) if self.cloud.floating_ip else node.addresses[family] for node in chosen]
        turn = f"numgen inc mod {len(values)} map {{ {', '.join(f'{turn} : {value}' for turn, value in enumerate(values))} }}"
        return f"ct mark set {turn}" if self.cloud.floating_ip else f"dnat {family.nft} to {turn} : {port.node_port}"
