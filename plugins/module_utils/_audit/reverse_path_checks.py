# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of reverse-path filtering and of the way of replies, on nodes whose pods share interfaces by policy routing."""

from __future__ import annotations

import contextlib
import fnmatch
import ipaddress
import typing as t

from .._cni import marks
from .._core.names import DOTTED
from .._snapshot.values import MAIN, BootSetting, PolicyRule, is_host
from .._trace.culprit import is_filter
from . import clients, service
from .finding import check
from .node import IPV4, Node, setting_line
from .service import POD_PORT
from .suspicion import ERROR, NOTE, RISK, Remedy, Suspicion, Trial, Unobserved

STRICT = 1
KERNELS_TABLES = ("", "253", "254", "255")  # default, main and local
SHOWN = 3  # links in a sentence
AMAZON = marks.CNIS["aws_vpc_cni"].name


def requests(node: Node, family: str = IPV4) -> t.Iterator[tuple[str, PolicyRule, Trial]]:
    """Yield a secondary interface, the rule of a pod that replies by it, and a request to that pod by the primary interface.

    One for each client that matters, of a pod for each secondary interface and each set of destinations in the rules of pods,
    which is the endpoint of a Service if one of these pods is.
    """
    enis, tables = node.enis, node.tables_of_enis()
    if enis is None:
        return
    addresses = node.addresses(enis.primary, family)
    destinations: dict[tuple[str, str], list[str]] = {}  # by source and table
    for rule in node.rules(family):
        destinations.setdefault((rule.source, rule.table), []).append(rule.to)
    alike: dict[tuple[str, ...], list[PolicyRule]] = {}
    for rule in node.rules(family):
        if rule.table in tables and rule.pod in node.pods and addresses:
            alike.setdefault((rule.table, *destinations[rule.source, rule.table]), []).append(rule)
    served = node.entrances(family) if alike else {}
    for rules in alike.values():
        rule = next((rule for rule in rules if rule.pod in served), rules[0])
        for client in clients.of(node, family, enis.primary, rule.pod):
            packet = {"source": client.address, "destination": addresses[0], "interface": enis.primary}
            yield tables[rule.table], rule, service.request(packet, rule.pod, served)


@check(
    "rp-strict-asymmetric",
    ERROR,
    "A strict filter drops requests to a Service that come in by the primary interface, for pods that reply by another one.",
    "The filter of the primary interface, the rules of pods, and a request to one of these pods through the twin.",
    "rp_filter with mode loose; a strict filter needs nftables_connmark with strict.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/75",
    "A LoadBalancer times out from pods",
    "A node port hangs for pods behind another network interface",
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts',
)
def _rp_strict(node: Node) -> t.Iterator[Suspicion]:
    try:
        enis = node.enis
    except Unobserved as error:
        raise _suspected(node, error) from error
    if enis is None or node.filter_mode(enis.primary) != STRICT:
        return
    primary = enis.primary
    for name, rule, trial in requests(node):
        what = (
            f"The reverse-path filter of {primary} is strict, and the replies of pods behind {name} leave by {name}: requests to"
            f" them that come in by {primary} are dropped, such as from {trial.client}."
        )
        evidence = (_filter_line(node, primary), str(rule))
        remedy = Remedy("rp_filter", {"interfaces": [primary], "mode": "loose"})
        yield Suspicion(primary, what, evidence, remedy, trial._replace(culprit=is_filter), severity_of_services(node, trial))


def _suspected(node: Node, error: Unobserved) -> Unobserved:
    """Return what was not observed, with what tells that pods share interfaces: a table of its own for what one of them sends."""
    with contextlib.suppress(Unobserved):
        strict, addresses = [link for link in node.uplinks(IPV4) if node.filter_mode(link) == STRICT], node.links_by_address(IPV4)
        rules = (rule for rule in node.rules(IPV4) if rule.table not in KERNELS_TABLES and is_host(rule.source))
        own = [rule for rule in rules if rule.pod not in addresses]
        if strict and own:
            lost = f"requests that come in by {strict[0]}, whose reverse-path filter is strict, are dropped"
            what = f"{error.what} If pods reply by another interface by them, {lost}."
            return Unobserved(what, error.ask, evidence=(_filter_line(node, strict[0]), str(own[0])))
    return error


def _mode_name(value: int) -> str:
    """Return the mode of a filter. The kernel accepts any number, and is strict with 1 alone (net/ipv4/fib_frontend.c)."""
    return {0: "off", STRICT: "strict"}.get(value, "loose")


