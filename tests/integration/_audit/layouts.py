# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Healthy nodes of ten layouts, built of real links, routes and rules, and the connections that their users make.

Left out, as the kernels of test hosts lack them: kube-proxy's mode ipvs, and tunnels of IPIP, SIT and the kernel's WireGuard.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab import links
from lab.machine import Machine
from lab.network import PORT, Cable, Connection, Network

from .._trace.odd_nodes import (
    FAR,
    GATEWAYS,
    NODE,
    NODE2,
    PODS,
    SERVICE,
    UPLINKS,
    add_bridge,
    connect_by_routes,
    connect_to_bridge,
    connect_uplink,
)  # fmt: skip
from .healthy_nodes import kube_proxy, marks_of_aws, outbound_marks_of_aws, save, snat_of_aws

OTHER = {4: "192.0.2.12", 6: "2001:db8:5::12"}  # the second node
REMOTE_POD = {4: "10.60.2.5", 6: "fd00:60:0:2::5"}
NODE_PORT = 30080
FAMILIES = {4: "ip", 6: "ip6"}
PODS_OF_ALL = {4: "10.60.0.0/16", 6: "fd00:60::/48"}
CONTAINER = "172.17.0.2"
VPN = "100.64.0.9"
VPC_CLIENT = "10.0.9.7"
OUTER_PORT = 51820  # of the tunnel


class Layout(Network):
    """A node with two pods behind ``link_of_pods`` and a number. has_routed_pods: whether the world reaches pods by itself."""

    link_of_pods = "cali"
    has_routed_pods = True
    pods: Mapping[str, Mapping[int, str]] = PODS
    own: Mapping[int, str] = NODE

    def __init__(self, uplinks: Sequence[Cable] = UPLINKS[:1], further: Sequence[Cable] = ()) -> None:
        self.links = {name: f"{self.link_of_pods}{number}" for number, name in enumerate(self.pods, 1)}
        super().__init__([*uplinks, *(Cable("node", link, name, "eth0") for name, link in self.links.items()), *further])
        self._saves: dict[tuple[str, str], list[str]] = {}
        self._outside()
        self._pods()
        self._services()
        self._join_saves()

    def iptables(self, family: str, table: str, *lines: str) -> None:
        """Add lines of iptables-save, without its head: ``:CHAIN`` or ``-A CHAIN ...``."""
        self._saves.setdefault((family, table), []).extend(lines)

    def _join_saves(self) -> None:
        for entry in self._saves.items():
            program = {"ip": "iptables-nft-restore", "ip6": "ip6tables-nft-restore"}[entry[0][0]]
            self.saves[program] = self.saves.get(program, "") + save(entry)["save"]

    def _outside(self) -> None:
        connect_uplink(self, 0, self.own)
        self._add_default_route()

    def _add_default_route(self) -> None:
        self.lines["node"] += [f"route add default via {GATEWAYS['eth0'][family]} dev eth0" for family in FAMILIES]
        if self.has_routed_pods:
            self.lines["world"] += [f"route add {PODS_OF_ALL[family]} via {self.own[family]}" for family in FAMILIES]

    def _pods(self) -> None:
        for name, link in self.links.items():
            connect_by_routes(self, name, link, self.pods[name])

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return what the container runtime records of the pods, as a snapshot has it: the lab has no files of its own."""
        return [{"pod": f"default/{name}", "interface": "eth0", "addresses": [*pod.values()]} for name, pod in self.pods.items()]

    def _services(self) -> None:
        for number, family in FAMILIES.items():
            kube_proxy(self, self.pods["pod2"][number], family, SERVICE[number], PODS_OF_ALL[number])
        self._masquerade("cali-nat-outgoing")

    def _masquerade(self, chain: str) -> None:
        """Masquerade what leaves the cluster."""
        for number, family in FAMILIES.items():
            pods = PODS_OF_ALL[number]
            self.iptables(
                family,
                "nat",
                f":{chain}",
                f"-A POSTROUTING -j {chain}",
                f"-A {chain} -s {pods} ! -d {pods} -j MASQUERADE --random-fully",
            )

    def connections(self) -> Iterator[Connection]:
        """Yield the connections that the node's users make."""
        for family in FAMILIES:
            yield from self._of_pods(family)
            yield from self._of_outside(family)
            for address in (*(pod[family] for pod in self.pods.values()), FAR["eth0"][family]):
                yield Connection("node", "", address, PORT, "")
            yield Connection("node", "", SERVICE[family], 80, "")

    def _of_pods(self, family: int) -> Iterator[Connection]:
        for name, addresses in self.pods.items():
            targets = [FAR["eth0"][family], self.own[family], *(pod[family] for pod in self.pods.values())]
            for target in targets:
                if target != addresses[family]:
                    yield Connection(name, addresses[family], target, PORT, self.links[name])
        yield Connection("pod1", self.pods["pod1"][family], SERVICE[family], 80, self.links["pod1"])

    def _of_outside(self, family: int) -> Iterator[Connection]:
        far = FAR["eth0"][family]
        for source in (far, GATEWAYS["eth0"][family]):  # from outside of the node's network, and from within
            yield Connection("world", source, self.own[family], PORT, "eth0")
        yield Connection("world", far, self.own[family], NODE_PORT, "eth0")
        for addresses in self.pods.values() if self.has_routed_pods else ():
            yield Connection("world", far, addresses[family], PORT, "eth0")


