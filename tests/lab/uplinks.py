# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with several network interfaces and no cloud, behind a router that checks the source address of each packet.

client 198.51.100.2 ---- router --- segment of 10.9.1.0/24 --- eth0  node1 10.9.1.49, default route
                           |                   \\--- eth0  node2 10.9.1.50
                            \\---------------------- eth1  node1 10.9.2.7
                                                          br0   node1 172.30.5.1 --- pod1 172.30.5.20
                                                          br0   node2 172.30.6.1 --- pod2 172.30.6.20

The router sends the virtual address to eth1 of node1, and accepts the addresses of pods from node2. Each node has a route to the
pods of the other, as flannel's host-gw sets it.
IPv6 has the same, in fd09:0:1::/64 and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from lab import inventory, links
from lab.base import Cloud
from lab.container import SystemdNode
from lab.load_balancer import Client
from lab.machine import Machine
from lab.namespace import FORWARDING_NETWORK, Namespace
from lab.node import POD_PORT, ClusterNode, NamespaceNode, Pod
from lab.place import Place
from lab.podman import Podman
from lab.prober import Answer, Prober
from lab.service import IPV4, IPV6, Backend, Family
from lab.waiting import until
from lab.wiring import veth


class Addresses(NamedTuple):
    """Those of one family. ``segments``: the beginnings of the networks of eth0 and eth1; ``pods``: of the nodes' pods."""

    service: Family
    client: str
    virtual: str
    segments: tuple[str, str]
    pods: tuple[str, str]
    length: int

    def host(self, beginning: str, number: int) -> str:
        return f"{beginning}{number}"

    def gateway(self, uplink: int) -> str:
        return self.host(self.segments[uplink], 1)

    def network(self, beginning: str) -> str:
        return f"{beginning}{'' if ':' in beginning else '0'}/{self.length}"

    def node(self, uplink: int = 0) -> str:
        """The address of node1 on an uplink."""
        return self.host(self.segments[uplink], (49, 7)[uplink])

    @property
    def neighbour(self) -> str:
        """The address of node2, in the network of eth0."""
        return self.host(self.segments[0], 50)

    def pod(self, node: int) -> str:
        return self.host(self.pods[node], 20)


V4 = Addresses(
    IPV4._replace(nodes="10.9.0.0/16"), "198.51.100.2", "203.0.113.80", ("10.9.1.", "10.9.2."), ("172.30.5.", "172.30.6."), 24
)
V6 = Addresses(
    IPV6._replace(nodes="fd09::/32"),
    "2001:db8:ffff::2",
    "2001:db8:80::80",
    ("fd09:0:1::", "fd09:0:2::"),
    ("fd30:0:5::", "fd30:0:6::"),
    64,
)
BOTH = (V4, V6)


SERVER = 8443
"""A port of the node itself."""


def requests(family: Addresses) -> dict[str, tuple[str, int]]:
    """The addresses and ports that the client calls by eth1."""
    node, virtual = family.node(1), family.virtual
    return {
        "the node": (node, SERVER),
        "a node port, pod here": (node, 30080),
        "a node port, pod on another node": (node, 30081),
        "a virtual address, pod here": (virtual, 80),
        "a virtual address, pod on another node": (virtual, 81),
    }


class UplinkPlace(Place):
    """Where a node is: its address is that of eth0."""

    @property
    def address(self) -> str:
        return self.ipv4

    @property
    def ipv4(self) -> str:
        return V4.neighbour if self.number else V4.node()


