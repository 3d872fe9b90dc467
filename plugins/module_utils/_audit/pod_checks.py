# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the links by which pods reach the node, and of rules that translate the sources of their packets."""

from __future__ import annotations

import contextlib
import ipaddress
import typing as t

from .._ruleset.ruleset import IPTABLES, TRANSLATES_SOURCE
from .._snapshot.values import Link
from .._trace.culprit import is_neighbor
from .._trace.packet import OUTSIDE
from . import purpose
from .finding import check
from .node import FAMILIES, IPV4, IPV6, Node
from .service import POD_PORT
from .suspicion import ERROR, NOTE, RISK, Remedy, Suspicion, Trial, Unobserved

KUBE_PROXY = "kube-proxy"  # whose rules translate what it has marked alone
SHOWN = 3  # lines of evidence
ASK = "kubectl get nodes -o yaml"


@check(
    "pod-source-translated",
    RISK,
    "A rule that masquerades takes packets between pods of two nodes for packets to the outside.",
    "The ranges of pods in the context or behind tunnels, the rules that translate, and a packet of a pod through the twin.",
    "Except the networks of pods from the rule.",
    "https://kubernetes.io/docs/tasks/administer-cluster/ip-masq-agent/",
    "A pod sees a node's address in place of the pod that calls it",
)
def _between_pods(node: Node) -> t.Iterator[Suspicion]:
    """Yield a pod whose packets to pods of other nodes leave from another address, for each family."""
    for family in FAMILIES:
        pod = _local(node, family)
        peers = next(iter(_of_other_nodes(node, family)), None) if pod else None
        lines = _translating(node, family) if peers else []
        if peers is None or not lines:
            continue
        network = peers.network
        what = (
            f"The node translates the source of packets from its pods to those of other nodes ({network}), where a policy that"
            " permits pods by their addresses drops them."
        )
        program = "iptables" if family == IPV4 else "ip6tables"
        # kube-proxy marks the packets whose source it has to translate.
        command = f"{program} -t nat -I POSTROUTING -d {network} -m mark ! --mark 0x4000/0x4000 -j ACCEPT"
        text = "Except the networks of pods from the rule that masquerades, such as by nonMasqueradeCIDRs of ip-masq-agent"
        packet = {"source": pod, "destination": str(network[-2]), "destination_port": POD_PORT, "interface": node.pods[pod]}
        remedy = Remedy(operator=text, commands=(command,))
        suspicion = Suspicion(family, what, tuple(lines[:SHOWN]), remedy, Trial(packet, source=pod))
        guess = f"{what} That {network} has pods is a guess: a tunnel leads to it ({peers.route})."
        yield suspicion if peers.reason else suspicion._replace(what=guess, severity=NOTE, ask=ASK)


def _local(node: Node, family: str) -> str:
    """Return the address of a pod of the node, of the ranges in the context if it has any; empty for none."""
    ranges = node.context.pod_ranges
    return next(
        (pod for pod in node.pods_of(family) if not ranges or any(ipaddress.ip_address(pod) in network for network in ranges)), ""
    )


def _of_other_nodes(node: Node, family: str) -> list[purpose.PodNetwork]:
    """Return the networks of pods on other nodes whose last address, which is taken for one of a pod, no pod of the node has."""
    networks = purpose.pod_networks(node, family)
    return [each for each in networks if each.network.num_addresses > 2 and str(each.network[-2]) not in node.pods]


def _translating(node: Node, family: str) -> list[str]:
    """Return the rules that translate sources, without those of kube-proxy."""
    lines = []
    for table in node.tables([family], "nat"):
        rules = [
            rule for rule in table.rules(TRANSLATES_SOURCE) if rule.translates_source() and not rule.chain.startswith("KUBE-")
        ]
        if table.program == IPTABLES:
            lines += [rule.line for rule in rules]
        elif rules and table.name != KUBE_PROXY:
            lines.append(f"table {table}")
    return lines


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
