# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud whose pods share elastic network interfaces (ENIs) through policy routing, as Terway and AWS's VPC CNI lay it out.

client 198.51.100.2 ---- router --- eth0  node 10.0.0.10
backend 10.0.100.2 -----/      \\-- eth1  ENI of subnet 10.0.1.0/24 --- its pods: 10.0.1.11, .12, ...
                                \\- eth2  ENI of subnet 10.0.2.0/24 ---

IPv4, as only it has reverse-path filtering in the kernel. Addresses of RFC 1918 and RFC 5737.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from functools import partial

from lab import links, proxy
from lab.base import Cloud
from lab.container import SystemdNode
from lab.entering import LabError
from lab.load_balancer import Client
from lab.machine import NETSTAT, Machine, tcp_ext
from lab.namespace import FORWARDING_NETWORK, Namespace
from lab.node import POD_PORT, ClusterNode, NamespaceNode, Pod
from lab.place import Place
from lab.podman import Podman
from lab.prober import Answer, Prober
from lab.service import IPV4
from lab.waiting import until
from lab.wiring import veth

CLIENT, BACKEND = "198.51.100.2", "10.0.100.2"
LOAD_BALANCER = "203.0.113.80"
"""For services of the node: no machine has it, so it works where the node translates it."""

TO_POD_PRIORITY, FROM_POD_PRIORITY = 512, 2048
"""Terway's rules (AliyunContainerService/terway, plugin/datapath/consts_linux.go); AWS's are 512 and 1536."""

_POD_GATEWAY = "169.254.1.1"


class Subnet(abc.ABC):
    """An ENI's subnet, and the owners of its addresses."""

    @abc.abstractmethod
    def _host(self, part: int) -> str:
        """The address with this last part."""

    @property
    def gateway(self) -> str:
        return self._host(1)

    @property
    def address(self) -> str:
        """The interface's address in the cloud, whether or not the node has it."""
        return self._host(10)

    def pod_address(self, index: int) -> str:
        return self._host(11 + index)


@dataclasses.dataclass(frozen=True)
class Eni(Subnet):
    """A secondary interface of the node, ``eth1`` and so on, with the names of its pods.

    ``has_address``: whether the node has an address of its own on it. AWS's have one; most of Alibaba Cloud's have none.
    """

    name: str
    pods: Sequence[str] = ()
    has_address: bool = False

    @property
    def number(self) -> int:
        return int(self.name.removeprefix("eth"))

    @property
    def port(self) -> str:
        """The router's end."""
        return f"eni{self.number}"

    @property
    def table(self) -> int:
        """The ENI's table. Like Terway's it is 1000 plus an index, but the number is the same after each start."""
        return 1000 + self.number

    def owned(self) -> list[str]:
        """The addresses that the cloud has given to the interface."""
        return [self.address, *(self.pod_address(index) for index in range(len(self.pods)))]

    def _host(self, part: int) -> str:
        return f"10.0.{self.number}.{part}"


PRIMARY = Eni("eth0", has_address=True)


class EniPlace(Place):
    """Where the node is: its address is the primary interface's."""

    @property
    def address(self) -> str:
        return PRIMARY.address

    @property
    def ipv4(self) -> str:
        return PRIMARY.address


class EniNode(ClusterNode):
    """A node with a primary interface, ENIs, and pods that share these."""

    family = IPV4
    enis: tuple[Eni, ...]

    def filter_reverse_path(self, mode: int, **exceptions: int) -> None:
        """Set rp_filter (0 off, 1 strict, 2 loose) on every link, except the values given for some links and for ``all``."""
        conf = "/proc/sys/net/ipv4/conf"
        names = self.run_from_host(["ls", conf]).split()
        modes = {**dict.fromkeys(names, mode), "all": 0, "lo": 0, **exceptions}
        self.set_sysctls({f"net.ipv4.conf.{name}.rp_filter": value for name, value in modes.items()})

    def proxy(self, pod: Pod) -> None:
        """Let an L7 proxy on the node answer for the pod."""
        self._servers.start(self, proxy.PORT, transparent=True)
        proxy.put_before(pod)

    def dropped_by_reverse_path(self) -> int:
        """How many packets reverse-path filtering has dropped so far (TcpExtIPReversePathFilter)."""
        return tcp_ext(self.run_from_host(["cat", NETSTAT]), "IPReversePathFilter")

    def tracked(self) -> list[str]:
        """The IPv4 connections that the node tracks, as conntrack(8) prints them."""
        return self.run_from_host(["conntrack", "-L", "-f", "ipv4"]).splitlines()


class EniNamespaceNode(EniNode, NamespaceNode):
    """One of namespaces."""