class Calico(Layout):
    """Pods by routes and proxy_arp; kube-proxy's mode iptables."""


class Bridge(Layout):
    """Pods at a bridge; kube-proxy's mode iptables."""

    link_of_pods = "veth"
    chain = "CNI-POSTROUTING"

    def _pods(self) -> None:
        add_bridge(self, "node")
        self.settings["node"] |= {f"net.bridge.bridge-nf-call-{name}": 1 for name in ("iptables", "ip6tables")}
        for name, link in self.links.items():
            connect_to_bridge(self, name, link, self.pods[name])

    def _services(self) -> None:
        super()._services()
        for number, family in FAMILIES.items():
            pods = PODS_OF_ALL[number]
            forward = (f"-A CNI-FORWARD -s {pods} -j ACCEPT", f"-A CNI-FORWARD -d {pods} -j ACCEPT")
            self.iptables(family, "filter", ":CNI-FORWARD", "-A FORWARD -j CNI-FORWARD", *forward)


class NftablesBridge(Bridge):
    """Pods at a bridge; kube-proxy's mode nftables."""

    def _services(self) -> None:
        for number, family in FAMILIES.items():
            pod = self.pods["pod2"][number]
            target = f"[{pod}]:{PORT}" if number == 6 else f"{pod}:{PORT}"
            self.rules += _KUBE_PROXY.format(
                family=family, type=f"ipv{number}_addr", service=SERVICE[number], node=self.own[number], target=target
            ).splitlines()
        self._masquerade("CNI-POSTROUTING")


_KUBE_PROXY = """\
table {family} kube-proxy {{
 set cluster-ips {{ type {type}; elements = {{ {service} }} }}
 set nodeport-ips {{ type {type}; elements = {{ {node} }} }}
 map service-ips {{
  type {type} . inet_proto . inet_service : verdict
  elements = {{ {service} . tcp . 80 : goto service-A }}
 }}
 map service-nodeports {{ type inet_proto . inet_service : verdict; elements = {{ tcp . 30080 : goto external-A }}; }}
 chain filter-forward {{ type filter hook forward priority -110; ct state new jump cluster-ips-check; }}
 chain filter-output-post-dnat {{ type filter hook output priority -90; ct state new jump cluster-ips-check; }}
 chain nat-prerouting {{ type nat hook prerouting priority dstnat; jump services; }}
 chain nat-output {{ type nat hook output priority -100; jump services; }}
 chain nat-postrouting {{ type nat hook postrouting priority srcnat; jump masquerading; }}
 chain services {{
  {family} daddr . meta l4proto . th dport vmap @service-ips
  {family} daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
 }}
 chain masquerading {{
  meta mark and 0x4000 == 0 return
  meta mark set meta mark xor 0x4000
  masquerade fully-random
 }}
 chain cluster-ips-check {{ {family} daddr @cluster-ips reject; }}
 chain mark-for-masquerade {{ meta mark set meta mark or 0x4000; }}
 chain external-A {{
  jump mark-for-masquerade
  goto service-A
 }}
 chain service-A {{ goto endpoint-A; }}
 chain endpoint-A {{ meta l4proto tcp dnat to {target}; }}
}}
"""