def severity_of_services(node: Node, trial: Trial) -> str:
    """Return that of a loss of requests to a Service: the node may have none with a node port yet, as far as that is known."""
    if not trial.pod or node.shows_node_port():
        return ERROR
    with contextlib.suppress(Unobserved):
        return ERROR if node.has_node_ports() else RISK
    return RISK


def _filter_line(node: Node, link: str) -> str:
    """Return the setting that makes the filter of a link as strict as it is."""
    name = max((link, "all"), key=lambda each: node.setting(IPV4, each, "rp_filter"))
    return setting_line(IPV4, name, "rp_filter", node.setting(IPV4, name, "rp_filter"))


@check(
    "reply-by-other-interface",
    ERROR,
    "Replies of pods leave by another interface than that of the request, which a cloud that checks sources drops.",
    "A request to a pod behind each secondary interface, and its reply, through the twin.",
    "The role eni_policy_routing, which marks connections and routes their replies by the mark.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/231",
    "A node port hangs for pods behind another network interface",
    "Clients outside of the VPC get no answer from a pod's interface or an NLB with IP targets",
)
def _reply_by_other(node: Node) -> t.Iterator[Suspicion]:
    enis = node.enis
    primary = enis.primary if enis else ""
    loose = ({"rp_filter": {"interfaces": [primary], "mode": "loose"}},)
    for name, rule, request in requests(node):
        trial = request._replace(first=loose) if node.filter_mode(primary) == STRICT else request
        what = (
            f"The replies of pods behind {name} to requests that come in by {primary}, such as from {trial.client},"
            f" leave by {name}, under an address of {primary}. A cloud that checks the sources of an interface drops them."
        )
        yield Suspicion(name, what, (str(rule),), None, trial, severity_of_services(node, trial))


@check(
    "rp-all-with-cilium",
    NOTE,
    "rp_filter of all, set after Cilium's start, wins over the 0 on its links, and drops what its programs lead past the routes.",
    "rp_filter of all, on a node with Cilium, whose agent sets it to 0 at each start.",
    "Set all to 0, and each other link by rp_filter.",
    "https://github.com/cilium/cilium/issues/20498",
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts',
    "Packets are dropped under Cilium though its interfaces have rp_filter 0",
)
def _rp_all(node: Node) -> t.Iterator[Suspicion]:
    if not node.has_cilium():
        return
    mode = node.setting(IPV4, "all", "rp_filter")
    if mode:
        what = (
            f"rp_filter of all is {mode}, so that it is {_mode_name(mode)} on each link: the 0 that Cilium writes on its own"
            " links is without effect. A restart of its agent sets all to 0, until another program sets it again."
        )
        text = "Set rp_filter of all to 0, and of each link that needs a filter to its own value, in /etc/sysctl.d too"
        remedy = Remedy(operator=text, commands=("sysctl -w net.ipv4.conf.all.rp_filter=0",))
        yield Suspicion("all", what, (setting_line(IPV4, "all", "rp_filter", mode),), remedy)


@check(
    "rp-all-overrides",
    NOTE,
    "The CNI turned the filters of links off, and rp_filter of all wins.",
    "The values of all, of default and of the links.",
    "Set all to 0.",
    "https://github.com/kubernetes-sigs/image-builder/pull/536",
    "A LoadBalancer times out from pods",
    'The kernel logs "martian source", or TcpExtIPReversePathFilter counts',
    "Nothing is forwarded after a hardening or a CIS benchmark",
)
def _rp_overrides(node: Node) -> t.Iterator[Suspicion]:
    """Yield links whose own value is 0 where a new link gets another one, so that a program has written it, in vain."""
    every = node.setting(IPV4, "all", "rp_filter")
    if every != STRICT or not node.setting(IPV4, "default", "rp_filter") or node.has_cilium():
        return
    pods = sorted(set(node.pods.values()))
    names = [name for name in (*node.uplinks(IPV4), *pods) if node.setting(IPV4, name, "rp_filter") == 0]
    if names:
        what = (
            f"A program has turned the filter of {', '.join(names[:SHOWN])} off, and rp_filter of all, which is {every}, wins:"
            " it is strict there."
        )
        lines = [setting_line(IPV4, name, "rp_filter", node.setting(IPV4, name, "rp_filter")) for name in ("all", *names[:SHOWN])]
        text = "Set rp_filter of all to 0, in /etc/sysctl.d too: each link keeps its own value"
        remedy = Remedy(operator=text, commands=("sysctl -w net.ipv4.conf.all.rp_filter=0",))
        yield Suspicion("all", what, tuple(lines), remedy)


