# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Priorities, tables and marks that known programs use on nodes, and their purposes.

From the sources of amazon-vpc-cni-k8s 1.23 (pkg/networkutils), cilium (pkg/datapath/linux/linux_defaults), terway
(plugin/datapath, cmd/terway-cli), cni-ipvlan-vpc-k8s (plugin/unnumbered-ptp), amazon-ec2-net-utils 2.7 (lib/lib.sh),
NetworkManager (src/nm-cloud-setup), cloud-init (cloudinit/sources/DataSourceEc2.py), netd (pkg/config), kube-router
(pkg/controllers/proxy), azure-container-networking (pull request 4319), UCloud's uk8s-cni-vpc (cmd/cnivpc), Baidu's
cce-network-v2, hostnic-cni (pkg/constants), tailscale (wgengine/router), istio (cni/pkg/iptables), spiderpool
(cmd/coordinator), kube-vip 1.1.2 and newer (pkg/nftables) and kube-proxy.
"""

from __future__ import annotations

import typing as t

from .._core.fields import ANY, UINT32
from . import rt_names
from .route import Route
from .rule import LOOKUP, Rule

Fits = t.Callable[[Rule], bool]


class Span(t.NamedTuple):
    """Numbers that a program uses, the last included. fits: whether a given rule has the same purpose; None if any rule may."""

    first: int
    last: int
    owner: str
    meaning: str
    fits: Fits | None = None

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.first <= number <= self.last


class Use(t.NamedTuple):
    """A program's use of a priority. fits: whether a given rule has the same purpose."""

    owner: str
    meaning: str
    fits: Fits


def _is_to_pod(rule: Rule) -> bool:
    return rule.dst != ANY and rule.action == LOOKUP and rule.table == rt_names.MAIN


def _is_from_pod(rule: Rule) -> bool:
    return rule.src != ANY and rule.action == LOOKUP and rule.table != rt_names.MAIN


def _is_to_address(rule: Rule) -> bool:
    return rule.dst != ANY and rule.action == LOOKUP


def _is_marked(rule: Rule) -> bool:
    return bool(rule.fwmask) and rule.action == LOOKUP


def _is_local(rule: Rule) -> bool:
    return rule.action == LOOKUP and rule.table == 255


def _is_by_link(rule: Rule) -> bool:
    return bool(rule.iif)


def _is_tunnelled(rule: Rule) -> bool:
    return (rule.fwmark, rule.table) == (TUNNELLED, 101) and rule.action == LOOKUP


def _is_of_kube_vip(rule: Rule) -> bool:
    return (rule.fwmark, rule.fwmask) == (KUBE_VIP_OFFSET + rule.table, UINT32) and rule.action == LOOKUP


def _is_external(rule: Rule) -> bool:
    return rule.action == LOOKUP and rule.table == 79