class UplinkLab(Cloud):
    """The running machines. ``system``: the Debian release that node1 runs, with systemd; None is a node of namespaces."""

    def __init__(self, name: str, system: str | None = None) -> None:
        super().__init__(name)
        try:
            self._start_machines(system)
            _connect_router(self.router, self.client)
            node = self.node("node1")
            if isinstance(node, SystemdNode):
                node.start()
                node.wait_until_booted()
            else:
                self._connect(node)
            self._connect(self.node("node2"))
            for machine in self.nodes:
                until(f"{machine.name} reaches the client", functools.partial(self.reaches, machine), self.router)
        except BaseException:
            self.close()
            raise

    def _start_machines(self, system: str | None) -> None:
        names = ("router", "client", "pod1", "pod2")
        router, client, *pods = [self._start_namespace(Namespace.network, name) for name in names]
        first = self._start_namespace(Namespace.node, "node1") if system is None else None
        second = self._start_namespace(Namespace.node, "node2")
        for namespace in self._namespaces:
            namespace.wait()
        self.router, self.client = Machine(router.name, router.pid), Client(client.name, client.pid)
        nodes: list[ClusterNode] = [NamespaceNode(first) if first else self._systemd_node(system or ""), NamespaceNode(second)]
        for number, (node, pod) in enumerate(zip(nodes, pods)):
            node.join(UplinkPlace(number), self._servers)
            node.pods = [Pod(pod, V4.pod(number), node)]
            self._servers.start(node.pods[0], POD_PORT)
        self.nodes += nodes

    def _systemd_node(self, system: str) -> SystemdNode:
        podman = Podman()
        self._endings.callback(podman.close)
        return SystemdNode("node1", podman, podman.image(system), self._plug_in)

    def _plug_in(self, node: SystemdNode) -> None:
        """Prepares a boot: the links, addresses and listeners of the former boot have ended with its namespace."""
        node.forget_services()
        for port in ("port0", "port1"):
            self.router.run(["ip", "link", "delete", port], check=False)
        node.pods[0].run(["ip", "link", "delete", "eth0"], check=False)
        self._connect(node)

    def _connect(self, node: ClusterNode) -> None:
        node.run_from_host(["sh", "-c", FORWARDING_NETWORK])
        node.ip(["link set lo up"])
        number = node.place.number
        if number:
            _plug(self.router, node, "other0", "eth0", [V4.neighbour, V6.neighbour])
        else:
            for name in ("eth0", "eth1"):
                self.plug(name)
        _connect_pod(node, node.pods[0])
        for family in BOTH:
            peer = family.node() if number else family.neighbour
            node.ip(
                [f"route add default via {family.gateway(0)}", f"route add {family.network(family.pods[1 - number])} via {peer}"]
            )

    def inventory(self) -> dict[str, Any]:
        """An inventory of node1; node2 only has a pod."""
        return inventory.inventory(self.nodes[:1])

    def plug(self, name: str) -> None:
        """Attach an uplink of node1, with its addresses."""
        uplink = int(name[3:])
        _plug(self.router, self.node("node1"), f"port{uplink}", name, [family.node(uplink) for family in BOTH])
        if uplink:
            self.router.ip([f"route replace {family.virtual} via {family.node(1)}" for family in BOTH])

    def tunnel(self) -> None:
        """Lead the routes between the nodes' pods into VXLAN over eth0, as flannel does."""
        for node, other in zip(self.nodes, reversed(self.nodes)):
            here, there = (f"local {node.place.ipv4}", f"remote {other.place.ipv4}")
            node.ip([f"link add flannel.1 type vxlan id 1 {here} {there} dev eth0 dstport 8472", "link set flannel.1 up"])
            for family in BOTH:
                end, far = (family.host(family.pods[machine.place.number], 254) for machine in (node, other))
                pods = family.network(family.pods[other.place.number])
                node.ip([f"address add {end}/{32 if family is V4 else 128} dev flannel.1 {'nodad' if family is V6 else ''}"])
                node.ip([f"route delete {pods}", f"route add {pods} via {far} dev flannel.1 onlink"])
            links.compute_checksums(node, ["flannel.1"])

    def unplug(self, name: str) -> None:
        self.router.ip([f"link delete port{name[3:]}"])

    def move_gateway(self, uplink: int, number: int, former: int = 1) -> None:
        """Give the router's end of an uplink other addresses, as after the replacement of a router."""
        port = "port1" if uplink else "net0"
        for family in BOTH:
            old, new = (family.host(family.segments[uplink], part) for part in (former, number))
            self.router.ip(
                [
                    f"address delete {old}/{family.length} dev {port}",
                    f"address add {new}/{family.length} dev {port} {'nodad' if family is V6 else ''}",
                    *([f"route replace {family.virtual} via {family.node(1)}"] if uplink else []),
                ]
            )

    def reaches(self, machine: Machine, address: str = V4.client) -> bool:
        return Prober(machine).icmp(address, timeout=0.2, tries=1)

    def fetch(self, address: str, port: int, machine: Machine | None = None, source: str | None = None) -> Answer | None:
        """HTTP GET by the client, or by another machine."""
        return Prober(machine or self.client, source=source).http(address, port, timeout=0.5, tries=1)

    def serve(self, family: Addresses = V4, backend: Backend = "nftables") -> None:
        """Serve what the client calls by eth1, until the next boot: the node itself, and pods as kube-proxy does."""
        node = self.node("node1")
        node.forget_services()
        node.family = family.service
        node.serve(SERVER)
        for number, (node_port, port) in enumerate(((30080, 80), (30081, 81))):
            balancer = {"load_balancer_ip": family.virtual, "load_balancer_port": port}
            node.service(node_port, [family.pod(number)], "Cluster", backend=backend, **balancer)

    def lost(self, family: Addresses = V4) -> list[str]:
        """The requests of the client by eth1 that are not answered."""
        return [names for names, (address, port) in requests(family).items() if self.fetch(address, port) is None]

    def refused(self) -> int:
        """How many packets the router has dropped for their source address."""
        output = self.router.run_from_host(["nft", "list", "counters"])
        return int(output.split("packets ")[1].split()[0])