@check(
    "rp-secondary-with-cilium",
    NOTE,
    "A secondary interface of Cilium got the default of rp_filter at its hotplug.",
    "The interfaces in Cilium's layout, and their values.",
    "rp_filter with mode off.",
    "https://github.com/cilium/cilium/pull/43203",
    "Pods lose their network when an interface (ENI) is attached",
    "Packets are dropped under Cilium though its interfaces have rp_filter 0",
)
def _rp_of_cilium(node: Node) -> t.Iterator[Suspicion]:
    enis = node.enis
    if enis is None or not node.has_cilium():
        return
    node.iptables(IPV4, "mangle")  # by whose marks the layout is known
    if enis.layout != "cilium":
        node.tables_of_nft()  # whose marks may tell it, too
        return
    for name in enis.secondary:
        value = node.setting(IPV4, name, "rp_filter")
        if value:
            what = f"Cilium expects rp_filter of {name} to be 0, as its programs choose the way back, and it is {value}."
            remedy = Remedy("rp_filter", {"interfaces": [name], "mode": "off"})
            yield Suspicion(name, what, (setting_line(IPV4, name, "rp_filter", value),), remedy)


@check(
    "rp-strict-at-boot",
    RISK,
    "A file of sysctl.d makes a filter strict at the next boot that is not strict now.",
    "The filters of uplinks now, and the lines of sysctl.d in the order of systemd-sysctl.",
    "rp_filter with the present mode, whose file is read later.",
    "https://github.com/systemd/systemd/issues/32563",
    "It works until the node reboots",
    "Nothing is forwarded after a hardening or a CIS benchmark",
)
def _rp_boot(node: Node) -> t.Iterator[Suspicion]:
    if not node.pods:
        return
    enis = node.enis
    names = [*node.uplinks(IPV4), *(enis.secondary if enis else ())]
    # amazon-vpc-cni-k8s sets the primary interface's filter each time that it starts (pkg/networkutils/network.go).
    rewritten = [enis.primary] if enis and any(each.owner == AMAZON for each in enis.marks) else []
    modes = {name: node.filter_mode(name) for name in names if name not in rewritten}
    settings = node.boot("settings") if any(mode != STRICT for mode in modes.values()) else {}
    for name, now in modes.items():
        line = _at_boot(settings, name)
        every = settings.get(_key("all"), BootSetting(0, "")).value or 0
        later = max(every, line[1].value or 0 if line else 0)
        # A link that no line names gets the value of default when it appears; which one that is, no file tells.
        if now == STRICT or later != STRICT:
            continue
        key, entry = line if line and (line[1].value or 0) == later else (_key("all"), settings[_key("all")])
        what = f"The reverse-path filter of {name} is {_mode_name(now)} now, and {entry.file} makes it strict at the next boot."
        remedy = Remedy("rp_filter", {"interfaces": [name], "mode": _mode_name(now)})
        noted = Suspicion(name, what, (_filter_line(node, name), f"{entry.file}: {key} = {entry.value}"), remedy, severity=NOTE)
        lost = (trial for _link, _rule, trial in requests(node) if enis and name == enis.primary)
        later_on = {f"net.ipv4.conf.{name}.rp_filter": STRICT}
        yield from (noted._replace(trial=each._replace(settings=later_on, culprit=is_filter), severity=RISK) for each in lost)
        yield noted


def _key(link: str) -> str:
    return f"net/ipv4/conf/{link}/rp_filter".translate(DOTTED)


def _at_boot(settings: t.Mapping[str, BootSetting], link: str) -> tuple[str, BootSetting] | None:
    """Return the line that sets the filter of a link at boot: the one that names it, or the last pattern."""
    key = _key(link)
    if key in settings:
        return key, settings[key]
    patterns = [name for name in settings if any(sign in name for sign in "*?[") and fnmatch.fnmatchcase(key, name)]
    return (patterns[-1], settings[patterns[-1]]) if patterns else None


@check(
    "mark-without-rule",
    NOTE,
    "The CNI marks connections, and the rule that routes their replies by the mark is lost.",
    "The rules of iptables that set the mark, and the policy rules.",
    "policy_routes with the rule; network_daemons keeps it from being removed.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/3309",
    "A node port hangs for pods behind another network interface",
)
def _mark_unused(node: Node) -> t.Iterator[Suspicion]:
    enis = node.enis
    if enis is None:
        return
    node.iptables(IPV4, "mangle")  # whose rules mark
    rules = node.rules(IPV4)
    for each in enis.marks:
        if not any(_tests(rule, each.bits) for rule in rules):
            what = (
                f"Rules of {each.owner} mark connections with {each.text}, and no policy rule leads the replies with this mark:"
                " they leave by the interface of the pod."
            )
            options = {"rules": [{"priority": 1024, "fwmark": each.text, "table": "main"}], **node.protocol_for_rules}
            yield Suspicion(each.text, what, (f"{each.place}: {each.text}",), Remedy("policy_routes", options))
    node.tables_of_nft()  # whose rules may mark, too


