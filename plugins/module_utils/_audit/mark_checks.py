# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of packet marks, by which replies find their interface and which several programs share."""

from __future__ import annotations

import functools
import typing as t

from .._core.fields import UINT32
from .._ruleset.ruleset import ALL, CONNECTION_MARK, IPTABLES, PACKET_MARK, WRITES_MARK, Bits, Table
from .._trace.culprit import is_filter
from .finding import check
from .node import FAMILIES, IPV4, MAIN, Node, setting_line
from .reverse_path_checks import STRICT, requests, severity_of_services
from .suspicion import ERROR, NOTE, Remedy, Suspicion, Trial, Unobserved

TUNNEL = ("0x3", "101")  # mark and table of azure-vnet's mode transparent-tunnel
_CILIUM = " CILIUM_"  # whose chains set the whole mark, of which its agent owns all bits then


@check(
    "valid-mark-missing",
    ERROR,
    "A strict filter looks up sources without the mark, so that replies that are routed by the mark count as asymmetric.",
    "The filter and src_valid_mark of the primary interface, the rule for marks, and a request through the twin.",
    "nftables_connmark with strict, which sets src_valid_mark.",
    "https://docs.kernel.org/networking/ip-sysctl.html",
    "A LoadBalancer times out from pods",
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts',
)
def _valid_mark(node: Node) -> t.Iterator[Suspicion]:
    enis = node.enis
    if enis is None or node.filter_mode(enis.primary) != STRICT:
        return
    values = [node.setting(IPV4, name, "src_valid_mark") for name in ("all", enis.primary)]
    marked = [rule for rule in node.rules(IPV4) if rule.fwmark and rule.table == MAIN]
    if any(values) or not marked:
        return
    for name, _rule, request in requests(node):
        trial = request._replace(culprit=is_filter, is_shown_by_remedy=True)
        what = (
            f"The filter of {enis.primary} is strict and looks sources up without the mark, so that the rule that routes marked"
            f" replies does not count: requests to pods behind {name} are dropped, such as from {request.client}."
        )
        key = "net.ipv4.conf.all.src_valid_mark"
        text = f"Set {key} to 1, which nftables_connmark does with strict"
        evidence = (setting_line(IPV4, "all", "src_valid_mark", 0), str(marked[0]))
        remedy = Remedy(operator=text, commands=(f"sysctl -w {key}=1",))
        yield Suspicion(enis.primary, what, evidence, remedy, trial, severity_of_services(node, trial))


@check(
    "mark-rule-late",
    ERROR,
    "The rule that routes marked replies has a later priority than the rules of pods.",
    "The order of the policy rules, and a request through the twin.",
    "policy_routes with an earlier priority.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/231",
    "A node port hangs for pods behind another network interface",
)
def _late(node: Node) -> t.Iterator[Suspicion]:
    tables = node.tables_of_enis()
    rules = node.rules(IPV4)
    from_pods = [rule for rule in rules if rule.source and rule.table in tables]
    marked = [rule for rule in rules if rule.fwmark and rule.table == MAIN]
    late = [rule for rule in marked if from_pods and rule.priority > from_pods[0].priority]
    if not late or len(late) < len(marked):
        return
    for _name, of_pod, request in requests(node):
        trial = request._replace(is_shown_by_remedy=True)
        what = (
            "The rule that routes marked replies comes behind the rules of pods, and so never counts for a pod: a request from"
            f" {request.client} is lost."
        )
        rule = {"priority": from_pods[0].priority - 1, "fwmark": late[0].fwmark, "table": "main"}
        evidence = (str(of_pod), str(late[0]))
        remedy = Remedy("policy_routes", {"rules": [rule], **node.protocol_for_rules})
        yield Suspicion(late[0].fwmark, what, evidence, remedy, trial, severity_of_services(node, trial))


class Write(t.NamedTuple):
    """A rule that writes the mark of packets. families: of its packets. place: of the rule. value: as words."""

    families: tuple[str, ...]
    place: str
    value: str
    line: str
    bits: Bits