# The check is of packets that the router forwards between networks, not of those that its bridge forwards.
_ROUTED_ONLY = "for file in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do [ ! -e $file ] || echo 0 > $file; done"


def _connect_router(router: Machine, client: Client) -> None:
    router.run_from_host(["sh", "-c", FORWARDING_NETWORK + _ROUTED_ONLY])
    router.ip(["link set lo up", "link add net0 type bridge mcast_snooping 0", "link set net0 up", veth("client0", client.pid)])
    client.ip(["link set lo up", "link set eth0 up"])
    router.ip(["link set client0 up"])
    for family in BOTH:
        nodad, gateway = "nodad" if family is V6 else "", f"{family.client[:-1]}1"
        router.ip([f"address add {family.gateway(0)}/{family.length} dev net0 {nodad}"])
        router.ip([f"address add {gateway}/{family.length} dev client0 {nodad}"])
        client.ip([f"address add {family.client}/{family.length} dev eth0 {nodad}", f"route add default via {gateway}"])
    links.compute_checksums(router, ["client0"])
    links.compute_checksums(client, ["eth0"])
    rules = [
        f"iifname {port} {word} saddr != {{ {', '.join(sources)} }} counter name refused drop"
        for family, word in ((V4, "ip"), (V6, "ip6"))
        for port, sources in (
            ("net0", [family.network(family.segments[0]), family.network(family.pods[1])]),
            ("port1", [family.network(family.segments[1]), family.virtual]),
        )
    ]
    chain = ["type filter hook prerouting priority raw; policy accept;", "ip6 saddr { ::, fe80::/10 } accept", *rules]
    text = ["table inet check {", "counter refused { }", "chain prerouting {", *chain, "}", "}", ""]
    router.run_from_host(["nft", "-f", "-"], "\n".join(text))


def _plug(router: Machine, node: ClusterNode, port: str, name: str, addresses: Sequence[str]) -> None:
    """A link from the router to a node: a port of the segment of eth0, or with addresses of its own for eth1."""
    router.ip([veth(port, node.pid, peer_mac=node.place.mac(int(name[3:])), peer_name=name)])
    if name == "eth0":
        router.ip([f"link set {port} master net0"])
    router.ip([f"link set {port} up"])
    for family, address in zip(BOTH, addresses):
        nodad = "nodad" if family is V6 else ""
        node.ip([f"address add {address}/{family.length} dev {name} {nodad}"])
        if name == "eth1":
            router.ip([f"address add {family.gateway(1)}/{family.length} dev {port} {nodad}"])
    node.ip([f"link set {name} up"])
    links.compute_checksums(router, [port])
    links.compute_checksums(node, [name])


def _connect_pod(node: ClusterNode, pod: Pod) -> None:
    """A pod at a bridge, as the CNI plugin bridge has it."""
    number = node.place.number
    bridge, port = (node.place.mac(interface) for interface in (0x80, 0x81))  # the same after each boot
    node.ip([f"link add br0 address {bridge} type bridge mcast_snooping 0", "link set br0 up", veth(pod.link, pod.pid, port)])
    node.ip([f"link set {pod.link} master br0 up"])
    pod.ip(["link set lo up", "link set eth0 up"])
    for family in BOTH:
        nodad, gateway = "nodad" if family is V6 else "", family.host(family.pods[number], 1)
        node.ip([f"address add {gateway}/{family.length} dev br0 {nodad}"])
        pod.ip([f"address add {family.pod(number)}/{family.length} dev eth0 {nodad}", f"route add default via {gateway}"])
    links.compute_checksums(pod, ["eth0"])
    links.compute_checksums(node, [pod.link])
