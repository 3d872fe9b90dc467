# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links and addresses of the cloud.

All is done from outside, in the network of a machine and not on it, as a cloud attaches an interface, and without the help of a
service on the node. A node that boots has its network before its process 1 is started. Only a VM
sets its addresses itself: systemd-networkd reads them from the kernel's command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab import entering, links, place
from lab.load_balancer import LINK, PROBE_MAC, PROBE_SOURCE, Client, LoadBalancer
from lab.namespace import FORWARDING_NETWORK
from lab.node import ClusterNode, Pod
from lab.vm import Cable, VmNode


def connect_front(front: LoadBalancer, client: Client) -> None:
    """The load balancer with its link to all nodes, and the client behind it."""
    front.ip(
        [f"link add name {LINK} address {PROBE_MAC} type bridge mcast_snooping 0", veth("client0", client.pid)]
        + ["link set lo up"]
        + [f"link set {LINK} addrgenmode none"]  # PROBE_SOURCE does not follow from the MAC
        + [f"link set {LINK} up", "link set client0 up"]
        + [f"address add {address}/64 dev {LINK} nodad" for address in (PROBE_SOURCE, place.ROUTER)]
        + [f"address add {place.ROUTER_IPV4}/24 dev {LINK}"]
        + [f"address add {place.CLIENT_ROUTER}/64 dev client0 nodad", f"address add {place.CLIENT_ROUTER_IPV4}/24 dev client0"]
    )
    front.set_sysctls({"net.ipv6.conf.all.forwarding": 1, "net.ipv4.conf.all.forwarding": 1})
    client.ip(
        [
            "link set lo up",
            "link set eth0 up",
            f"address add {client.address}/64 dev eth0 nodad",
            f"address add {place.CLIENT_IPV4}/24 dev eth0",
            f"route add default via {place.CLIENT_ROUTER}",
            f"route add default via {place.CLIENT_ROUTER_IPV4}",
        ]
    )
    links.compute_checksums(front, ["client0"])
    links.compute_checksums(client, ["eth0"])


def connect(node: ClusterNode, front: LoadBalancer, other_nodes: Sequence[ClusterNode], advertised: bool) -> None:
    """A node and its pods. ``advertised``: its IPv6 default route is left to the load balancer's advertisements."""
    node.run_from_host(["sh", "-c", FORWARDING_NETWORK])
    port = node.place.port
    front.ip(
        [
            veth(port, node.pid, peer_mac=node.place.mac()),
            f"link set {port} master {LINK} up",
            f"route replace {node.pod_subnet} via {node.address} dev {LINK}",
        ]
    )
    if advertised:
        node.set_sysctls({"net.ipv6.conf.eth0.accept_ra": 2})  # 1 has no effect on a node that forwards
    node.ip(
        [
            "link set lo up",
            "link set eth0 up",
            f"address add {node.address}/64 dev eth0 nodad",
            f"address add {node.ipv4}/24 dev eth0",
            f"route add default via {place.ROUTER_IPV4}",
        ]
        + ([] if advertised else [f"route add default via {PROBE_SOURCE} dev eth0"])
        + _others_routes(other_nodes)
        + [line for index, pod in enumerate(node.pods) for line in (_pod_link(pod, index), *_pod_route(pod))]
    )
    for pod in node.pods:
        _address_pod(pod)
    links.compute_checksums(front, [port])
    links.compute_checksums(node, ["eth0", *(pod.link for pod in node.pods)])


def disconnect(node: ClusterNode, front: LoadBalancer) -> None:
    """Remove the links of the former boot, whose namespace the kernel may not have freed yet."""
    front.run(["ip", "link", "delete", node.place.port], check=False)
    for pod in node.pods:
        pod.run(["ip", "link", "delete", "eth0"], check=False)


def start_vm(node: VmNode, front: LoadBalancer, advertised: bool) -> None:
    """Switch on a VM with a card for the cloud and one for each pod, and connect the other ends of the cables."""
    mac, pods = node.place.mac, list(enumerate(node.pods))
    cables = [Cable(mac(2 * index + 1), pod, "eth0") for index, pod in pods]
    names = [f"ifname={pod.link}:{mac(2 * index + 1)}" for index, pod in pods]
    node.start([Cable(mac(), front, node.place.port), *cables], _boot_arguments(node, advertised) + names)
    front.ip([f"link set {node.place.port} master {LINK} up"])
    front.ip([f"route replace {node.pod_subnet} via {node.address} dev {LINK}"])
    for index, pod in pods:
        pod.ip([f"link set eth0 address {mac(2 * index + 2)}"])
        _address_pod(pod)


def connect_booted(node: VmNode, other_nodes: Sequence[ClusterNode]) -> None:
    """Complete the boot of a VM: as on any node, pods get their network from a CNI later."""
    node.ip(_others_routes(other_nodes) + [line for pod in node.pods for line in _pod_route(pod)])


def _boot_arguments(node: VmNode, advertised: bool) -> list[str]:
    """A VM's network as arguments of the kernel's command line (systemd-network-generator(8))."""
    gateway = "" if advertised else f"[{PROBE_SOURCE}]"
    return [
        *("sysctl.net.ipv4.ip_forward=1", "sysctl.net.ipv6.conf.all.forwarding=1"),
        *("sysctl.net.ipv4.conf.all.rp_filter=0", "sysctl.net.ipv4.conf.default.rp_filter=0"),
        f"ip={node.ipv4}::{place.ROUTER_IPV4}:255.255.255.0::eth0:none",
        f"ip=[{node.address}]::{gateway}:64::eth0:none",
    ]


def _others_routes(other_nodes: Sequence[ClusterNode]) -> list[str]:
    return [f"route replace {other.pod_subnet} via {other.address}" for other in other_nodes]


def _pod_link(pod: Pod, index: int) -> str:
    mac = pod.node.place.mac
    return veth(pod.link, pod.pid, mac(2 * index + 1), mac(2 * index + 2))


def _pod_route(pod: Pod) -> list[str]:
    """Like a CNI: a host route on the node."""
    return [
        f"link set {pod.link} up",
        f"address replace {place.POD_ROUTER}/64 dev {pod.link} nodad",
        f"route replace {pod.address}/128 dev {pod.link}",
    ]


def _address_pod(pod: Pod) -> None:
    """Like a CNI: a default route by the node."""
    pod.ip(
        [
            "link set lo up",
            "link set eth0 up",
            f"address add {pod.address}/128 dev eth0 nodad",
            f"route add default via {place.POD_ROUTER} dev eth0",
        ]
    )
    links.compute_checksums(pod, ["eth0"])


def veth(name: str, peer: int, mac: str = "", peer_mac: str = "", peer_name: str = "eth0") -> str:
    """A veth whose other end is a link of the machine that process ``peer`` holds.

    udev changes a MAC that the kernel made up (MACAddressPolicy=persistent); udev keeps a given one.
    """
    entering.refuse_host(peer)
    own_address, peer_address = (f"address {address} " if address else "" for address in (mac, peer_mac))
    return f"link add name {name} {own_address}type veth peer name {peer_name} {peer_address}netns {peer}"