OF_ADDRESSES = 32765
TUNNELLED = 3  # without a mask
KUBE_VIP_OFFSET, WIREGUARD_PORT = 0x10000, 51820  # the mark is the offset + the port of the tunnel, which is its table as well
TRANSPARENT_TUNNEL = "azure-vnet in mode transparent-tunnel"
PRIORITIES: dict[int, tuple[Use, ...]] = {
    9: (Use("Cilium", "proxied packets by mark", _is_marked),),
    10: (Use("amazon-vpc-cni", "security groups for pods by interface", _is_by_link),),
    20: (Use("amazon-vpc-cni", "the local table", _is_local), Use("Cilium", "to a pod lookup main", _is_to_pod)),
    100: (
        Use("Cilium", "the local table", _is_local),
        Use("kube-vip", "replies by its WireGuard tunnel by mark", _is_of_kube_vip),
    ),
    109: (Use("Cilium", "node port replies by mark", _is_marked),),
    110: (Use("Cilium", "from a pod lookup its interface's table", _is_from_pod),),
    111: (Use("Cilium", "from a pod lookup its interface's table", _is_from_pod),),
    112: (Use("Cilium", "VTEP", lambda rule: False),),
    512: (
        Use("amazon-vpc-cni", "to a pod lookup main", _is_to_pod),
        Use("Terway", "to a pod lookup main", _is_to_pod),
        Use("UCloud's CNI", "to a pod lookup main", _is_to_pod),
        Use("cni-ipvlan-vpc-k8s", "node port replies by mark", _is_marked),
    ),
    600: (Use("Terway", "symmetric routing by mark", _is_marked),),
    1024: (
        Use("amazon-vpc-cni", "node port replies by mark", _is_marked),
        Use("UCloud's CNI", "node port replies by mark", _is_marked),
        Use("Baidu CCE", "from an interface's primary address lookup its table", _is_from_pod),
        Use("cni-ipvlan-vpc-k8s", "from a pod by its interface", _is_by_link),
    ),
    1535: (
        Use("amazon-vpc-cni", "to external services lookup main", _is_to_pod),
        Use("hostnic", "to a pod", _is_to_address),
    ),
    1536: (
        Use("amazon-vpc-cni", "from a pod lookup its interface's table", _is_from_pod),
        Use("hostnic", "from a pod lookup its interface's table", _is_from_pod),
    ),
    2048: (
        Use("Terway", "from a pod lookup its interface's table", _is_from_pod),
        Use("UCloud's CNI", "from a pod lookup its interface's table", _is_from_pod),
    ),
    32764: (Use("kube-router", "Services with direct return by mark", _is_marked),),
    OF_ADDRESSES: (
        Use("amazon-vpc-cni", "from an interface's primary address lookup its table", _is_from_pod),
        Use(TRANSPARENT_TUNNEL, "packets between pods of the node by mark", _is_tunnelled),
        Use("kube-router", "external addresses of Services", _is_external),
    ),
}
# A program computes each of these numbers, from an interface's for example, so another rule there may collide later.
_EC2 = Span(10000, 11599, "amazon-ec2-net-utils", "rules and tables of secondary interfaces")
_NM = Span(30200, 30499, "nm-cloud-setup", "rules and tables of interfaces")
PRIORITY_SPANS = (
    Span(70, 76, "netd", "replies and hairpins of pods"),
    # 512 and 1025 + the table, which is 127 + the number of an interface; a node has up to 16.
    Span(639, 655, "Baidu CCE", "to a pod lookup main", _is_to_pod),
    Span(1152, 1168, "Baidu CCE", "from a pod lookup its interface's table", _is_from_pod),
    Span(5210, 5270, "Tailscale", "packets of its own by mark, and its table"),
    _EC2,
    _NM,
)
_IN_SPANS = frozenset(number for span in PRIORITY_SPANS for number in range(span.first, span.last + 1))
TABLE_SPANS = (
    Span(1, 1, "netd", "hairpins"),
    Span(52, 52, "Tailscale", "its peers"),
    Span(77, 79, "kube-router", "tunnels and Services"),
    Span(101, 101, TRANSPARENT_TUNNEL, "packets between pods of the node"),
    Span(101, 115, "cloud-init on EC2", "interfaces"),
    Span(127, 143, "Baidu CCE", "interfaces"),
    Span(200, 200, "Cilium (IPsec)", "encryption"),
    Span(201, 201, "Cilium (WireGuard)", "encryption"),
    Span(202, 202, "Cilium (VTEP)", "tunnels"),
    Span(500, 500, "Spiderpool", "pods"),
    _EC2,
    Span(10100, 11599, "amazon-vpc-cni", "interfaces of further network cards"),
    _NM,
)
AGENTS = (_EC2, _NM)
OF_AGENTS = frozenset(number for span in AGENTS for number in range(span.first, span.last + 1))
# Mark, mask, owner, meaning, the table that the owner looks up by it (0: none).
MARKS = (
    (0x80, 0x80, "amazon-vpc-cni and Cilium", "node port replies", rt_names.MAIN),
    (0x10, 0x10, "Terway", "symmetric routing", 100),
    (0x2000, 0x2000, "cni-ipvlan-vpc-k8s", "node port replies", rt_names.MAIN),
    (0x4000, 0x4000, "kube-proxy", "packets to be masqueraded", 0),
    (0x4000, 0x4000, "netd", "hairpins of pods", 1),
    (0x8000, 0x8000, "kube-proxy", "packets to be dropped", 0),
    (0xF00, 0xF00, "Cilium", "its magic marks", 0),
    (TUNNELLED, UINT32, TRANSPARENT_TUNNEL, "packets between pods of the node", 101),
    (KUBE_VIP_OFFSET + WIREGUARD_PORT, UINT32, "kube-vip", "replies by its WireGuard tunnel", WIREGUARD_PORT),
    (0xFF0000, 0xFF0000, "Tailscale", "packets of its own", 0),
    (0xFFFF0000, 0xFFFF0000, "Calico", "its policies, unless FelixConfiguration has another iptablesMarkMask", 0),
)
ISTIO = 0x539  # set whole by the sidecar, and with the mask 0xfff by the ambient mode


def owner(item: Rule | Route, protocols: t.Collection[int]) -> str:
    """Name the owner of a rule or route for use in a sentence: the programs that are known to use it so, and its protocols.

    protocols: those under which the kernel has the item. A protocol such as bird or static is that of another program.
    """
    programs = _users(item) if rt_names.COMMON.issuperset(protocols) else []
    return ", ".join(filter(None, (" or ".join(programs), rt_names.owner(protocols))))


def _users(item: Rule | Route) -> list[str]:
    """Return the programs whose purpose for a priority, mark or table the item has. A table tells least: other programs and
    operators choose the same numbers."""
    users = _users_of_rule(item) if isinstance(item, Rule) else []
    owners = " or ".join(span.owner for span in TABLE_SPANS if item.table in span)
    return users or ([f"perhaps {owners}"] if owners else [])


