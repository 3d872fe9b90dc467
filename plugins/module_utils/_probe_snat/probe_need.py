# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Whether a node needs the probe table, as far as the node shows it."""

from __future__ import annotations

import typing as t

UNNEEDED, INEFFECTIVE, POSSIBLE, UNKNOWN = "unneeded", "ineffective", "possible", "unknown"


class Cilium(t.NamedTuple):
    """Cilium on the link by which probes come in.

    source: where the agent's options were read. serves_ipv6_node_ports: see _cni.cilium.Agent. programs: the agent's BPF
    programs that receive the link's packets, as "tc cil_from_netdev-eth0".
    """

    source: str
    serves_ipv6_node_ports: bool | None
    programs: tuple[str, ...]

    @property
    def takes_probes(self) -> bool:
        return bool(self.serves_ipv6_node_ports and self.programs)

    def taken(self, link: str) -> str:
        """Return why a table on this link has no effect; only if the agent takes probes."""
        return (
            f"{link} carries Cilium's BPF programs {', '.join(self.programs)}, and by {self.source} Cilium replaces kube-proxy"
            " for IPv6. These programs answer node ports before nftables sees the packet, and drop the reply to a link-local"
            " address (github.com/cilium/cilium/issues/31326), so the table has no effect"
        )

    def doubt(self, link: str) -> str:
        """Return the question that could not be decided, and the next step; empty if there is no doubt."""
        if self.serves_ipv6_node_ports and not self.programs:
            return (
                f"By {self.source} Cilium replaces kube-proxy for IPv6, but none of its BPF programs was found on {link}. Once"
                f" they are on {link}, the table has no effect. Run this again when the agent has started, or set interface to"
                " the link by which probes come in."
            )
        if self.serves_ipv6_node_ports is None and self.programs:
            return (
                f"{link} carries Cilium's BPF programs {', '.join(self.programs)}, and the agent's options were not found,"
                " neither in the configuration of a running cilium-agent nor in its state. If Cilium replaces kube-proxy, the"
                " table has no effect: set state to absent then."
            )
        return ""


class NodeFacts(t.NamedTuple):
    """The facts about the node.

    link: by which probes come in. addresses: global IPv6 addresses by link. translators: signs of other programs that translate
    probes. cilium: None without an agent. owner: the unit of the node's image that loads the table, or None.
    """

    link: str
    addresses: t.Mapping[str, t.Sequence[str]]
    translators: t.Sequence[str]
    cilium: Cilium | None
    owner: str | None


class Need(t.NamedTuple):
    """verdict: one of the constants above. reasons: sentences about the findings, and about facts that were not examined."""

    verdict: str
    reasons: t.Sequence[str]


PROBE_MODE = (
    "The load balancer's probe mode does not show on a node and was not looked at. With"
    " clusterServiceLoadBalancerHealthProbeMode shared, probes end on the node itself and need no table."
)


def unknown(reason: str) -> Need:
    return Need(UNKNOWN, [f"The node's addresses and BPF programs were not looked at: {reason}."])


def need(node: NodeFacts) -> Need:
    """Return the verdict for a running node. The reasons that decide come first."""
    link = node.link
    unneeded = [f"Another program translates probes on this node, known by {sign}." for sign in node.translators]
    if not node.addresses:
        unneeded.append("No link of the node has a global IPv6 address, so the node receives no IPv6 probes.")
    ineffective = [f"{node.cilium.taken(link)}."] if node.cilium and node.cilium.takes_probes else []
    if unneeded or ineffective:
        return Need(UNNEEDED if unneeded else INEFFECTIVE, [*unneeded, *ineffective])
    reasons = [_addresses(link, node.addresses)]
    reasons += [f"{node.owner} of the node's image loads the table."] if node.owner else []
    reasons += [doubt for doubt in [node.cilium.doubt(link) if node.cilium else ""] if doubt]
    return Need(POSSIBLE, [*reasons, PROBE_MODE])


def _addresses(link: str, addresses: t.Mapping[str, t.Sequence[str]]) -> str:
    if link in addresses:
        # Not which one: a fleet's report has each sentence once for all nodes that share it.
        return f"{link} has a global IPv6 address."
    others = ", ".join(f"{name} ({held[0]})" for name, held in sorted(addresses.items()))
    return (
        f"{link} has no global IPv6 address, and these links have one: {others}. Set interface to the link that receives probes."
    )
