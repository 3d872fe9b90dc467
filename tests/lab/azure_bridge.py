# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node behind azure-vnet's bridge, made by the commands that azure-vnet runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lab import azure_vnet, cilium
from lab.azure_vnet import BRIDGE, NODE_ADDRESS, AzurePod
from lab.machine import Machine
from lab.node import ClusterNode
from lab.server import Server


def enslave(node: Machine, nic: str = "eth0", bridge: str = BRIDGE) -> None:
    """The bridge takes the NIC with its addresses and routes (network/network_linux.go, connectExternalInterface).

    azure-vnet moves the default routes; the others, which a NIC loses when it goes down, are restored as by a network daemon.
    The addresses move in one batch, because a VM is reached over this NIC. No daemon may interfere. As with azure-vnet's
    disableHairpinOnHostInterface, no frame leaves by the NIC that came in by it: Azure's network is no Ethernet, and in the lab's
    a multicast frame would go back and forth between two such nodes for ever.
    """
    addresses = _global_addresses(node, nic)
    routes = {family: _other_routes(node, family, nic) for family in ("-4", "-6")}
    mac = json.loads(node.run_from_host(["ip", "-json", "link", "show", nic]))[0]["address"]
    node.ip([f"link add {bridge} address {mac} type bridge"])
    node.set_sysctls({f"net.ipv6.conf.{bridge}.accept_ra": 0})
    node.ip(
        [
            *(f"address del {address} dev {nic}" for address in addresses),
            *(f"link set {nic} down", f"link set {nic} master {bridge}", f"link set {nic} up", f"link set {bridge} up"),
            *(f"address add {address} dev {bridge}{' nodad' if ':' in address else ''}" for address in addresses),
        ]
    )
    for family, lines in routes.items():
        again = "".join(f"route add {line} dev {bridge}\n" for line in lines)
        node.run_from_host(["ip", family, "-batch", "-"], again)


def _other_routes(node: Machine, family: str, link: str) -> list[str]:
    """All routes except those that the kernel adds with addresses."""
    lines = node.run_from_host(["ip", family, "route", "show", "table", "all", "dev", link]).splitlines()
    return [line for line in lines if "table local" not in line and "proto kernel" not in line]


def _global_addresses(node: Machine, link: str) -> list[str]:
    (listed,) = json.loads(node.run_from_host(["ip", "-json", "address", "show", link, "scope", "global"]))
    return [f"{address['local']}/{address['prefixlen']}" for address in listed["addr_info"] if address]


def served(node: ClusterNode, pods: Sequence[AzurePod]) -> Server:
    """Makes a node that azure-vnet served, whose pods have ended, and that Cilium serves now. Answers the agent's health port."""
    mac = node.place.mac()
    enslave(node)
    node.ip(
        [
            f"address add {NODE_ADDRESS}/16 dev {BRIDGE}",
            *(f"neighbour add {pod.address} lladdr {pod.mac} nud permanent dev {BRIDGE}" for pod in pods),
        ]
    )
    azure_vnet.restore(node, [*azure_vnet.node_rules(mac), *(rule for pod in pods for rule in pod.rules)])
    node.write(azure_vnet.STATE, azure_vnet.state_text(mac, pods), 0o600)
    node.write(azure_vnet.CONFLIST, azure_vnet.conflist("azure-vnet", "portmap"), 0o600)
    node.write(azure_vnet.CILIUM, azure_vnet.conflist("cilium-cni"), 0o600)
    return cilium.start(node)
