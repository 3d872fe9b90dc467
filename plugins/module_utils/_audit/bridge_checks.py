# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of rules of ebtables that are left over from azure-vnet."""

from __future__ import annotations

import re
import typing as t

from .._trace.culprit import is_of_bridge
from .._trace.packet import OUTSIDE
from .finding import check
from .node import AZURE_PEER, IPV4, Node
from .suspicion import ERROR, RISK, Remedy, Suspicion, Trial, Unobserved

_TARGET = re.compile(r"--(?:to-dst|to-destination|arpreply-mac) ([0-9a-f:]+)", re.IGNORECASE)
_ADDRESS = re.compile(r"--(?:ip-dst|arp-ip-dst|ip-destination) (\d+\.\d+\.\d+\.\d+)(?!\S)")


@check(
    "ebtables-stale",
    RISK,
    "Rules that azure-vnet left send frames to MAC addresses of pods that are gone.",
    "The rules of ebtables, the MAC addresses of links, pods and neighbours, and a packet through the twin.",
    "ebtables_cleanup, or the role cilium_migration.",
    "https://github.com/cilium/cilium/issues/14233",
    "A new pod is unreachable, and its address was another pod's",
    worst=ERROR,
)
def _stale(node: Node) -> t.Iterator[Suspicion]:
    rules = node.frame_rules()
    known = {AZURE_PEER, *_macs(node)}
    for table, chain, rule in rules:
        target = _TARGET.search(rule)
        if not target or _is_group(target[1]) or _long(target[1]) in known:
            continue
        if _hides_macs(node):
            raise Unobserved(f"Whether a pod has the MAC address {target[1]} is open.", "ip -all netns exec ip link")
        what = f"A rule of ebtables ({table} {chain}) sends frames to {target[1]}, a MAC address that nothing on the node knows."
        address = _ADDRESS.search(rule)
        evidence = (f"ebtables -t {table} -A {chain} {rule}",)
        remedy = Remedy("ebtables_cleanup", {"addresses": [address[1]]} if address else {})
        trial = _trial(node, address[1]) if address and "-p ARP" not in rule else None
        yield Suspicion(address[1] if address else target[1], what, evidence, remedy, trial, ERROR if trial else RISK)


def _macs(node: Node) -> t.Iterator[str]:
    for link in node.all_links():
        yield from (link.mac, link.peer.mac)
    yield from (neighbour.mac for neighbour in node.neighbors())


def _hides_macs(node: Node) -> bool:
    """Return whether the MAC address of a pod is unknown, as in a report, which shows the node's ends of links."""
    return any(not link.peer.mac for link in node.pod_links())


def _is_group(mac: str) -> bool:
    """Return whether frames to a MAC address are for several stations (IEEE 802): azure-vnet broadcasts replies of ARP."""
    return bool(int(mac.partition(":")[0], 16) & 1)


def _long(mac: str) -> str:
    """Return a MAC address with two digits in each part, which ebtables may print with one."""
    return ":".join(part.zfill(2) for part in mac.lower().split(":"))


def _trial(node: Node, address: str) -> Trial | None:
    """Return a packet from outside to an address, by the first port of a bridge that leads to no pod."""
    bridges = {link.name for link in node.all_links() if link.kind == "bridge"}
    pods = set(node.pods.values())
    ports = [link.name for link in node.all_links() if link.master in bridges and link.name not in pods]
    if not ports:
        return None
    packet = {"source": OUTSIDE[IPV4], "destination": address, "destination_port": 80, "interface": ports[0]}
    return Trial(packet, culprit=is_of_bridge)
