# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a cluster that share elastic network interfaces (ENIs) through policy routing.

load balancer --- eth0  192.0.2.17   the node's address
              \\-- eth1  10.1.1.0/24  an ENI without an address on the node; the cloud lets it send from any
              \\-- eth2  10.1.2.0/24  an ENI with an address, 10.1.2.10; the cloud drops packets from addresses not its own

Pods have addresses of both in turn: 10.1.1.11, 10.1.2.11, 10.1.1.12, ... Those of the second node are in 10.2.0.0/16. The
load balancer is the subnets' router. IPv4, as only it has reverse-path filtering in the kernel.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lab import links, place
from lab.eni import Subnet
from lab.kubernetes.pod_network import PodNetwork
from lab.machine import Machine
from lab.metadata_replies import Nic
from lab.place import Place
from lab.wiring import veth

if TYPE_CHECKING:
    from lab.cloud import Lab
    from lab.node import ClusterNode

TO_POD_PRIORITY, FROM_POD_PRIORITY = 512, 1536
"""amazon-vpc-cni-k8s has them (pkg/networkutils/network.go), for each pod; here they are for each subnet of pods."""

_PODS = 10  # addresses of each ENI
_STRICT_PATH = "/etc/sysctl.d/10-strict.conf"
_STRICT = "".join(f"net.ipv4.conf.eth{number}.rp_filter = 1\n" for number in range(3))


@dataclasses.dataclass(frozen=True)
class Interface(Subnet):
    """A secondary interface of the node at ``place``; 1 is eth1."""

    place: Place
    number: int
    has_address: bool

    @property
    def name(self) -> str:
        return f"eth{self.number}"

    @property
    def port(self) -> str:
        """The router's end."""
        return f"eni{self.place.number}-{self.number}"

    @property
    def mac(self) -> str:
        return self.place.mac(0x80 + self.number)

    @property
    def table(self) -> int:
        """AWS's number of the table: the device's number plus 1."""
        return self.number + 1

    @property
    def subnet(self) -> str:
        return f"{self._host(0)}/24"

    @property
    def pod_gateway(self) -> str:
        """The node's address on the pods' links: not the router's, to which the node forwards."""
        return self._host(254)

    def owned(self) -> list[str]:
        """The addresses that the cloud has given to the interface."""
        return [self.address, *(self.pod_address(index) for index in range(_PODS))]

    def _host(self, part: int) -> str:
        return f"10.{self.place.number + 1}.{self.number}.{part}"


def interfaces(at: Place) -> tuple[Interface, Interface]:
    """The ENIs of the node at this place."""
    return Interface(at, 1, has_address=False), Interface(at, 2, has_address=True)


def nics(at: Place) -> tuple[Nic, ...]:
    """The node's interfaces as the metadata service knows them."""
    primary = Nic(at.mac(), (at.ipv4,), (), f"{place.NODES_IPV4}0/24")
    return (primary, *(Nic(eni.mac, (eni.address,), (), eni.subnet, device_number=eni.number) for eni in interfaces(at)))


def described(node: ClusterNode) -> list[dict[str, Any]]:
    """The node's interfaces as the role eni_policy_routing takes them for a home-made CNI."""
    primary = {"name": "eth0", "primary": True, "ipv4": [node.ipv4]}
    return [
        primary,
        *(
            {"name": eni.name, "ipv4": [eni.address], "gateway": {"ipv4": eni.gateway}, "table": eni.table}
            for eni in interfaces(node.place)
        ),
    ]


class SharedInterfaces(PodNetwork):
    """ptp and host-local, with the rules and tables of a home-made CNI, which are there at the start of every boot."""

    def connect(self, node: ClusterNode, lab: Lab) -> None:
        lab.metadata.own[node.ipv4] = nics(node.place)
        for eni in interfaces(node.place):
            lab.load_balancer.run(["ip", "link", "delete", eni.port], check=False)  # of the boot before
            lab.load_balancer.ip([veth(eni.port, node.pid, peer_mac=eni.mac, peer_name=eni.name)])
            connect_router(lab.load_balancer, eni)
            links.compute_checksums(node, [eni.name])
        connect_node(node)

    def configuration(self, node: ClusterNode) -> dict[str, Any]:
        # A range for each address: host-local continues after the address that it gave last.
        ranges = [
            {"subnet": eni.subnet, "rangeStart": address, "rangeEnd": address, "gateway": eni.pod_gateway}
            for index in range(_PODS)
            for eni in interfaces(node.place)
            for address in [eni.pod_address(index)]
        ]
        addresses = {"type": "host-local", "ranges": [ranges], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}
        return {"cniVersion": "0.3.1", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}


def filter_strictly(node: ClusterNode) -> None:
    """Set strict reverse-path filtering, now and for each boot, as on a hardened image."""
    node.write(_STRICT_PATH, _STRICT)
    node.run(["sysctl", "--quiet", f"--load={_STRICT_PATH}"])


def connect_router(router: Machine, eni: Interface) -> None:
    """The router's end of an existing link: it has the addresses that the interface owns."""
    router.ip(
        [
            f"address add {eni.gateway}/24 dev {eni.port}",
            f"link set {eni.port} up",
            *(f"neighbour add {address} lladdr {eni.mac} dev {eni.port} nud permanent" for address in eni.owned()),
        ]
    )
    links.compute_checksums(router, [eni.port])
    if eni.has_address:
        table = f"table ip {eni.port}"
        check = f"iifname {eni.port} ip saddr != {{ {', '.join(eni.owned())} }} drop"
        chain = f"chain prerouting {{ type filter hook prerouting priority raw; {check}; }}"
        router.run_from_host(["nft", "-f", "-"], f"{table}\ndelete {table}\n{table} {{ {chain}\n}}\n")


def connect_node(node: ClusterNode) -> None:
    """The node's ends: an ENI's own address has no route in table main, because AWS's CNI deletes that route."""
    for eni in interfaces(node.place):
        address = [f"address add {eni.address}/24 dev {eni.name} noprefixroute"] if eni.has_address else []
        node.ip(
            [
                f"link set {eni.name} up",
                *address,
                f"route add {eni.gateway} dev {eni.name} scope link table {eni.table}",
                f"route add default via {eni.gateway} dev {eni.name} table {eni.table}",
                f"rule add to {eni.subnet} lookup main priority {TO_POD_PRIORITY}",
                f"rule add from {eni.subnet} lookup {eni.table} priority {FROM_POD_PRIORITY}",
            ]
        )
