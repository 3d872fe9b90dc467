# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets other than probes that the nodes' router sends from the probes' address."""

from __future__ import annotations

import re
import socket

from lab.load_balancer import LINK, PROBE_SOURCE, LoadBalancer
from lab.node import ClusterNode

_CLIENT, _SERVER = 546, 547  # RFC 8415 section 7.2


def dhcpv6_source(router: LoadBalancer, node: ClusterNode, destination: str | None = None, timeout: float = 1.0) -> str | None:
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


def _link_local_address(node: ClusterNode) -> str:
    shown = node.run(["ip", "-6", "-oneline", "address", "show", "dev", "eth0", "scope", "link"]).stdout
    return str(re.findall(r"inet6 (\S+)/64", shown)[0])
