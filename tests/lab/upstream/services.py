# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services as the API has them: of both IP versions, with their EndpointSlices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lab.service import Policy

SERVICE_RANGES = ("10.96.0.0/16", "2001:db8:96::/112")
PORT, TARGET_PORT = 80, 8080


class Endpoint(NamedTuple):
    address: str
    node: str

    @property
    def version(self) -> str:
        return "IPv6" if ":" in self.address else "IPv4"


@dataclasses.dataclass(frozen=True)
class Service:
    """A Service of type LoadBalancer with one TCP port, and its endpoints, which serve TARGET_PORT.

    ``node_port``: without one, the type is ClusterIP. ``balancers``: addresses of load balancers. ``ranges``: sources that may
    call these. ``health_port``: where kube-proxy answers the load balancer, with the policy Local.
    """

    number: int
    endpoints: Sequence[Endpoint] = ()
    node_port: int = 0
    balancers: Sequence[str] = ()
    ranges: Sequence[str] = ()
    policy: Policy = "Cluster"
    health_port: int = 0
    affinity: bool = False
    port: int = PORT

    @property
    def name(self) -> str:
        return f"service{self.number}"

    @property
    def addresses(self) -> tuple[str, str]:
        """Return the cluster IPs, of IPv4 and IPv6."""
        number = self.number + 1
        return f"10.96.{number >> 8}.{number & 255}", f"2001:db8:96::{number:x}"

    def manifests(self) -> list[dict[str, Any]]:
        return [self._service(), *(self._slice(version) for version in ("IPv4", "IPv6"))]

    def _service(self) -> dict[str, Any]:
        status = {"ingress": [{"ip": address, "ipMode": "VIP"} for address in self.balancers]}
        return {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": self.name, "namespace": "default", "uid": f"service-{self.number}"},
            "spec": {
                "type": "LoadBalancer" if self.node_port else "ClusterIP",
                "clusterIP": self.addresses[0],
                "clusterIPs": list(self.addresses),
                "ipFamilies": ["IPv4", "IPv6"],
                "ipFamilyPolicy": "RequireDualStack",
                "ports": [{"name": "http", "protocol": "TCP", "port": self.port, "targetPort": TARGET_PORT, **self._node_port()}],
                "sessionAffinity": "ClientIP" if self.affinity else "None",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}} if self.affinity else None,
                "internalTrafficPolicy": "Cluster",
                **self._external(),
            },
            "status": {"loadBalancer": status if self.balancers else {}},
        }

    def _node_port(self) -> dict[str, int]:
        return {"nodePort": self.node_port} if self.node_port else {}

    def _external(self) -> dict[str, Any]:
        if not self.node_port:
            return {}
        health = {"healthCheckNodePort": self.health_port} if self.health_port else {}
        return {"externalTrafficPolicy": self.policy, "loadBalancerSourceRanges": list(self.ranges), **health}

    def _slice(self, version: str) -> dict[str, Any]:
        return {
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": f"{self.name}-{version.lower()}",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": version,
            "ports": [{"name": "http", "protocol": "TCP", "port": TARGET_PORT}],
            "endpoints": [_endpoint(endpoint) for endpoint in self.endpoints if endpoint.version == version],
        }


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    state = {"ready": True, "serving": True, "terminating": False}
    return {"addresses": [endpoint.address], "nodeName": endpoint.node, "conditions": state}


def node(name: str, addresses: Sequence[str], pod_ranges: Sequence[str]) -> dict[str, Any]:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": name},
        "spec": {"podCIDR": pod_ranges[0], "podCIDRs": list(pod_ranges)},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def service_ranges() -> dict[str, Any]:
    """Return the ServiceCIDR of the cluster."""
    return {
        "kind": "ServiceCIDR",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": list(SERVICE_RANGES)},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def manifests(services: Iterable[Service]) -> Iterator[dict[str, Any]]:
    for service in services:
        yield from service.manifests()
