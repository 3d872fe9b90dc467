# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards of the probe table. Each one refuses a node that must not have the table, or warns of one where it has no effect yet."""

from __future__ import annotations

import functools
import os
import typing as t

from .._cni import cilium_backend
from .._core.errors import Failure, Refusal
from .._kubelet import kubelet_backend
from .._netlink import rtnetlink
from .._nftables.nft_backend import Nft
from .._platform import kernel, sysctl, sysctl_files
from . import agentbaker_resource, ipv6_backend
from .probe_table import CONNTRACK_PRIORITY, NOT_PROBED, ProbeSnat

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
                " table has no effect: set backend to bpf then."
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
    other_links = ", ".join(f"{name} ({held[0]})" for name, held in sorted(addresses.items()))
    return (
        f"{link} has no global IPv6 address, and these links have one: {other_links}. Set interface to the link that receives"
        " probes."
    )


# Azure/azure-container-networking, bpf-prog/ipv6-hp-bpf/pkg/{ingress,egress}: Microsoft's own translation on Cilium
# clusters. It deletes a table azureSLBProbe, and this collection would add it again.
HEALTH_PROBE_FILTERS = {"ipv6_hp_ingress", "ipv6_hp_egress"}
# The same repository, bpf-prog/azure-block-iptables/pkg/bpfprogram/program.go: LSM programs that refuse new nftables rules
# with EPERM, except from the children of a few programs. python is one of these.
HOST_ROUTING_LABEL = "kubernetes.azure.com/ebpf-host-routing=true"
HOST_ROUTING_PINS = tuple(
    f"/sys/fs/bpf/azure-block-iptables/{name}" for name in ("iptables_nftables_block", "iptables_legacy_block")
)


class OtherTranslators:
    """Other programs on the node that translate or answer probes that come in by ``link``. Each is searched for once in a run."""

    def __init__(self, link: str) -> None:
        self.link = link

    @functools.cached_property
    def host_routing_signs(self) -> list[str]:
        """Return the signs that AKS blocks netfilter rules on this node; empty if there are none."""
        signs = [f"kubelet's node label {HOST_ROUTING_LABEL}"] if kubelet_backend.has_label(HOST_ROUTING_LABEL) else []
        return signs + [f"the pinned LSM program {path}" for path in HOST_ROUTING_PINS if os.path.exists(path)]

    @functools.cached_property
    def health_probe_filters(self) -> list[str]:
        """Return the names of the filters of ipv6-hp-bpf; empty in another root, where the links are the builder's."""
        return sorted(rtnetlink.bpf_filters(self.link) & HEALTH_PROBE_FILTERS) if kernel.is_own_root() else []

    @functools.cached_property
    def cilium(self) -> Cilium | None:
        """Return Cilium on the link; None if no agent serves this node, and in the root of an image."""
        agent = cilium_backend.find() if kernel.is_own_root() else None
        if agent is None:
            return None
        from .._bpf import attachments  # needs ctypes, which only a node with Cilium has to have
        from .._cni import cilium  # most nodes have no Cilium

        programs = tuple(
            f"{program.hook} {program.name}" for program in attachments.at_ingress(self.link) if cilium.is_program(program.name)
        )
        return Cilium(agent.source, agent.serves_ipv6_node_ports, programs)

    def need(self, owner: str | None, is_earlier: bool = False) -> dict[str, t.Any]:
        """Return whether this node needs the table. owner: the unit of the node's image that loads it, or None.

        is_earlier: whether BPF programs do the table's work, before those of Cilium.

        It does not fail, because a fact that cannot be read must not prevent the removal of a table.
        """
        if not kernel.is_own_root():
            return unknown("this root is not the running system's")._asdict()
        try:
            filters = [f"the traffic control filter {name} of ipv6-hp-bpf on {self.link}" for name in self.health_probe_filters]
            translators = [*self.host_routing_signs, *filters]
            addresses = ipv6_backend.all_global_ipv6_addresses()
            cilium = None if is_earlier else self.cilium
            return need(NodeFacts(self.link, addresses, translators, cilium, owner))._asdict()
        except Failure as failure:
            return unknown(str(failure))._asdict()


def ebpf_host_routing(translators: OtherTranslators) -> t.Iterable[str]:
    """Refuse a node on which AKS blocks netfilter rules: a table loaded now would be missing after the next boot."""
    signs = translators.host_routing_signs
    if signs:
        raise Refusal(
            f"this is an eBPF host-routing node, known by {' and '.join(signs)}. AKS blocks netfilter rules here and"
            " translates probes itself. Nothing was changed. Set state to absent for this node"
        )
    return ()


def health_probe_filters(translators: OtherTranslators) -> t.Iterable[str]:
    """Refuse a link on which Microsoft's BPF programs already translate probes."""
    filters = translators.health_probe_filters
    if filters:
        raise Refusal(
            f"{translators.link} carries the traffic control filters {', '.join(filters)} of ipv6-hp-bpf, which"
            " translate probes here and remove the table. Nothing was changed. Set state to absent for this node"
        )
    return ()


