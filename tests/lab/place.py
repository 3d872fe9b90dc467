# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of the lab's machines.

client         2001:db8:ffff::2 and 198.51.100.2
load balancer  fe80::1234:5678:9abc, 2001:db8:0:1::1 and 192.0.2.1, on one link with all nodes
node N         eth0: 2001:db8:0:1::11, ::12, ...; 192.0.2.17, .18, ...
its pods       2001:db8:N::11, ::12, ...; of a cluster also 10.244.N.2, .3, ...

Documentation addresses, RFC 3849 and RFC 5737, but for those of pods, RFC 1918.
"""

from __future__ import annotations

import dataclasses

NODES = "2001:db8:0:1::"  # /64
NODES_IPV4 = "192.0.2."  # /24
ROUTER, ROUTER_IPV4 = f"{NODES}1", f"{NODES_IPV4}1"
CLIENT_ROUTER, CLIENT = "2001:db8:ffff::1", "2001:db8:ffff::2"
CLIENT_ROUTER_IPV4, CLIENT_IPV4 = "198.51.100.1", "198.51.100.2"
POD_ROUTER = "fe80::1"
"""The node's address on each pod's link."""

_FIRST = 0x11  # host part of the first node and of a node's first pod


@dataclasses.dataclass(frozen=True)
class Place:
    """A node's place in the cloud, by its number from 0."""

    number: int

    @property
    def address(self) -> str:
        return f"{NODES}{_FIRST + self.number:x}"

    @property
    def ipv4(self) -> str:
        return f"{NODES_IPV4}{_FIRST + self.number}"

    @property
    def port(self) -> str:
        """The load balancer's end of the node's link."""
        return f"port{self.number}"

    @property
    def pod_subnet(self) -> str:
        return f"{self._pods}/64"

    @property
    def pod_subnet_ipv4(self) -> str:
        return f"10.244.{self.number + 1}.0/24"

    def pod_address(self, index: int) -> str:
        return f"{self._pods}{_FIRST + index:x}"

    def mac(self, interface: int = 0) -> str:
        """0 is eth0. Links have the same MACs after each boot, as cards do."""
        high, low = divmod(interface, 0x100)
        return f"02:00:00:{high:02x}:{self.number:02x}:{low:02x}"

    @property
    def _pods(self) -> str:
        return f"2001:db8:{self.number + 1:x}::"
