# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The little cloud: a client, Azure's load balancer, nodes and their pods, from a short declaration.

client --- load balancer --- node1 --- pod1
                         +-- node2 --- pod2

client         2001:db8:ffff::2
load balancer  fe80::1234:5678:9abc and 2001:db8:0:1::1, on one link with all nodes
node N         eth0: 2001:db8:0:1::11, ::12, ...; 192.0.2.17, .18, ...
its pods       2001:db8:N::11, ::12, ...
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lab import collection, entering, links
from lab.entering import LabError
from lab.load_balancer import LINK, PROBE_MAC, PROBE_SOURCE, Client, LoadBalancer, RouterAdvertisements
from lab.namespace import Namespace
from lab.node import POD_PORT, NamespaceNode, Pod
from lab.server import Servers

_NODES_SUBNET = "2001:db8:0:1::"  # /64; documentation addresses, RFC 3849 and RFC 5737
_NODES_SUBNET_IPV4 = "192.0.2."  # /24
_CLIENT_SUBNET = "2001:db8:ffff::"  # /64
_FIRST = 0x11  # host part of the first node and of a node's first pod
_POD_GATEWAY = "fe80::1"  # the node's address on each pod's link
_READY_LIMIT = 10.0  # seconds for all links to carry packets; it takes milliseconds


@dataclasses.dataclass(frozen=True)
class Node:
    """A node to be built, with the names of its pods."""

    name: str
    pods: Sequence[str] = ()