class EniPolicyRouting(Layout):
    """amazon-vpc-cni-k8s with a pod of each of two interfaces, whose address is not reachable from outside of the VPC."""

    link_of_pods = "eni"
    pods = {"pod1": {4: "10.0.0.21", 6: "fd00:60::5"}, "pod2": {4: "10.0.1.21", 6: "fd00:60::6"}}
    own = {4: "10.0.0.10", 6: NODE[6]}

    def __init__(self) -> None:
        super().__init__(UPLINKS)

    def _outside(self) -> None:
        own = self.lines["node"]
        for number, gateway in enumerate(("10.0.0.1", "10.0.1.1")):
            own += [f"addr add 10.0.{number}.10/24 dev eth{number}{' noprefixroute' * number}"]
            self.lines["world"] += [f"addr add {gateway}/24 dev up{number}", f"route add 10.0.{number}.21 via 10.0.{number}.10"]
        own += [f"addr add {self.own[6]}/64 dev eth0 nodad", "route add default via 10.0.0.1"]
        own += [f"route add default via {GATEWAYS['eth0'][6]}"]
        own += ["route add 10.0.1.1 dev eth1 scope link table 2", "route add default via 10.0.1.1 dev eth1 table 2"]
        own += ["rule add from 10.0.1.10 lookup 2 priority 32765", "rule add from 10.0.1.21 lookup 2 priority 1536"]
        own += [f"rule add to {pod[4]} lookup main priority 512" for pod in self.pods.values()]
        own += ["rule add fwmark 0x80/0x80 lookup main priority 1024"]
        self.settings["node"] |= {"net.ipv4.conf.eth0.rp_filter": 2, "net.ipv4.conf.eth1.rp_filter": 2}
        # The cloud checks the sources of each interface.
        self.settings["world"] |= {"net.ipv4.conf.up0.rp_filter": 1, "net.ipv4.conf.up1.rp_filter": 1}
        self.lines["world"] += [f"addr add {GATEWAYS['eth0'][6]}/64 dev up0 nodad", f"addr add {VPC_CLIENT}/32 dev lo"]
        self.lines["world"] += [f"addr add {FAR['eth0'][4]}/32 dev lo", f"addr add {FAR['eth0'][6]}/128 dev lo nodad"]
        self.lines["world"] += [f"route add {PODS_OF_ALL[6]} via {self.own[6]}"]

    def _services(self) -> None:
        for number, family in FAMILIES.items():
            kube_proxy(self, self.pods["pod2"][number], family, SERVICE[number])
        marks_of_aws(self)
        outbound_marks_of_aws(self)
        snat_of_aws(self)

    def _of_outside(self, family: int) -> Iterator[Connection]:
        yield from (each for each in super()._of_outside(family) if family == 6 or each.port == NODE_PORT)
        if family == 4:
            for link, address, port in (
                ("eth0", self.own[4], PORT), ("eth0", self.own[4], NODE_PORT), ("eth0", self.pods["pod1"][4], PORT),
                ("eth1", self.pods["pod2"][4], PORT),
            ):  # fmt: skip
                yield Connection("world", VPC_CLIENT, address, port, link)
            for number in range(2):
                yield Connection("world", f"10.0.{number}.1", f"10.0.{number}.10", PORT, f"eth{number}")


class Overlay(Layout):
    """A node with a second one in its network, which has a pod of its own. Pods' addresses are hidden from outside."""

    has_routed_pods = False
    routers = ("node", "world", "node2")

    def __init__(self) -> None:
        super().__init__(further=[Cable("world", "up2", "node2", "eth0"), Cable("node2", "veth3", "pod3", "eth0")])

    def _outside(self) -> None:
        self.lines["world"] += ["link add lan0 type bridge forward_delay 0", "link set lan0 up"]
        self.lines["world"] += ["link set up0 master lan0", "link set up2 master lan0"]
        connect_uplink(self, 0, self.own, "lan0")
        self._add_default_route()
        self.lines["node2"] += [f"addr add {OTHER[4]}/24 dev eth0", f"addr add {OTHER[6]}/64 dev eth0 nodad"]
        add_bridge(self, "node2", 2)
        connect_to_bridge(self, "pod3", "veth3", REMOTE_POD, "node2", 2)

    def connections(self) -> Iterator[Connection]:
        yield from super().connections()
        for family in FAMILIES:
            for name, addresses in self.pods.items():
                yield Connection(name, addresses[family], REMOTE_POD[family], PORT, self.links[name])
                yield Connection("pod3", REMOTE_POD[family], addresses[family], PORT, self.tunnel(family))
            yield Connection("node", "", REMOTE_POD[family], PORT, "")

    def tunnel(self, family: int) -> str:
        """Return the link of the node by which packets of the remote pod come in."""
        raise NotImplementedError


