# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a twin has in the place of what the node has. Where a packet meets one of these, its answer is not certain.

What a snapshot does not show is open in the snapshot itself (`_snapshot.open_facts`). Here is what it shows, or could show, and
what the twin nevertheless has in another form.
"""

from __future__ import annotations

import typing as t

from .._snapshot.assumption import Assumption, Concern


class Substitution(t.NamedTuple):
    """instead: what the twin has. decides: what the node's own may do to a packet; empty if it does nothing else, or if an open
    fact of the snapshot covers it. ask: the command that shows the node's own, with ``{}`` for the subject; empty if none does.
    """

    instead: str
    decides: str = ""
    ask: str = ""


LINE, STATE, LINK_KIND, SETTING, GROUP_ROUTE, SCHEDULER, VRF_TABLE, SENDER, UNREAD, TUNNEL_HEAD, NEXT_HOPS, FILTER = (
    "line", "state", "link-kind", "setting", "group-route", "scheduler", "vrf-table", "sender", "unread", "tunnel-head",
    "next-hops", "filter",
)  # fmt: skip
SWITCH, PAIR, POLICY, POD, POD_NEIGHBOR, POD_RULES, TUNNEL, QUEUE, SOURCE, ANSWER, SOURCE_CHECK, HOP_LIMIT, ANNOUNCED, FULL = (
    "switch", "pair", "ipsec", "pod", "pod-neighbor", "pod-rules", "tunnel", "queue", "source", "answer", "source-check",
    "hop-limit", "announced", "neighbors-full",
)  # fmt: skip
SIZE, ASSUMED, STATED, NEIGHBOR, STACKED_LINK, IPVS, VRF_RULE, FLOWTABLE, TRACING, HALF, PROGRAM = (
    "size", "assumed", "stated", "neighbor", "stacked-link", "ipvs", "vrf-rule", "flowtable", "tracing", "half", "program"
)  # fmt: skip
# By kind. A kind that decides is the first word of the id of a fact, and the object of the node is the second.
TABLE: dict[str, Substitution] = {
    LINE: Substitution("nothing, in place of a line that cannot be built", "what the line says"),
    STATE: Substitution(
        "the first packet of a new connection, now", "rules that look at earlier packets, at the time or at sizes"
    ),
    LINK_KIND: Substitution(
        "a link with a far end of its own, in place of one whose packets leave by another link that the snapshot lacks",
        "whether the link below passes the packets",
        "ip -d link show dev {}",
    ),
    SWITCH: Substitution(
        "a link of its own, in place of a port of a switch such as Open vSwitch",
        "where the switch delivers the packets",
        "ovs-appctl ofproto/trace {}",
    ),
    PAIR: Substitution(
        "a far end, in place of the other end of a pair of links, which is on the node too",
        "where packets go that come out of the other end",
        "ip -d link show dev {}",
    ),
    POLICY: Substitution(
        "no IPsec, in place of a policy of which the prefixes alone were read",
        "which packets it encrypts, passes or drops",
        "ip xfrm policy",
    ),
    SETTING: Substitution("the value of this kernel", "what the setting does to packets", "sysctl {}"),
    GROUP_ROUTE: Substitution(
        "no route to a group of hosts", "whether the address is one of a single host", "ip route show table {}"
    ),
    SCHEDULER: Substitution("a choice by chance", "which endpoint of a virtual server a client gets", "ipvsadm -Ln"),
    POD: Substitution(
        "a pod that has its address, routes and neighbours",
        "whether the pod sends and answers",
        "; ".join(f"kubectl exec POD -- ip {words}" for words in ("addr", "rule", "route show table all", "neigh")),
    ),
    POD_NEIGHBOR: Substitution(
        "the MAC address that a pod has learned, although another one answers now, or none",
        "whether the node gets the pod's frames",
        "kubectl exec POD -- ip neigh",
    ),
    POD_RULES: Substitution(
        "no rules of netfilter in a pod",
        "what the pod's own rules do to packets",
        "kubectl exec POD -- iptables-save; kubectl exec POD -- nft list ruleset",
    ),
    SOURCE: Substitution(
        "an order of addresses, in place of what no output shows", "from which address the node sends", "ip addr show dev {}"
    ),
    ANSWER: Substitution(
        "an answer that comes back to the node",
        "whether networks beyond the node have a route to the source",
        "tcpdump -ni any host {}",
    ),
    SOURCE_CHECK: Substitution(
        "a cloud that passes packets of each source",
        "whether the cloud checks the sources of an interface",
        "aws ec2 describe-network-interfaces --query NetworkInterfaces[].SourceDestCheck",
    ),
    HOP_LIMIT: Substitution(
        "an answer of a metadata service that a router passes on",
        "the hop limit of the instance",
        "aws ec2 describe-instances --query Reservations[].Instances[].MetadataOptions",
    ),
    ANNOUNCED: Substitution(
        "a router that sends packets for an address to the node",
        "whether a program answers for the address in the place of the kernel",
        "arping -c 1 {}",
    ),
    FULL: Substitution("a place for each neighbour", "whether the node gets the MAC address of a further neighbour", "ip neigh"),
    TUNNEL: Substitution(
        "a far end, in place of a tunnel", "whether the tunnel takes and delivers the packets", "ip -d link show dev {}"
    ),
    VRF_TABLE: Substitution("no table of a VRF", "by which routes packets of its ports leave", "ip -d link show dev {}"),
    SENDER: Substitution("root, as the user that sends what the node sends", "which rules select the packet", "ip rule"),
    UNREAD: Substitution("nothing, in place of what could not be read of the node", "what it does to packets"),
    NEXT_HOPS: Substitution(
        "no route, in place of one to a nexthop object that was not read", "by which link packets leave", "ip nexthop"
    ),
    FILTER: Substitution(
        "no filter of traffic control, in place of one that was not read",
        "which packets it takes, and what it does to them",
        "tc filter show dev {}",
    ),
    QUEUE: Substitution(
        "a queue that passes each packet on, in place of one that shapes, sorts or loses packets",
        "whether the queue passes the packet on",
        "tc -s qdisc show dev {0}; tc filter show dev {0}",
    ),
    TUNNEL_HEAD: Substitution(
        "a link of the size that it says, in place of a tunnel whose packets leave by a link that is too small for them",
        "whether the link below divides or drops them",
        "ip -d link show dev {}",
    ),
    SIZE: Substitution("a small packet, where the option packet has no length"),
    ASSUMED: Substitution("what a packet needs, in place of what no output shows"),  # open facts of the snapshot cover it
    STATED: Substitution("what the option assume says"),
    NEIGHBOR: Substitution("a machine that answers for its address"),
    STACKED_LINK: Substitution("a far end, in place of the link below, which the snapshot has"),
    IPVS: Substitution("rules of nft that translate before routing, in place of virtual servers"),
    PROGRAM: Substitution(
        "a table of nft that does the same, in place of a BPF program of this collection that translates probes"
    ),
    VRF_RULE: Substitution("a rule for each port of a VRF, in place of the rule that VRFs share"),
    FLOWTABLE: Substitution("the whole path, in place of a flowtable, which only later packets take"),
    HALF: Substitution("chains of nf_tables beside those of iptables-nft, in place of a table of iptables-legacy"),
    TRACING: Substitution("reports of each packet, in place of those that rules ask for"),
}
UNNAMED = (LINE, STATE)  # of which no object is the subject
NAMED = tuple(kind for kind, each in TABLE.items() if each.decides and kind not in UNNAMED)


def replaced(kind: str, sentence: str, *concerns: Concern, subject: str = "") -> Assumption:
    """Return a substitution that was made. concerns: what a packet meets that it matters to; each packet if there are none."""
    each = TABLE[kind]
    fact = f"{kind}:{subject}" if subject else kind
    return Assumption(sentence, frozenset(concerns), *((fact, each.ask.format(subject)) if each.decides else ()))


def gap(sentence: str, *concerns: Concern) -> Assumption:
    """Return that the twin lacks a line of the snapshot."""
    return replaced(LINE, sentence, *concerns)