def cilium_node_ports(translators: OtherTranslators) -> t.Iterable[str]:
    """Refuse a link on which Cilium's BPF programs answer IPv6 node ports, and warn where that is in doubt."""
    cilium, link = translators.cilium, translators.link
    if cilium is None:
        return
    if cilium.takes_probes:
        raise Refusal(
            f"{cilium.taken(link)}. Nothing was changed. Set backend to bpf, whose programs come first, or give IPv6 services"
            " externalTrafficPolicy Local"
        )
    doubt = cilium.doubt(link)
    if doubt:
        yield doubt


def agent_baker(desired: ProbeSnat, nft: Nft | None) -> t.Iterable[str]:
    """Refuse a desired table that differs from the unit's, on a node on which AgentBaker's unit owns the table.

    Warns if the current table is the unit's, because that one translates more than probes. nft: reads the table; None for an
    image, which has none yet.
    """
    theirs = agentbaker_resource.TABLE
    if desired != theirs:
        raise Refusal(
            f"{agentbaker_resource.UNIT} of the node's image is enabled and loads {theirs.summary()}, which conflicts with"
            f" the desired {desired.summary()}. Nothing was changed. Leave the options at their defaults on this"
            f" node, or replace that unit: set agentbaker to take_over, permanent to true and table to {theirs.name}"
        )
    table = agentbaker_resource.loaded_table()
    if nft and nft.read(table.family, table.name) == table:
        (probe,) = theirs.probes
        yield (
            f"Table {table.name}, which {agentbaker_resource.UNIT} loads, translates {probe.source} to {probe.translated}"
            f" in packets to every destination, also to {' and '.join(NOT_PROBED)}: these are DHCPv6 replies and multicast"
            " listener queries of the router, and never probes. A firewall that accepts DHCPv6 replies from fe80::/10 alone,"
            " as ufw does, drops them, and the node loses the IPv6 address that it has by DHCPv6. If there is such a"
            f" firewall, have it accept UDP from {probe.translated} port 547 to port 546 on {theirs.interface}, or replace"
            " that unit: set agentbaker to take_over."
        )


def probe_path(desired: ProbeSnat) -> t.Iterable[str]:
    """Warn of settings that block translated probes. The module does not own these settings, so it does not change them."""
    link, translated = desired.interface, desired.probes[0].translated
    forwarding, accept_ra = (kernel.setting(f"net/ipv6/conf/{link}/{key}") for key in ("forwarding", "accept_ra"))
    if desired.priority >= CONNTRACK_PRIORITY:
        yield (
            f"priority {desired.priority} is not before connection tracking ({CONNTRACK_PRIORITY}): connection"
            " tracking would see each probe under two addresses and not match the reply to a service's probe. Use -300."
        )
    leaves_by = rtnetlink.link_towards(translated)
    if leaves_by != link:
        departure = f"leave by {leaves_by}" if leaves_by else "find no route"
        yield (
            f"The node has no IPv6 default route by {link}: replies to {translated} {departure}, and probes stay unanswered."
            " Add the route, by router advertisement or by hand."
        )
    if kernel.setting("net/ipv6/conf/all/forwarding") == 0:
        yield ("net.ipv6.conf.all.forwarding is 0, 1 is expected: the node does not forward probes to pods. Set it to 1.")
    elif forwarding == 1 and accept_ra == 1:
        yield (
            f"net.ipv6.conf.{link}.accept_ra is 1 and the node forwards: the kernel then ignores router"
            " advertisements, and a default route learned from one expires. Set it to 2, or to 0 if a network"
            " daemon handles the advertisements."
        )
    elif accept_ra == 0 and ipv6_backend.has_advertised_default(link):
        yield (
            f"net.ipv6.conf.{link}.accept_ra is 0, and the IPv6 default route by {link} comes from a router advertisement that"
            " the kernel accepted before: it accepts no further one, and the route expires. Set it to 2."
        )


def advertisements_at_boot(link: str, warn: t.Callable[[str], None]) -> t.Iterable[str]:
    """Warn of a line in a file of sysctl.d that costs the IPv6 default route which the kernel learns by the link."""
    if not ipv6_backend.has_advertised_default(link):
        return
    boot = sysctl_files.by_systemd(sysctl.configuration(warn))
    line = next(filter(None, (boot.winner(f"net/ipv6/conf/{name}/accept_ra") for name in (link, "default"))), None)
    if line and line.number in (0, 1):
        yield (
            f"At the next boot, line {line.line} of {line.path} sets accept_ra of {link} to {line.number}. The kernel, which has"
            f" the IPv6 default route by {link} from router advertisements, then accepts none"
            f"{' while the node forwards' if line.number else ''}: replies to probes find no route. Set"
            f" net.ipv6.conf.{link}.accept_ra to 2 in a file whose name sorts after it."
        )
