# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv6 for the cloud of ENIs: the same links, routes, rules and source checks again. Addresses of RFC 3849.

client 2001:db8:c::2 ---- router --- eth0  node 2001:db8:0:1::10
                                \\-- eth1  ENI of subnet 2001:db8:1:1::/64 --- its pods: ::11, ::12, ...
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lab.eni import FROM_POD_PRIORITY, PRIMARY, TO_POD_PRIORITY, Eni, EniLab, EniNode
from lab.machine import Machine
from lab.node import Pod
from lab.service import IPV6

CLIENT, NODE = "2001:db8:c::2", "2001:db8:0:1::10"
MARK_RULE = "-6 rule add fwmark 0x80/0x80 lookup main priority 1024"
_POD_GATEWAY = "fe80::1"


@dataclasses.dataclass(frozen=True)
class _Subnet:
    """An ENI's IPv6 subnet, with the addresses that the cloud has given to the interface, and their pods."""

    eni: Eni
    owned: list[str]
    pods: Sequence[Pod] = ()

    @property
    def gateway(self) -> str:
        return f"{self.owned[0].rpartition('::')[0]}::1"


def add_to(lab: EniLab) -> None:
    """Give the cloud IPv6. From now on its services and the addresses of its pods are IPv6."""
    node: EniNode = lab.node("node1")
    node.family = IPV6
    lab.client.address = CLIENT
    subnets = [_Subnet(PRIMARY, [NODE])]
    for eni in node.enis:
        pods = [pod for pod in node.pods if pod.address in eni.owned()]
        for index, pod in enumerate(pods):
            pod.address = f"2001:db8:1:{eni.number}::{11 + index}"
        subnets.append(_Subnet(eni, [pod.address for pod in pods], pods))
    _connect_router(lab, node, subnets)
    _connect_node(node, subnets)


def _connect_router(lab: EniLab, node: EniNode, subnets: list[_Subnet]) -> None:
    gateway = "2001:db8:c::1"
    lines = [f"address add {gateway}/64 dev client0 nodad"]
    checks = []
    for subnet in subnets:
        mac, port = node.place.mac(subnet.eni.number), subnet.eni.port
        lines.append(f"address add {subnet.gateway}/64 dev {port} nodad")
        lines += [f"neighbour add {owned} lladdr {mac} dev {port} nud permanent" for owned in subnet.owned]
        checks.append(f"iifname {port} ip6 saddr != {{ fe80::/10, {', '.join(subnet.owned)} }} counter name refused drop")
    _ip(lab.router, lines)
    chain = ["type filter hook prerouting priority raw; policy accept;", *checks]
    table = ["table ip6 cloud {", "counter refused { }", "chain prerouting {", *chain, "}", "}", ""]
    lab.router.run_from_host(["nft", "-f", "-"], "\n".join(table))
    _ip(lab.client, [f"address add {CLIENT}/64 dev eth0 nodad", f"route add default via {gateway}"])


def _connect_node(node: EniNode, subnets: list[_Subnet]) -> None:
    primary, *others = subnets
    _ip(node, [f"address add {NODE}/64 dev eth0 nodad", f"route add default via {primary.gateway}"])
    for subnet in others:
        eni = subnet.eni
        _ip(node, [f"route add default via {subnet.gateway} dev {eni.name} onlink table {eni.table}"])
        for pod in subnet.pods:
            mac = node.place.mac(0x80 + node.pods.index(pod))
            _ip(
                node,
                [
                    f"route add {pod.address}/128 dev {pod.link}",
                    f"rule add to {pod.address} lookup main priority {TO_POD_PRIORITY}",
                    f"rule add from {pod.address} lookup {eni.table} priority {FROM_POD_PRIORITY}",
                ],
            )
            _ip(
                pod,
                [
                    f"address add {pod.address}/128 dev eth0 nodad",
                    f"neighbour add {_POD_GATEWAY} lladdr {mac} dev eth0 nud permanent",
                    f"route add default via {_POD_GATEWAY} dev eth0",
                ],
            )


def _ip(machine: Machine, lines: list[str]) -> None:
    """Runs ``ip -6``: the family of a rule does not follow from its addresses, and a line of a batch cannot name it."""
    machine.run_from_host(["ip", "-6", "-batch", "-"], "\n".join([*lines, ""]))