def _users_of_rule(rule: Rule) -> list[str]:
    by_priority = [use.owner for use in PRIORITIES.get(rule.priority, ()) if use.fits(rule)]
    by_mark = [by for *mark, by, _meaning, table in MARKS if table and [*mark, table] == _mark_of(rule)]
    of_span = [span.owner for span in PRIORITY_SPANS if rule.priority in span and (span.fits is None or span.fits(rule))]
    return by_priority or by_mark or of_span


def agent_of(rule: Rule) -> str:
    """Return the cloud agent among whose numbers both the priority and the table of a rule are; empty if there is none."""
    return next((span.owner for span in AGENTS if rule.priority in span and rule.table in span), "")


def _mark_of(rule: Rule) -> list[int]:
    return [rule.fwmark, rule.fwmask, rule.table]


def warnings(rules: t.Collection[Rule], routes: t.Iterable[Route]) -> list[str]:
    """Return a sentence for each desired priority, table and mark that a known program uses for another purpose."""
    sentences: dict[str, None] = {}
    tables = {route.table for route in routes}
    # amazon-vpc-cni and amazon-ec2-net-utils number the table of an ENI on a further network card in the same way.
    of_cni = {rule.table for rule in rules if rule.priority == OF_ADDRESSES and _is_from_pod(rule)}
    for rule in rules:
        tables.add(rule.table)
        uses = PRIORITIES.get(rule.priority)
        if (uses and not uses[0].fits(rule)) or rule.priority in _IN_SPANS:  # a node may have thousands of rules
            sentences.update(dict.fromkeys(_at_priority(rule)))
        if rule.fwmask:
            sentences.update(dict.fromkeys(mark_warnings(rule.fwmark, rule.fwmask, rule.fwmark, rule.table)))
    for table in sorted(tables - of_cni):
        owners = [span.owner for span in TABLE_SPANS if table in span]
        if owners:
            sentences.setdefault(f"Table {table} is filled by {' or '.join(owners)}. {_CHOOSE}")
    return list(sentences)


_CHOOSE = "Choose another on nodes that run this software."


def _at_priority(rule: Rule) -> t.Iterator[str]:
    uses = PRIORITIES.get(rule.priority, ())
    if uses and not any(use.fits(rule) for use in uses):
        owners = " and ".join(f"{use.owner} ({use.meaning})" for use in uses)
        yield f"Priority {rule.priority} has another purpose in {owners}. {_CHOOSE}"
    for span in PRIORITY_SPANS:
        if rule.priority in span and not (span.fits and span.fits(rule)):
            numbers = f"{span.first} to {span.last}"
            yield f"Priority {rule.priority} is in the range {numbers}, which {span.owner} uses for {span.meaning}. {_CHOOSE}"


def mark_warnings(mark: int, mask: int, bits: int, table: int | None = None) -> t.Iterator[str]:
    """Yield a sentence for each known program that uses bits of a mark for another purpose.

    bits: those that matter: the mark's own in a rule, which tests them, and the whole mask if the mask's bits are set.
    table: the table that a rule looks up by the mark; None if the mark is set.
    """
    if mask == UINT32 and table is None:
        yield (
            f"Mark {mark:#x} has the full mask {mask:#x}, which includes the bits of kube-proxy (0x4000, 0x8000), Cilium and"
            f" Calico. Give it a mask with its own bits alone, such as {mark:#x}/{mark:#x}."
        )
        bits = mark
    purposes: dict[tuple[int, int], list[str]] = {}
    for other, its_mask, owner, meaning, its_table in MARKS:
        is_same = (mark, mask) == (other, its_mask) and its_table and table in (None, its_table)
        # A program that sets a mark without a mask does so to its own packets alone: its bits are those of the mark, together.
        shared = bits & other == other if its_mask == UINT32 else bits & its_mask
        if shared and not is_same:
            purposes.setdefault((other, its_mask), []).append(f"{owner} for {meaning}")
    for (other, its_mask), users in purposes.items():
        yield (
            f"Mark {mark:#x}/{mask:#x} has bits of {other:#x}/{its_mask:#x}, the mark of {' and of '.join(users)}."
            " Choose other bits on nodes that run this software."
        )
    if mark & 0xFFF == ISTIO:
        yield f"Mark {mark:#x}/{mask:#x} is that of Istio's sidecars and of its ambient mode. {_CHOOSE}"


def cluster_warning(mark: int, mask: int, cluster: int) -> str:
    """Return the sentence about the cluster ID of the node's Cilium, which is the lowest byte of its marks (cilium#21330); or
    empty."""
    if not mask & cluster & 0xFF:
        return ""
    return (
        f"Mark {mark:#x}/{mask:#x} has bits of {cluster:#x}, the ID of the cluster ({cluster}), which this node's Cilium has in"
        " the lowest byte of its marks. Choose other bits, such as 0x1000/0x1000, or give the cluster an ID without these bits."
    )
