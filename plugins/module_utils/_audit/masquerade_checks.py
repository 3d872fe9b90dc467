# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of rules that translate the sources of packets."""

from __future__ import annotations

import ipaddress
import typing as t

from .._ruleset.ruleset import IPTABLES
from . import purpose
from .finding import check
from .node import FAMILIES, IPV4, Node
from .service import POD_PORT
from .suspicion import NOTE, RISK, Remedy, Suspicion, Trial

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
        rules = [rule for rule in table.rules() if rule.translates_source() and not rule.chain.startswith("KUBE-")]
        if table.program == IPTABLES:
            lines += [rule.line for rule in rules]
        elif rules and table.name != KUBE_PROXY:
            lines.append(f"table {table}")
    return lines