class EniSystemdNode(EniNode, SystemdNode):
    """One that boots. systemd-networkd manages its ENIs from the boot after :meth:`place_networks` on."""

    networkd = False

    def place_networks(self) -> None:
        """The files of networkd; it is started by the next boot."""
        self.networkd = True
        for eni in (PRIMARY, *self.enis):
            gateway = f"Gateway={eni.gateway}\n" if eni is PRIMARY else ""
            address = f"Address={eni.address}/{24 if eni is PRIMARY else 32}\n" if eni.has_address else ""
            network = f"[Network]\nLinkLocalAddressing=no\n{address}{gateway}"
            match = f"[Match]\nMACAddress={self.place.mac(eni.number)}\n"
            self.write(f"/etc/systemd/network/10-{eni.name}.network", match + network)
        self.run(["systemctl", "enable", "--quiet", "systemd-networkd"])


class Router(Machine):
    """The cloud's router. It drops packets from an ENI with a source address that the ENI does not own."""

    def check_sources(self, enis: Iterable[Eni]) -> None:
        rules = [f"iifname {eni.port} ip saddr != {{ {', '.join(eni.owned())} }} counter name refused drop" for eni in enis]
        chain = ["type filter hook prerouting priority raw; policy accept;", *rules]
        table = ["counter refused { }", "chain prerouting {", *chain, "}"]
        self.run_from_host(["nft", "-f", "-"], "\n".join(["table ip cloud {", *table, "}", ""]))

    def refused(self) -> int:
        """How many packets it has dropped for their source address."""
        listing = json.loads(self.run_from_host(["nft", "-j", "list", "counters"]))["nftables"]
        return sum(entry["counter"]["packets"] for entry in listing if "counter" in entry)


class EniLab(Cloud):
    """A running cloud with one node, ``lab.node("node1")``.

    ``source_check``: whether the router checks the source addresses of packets from ENIs, as clouds do by default.
    ``cni``: whether the node has the objects of a CNI: rules for its pods, and a table for each ENI.
    ``system``: the Debian release that the node runs, with systemd; None is a node of namespaces, on the host's files.
    """

    def __init__(
        self, name: str, enis: Sequence[Eni], source_check: bool = True, cni: bool = True, system: str | None = None
    ) -> None:
        super().__init__(name)
        self._cni = cni
        try:
            self._start_machines(enis, system)
            node: EniNode = self.node("node1")
            self.router.run_from_host(["sh", "-c", FORWARDING_NETWORK])
            _connect_outside(self.router, self.client, self.backend)
            if isinstance(node, EniSystemdNode):
                node.start()
                node.wait_until_booted()
            else:
                self._connect(node)
            if source_check:
                self.router.check_sources([PRIMARY, *enis])
        except BaseException:
            self.close()
            raise

    def _start_machines(self, enis: Sequence[Eni], system: str | None) -> None:
        plain = [self._start_namespace(Namespace.network, name) for name in ("router", "client", "backend")]
        started = self._start_namespace(Namespace.node, "node1") if system is None else None
        pods = [
            (self._start_namespace(Namespace.network, pod), eni.pod_address(index))
            for eni in enis
            for index, pod in enumerate(eni.pods)
        ]
        for namespace in self._namespaces:
            namespace.wait()

        router, client, backend = plain
        self.router, self.client = Router(router.name, router.pid), Client(client.name, client.pid)
        self.backend = Machine(backend.name, backend.pid)
        self.client.address = CLIENT
        node = EniNamespaceNode(started) if started else self._systemd_node(system or "")
        node.join(EniPlace(0), self._servers)
        node.enis = tuple(enis)
        node.pods = [Pod(namespace, address, node) for namespace, address in pods]
        self.nodes.append(node)
        for machine in (self.backend, *node.pods):
            self._servers.start(machine, POD_PORT)

    def _systemd_node(self, system: str) -> EniSystemdNode:
        podman = Podman()
        self._endings.callback(podman.close)
        return EniSystemdNode("node1", podman, podman.image(system), self._plug_in)

    def _plug_in(self, node: SystemdNode) -> None:
        """Prepares a boot: the links, addresses and listeners of the former boot have ended with its namespace."""
        assert isinstance(node, EniSystemdNode)
        node.forget_services()
        for eni in (PRIMARY, *node.enis):
            self.router.run(["ip", "link", "delete", eni.port], check=False)
        for pod in node.pods:
            pod.run(["ip", "link", "delete", "eth0"], check=False)
        self._connect(node)
        if node.networkd:
            node.ip(["address flush dev eth0"])  # networkd sets the address and route, which a boot does not have at its start

    def _connect(self, node: EniNode) -> None:
        node.run_from_host(["sh", "-c", FORWARDING_NETWORK])
        for eni in (PRIMARY, *node.enis):
            _plug(self.router, node, eni)
        _connect_node(node, self._cni)
        self._wait_until_connected([self.client, node, *(node.pods if self._cni else ())], node)

    def unplug(self, name: str) -> None:
        """Take a secondary interface from the node: its link is removed, with all routes over it."""
        self.router.ip([f"link delete {self._eni(name).port}"])

    def plug(self, name: str) -> None:
        """Attach it again, as a cloud does: as a link that is down."""
        _plug(self.router, self.node("node1"), self._eni(name))

    def _eni(self, name: str) -> Eni:
        for eni in self.node("node1").enis:
            if eni.name == name:
                named: Eni = eni
                return named
        raise LabError(f"node1 has no interface {name}")

    def fetch_from(self, pod: str, address: str, port: int, timeout: float = 1.0) -> Answer | None:
        """HTTP GET by a pod; None without an answer."""
        return Prober(self.pod(pod)).http(address, port, timeout, tries=1)

    def _wait_until_connected(self, machines: Sequence[Machine], node: EniNode) -> None:
        """Return when each of them reaches the backend.

        By an echo: a connection sends packets after its answer while it closes, and conntrack could record these.
        """
        for machine in machines:
            probe = partial(Prober(machine).icmp, BACKEND, timeout=0.05, tries=1)
            until(f"{machine.name} reaches the backend", probe, node)
        node.run_from_host(["conntrack", "-F"])