class Lab:
    """A running cloud; ``with Lab(...) as lab`` or ``close()`` ends it. It ends with the process in any case.

    ``router_advertisements`` is a lifetime in seconds: the nodes then have their IPv6 default route from the load
    balancer's advertisements (accept_ra=2) and not as a static one.
    """

    def __init__(self, name: str, nodes: Sequence[Node], router_advertisements: int | None = None) -> None:
        self.name = name
        self.router_advertisements: RouterAdvertisements | None = None
        self._servers = Servers()
        self._namespaces: list[Namespace] = []
        self._pid_files: dict[str, int] = {}
        try:
            self._start_machines(nodes)
            self._plug_links()
            self._address_front()
            for node in self.nodes:
                self._address_node(node, advertised=router_advertisements is not None)
            if router_advertisements is not None:
                self.router_advertisements = RouterAdvertisements(self.load_balancer, router_advertisements)
            self._wait_until_connected()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all machines; the kernel frees what they had."""
        if self.router_advertisements is not None:
            self.router_advertisements.stop()
            self.router_advertisements = None
        self._servers.close()
        for namespace in self._namespaces:
            namespace.end()
        for namespace in self._namespaces:
            namespace.close()
        for descriptor in self._pid_files.values():
            os.close(descriptor)
        self._namespaces, self._pid_files = [], {}

    # Machines by name

    def node(self, name: str) -> NamespaceNode:
        return _named(self.nodes, name)

    def pod(self, name: str) -> Pod:
        return _named(self.pods, name)

    @property
    def pods(self) -> list[Pod]:
        return [pod for node in self.nodes for pod in node.pods]

    # For ansible-playbook

    def inventory(self) -> dict[str, Any]:
        """An inventory of all nodes, in group ``nodes``; needs ansible_environment()."""
        hosts = {
            node.name: {
                "ansible_become": False,  # the connection enters as root, and a node need not have sudo
                "ansible_connection": "lab_node",
                "ansible_pipelining": True,
                "ansible_python_interpreter": "/usr/bin/python3",
                "lab_node_namespaces": " ".join(node.namespaces),
                "lab_node_pid_file": self._pid_file(node),
            }
            for node in self.nodes
        }
        return {"all": {"children": {"nodes": {"hosts": hosts}}}}

    def write_inventory(self, path: str | Path) -> Path:
        """Write the inventory as JSON, which is YAML; ``path`` should end in .json or .yml."""
        target = Path(path)
        target.write_text(json.dumps(self.inventory(), indent=2) + "\n")
        return target

    def ansible_environment(self) -> dict[str, str]:
        """Variables by which ansible-playbook finds the collection and the connection plugin."""
        return {
            "ANSIBLE_COLLECTIONS_PATH": str(collection.link()),
            "ANSIBLE_CONNECTION_PLUGINS": str(collection.CHECKOUT / "tests/lab/connection"),
        }

    def _pid_file(self, node: NamespaceNode) -> str:
        """A file with the pid that goes away with the lab's process: it lives in memory and has no name on any disk."""
        if node.name not in self._pid_files:
            self._pid_files[node.name] = os.memfd_create(f"{self.name}-{node.name}.pid")
            os.write(self._pid_files[node.name], f"{node.pid}\n".encode())
        return f"/proc/{os.getpid()}/fd/{self._pid_files[node.name]}"

    # Building

    def _start_machines(self, declared: Sequence[Node]) -> None:
        """Start all namespaces, then wait for all."""

        def start(make: Callable[[str], Namespace], name: str) -> Namespace:
            self._namespaces.append(make(name))
            return self._namespaces[-1]

        front = [start(Namespace.network, name) for name in ("load-balancer", "client")]
        started = []
        for node in declared:
            pods = [start(Namespace.network, pod) for pod in node.pods]
            started.append((start(Namespace.node, node.name), pods))
        for namespace in self._namespaces:
            namespace.wait()

        self.load_balancer = LoadBalancer(front[0].name, front[0].pid)
        self.client = Client(front[1].name, front[1].pid)
        self.client.address = f"{_CLIENT_SUBNET}2"
        self.nodes: list[NamespaceNode] = []
        for number, (namespace, pods) in enumerate(started):
            self.nodes.append(self._node(number, namespace, pods))

    def _node(self, number: int, namespace: Namespace, pods: list[Namespace]) -> NamespaceNode:
        subnet = f"2001:db8:{number + 1:x}::"
        node = NamespaceNode(
            namespace,
            self._servers,
            address=f"{_NODES_SUBNET}{_FIRST + number:x}",
            ipv4=f"{_NODES_SUBNET_IPV4}{_FIRST + number}",
            pod_subnet=f"{subnet}/64",
        )
        node.pods = [Pod(pod, f"{subnet}{_FIRST + index:x}", node) for index, pod in enumerate(pods)]
        return node

    def _plug_links(self) -> None:
        """Create all veth pairs, each from inside: nothing passes through the host's network."""
        front = self.load_balancer
        ports = [f"port{number}" for number in range(len(self.nodes))]
        front.ip(
            [f"link add name {LINK} address {PROBE_MAC} type bridge mcast_snooping 0"]
            + [_veth("client0", self.client.pid)]
            + [_veth(port, node.pid) for port, node in zip(ports, self.nodes, strict=True)]
            + [f"link set {port} master {LINK} up" for port in ports]
        )
        links.compute_checksums(front, ["client0", *ports])
        links.compute_checksums(self.client, ["eth0"])
        for node in self.nodes:
            node.ip(_veth(f"veth-{pod.name}", pod.pid) for pod in node.pods)
            links.compute_checksums(node, ["eth0", *(f"veth-{pod.name}" for pod in node.pods)])
            for pod in node.pods:
                links.compute_checksums(pod, ["eth0"])

    def _address_front(self) -> None:
        front = self.load_balancer
        front.set_sysctls({"net.ipv6.conf.all.forwarding": 1, "net.ipv4.conf.all.forwarding": 1})
        front.ip(
            [
                "link set lo up",
                f"link set {LINK} addrgenmode none",  # PROBE_SOURCE is not what the MAC would give
                f"link set {LINK} up",
                "link set client0 up",
                f"address add {PROBE_SOURCE}/64 dev {LINK} nodad",
                f"address add {_NODES_SUBNET}1/64 dev {LINK} nodad",
                f"address add {_NODES_SUBNET_IPV4}1/24 dev {LINK}",
                f"address add {_CLIENT_SUBNET}1/64 dev client0 nodad",
            ]
            + [f"route add {node.pod_subnet} via {node.address} dev {LINK}" for node in self.nodes]
        )
        self.client.ip(
            [
                "link set lo up",
                "link set eth0 up",
                f"address add {self.client.address}/64 dev eth0 nodad",
                f"route add default via {_CLIENT_SUBNET}1",
            ]
        )

    def _address_node(self, node: NamespaceNode, advertised: bool) -> None:
        if advertised:
            node.set_sysctls({"net.ipv6.conf.eth0.accept_ra": 2})  # 1 would not do on a node that forwards
        node.ip(
            [
                "link set lo up",
                "link set eth0 up",
                f"address add {node.address}/64 dev eth0 nodad",
                f"address add {node.ipv4}/24 dev eth0",
                f"route add default via {_NODES_SUBNET_IPV4}1",
            ]
            + ([] if advertised else [f"route add default via {PROBE_SOURCE} dev eth0"])
            + [f"route add {other.pod_subnet} via {other.address}" for other in self.nodes if other is not node]
        )
        for pod in node.pods:
            self._address_pod(pod)

    def _address_pod(self, pod: Pod) -> None:
        """Like a CNI: a host route on the node, and a default route by the node in the pod."""
        link = f"veth-{pod.name}"
        pod.node.ip(
            [
                f"link set {link} up",
                f"address add {_POD_GATEWAY}/64 dev {link} nodad",
                f"route add {pod.address}/128 dev {link}",
            ]
        )
        pod.ip(
            [
                "link set lo up",
                "link set eth0 up",
                f"address add {pod.address}/128 dev eth0 nodad",
                f"route add default via {_POD_GATEWAY} dev eth0",
            ]
        )
        self._servers.start(pod, POD_PORT)

    def _wait_until_connected(self) -> None:
        """Return when the client reaches every node and pod: links are up, routes and neighbours are known.

        The kernel may take a second to use the bridge's carrier (net/core/link_watch.c, linkwatch_urgent_event); from
        Linux 6.9 it does so at once when asked about the link.
        """
        deadline = time.monotonic() + _READY_LIMIT
        machines: list[NamespaceNode | Pod] = [*self.nodes, *self.pods]
        for machine in machines:
            while not self.client.ping(machine.address, timeout=0.05):
                self.load_balancer.ip([f"link show dev {LINK}"])
                if time.monotonic() > deadline:
                    raise LabError(
                        f"{self.name}: after {_READY_LIMIT} s the client does not reach {machine.name}, {machine.address}"
                    )


def _veth(name: str, peer: int) -> str:
    """A veth whose other end is eth0 of the machine that process ``peer`` holds."""
    entering.refuse_host(peer)
    return f"link add name {name} type veth peer name eth0 netns {peer}"


def _named(machines: Sequence[Any], name: str) -> Any:
    for machine in machines:
        if machine.name == name:
            return machine
    raise LabError(f"no machine is named {name}; there are: {', '.join(machine.name for machine in machines)}")