class Vxlan(Overlay, Bridge):
    """flannel with its backend vxlan for both families."""

    def tunnel(self, family: int) -> str:
        return {4: "flannel.1", 6: "flannel-v6.1"}[family]

    def _pods(self) -> None:
        super()._pods()
        for name, own, far, net in (("node", self.own, OTHER, 1), ("node2", OTHER, self.own, 2)):
            for family in FAMILIES:
                self._add_tunnel(name, family, own[family], far[family], net)
        for name in (*self.pods, "pod3"):
            self.lines[name].append("link set eth0 mtu 1430")
        for name, pods in (("node", [*self.links.values()]), ("node2", ["veth3"])):
            self.lines[name] += [f"link set {link} mtu 1430" for link in (*pods, "cni0")]

    def _add_tunnel(self, machine: str, family: int, own: str, far: str, net: int) -> None:
        link, length, mtu = self.tunnel(family), *{4: (32, 1450), 6: (128, 1430)}[family]
        network, remote = ({4: f"10.60.{each}.0", 6: f"fd00:60:0:{each if each > 1 else 0}::"}[family] for each in (net, 3 - net))
        self.lines[machine] += [
            f"link add {link} address 02:00:00:00:0{family}:0{net} mtu {mtu} type vxlan id 1 local {own} dev eth0 dstport 8472"
            " nolearning",
            f"addr add {network}/{length} dev {link}{' nodad' * (family == 6)}",
            f"link set {link} up",
            f"route add {remote}/{ {4: 24, 6: 64}[family] } via {remote} dev {link} onlink",
            f"neigh add {remote} lladdr 02:00:00:00:0{family}:0{3 - net} dev {link} nud permanent",
        ]
        self.commands[machine].append(f"bridge fdb append 02:00:00:00:0{family}:0{3 - net} dev {link} dst {far}")