def _connect_outside(router: Router, client: Client, backend: Machine) -> None:
    """A link to each machine but the node."""
    router.ip(["link set lo up"])
    for machine, address in ((client, CLIENT), (backend, BACKEND)):
        gateway, port = re.sub(r"\d+$", "1", address), f"{machine.name}0"
        router.ip([veth(port, machine.pid), f"address add {gateway}/24 dev {port}", f"link set {port} up"])
        machine.ip(
            [
                "link set lo up",
                f"address add {address}/24 dev eth0",
                "link set eth0 up",
                f"route add default via {gateway}",
            ]
        )
        _compute_checksums(router, [port], machine, ["eth0"])


def _plug(router: Router, node: EniNode, eni: Eni) -> None:
    """A link to one of the node's interfaces; the cloud knows which addresses it owns."""
    mac = node.place.mac(eni.number)
    router.ip(
        [
            veth(eni.port, node.pid, peer_mac=mac, peer_name=eni.name),
            f"address add {eni.gateway}/24 dev {eni.port}",
            f"link set {eni.port} up",
            *(f"neighbour add {address} lladdr {mac} dev {eni.port} nud permanent" for address in eni.owned()),
        ]
    )
    _compute_checksums(router, [eni.port], node, [eni.name])


def _connect_node(node: EniNode, cni: bool) -> None:
    node.ip(
        [
            "link set lo up",
            f"address add {PRIMARY.address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {PRIMARY.gateway}",
        ]
    )
    for eni in node.enis:
        owned = [pod for pod in node.pods if pod.address in eni.owned()]
        node.ip([*_interface(eni), *(line for pod in owned for line in _pod_link(pod))])
        if cni:
            node.ip([_table(eni), *(line for pod in owned for line in _pod_rules(pod, eni))])
    for index, pod in enumerate(node.pods):
        _address_pod(pod, node.place.mac(0x80 + index))


def _interface(eni: Eni) -> list[str]:
    """The interface's own address has no route in table main, because AWS's CNI deletes that route."""
    address = [f"address add {eni.address}/24 dev {eni.name} noprefixroute"] if eni.has_address else []
    return [f"link set {eni.name} up", *address]


def _table(eni: Eni) -> str:
    return f"route add default via {eni.gateway} dev {eni.name} onlink table {eni.table}"


def _pod_link(pod: Pod) -> list[str]:
    mac = pod.node.place.mac(0x80 + pod.node.pods.index(pod))
    return [veth(pod.link, pod.pid, mac), f"link set {pod.link} up", f"route add {pod.address}/32 dev {pod.link}"]


def _pod_rules(pod: Pod, eni: Eni) -> list[str]:
    return [
        f"rule add to {pod.address} lookup main priority {TO_POD_PRIORITY}",
        f"rule add from {pod.address} lookup {eni.table} priority {FROM_POD_PRIORITY}",
    ]


def _address_pod(pod: Pod, gateway_mac: str) -> None:
    """The gateway is an address that no host has, with a fixed neighbour: the node's end of the link."""
    pod.ip(
        [
            "link set lo up",
            f"address add {pod.address}/32 dev eth0",
            "link set eth0 up",
            f"neighbour add {_POD_GATEWAY} lladdr {gateway_mac} dev eth0 nud permanent",
            f"route add default via {_POD_GATEWAY} dev eth0 onlink",
        ]
    )
    _compute_checksums(pod, ["eth0"], pod.node, [pod.link])


def _compute_checksums(machine: Machine, names: list[str], peer: Machine, peer_names: list[str]) -> None:
    links.compute_checksums(machine, names)
    links.compute_checksums(peer, peer_names)
