# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the links by which pods reach the node."""

from __future__ import annotations

import contextlib
import typing as t

from .._snapshot.values import Link
from .._trace.culprit import is_neighbor
from .._trace.packet import OUTSIDE
from .finding import check
from .node import IPV4, IPV6, Node
from .suspicion import ERROR, NOTE, Remedy, Suspicion, Trial, Unobserved


@check(
    "gateway-mac-changed",
    ERROR,
    "udev changed the MAC address of the node's end of a pod's link after the pod had got a neighbour entry for it.",
    "The permanent neighbours of pods, the MAC addresses of their links, and a packet of the pod through the twin.",
    "MACAddressPolicy=none for these links, and a restart of the pod.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/2103",
    "A pod reaches nothing outside of its node",
)
def _gateway_mac(node: Node) -> t.Iterator[Suspicion]:
    """Yield pods that send what they send to the node to a MAC address that the node's end of their link does not have."""
    neighbours = node.pod_neighbors()
    for link in _routed_links(node):
        name, mac = link.name, link.mac
        former = next((entry for entry in neighbours if entry.link == name and entry.mac != mac), None)
        if former is None:
            continue
        subject, family = next(iter(link.peer.addresses), name), IPV6 if ":" in former.address else IPV4
        pod = next((address for address, to in node.pods_of(family).items() if to == name), "")
        what = f"{subject} sends its packets for {former.address} to {former.mac}, and {name} has the MAC address {mac}."
        text = (
            "Give the link the MAC address that the pod knows, or restart the pod. Set MACAddressPolicy=none for links of pods in"
            " a .link file of /etc/systemd/network, so that udev leaves their addresses alone"
        )
        lines = (f"{former.address} dev {link.peer.name} lladdr {former.mac} PERMANENT", f"{name}: link/ether {mac}")
        remedy = Remedy(operator=text, commands=(f"ip link set dev {name} address {former.mac}",))
        count = 0
        with contextlib.suppress(Unobserved):  # which the neighbour shows without it
            count = node.count("otherhost", name) or 0
        counted = (f"{name}: rx_otherhost_dropped {count}",) if count else ()
        packet = {"source": pod, "destination": OUTSIDE[family], "destination_port": 443, "interface": name}
        trial = Trial(packet, culprit=is_neighbor) if pod else None
        yield Suspicion(subject, what, (*lines, *counted), remedy, trial, ERROR if trial else NOTE)
    node.demand_whole("pod_neighbors")


def _routed_links(node: Node) -> list[Link]:
    """Return the links of pods that no bridge joins and no BPF program takes packets from, whatever their MAC address."""
    programmed = {program.link for program in node.programs()}
    return [link for link in node.pod_links() if link.name not in programmed and not link.master]