class Tunnel(Overlay):
    """Calico's WireGuard, whose link is a tun device with a process, as of a kernel without WireGuard."""

    def tunnel(self, family: int) -> str:
        return "wireguard.cali"

    def _pods(self) -> None:
        super()._pods()
        self.lines["node"] += ["link set wireguard.cali mtu 1420 up", "addr add 10.60.1.0/32 dev wireguard.cali"]
        self.lines["node2"] += ["link set wireguard.cali mtu 1420 up"]
        self.lines["node2"] += ["route add 10.60.1.0/24 dev wireguard.cali", "route add fd00:60::/64 dev wireguard.cali"]
        for words, remote in (("", "10.60.2.0/24"), ("-6 ", "fd00:60:0:2::/64")):
            self.lines["node"] += [f"{words}route add {remote} dev wireguard.cali table 1"]
            self.lines["node"] += [f"{words}rule add not fwmark 0x100000/0x100000 lookup 1 priority 99"]
        self.settings["node"] |= {"net.ipv4.conf.all.src_valid_mark": 1}
        for name in (*self.pods, "pod3"):
            self.lines[name].append("link set eth0 mtu 1420")

    @contextlib.contextmanager
    def _running(self, machines: Mapping[str, Machine]) -> Iterator[None]:
        """Carry the tunnel's packets in UDP, in a thread that ends with the block."""
        stop, stopped = os.pipe()
        ends = [(machines["node"], OTHER[4]), (machines["node2"], self.own[4])]
        pairs = []
        for machine, far in ends:
            sock = machine.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(("", OUTER_PORT))
            pairs.append((links.tap(machine, "wireguard.cali", links.TUN), sock, far))
        thread = threading.Thread(target=_carry, args=(pairs, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.close(stopped)
            thread.join()
            os.close(stop)
            for descriptor, sock, _far in pairs:
                os.close(descriptor)
                sock.close()


def _carry(pairs: Sequence[tuple[int, socket.socket, str]], stop: int) -> None:
    poll = select.poll()
    for number in (stop, *(each for descriptor, sock, _far in pairs for each in (descriptor, sock.fileno()))):
        poll.register(number, select.POLLIN)
    while True:
        ready = {number for number, _event in poll.poll()}
        if stop in ready:
            return
        for descriptor, sock, far in pairs:
            with contextlib.suppress(OSError):  # as a link is down, or a route is gone
                if descriptor in ready:
                    sock.sendto(os.read(descriptor, 1 << 16), (far, OUTER_PORT))
            with contextlib.suppress(OSError):
                if sock.fileno() in ready:
                    os.write(descriptor, sock.recv(1 << 16))


class TwoUplinks(Layout):
    """Replies leave by the uplink by which requests came in: by a mark for pods, and by a rule for the node's own."""

    def __init__(self) -> None:
        super().__init__(UPLINKS)

    def _outside(self) -> None:
        super()._outside()
        connect_uplink(self, 1, NODE2)
        for family in FAMILIES:
            words = "-6 " * (family == 6)
            self.lines["node"] += [
                f"{words}route add default via {GATEWAYS['eth1'][family]} dev eth1 table 101",
                f"{words}rule add fwmark 0x10/0x10 lookup 101 priority 600",
                f"{words}rule add from {NODE2[family]} lookup 101 priority 601",
            ]
        self.settings["node"] |= {"net.ipv4.conf.eth0.rp_filter": 2, "net.ipv4.conf.eth1.rp_filter": 2}
        self.rules += _SYMMETRIC.splitlines()

    def _of_outside(self, family: int) -> Iterator[Connection]:
        yield from super()._of_outside(family)
        for address, port in ((NODE2[family], PORT), (NODE2[family], NODE_PORT)):
            yield Connection("world", FAR["eth1"][family], address, port, "eth1")


_SYMMETRIC = """\
table inet symmetric {
 chain prerouting {
  type filter hook prerouting priority mangle; policy accept;
  iifname "eth1" ct state new ct mark set ct mark or 0x10
  iifname != "eth1" ct direction reply ct mark and 0x10 == 0x10 meta mark set meta mark or 0x10
 }
}
"""


class Cilium(Layout):
    """Cilium's links and routes, with endpoint routes; its programs are not there."""

    link_of_pods = "lxc"

    def __init__(self) -> None:
        super().__init__(further=[Cable("node", "cilium_net", "node", "cilium_host")])

    def _pods(self) -> None:
        self.lines["node"] += ["addr add 10.60.1.1/32 dev cilium_host", "addr add fd00:60::1/128 dev cilium_host nodad"]
        self.lines["node"] += ["route add 10.60.1.0/24 via 10.60.1.1 dev cilium_host src 10.60.1.1"]
        self.lines["node"] += ["route add fd00:60::/64 dev cilium_host metric 2048"]
        for name, link in self.links.items():
            addresses = self.pods[name]
            connect_by_routes(self, name, link, addresses)
            self.settings["node"][f"net.ipv4.conf.{link}.proxy_arp"] = 0
            self.lines[name] = [line.replace("169.254.1.1", "10.60.1.1") for line in self.lines[name]]

    def _masquerade(self, chain: str) -> None:
        super()._masquerade("CILIUM_POST_nat")


class Vpn(Layout):
    """A VPN's rules from 5210 to 5270, and a network for management with a table of its own, as with a VRF."""

    def __init__(self) -> None:
        super().__init__(UPLINKS)

    def _outside(self) -> None:
        super()._outside()
        own = self.lines["node"]
        own += [f"addr add {NODE2[4]}/24 dev eth1 noprefixroute", f"addr add {NODE2[6]}/64 dev eth1 nodad noprefixroute"]
        self.lines["world"] += [f"addr add {GATEWAYS['eth1'][4]}/24 dev up1", f"addr add {GATEWAYS['eth1'][6]}/64 dev up1 nodad"]
        own += ["tuntap add tailscale0 mode tun", f"addr add {VPN}/32 dev tailscale0", "link set tailscale0 mtu 1280 up"]
        own += ["route add 100.100.100.100 dev tailscale0 table 52", "-6 route add fd7a:115c:a1e0::53 dev tailscale0 table 52"]
        for family, words in ((4, ""), (6, "-6 ")):
            net = {4: "203.0.113.0/24", 6: "2001:db8:6::/64"}[family]
            own += [f"{words}route add {net} dev eth1 table 900"]
            own += [f"{words}route add default via {GATEWAYS['eth1'][family]} dev eth1 table 900"]
            own += [f"{words}rule add {word} lookup 900 priority 1000" for word in ("iif eth1", f"from {NODE2[family]}")]
            own += [
                f"{words}rule add fwmark 0x80000/0xff0000 lookup {table} priority {5200 + number}"
                for number, table in ((10, "main"), (30, "default"))
            ]
            own += [
                f"{words}rule add fwmark 0x80000/0xff0000 unreachable priority 5250",
                f"{words}rule add lookup 52 priority 5270",
            ]

    def _of_outside(self, family: int) -> Iterator[Connection]:
        yield from super()._of_outside(family)
        yield Connection("world", GATEWAYS["eth1"][family], NODE2[family], PORT, "eth1")


class DockerAndLibvirt(Bridge):
    """Docker with a container, and libvirt's network without a machine, beside the bridge of kubeadm's CNI."""

    def __init__(self) -> None:
        super().__init__(further=[Cable("node", "veth0docker", "container", "eth0")])

    def _pods(self) -> None:
        super()._pods()
        for bridge, address in (("docker0", "172.17.0.1/16"), ("virbr0", "192.168.122.1/24")):
            self.lines["node"] += [f"link add {bridge} type bridge forward_delay 0", f"link set {bridge} up"]
            self.lines["node"] += [f"addr add {address} dev {bridge}"]
        self.lines["node"] += ["link set veth0docker master docker0"]
        self.lines["container"] += [f"addr add {CONTAINER}/16 dev eth0", "route add default via 172.17.0.1"]

    def _services(self) -> None:
        super()._services()
        self.iptables("ip", "nat", *_DOCKER_NAT)
        self.iptables("ip", "filter", *_DOCKER_FILTER)

    def _join_saves(self) -> None:
        super()._join_saves()
        self.saves = {name: text.replace(":FORWARD ACCEPT", ":FORWARD DROP") for name, text in self.saves.items()}
        self.saves["ip6tables-nft-restore"] = self.saves["ip6tables-nft-restore"].replace(":FORWARD DROP", ":FORWARD ACCEPT")

    def connections(self) -> Iterator[Connection]:
        yield from super().connections()
        yield Connection("container", CONTAINER, FAR["eth0"][4], PORT, "docker0")
        yield Connection("node", "", CONTAINER, PORT, "")


_DOCKER_NAT = (
    ":DOCKER",
    "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
    "-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER",
    "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
    "-A DOCKER -i docker0 -j RETURN",
    ":LIBVIRT_PRT",
    "-A POSTROUTING -j LIBVIRT_PRT",
    "-A LIBVIRT_PRT -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN",
    "-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535",
    "-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -j MASQUERADE",
)
_DOCKER_FILTER = (
    *(":DOCKER", ":DOCKER-USER", ":DOCKER-ISOLATION-STAGE-1", ":DOCKER-ISOLATION-STAGE-2", ":LIBVIRT_FWI", ":LIBVIRT_FWO"),
    "-A FORWARD -j LIBVIRT_FWI",
    "-A FORWARD -j LIBVIRT_FWO",
    "-A FORWARD -j DOCKER-USER",
    "-A FORWARD -j DOCKER-ISOLATION-STAGE-1",
    "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A FORWARD -o docker0 -j DOCKER",
    "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
    "-A FORWARD -i docker0 -o docker0 -j ACCEPT",
    "-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2",
    "-A DOCKER-ISOLATION-STAGE-1 -j RETURN",
    "-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP",
    "-A DOCKER-ISOLATION-STAGE-2 -j RETURN",
    "-A DOCKER-USER -j RETURN",
    "-A LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A LIBVIRT_FWI -o virbr0 -j REJECT --reject-with icmp-port-unreachable",
    "-A LIBVIRT_FWO -s 192.168.122.0/24 -i virbr0 -j ACCEPT",
    "-A LIBVIRT_FWO -i virbr0 -j REJECT --reject-with icmp-port-unreachable",
)

LAYOUTS: dict[str, type[Layout]] = {
    "veth routes": Calico,
    "bridge, kube-proxy iptables": Bridge,
    "bridge, kube-proxy nftables": NftablesBridge,
    "ENI policy routing": EniPolicyRouting,
    "VXLAN": Vxlan,
    "tunnel": Tunnel,
    "two uplinks": TwoUplinks,
    "Cilium's shape": Cilium,
    "VPN and VRF-like tables": Vpn,
    "Docker and libvirt": DockerAndLibvirt,
}
