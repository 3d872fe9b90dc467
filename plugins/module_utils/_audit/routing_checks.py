# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of policy rules, routes and neighbours, and of the programs that remove them."""

from __future__ import annotations

import ipaddress
import typing as t

from .._network_daemons import networkd
from .._network_daemons.known_daemons import AGENTS, COMPETING, HOSTILE, SWITCHES
from .._network_daemons.networkd import Setting
from .._snapshot.values import Link, Neighbour, PolicyRule
from . import clients
from .context import AWS_VPC_CNI, TERWAY
from .finding import check
from .node import FAMILIES, IPV4, IPV6, MAIN, Node
from .suspicion import ERROR, NOTE, RISK, Remedy, Suspicion, Trial

LOCAL = "255"
SHARING = (AWS_VPC_CNI, TERWAY)  # CNIs whose pods share interfaces, which the node may not have yet

SHOWN = 3  # lines of evidence
SWITCHED = {switch.agent for switch in SWITCHES}  # agents that a file of network_daemons keeps off


@check(
    "networkd-removes-foreign",
    NOTE,
    "systemd-networkd removes rules and routes of other programs at a hotplug, a reload or an upgrade.",
    "Whether networkd manages links, its version and effective settings, and the rules and routes of other protocols.",
    "network_daemons; a newer systemd if the version has no setting against it.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/3309",
    "Pods lose their network when an interface (ENI) is attached",
    "Pods lose their network when systemd-networkd restarts or is upgraded",
)
def _networkd(node: Node) -> t.Iterator[Suspicion]:
    daemons = node.daemons()
    if "systemd-networkd" not in daemons.active or not node.managed_links():
        return
    version = daemons.version
    settings = {key: Setting(bool(each.value), each.file) for key, each in node.boot("networkd").items()}
    for key, name, foreign in ((networkd.RULES, "rules", _foreign_rules), (networkd.ROUTES, "routes", _foreign_routes)):
        reason = networkd.why_removed(key, version, settings.get(key, Setting()))
        objects = foreign(node) if reason else []
        remedy = Remedy("network_daemons", {"restart": True})
        if networkd.has_no_setting(key, version):
            remedy = Remedy(operator=f"Upgrade systemd to {networkd.SINCE[networkd.RULES]} or newer")
        if objects:
            what = f"systemd-networkd removes the {name} of other programs when it configures a link: {reason}."
            yield Suspicion(f"systemd-networkd {name}", what, (reason, *objects[:SHOWN]), remedy)


def _foreign_rules(node: Node) -> list[str]:
    rules = (rule for family in FAMILIES for rule in node.rules(family))
    protocols = ("kernel", "static", "")  # networkd gives its own rules the protocol static
    return [str(rule) for rule in rules if rule.protocol not in protocols]


def _foreign_routes(node: Node) -> list[str]:
    """Return the routes of other programs by links that networkd manages."""
    managed = node.managed_links()
    tables = {route.table for route in node.every_route()} - {LOCAL}
    routes = (route for family in FAMILIES for table in sorted(tables) for route in node.routes(family, table))
    protocols = ("kernel", "dhcp", "ra", "static", "")  # of networkd's own configuration, or of the kernel
    return [str(route) for route in routes if route.dev in managed and route.protocol not in protocols]


