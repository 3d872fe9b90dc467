# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two machines in front of the nodes: Azure's load balancer, and a client somewhere in the world."""

from __future__ import annotations

import re
import socket
import struct
import threading

from lab.machine import Machine
from lab.prober import Answer, Prober

PROBE_SOURCE = "fe80::1234:5678:9abc"
"""The source of Azure's IPv6 probes, and the nodes' IPv6 router (github.com/cilium/cilium/issues/25242)."""

PROBE_MAC = "12:34:56:78:9a:bc"
"""Its MAC, in the packet dump of the same issue."""

PROBE_TRANSLATED = "2603:1062:0:1:fe80:1234:5678:9abc"
"""Microsoft's address that stands in for it on a node (github.com/Azure/AgentBaker, ipv6_nftables)."""

LINK = "nodes0"
"""The load balancer's link to all nodes."""

_ROUTER_ADVERTISEMENT = 134  # RFC 4861 section 4.2
_SOURCE_LINK_LAYER_ADDRESS = 1  # RFC 4861 section 4.6.1
_ADVERTISEMENTS_PER_LIFETIME = 4


class LoadBalancer(Machine):
    """Probes nodes from PROBE_SOURCE. Time limits are in seconds and per try."""

    @property
    def _probe(self) -> Prober:
        return Prober(self, link=LINK, source=PROBE_SOURCE)

    def probe_tcp(self, address: str, port: int, timeout: float = 1.0, tries: int = 1) -> bool:
        """Whether the port accepts a connection."""
        return self._probe.tcp(address, port, timeout, tries)

    def probe_http(self, address: str, port: int, timeout: float = 1.0, tries: int = 1) -> Answer | None:
        """The port's answer to GET /healthz; None without an answer."""
        return self._probe.http(address, port, timeout, tries, "/healthz")

    def probe_udp(self, address: str, port: int, timeout: float = 1.0, tries: int = 1) -> bool:
        """Whether a datagram is echoed."""
        return self._probe.udp(address, port, timeout, tries)

    def probe_icmp(self, address: str, timeout: float = 1.0, tries: int = 1) -> bool:
        """Whether an echo request is answered."""
        return self._probe.icmp(address, timeout, tries)

    def route(self, prefix: str, via: str) -> None:
        """Send a prefix, e.g. a pod's address, by the node that has the address ``via``."""
        self.ip([f"route replace {prefix} via {via} dev {LINK}"])


class Client(Machine):
    """A client with a global address, behind the load balancer."""

    address: str

    def fetch(self, address: str, port: int, timeout: float = 1.0, tries: int = 1) -> Answer | None:
        """HTTP GET; None without an answer."""
        return Prober(self).http(address, port, timeout, tries)

    def ping(self, address: str, timeout: float = 1.0, tries: int = 1) -> bool:
        """ICMPv6 echo."""
        return Prober(self).icmp(address, timeout, tries)


class RouterAdvertisements:
    """Advertises the load balancer to all nodes as a default router for ``lifetime`` seconds, repeatedly."""

    def __init__(self, load_balancer: LoadBalancer, lifetime: int) -> None:
        self.lifetime = lifetime
        self._stopped = threading.Event()
        self._socket = load_balancer.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)  # RFC 4861 6.1.2: otherwise ignored
        self._socket.bind((PROBE_SOURCE, 0))
        self._thread = threading.Thread(target=self._advertise, name="router advertisements", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more advertisements; those that were sent keep their lifetime."""
        self._stopped.set()
        self._thread.join()
        self._socket.close()

    def _advertise(self) -> None:
        hop_limit, flags, reachable, retransmit = 64, 0, 0, 0
        message = struct.pack("!BBHBBHII", _ROUTER_ADVERTISEMENT, 0, 0, hop_limit, flags, self.lifetime, reachable, retransmit)
        message += struct.pack("!BB6s", _SOURCE_LINK_LAYER_ADDRESS, 1, bytes.fromhex(PROBE_MAC.replace(":", "")))
        while True:
            self._socket.sendto(message, ("ff02::1", 0))
            if self._stopped.wait(self.lifetime / _ADVERTISEMENTS_PER_LIFETIME):
                return


_CLIENT, _SERVER = 546, 547  # RFC 8415 section 7.2


def dhcpv6_source(router: LoadBalancer, node: Machine, destination: str | None = None, timeout: float = 1.0) -> str | None:
    """The source of a DHCPv6 reply as the node's client sees it; None if it does not arrive within ``timeout`` seconds.

    The reply goes to the link-local address of the node's eth0, or to ``destination``.
    """
    with (
        router.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server,
        node.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client,
    ):
        client.bind(("::", _CLIENT))
        client.settimeout(timeout)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
        server.bind((PROBE_SOURCE, _SERVER))
        server.sendto(b"reply", (destination or _link_local_address(node), _CLIENT))
        try:
            return str(client.recvfrom(64)[1][0]).partition("%")[0]
        except TimeoutError:
            return None


def _link_local_address(node: Machine) -> str:
    output = node.run(["ip", "-6", "-oneline", "address", "show", "dev", "eth0", "scope", "link"]).stdout
    return str(re.findall(r"inet6 (\S+)/64", output)[0])