@check(
    "mark-clobbered",
    NOTE,
    "A rule of iptables or nft sets or restores the whole mark, and so clears bits that policy rules test.",
    "The rules of nft and of the tables mangle and nat, and the marks in policy rules.",
    "Let the rule write its own bits alone.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/3872",
    "A node port hangs for pods behind another network interface",
)
def _whole_mark(node: Node) -> t.Iterator[Suspicion]:
    """Yield rules that keep no bit of a mark, on a node whose policy rules test bits that they clear."""
    tested = {family: [rule.fwmark for rule in node.rules(family) if rule.fwmark] for family in FAMILIES}
    tables, lacks = _tables(node)
    saved = _saved(tables) if not lacks else ALL
    for write in _writes(tables):
        texts = dict.fromkeys(text for family in write.families for text in tested[family])
        written = write.bits.constant | write.bits.connection & saved
        cleared = [text for text in texts if _mask(text) & ~written]
        if cleared and not write.bits.packet and write.value != "0x0" and _CILIUM not in write.place:
            what = f"A rule sets the whole mark, and clears the bits that {' and '.join(cleared)} of policy rules test."
            yield Suspicion(f"{write.place} {write.value}", what, (write.line,), Remedy(operator=_narrower(write.value)))
    if lacks:
        raise lacks[0]


def _tables(node: Node) -> tuple[list[Table], list[Unobserved]]:
    """Return the tables whose rules may write marks, and what is not known of them."""
    sources = [functools.partial(node.iptables, family, name) for family in FAMILIES for name in ("mangle", "nat")]
    tables, lacks = list[Table](), list[Unobserved]()
    readers: list[t.Callable[[], list[Table]]] = [*sources, node.tables_of_nft]
    for source in readers:
        try:
            tables += source()
        except Unobserved as lack:
            lacks.append(lack)
    return tables, lacks


def _saved(tables: t.Iterable[Table]) -> int:
    """Return the bits that rules may give to the marks of connections."""
    written = (
        each.bits
        for table in tables
        for rule in table.rules(WRITES_MARK)
        for each in rule.statements
        if each.kind == CONNECTION_MARK
    )
    return functools.reduce(int.__or__, (bits.packet | bits.constant for bits in written if bits), 0)


def _writes(tables: t.Iterable[Table]) -> t.Iterator[Write]:
    for table in tables:
        of_table = table.families[0] if table.program == IPTABLES else str(table)
        for rule in table.rules(WRITES_MARK):
            for each in rule.statements:
                if each.kind == PACKET_MARK and each.bits:
                    line = rule.line or f"table {table}, chain {rule.chain}: {each.kind} set {each.target}"
                    yield Write(table.families, f"{of_table} {rule.chain}", each.target, line, each.bits)


def _narrower(value: str) -> str:
    """Return how a rule writes its own bits alone."""
    if value.startswith("0x"):
        return f"Let the rule set its own bits alone: --set-xmark {value}/{value}, or meta mark set meta mark | {value}"
    return "Let the rule restore its own bits alone: --restore-mark --nfmask MASK --ctmask MASK, or in nft a rule for each mark"


def _mask(fwmark: str) -> int:
    mark, _slash, mask = fwmark.partition("/")
    return int(mask, 0) if mask else UINT32 if mark else 0


@check(
    "tunnel-strict",
    ERROR,
    "With azure-vnet's mode transparent-tunnel, a strict filter drops packets between pods of the node.",
    "The rule for mark 3 and table 101, the filter of the uplink, and a packet of a pod through the twin.",
    "rp_filter with mode loose.",
    "https://github.com/Azure/azure-container-networking/pull/4319",
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts',
    "Pods of one node do not reach each other, azure-vnet transparent-tunnel",
)
def _tunnel(node: Node) -> t.Iterator[Suspicion]:
    rules = [rule for rule in node.rules(IPV4) if (rule.fwmark.partition("/")[0], rule.table) == TUNNEL]
    links = node.uplinks(IPV4)
    pods = [*node.pods_of(IPV4)]
    if not rules or not links or len(pods) < 2 or node.filter_mode(links[0]) != STRICT:
        return
    what = (
        "azure-vnet sends packets from pod to pod over the network (transparent-tunnel), and the strict filter of"
        f" {links[0]} drops them when they come back."
    )
    trial = Trial({"source": pods[0], "destination": pods[1], "destination_port": 80, "interface": links[0]}, culprit=is_filter)
    remedy = Remedy("rp_filter", {"interfaces": [links[0]], "mode": "loose"})
    yield Suspicion(links[0], what, tuple(map(str, rules)), remedy, trial)
