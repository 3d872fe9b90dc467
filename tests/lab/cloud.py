# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The little cloud: a client, Azure's load balancer, nodes and their pods, from a short declaration.

client --- load balancer --- node1 --- pod1
                         +-- node2 --- pod2

The load balancer is also where the cloud's metadata service answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lab import apt, collection, disk, images, metadata_replies, place, wiring
from lab.base import Cloud
from lab.booting import BootingNode
from lab.build import Build
from lab.container import SystemdNode
from lab.entering import LabError
from lab.load_balancer import LINK, Client, LoadBalancer, RouterAdvertisements
from lab.metadata import MetadataServer
from lab.metadata_replies import Nic
from lab.namespace import Namespace
from lab.node import POD_PORT, ClusterNode, NamespaceNode, Pod
from lab.place import Place
from lab.podman import Podman
from lab.vm import VmNode
from lab.waiting import until


@dataclasses.dataclass(frozen=True)
class Node:
    """A node to be built, with the names of its pods.

    ``system``: the Debian release that it runs, with systemd; None is a node of namespaces, on the host's files.
    ``without``: packages of a node's usual ones that its system lacks, and that its apt can install from a repository
    on the node itself, once it has updated its index. ``besides``: additional packages.
    ``build``: it boots this image, made from ``system``.
    ``vm``: it runs its release's kernel too, as a small VM, and not as a container; from ``disk``, where one is given.
    """

    name: str
    pods: Sequence[str] = ()
    system: str | None = None
    without: Sequence[str] = ()
    besides: Sequence[str] = ()
    build: Build | None = None
    vm: bool = False
    disk: disk.Disk | None = None

    def __post_init__(self) -> None:
        if self.vm and not self.system:
            raise LabError(f"{self.name}: a VM runs the kernel of a release; set system, for example to bookworm")