def _tests(rule: PolicyRule, bits: tuple[int, int]) -> bool:
    mark, _slash, mask = rule.fwmark.partition("/")
    try:
        value = int(mark, 0)
        return value == bits[0] and (int(mask, 0) if mask else value) == bits[1]
    except ValueError:
        return False


@check(
    "pod-rule-missing",
    NOTE,
    "A pod with an address of a secondary interface has no rule to that interface's table.",
    "The addresses of pods, the networks of the interfaces, and the policy rules. Interfaces in one network do not tell.",
    "Restart the CNI's pod; network_daemons against the cause.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/1600",
    "A pod reaches nothing outside of its node",
)
def _rule_missing(node: Node) -> t.Iterator[Suspicion]:
    """Yield the pods whose address is of the network of one secondary interface alone and that have no rule to its table."""
    enis, tables = node.enis, node.tables_of_enis()
    if enis is None:
        return
    networks = {name: node.networks(name) for name in (enis.primary, *enis.secondary)}
    with_rule = {rule.pod for rule in node.rules(IPV4)}
    branches = {rule.iif for rule in node.rules(IPV4) if rule.iif}  # as of pods with security groups of their own
    for pod, link in node.pods.items():
        if ":" in pod or pod in with_rule or link in branches:
            continue
        address = ipaddress.ip_address(pod)
        names = [name for name, prefixes in networks.items() if any(address in prefix for prefix in prefixes)]
        if len(names) == 1 and names[0] != enis.primary:
            (table,) = (number for number, name in tables.items() if name == names[0])
            yield _without_rule(node, pod, link, names[0], table)


@check(
    "pod-rule-within-network",
    RISK,
    "The rules of pods cover the cloud's network alone, and requests from outside by a secondary interface get lost.",
    "The policy rules, and a request from outside by the interface through the twin.",
    "A newer CNI, or eni_policy_routing with interface_marks.",
    "https://github.com/cilium/cilium/issues/20554",
    "Clients outside of the VPC get no answer from a pod's interface or an NLB with IP targets",
)
def _rule_within(node: Node) -> t.Iterator[Suspicion]:
    """Yield interfaces whose pods have a rule for some destinations alone: replies to others leave by the primary interface."""
    tables = node.tables_of_enis()
    covered = set()
    rules = [rule for rule in node.rules(IPV4) if rule.source and rule.table in tables]
    whole = {rule.source for rule in rules if not rule.to}
    for rule in rules:
        pod, name = rule.pod, tables[rule.table]
        if not rule.to or rule.source in whole or name in covered or pod not in node.pods:
            continue
        covered.add(name)
        what = (
            f"The rule of {pod} leads to {name} for packets to {rule.to} alone: requests from elsewhere that come in by"
            f" {name} are answered by the primary interface."
        )
        text = (
            f"Let the CNI make rules for all destinations, or mark the connections by {name} (eni_policy_routing_interface_marks)"
        )
        for client in clients.of(node, IPV4, name, pod):
            packet = {"source": client.address, "destination": pod, "destination_port": POD_PORT, "interface": name}
            lost = f"{what} One from {client.address} is lost."
            yield Suspicion(name, lost, (str(rule),), Remedy(operator=text), Trial(packet))


def _without_rule(node: Node, pod: str, link: str, name: str, table: str) -> Suspicion:
    what = f"The pod with {pod} has an address of {name} and no rule to its table: its packets leave by the primary interface."
    # Behind the rules that lead to pods; without a priority, the kernel puts it before all others.
    behind = [rule.priority + 1 for rule in node.rules(IPV4) if rule.to and rule.table == MAIN]
    tables = node.tables_of_enis()
    alike = [rule.priority for rule in node.rules(IPV4) if rule.source and rule.table in tables]
    priorities = alike or behind
    command = f"ip rule add from {pod} lookup {table}" + (f" priority {priorities[-1]}" if priorities else "")
    text = "Restart the CNI's pod of the node, or the pod; network_daemons keeps network daemons from removing its rules"
    evidence = tuple(str(rule) for rule in node.rules(IPV4) if rule.table == table)[:2]
    return Suspicion(pod, what, (f"{pod} dev {link} scope link", *evidence), Remedy(operator=text, commands=(command,)))