@check(
    "base-rule-missing",
    ERROR,
    "The kernel's own rule to table main or local is gone, and with it the routes of that table.",
    "The policy rules, and a packet of the node through the twin.",
    "Add the rule again; network_daemons against the cause.",
    "https://github.com/deckhouse/deckhouse/issues/5709",
    "Pods lose their network when systemd-networkd restarts or is upgraded",
)
def _base_rule(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        tables = {rule.table for rule in node.rules(family) if not (rule.source or rule.has_further)}
        for table, name in ((LOCAL, "local"), (MAIN, "main")):
            if table in tables or not node.routes(family, table):
                continue
            what = f"No {family} rule leads all packets to table {name}, whose routes are out of use."
            words = "ip -6" if family == IPV6 else "ip"
            priority = {"local": 0, "main": 32766}[name]
            command = f"{words} rule add priority {priority} lookup {name}"
            evidence = tuple(map(str, node.rules(family)))[:SHOWN]
            remedy = Remedy(operator=f"Add the kernel's own rule again, and find what removed it: {command}", commands=(command,))
            risk = Suspicion(f"{family} {name}", what, evidence, remedy, severity=RISK)
            for client in clients.of(node, family, next(iter(node.uplinks(family)), "")) if name == "main" else ():
                trial = Trial({"destination": client.address, "destination_port": 443})
                yield risk._replace(trial=trial, severity=ERROR if client.is_observed else RISK)
            if name == "local":
                yield risk


@check(
    "rule-to-empty-table",
    NOTE,
    "A rule leads a source to a table without routes, so that its packets take the way of another rule.",
    "The policy rules, and the routes of their tables.",
    "Remove the rule, or fill the table by policy_routes.",
    "https://man7.org/linux/man-pages/man8/ip-rule.8.html",
    "A pod reaches nothing outside of its node",
)
def _nowhere(node: Node) -> t.Iterator[Suspicion]:
    """Yield rules of sources whose table has no route: their packets fall through to table main."""
    for family in FAMILIES:
        for rule in node.rules(family):
            table = rule.table
            if not rule.source or not table or rule.action or table == "253" or node.routes(family, table):
                continue
            what = f"The rule of {rule.source} leads to table {table}, which has no route: its packets go on to the next rule."
            command = f"ip {'-6 ' * (family == IPV6)}rule del {str(rule).partition(':')[2].strip()}"
            text = "Remove the rule, or fill the table by policy_routes"
            yield Suspicion(rule.source, what, (str(rule),), Remedy(operator=text, commands=(command,)))


@check(
    "rules-of-one-source",
    NOTE,
    "A source has rules to two tables, one of them left over from an earlier pod.",
    "The policy rules.",
    "Remove the rule that is left over.",
    "https://github.com/cilium/cilium/issues/19581",
    "A new pod is unreachable, and its address was another pod's",
)
def _rules_of_one(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        of_source: dict[str, list[PolicyRule]] = {}
        for rule in node.rules(family):
            if rule.source and not (rule.has_further or rule.action):
                of_source.setdefault(rule.source, []).append(rule)
        for source, rules in of_source.items():
            # A packet goes on from a table in which it finds no route.
            rules = [rule for rule in rules if _ways(node, family, rule.table)]
            tables = list(dict.fromkeys(rule.table for rule in rules))
            if len({_ways(node, family, table) for table in tables}) > 1:
                what = f"{source} has rules to the tables {' and '.join(tables)}, of which only the first counts."
                lines = tuple(map(str, rules))
                commands = tuple(
                    f"ip {'-6 ' * (family == IPV6)}rule del priority {rule.priority} from {source} lookup {rule.table}"
                    for rule in _left_over(node, source, rules)
                )
                text = "Remove the rules that do not lead to the interface to which the cloud has given the address"
                yield Suspicion(source, what, lines, Remedy(operator=text, commands=commands))


def _left_over(node: Node, source: str, rules: t.Sequence[PolicyRule]) -> list[PolicyRule]:
    """Return the rules to other interfaces than the only one in whose network the source is; none if that does not tell."""
    tables = node.tables_of_enis()
    address = ipaddress.ip_network(source).network_address
    links = [tables.get(rule.table, "") for rule in rules]
    names = {name for name in links if any(address in prefix for prefix in node.networks(name))}
    return [rule for rule, name in zip(rules, links) if name and name not in names] if len(names) == 1 else []


def _ways(node: Node, family: str, table: str) -> tuple[tuple[str, str], ...]:
    """Return the gateways and links of a table's default routes. Two programs may each have a table for one interface."""
    return tuple((route.via, route.dev) for route in node.routes(family, table) if route.to == "default")


@check(
    "default-by-secondary",
    NOTE,
    "A network daemon gave an interface of the CNI, by which pods reply, a default route in table main.",
    "The default routes of table main, the routing tables of the interfaces, and the rules of pods.",
    "Keep the daemon off the interface, and remove the route.",
    "https://github.com/aws/amazon-vpc-cni-k8s/issues/3524",
    "Pods lose their network when an interface (ENI) is attached",
)
def _second_default(node: Node) -> t.Iterator[Suspicion]:
    of_pods = node.pods_of_enis()
    defaults = [route for route in node.routes(IPV4) if route.to == "default" and route.via]
    for route in defaults:
        name = route.dev
        if name in of_pods:
            what = (
                f"A network daemon gave {name}, which belongs to the CNI, a default route in table main: which default wins"
                " depends on the metrics and on the order of hotplug."
            )
            command = f"ip route del default via {route.via} dev {name}"
            text = f"Keep the daemon off {name} (unmanaged), and remove the route"
            evidence = tuple(map(str, defaults))
            yield Suspicion(name, what, evidence, Remedy(operator=text, commands=(command,)))


@check(
    "daemon-competes",
    NOTE,
    "A cloud agent, such as cloud-init's hotplug, configures interfaces of the CNI, or takes down the links of pods.",
    "Which agents are active, on a node whose pods share interfaces.",
    "network_daemons, which keeps off those that a file decides; of others, it names the command.",
    "https://github.com/rancher/rke2/issues/1053",
    "Pods lose their network when an interface (ENI) is attached",
)
def _competing(node: Node) -> t.Iterator[Suspicion]:
    if node.enis is None and node.context.cni not in SHARING:
        return
    for name in node.daemons().active:
        agent = AGENTS.get(name)
        if agent and agent.verdict in (COMPETING, HOSTILE):
            what = f"{name} is active on a node whose CNI routes by policy: {agent.reason}."
            remedy = Remedy("network_daemons") if name in SWITCHED else Remedy(operator=agent.remedy)
            yield Suspicion(name, what, (f"{name}: active",), remedy)
    node.demand_all_daemons()


@check(
    "neighbor-moved",
    NOTE,
    "A permanent neighbour entry is left over for an address that a pod behind another link has now.",
    "The permanent neighbours, and the routes and links of pods.",
    "Remove the entry; ebtables_cleanup for what azure-vnet left.",
    "https://github.com/cilium/cilium/issues/12113",
    "A new pod is unreachable, and its address was another pod's",
)
def _moved_neighbour(node: Node) -> t.Iterator[Suspicion]:
    if not node.pods:
        return
    for entry in node.neighbors():
        address, link = entry.address, node.pods.get(entry.address)
        if entry.state == "PERMANENT" and link and not _leads_to(node.link(link), entry):
            what = f"{address} is a pod behind {link}, and a permanent neighbour entry says that it is on {entry.dev}."
            line = f"{address} dev {entry.dev} lladdr {entry.mac} PERMANENT"
            text = "Remove the entry; ebtables_cleanup removes those of azure-vnet, with the rules that belong to them"
            remedy = Remedy(operator=text, commands=(f"ip neighbour del {address} dev {entry.dev}",))
            yield Suspicion(address, what, (line,), remedy)


def _leads_to(link: Link, neighbor: Neighbour) -> bool:
    """Return whether a neighbour entry leads to a pod. link: of the pod, which may be a port of the entry's bridge."""
    is_behind = neighbor.dev == link.master and neighbor.mac == (link.peer.mac or neighbor.mac)
    return is_behind or neighbor.dev == link.name