class Lab(Cloud):
    """A running cloud; ``with Lab(...) as lab`` or ``close()`` ends it. It ends with the process in any case.

    ``router_advertisements`` is a lifetime in seconds: the nodes then have their IPv6 default route from the load
    balancer's advertisements (accept_ra=2) and not as a static one.
    ``metadata``: the metadata service answers before a node boots, as Azure's or as the one that is given. Without it,
    ``lab.metadata`` waits for its start().
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        router_advertisements: int | None = None,
        metadata: bool | metadata_replies.Cloud = False,
    ) -> None:
        super().__init__(name)
        self.router_advertisements: RouterAdvertisements | None = None
        self._advertised = router_advertisements is not None
        self._podman: Podman | None = None
        try:
            self._start_machines(nodes)
            wiring.connect_front(self.load_balancer, self.client)
            if metadata:
                if not isinstance(metadata, bool):
                    self.metadata.cloud = metadata
                self.metadata.start()
            if router_advertisements is not None:
                self.router_advertisements = RouterAdvertisements(self.load_balancer, router_advertisements)
                self._endings.callback(self.router_advertisements.stop)
            self._start_nodes(nodes)
        except BaseException:
            self.close()
            raise

    # Building

    def _start_machines(self, declared: Sequence[Node]) -> None:
        """Start all namespaces, then wait for all. A node that boots is not started yet."""

        start = self._start_namespace
        front, behind = start(Namespace.network, "load-balancer"), start(Namespace.network, "client")
        pods = [[start(Namespace.network, pod) for pod in node.pods] for node in declared]
        namespaces = {node.name: start(Namespace.node, node.name) for node in declared if node.system is None}
        for namespace in self._namespaces:
            namespace.wait()

        self.load_balancer = LoadBalancer(front.name, front.pid)
        self.client = Client(behind.name, behind.pid)
        self.client.address = place.CLIENT
        self.metadata = MetadataServer(self.load_balancer)
        self._endings.callback(self.metadata.stop)
        for number, node in enumerate(declared):
            built = NamespaceNode(namespaces[node.name]) if node.system is None else self._booting_node(node, node.system)
            self._settle(built, Place(number), pods[number])

    def _booting_node(self, declared: Node, system: str) -> BootingNode:
        if declared.vm:
            console = collection.CHECKOUT / ".build/logs" / f"{self.name}-{declared.name}-console.log"
            made = declared.disk or disk.disk(system, _packages(declared))
            node = VmNode(declared.name, made, self.load_balancer, console, self._connect_booted)
            self._endings.callback(node.close)
            return node
        build = declared.build
        image = self.podman.built(build) if build else self.podman.image(system, _packages(declared))
        return SystemdNode(declared.name, self.podman, image, self._plug_in, self._folders(declared))

    @property
    def podman(self) -> Podman:
        """Starts the nodes that run systemd; made for the first of them."""
        if self._podman is None:
            self._podman = Podman()
            self._endings.callback(self._podman.close)
        return self._podman

    def _folders(self, declared: Node) -> Mapping[str, Path]:
        """The folders of this machine that a node with systemd sees (SystemdNode)."""
        return {}

    def _settle(self, node: ClusterNode, at: Place, pods: Sequence[Namespace]) -> None:
        """Make the node and its pods part of the cloud; the metadata service tells a node about its own eth0."""
        node.join(at, self._servers)
        node.pods = [Pod(pod, at.pod_address(index), node) for index, pod in enumerate(pods)]
        for pod in node.pods:
            self._servers.start(pod, POD_PORT)
        nic = Nic(at.mac(), (at.ipv4,), (at.address,), f"{place.NODES_IPV4}0/24", f"{place.NODES}/64")
        self.metadata.own[at.ipv4] = (nic,)
        self.nodes.append(node)

    def _start_nodes(self, declared: Sequence[Node]) -> None:
        """Plug in or boot all nodes, then wait for all."""
        for node in self.nodes:
            if isinstance(node, SystemdNode):
                node.start()
            elif isinstance(node, VmNode):
                wiring.start_vm(node, self.load_balancer, self._advertised)
            else:
                self._connect(node)
        self._wait_until_connected([node for node in self.nodes if not isinstance(node, VmNode)])
        for wanted, node in zip(declared, self.nodes, strict=True):
            if isinstance(node, BootingNode):
                node.wait_until_booted()
                if wanted.system and wanted.without:
                    apt.publish(node, apt.packages(wanted.system, wanted.without, _packages(wanted)))
        self._wait_until_connected(self.nodes)

    def _plug_in(self, node: SystemdNode) -> None:
        """Prepares a boot: links, addresses and listeners of the former boot have ended with its network namespace."""
        node.forget_services()
        wiring.disconnect(node, self.load_balancer)
        self._connect(node)
        self._wait_until_connected([node])

    def _connect(self, node: ClusterNode) -> None:
        wiring.connect(node, self.load_balancer, self._others(node), self._advertised)

    def _connect_booted(self, node: VmNode) -> None:
        wiring.connect_booted(node, self._others(node))

    def _others(self, node: ClusterNode) -> list[ClusterNode]:
        return [other for other in self.nodes if other is not node]

    def _wait_until_connected(self, nodes: Sequence[ClusterNode]) -> None:
        """Return when the client reaches the nodes and their pods: links are up, routes and neighbours are known.

        The kernel may take a second to use the bridge's carrier (net/core/link_watch.c, linkwatch_urgent_event); from
        Linux 6.9 it does so at once when asked about the link.
        """
        machines: list[ClusterNode | Pod] = [*nodes, *(pod for node in nodes for pod in node.pods)]
        for machine in machines:
            until(f"the client reaches {machine.name}, {machine.address}", partial(self._is_reached, machine.address), machine)

    def _is_reached(self, address: str) -> bool:
        self.load_balancer.ip([f"link show dev {LINK}"])
        return self.client.ping(address, timeout=0.05)


def _packages(declared: Node) -> list[str]:
    usual = disk.PACKAGES if declared.vm else images.USUAL_PACKAGES
    return [package for package in (*usual, *declared.besides) if package not in declared.without]
