# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of settings and rulesets that a node with pods needs, whatever its network."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import re
import typing as t

from .._ruleset.ruleset import DNAT, LEGACY, NFT, REDIRECT, Match, Rule
from .._snapshot import open_facts
from .._snapshot.settings import ALL, forwarding_key
from .._snapshot.values import BootSetting, holds
from .._trace.culprit import is_forwarding
from .._trace.packet import OUTSIDE
from .._twin.blueprint import LOOPBACK
from .finding import check
from .node import FAMILIES, IPV4, IPV6, TABLES_OF, Node, setting_line
from .service import POD_PORT
from .suspicion import ERROR, NOTE, RISK, Remedy, Suspicion, Trial, Unobserved

KUBELET, MANY = 10250, 500  # a port; a number of rules
Lines = t.Mapping[str, BootSetting]  # of sysctl.d, by key
CARDS = ("", "bond", "veth", "vlan")  # kinds of links behind which a network may be
_TRANSLATED_PORT = re.compile(r"dport.*(?:dnat|redirect)", re.IGNORECASE)
FORWARD = {IPV4: "net.ipv4.ip_forward", IPV6: "net.ipv6.conf.all.forwarding"}


@check(
    "forwarding-off",
    ERROR,
    "The node has pods and does not forward, or not what comes in by one of their links or by an uplink.",
    "The settings of forwarding, of all and of links, and a packet that comes in by the link through the twin.",
    "Set forwarding to 1.",
    "https://docs.aws.amazon.com/eks/latest/userguide/node-health-nma.html",
    "A pod reaches nothing outside of its node",
    "Nothing is forwarded after a hardening or a CIS benchmark",
)
def _forwarding(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        packets = _forwarded(node, family)
        # Of several about one setting, what the node is built for comes first.
        every = {
            **packets,
            **{link: packet for link, packet in _from_further_networks(node, family).items() if link not in packets},
        }
        is_off = bool(every) and not _forwards(node, family, ALL) and not any(_may_forward(node, family, link) for link in every)
        for link, packet in every.items():
            if not _forwards(node, family, link):
                key = FORWARD[family] if is_off else forwarding_key(family, link)
                what = (
                    f"{key} is 0: the node forwards no packet that comes in by {'a link' if is_off else link}, and it has pods."
                )
                text = f"Set {key} to 1, in a file of /etc/sysctl.d too"
                remedy = Remedy(operator=text, commands=(f"sysctl -w {key}=1",))
                trial = Trial(packet, culprit=is_forwarding)
                yield Suspicion(key, what, (f"{key} = 0",), remedy, trial, "" if link in packets else NOTE)


def _forwarded(node: Node, family: str) -> dict[str, dict[str, t.Any]]:
    """Return packets that a node with pods has to forward, by the links by which they come in."""
    pods = node.pods_of(family)
    uplinks = [route.dev for route in node.best_defaults(family)] if pods else []
    packets: dict[str, dict[str, t.Any]] = {}
    for pod, link in pods.items() if uplinks else ():
        packet = {"source": pod, "destination": OUTSIDE[family], "destination_port": 443, "interface": link}
        packets.setdefault(node.entrance(link), packet)
    for name, pod in {**dict.fromkeys(uplinks, next(iter(pods), "")), **(node.pods_of_enis() if family == IPV4 else {})}.items():
        packet = {"source": OUTSIDE[family], "destination": pod, "destination_port": POD_PORT, "interface": name}
        packets.setdefault(name, packet)
    return packets


def _from_further_networks(node: Node, family: str) -> dict[str, dict[str, t.Any]]:
    """Return packets to a pod from networks of IPv4 behind interfaces by which no best default route leads, such as those for
    management. A node may keep them apart on purpose.

    The setting of all decides for IPv6, which packets of uplinks show.
    """
    pods = node.pods_of(family) if family == IPV4 else {}
    inner = {LOOPBACK, *(link.name for link in node.pod_links())} if pods else set()
    packets: dict[str, dict[str, t.Any]] = {}
    for link in (link for link in node.all_links() if pods and link.kind in CARDS and not link.master and link.name not in inner):
        hosts = (str(host) for network in node.networks(link.name) for host in itertools.islice(network.hosts(), 2))
        client = next((host for host in hosts if ":" not in host and host not in link.addresses), "")
        if client and link.name not in {route.dev for route in node.best_defaults(family)}:
            packet = {"source": client, "destination": next(iter(pods)), "destination_port": POD_PORT, "interface": link.name}
            packets[link.name] = packet
    return packets


def _may_forward(node: Node, family: str, link: str) -> bool:
    with contextlib.suppress(Unobserved):
        return _forwards(node, family, link)
    return True


def _forwards(node: Node, family: str, link: str) -> bool:
    """Return whether the node forwards what comes in by a link.

    The setting of all decides for IPv6, unless the link has force_forwarding (net/ipv6/ip6_output.c, ip6_forward). For IPv4 that
    of the link decides; to write that of all, or net.ipv4.ip_forward, sets those of the links.
    """
    if family == IPV6:
        forwards = bool(node.setting(IPV6, ALL, "forwarding"))
        with contextlib.suppress(Unobserved):
            forwards = forwards or bool(node.setting(IPV6, link, "force_forwarding"))
        return forwards
    node.demand_fact(IPV4, FORWARD[IPV4])
    if link == ALL:
        with contextlib.suppress(Unobserved):
            return bool(node.sysctl(FORWARD[IPV4]))
    return bool(node.setting(IPV4, link, "forwarding"))


@check(
    "forwarding-off-at-boot",
    RISK,
    "A file of sysctl.d turns forwarding off at the next boot.",
    "The lines of sysctl.d in the order of systemd-sysctl.",
    "Take the line out.",
    "https://github.com/microsoft/azurelinux/pull/18390",
    "It works until the node reboots",
    "Nothing is forwarded after a hardening or a CIS benchmark",
)
def _forwarding_at_boot(node: Node) -> t.Iterator[Suspicion]:
    settings = node.boot("settings")
    for family in FAMILIES:
        for link, packet in _forwarded(node, family).items():
            key, entry = _forwarding_line(settings, family, link)
            if entry and entry.value == 0 and _forwards(node, family, link):
                what = f"{entry.file} sets {key} to 0 at the next boot, and whenever sysctl --system runs."
                text = f"Take the line out of {entry.file}"
                trial = Trial(packet, culprit=is_forwarding, settings={forwarding_key(family, link): 0})
                yield Suspicion(key, what, (f"{entry.file}: {key} = 0",), Remedy(operator=text), trial)


def _forwarding_line(settings: Lines, family: str, link: str) -> tuple[str, BootSetting | None]:
    """Return the line that decides at boot about packets that come in by a link: the last one about it or about all links."""
    names = {FORWARD[family], f"net.{family}.conf.{ALL}.forwarding", forwarding_key(family, link)}
    exempt = {key for key, entry in settings.items() if key in names and entry.value is None}
    decisive = [
        (key, entry)
        for key, entry in settings.items()
        if entry.value is not None and (key in names or any(fnmatch.fnmatchcase(name, key) for name in names - exempt))
    ]
    return decisive[-1] if decisive else ("", None)


@check(
    "ra-route-expires",
    NOTE,
    "A link that forwards accepts no router advertisement with accept_ra 1, so that its default route expires.",
    "The default route of protocol ra, and accept_ra and forwarding of its link.",
    "Set accept_ra of the link to 2.",
    "https://github.com/k3s-io/k3s/issues/5019",
    "An IPv6 health probe fails, and the load balancer removes the node",
    "IPv6 fails some time after boot",
)
def _route_expires(node: Node) -> t.Iterator[Suspicion]:
    """Yield links whose default route came by a router advertisement that the kernel would no longer accept."""
    for route in node.routes(IPV6):
        name = route.dev
        if route.to != "default" or route.protocol != "ra" or not name:
            continue
        values = {key: node.setting(IPV6, name, key) for key in ("accept_ra", "forwarding")}
        if values == {"accept_ra": 1, "forwarding": 1}:
            what = (
                f"{name} forwards, and its accept_ra is 1: the kernel takes no router advertisement any more, and the default"
                " route expires."
            )
            key = f"net.ipv6.conf.{name.replace('.', '/')}.accept_ra"
            text = f"Set {key} to 2, in a file of /etc/sysctl.d too"
            lines = [setting_line(IPV6, name, key, value) for key, value in values.items()]
            remedy = Remedy(operator=text, commands=(f"sysctl -w {key}=2",))
            yield Suspicion(name, what, (str(route), *lines), remedy)


@check(
    "both-backends",
    NOTE,
    "iptables-legacy and iptables-nft both have rules, of which each program sees half.",
    "The tables of both backends.",
    "Flush the backend that is out of use, or reboot. Calico removes its own rules there from 3.33 on.",
    "https://github.com/projectcalico/calico/pull/13579",
    "Services fail after the firewall was reloaded or restarted",
    "Rules of iptables are listed, and have no effect",
)
def _both_backends(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        name = TABLES_OF[family]
        tables = [table for table in node.filled_tables() if table.family == name]
        if {LEGACY, NFT} <= {table.backend for table in tables}:
            legacy = [table.name for table in tables if table.backend == LEGACY]
            what = f"Both backends of iptables have rules ({name}), so that a program sees and removes only those of its own."
            program = "iptables-legacy" if family == IPV4 else "ip6tables-legacy"
            text = (
                f"Find which backend kube-proxy and the CNI use, and flush the other one, or reboot ({program} -F -t TABLE)."
                " Calico 3.33 and newer removes its own rules from the backend that it does not use"
            )
            evidence = tuple(f"{program}-save -t {table}" for table in legacy)
            yield Suspicion(name, what, evidence, Remedy(operator=text))
        else:
            node.demand_no_guess(open_facts.LEGACY)
            node.demand_fact(family, open_facts.LEGACY, open_facts.TABLE, open_facts.CUT)


@check(
    "kubelet-port-taken",
    NOTE,
    "A rule of table nat takes connections to kubelet's port.",
    "The rules of table nat about ports and ranges of ports, and the addresses of the node.",
    "Another port for the pod or the Service.",
    "https://docs.aws.amazon.com/eks/latest/userguide/node-health-nma.html",
    "kubectl logs and kubectl exec time out for one node",
)
def _port_of_kubelet(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        for table in node.tables([family], "nat"):
            for rule in table.rules(_TRANSLATED_PORT):
                if _takes_kubelets(rule, functools.partial(node.links_by_address, family)):
                    what = f"A rule takes connections to port {KUBELET} of the node, on which kubelet listens."
                    text = "Give the hostPort or NodePort of the pod or Service another port"
                    line = rule.line or f"table {table}, chain {rule.chain}"
                    yield Suspicion(f"{family} {KUBELET}", what, (line,), Remedy(operator=text))


def _takes_kubelets(rule: Rule, addresses: t.Callable[[], t.Iterable[str]]) -> bool:
    """Return whether a rule may match connections to kubelet's port and translates. addresses: returns those of the node."""
    fields = [match.field for match in rule.matches]
    return (
        any(each.kind in (DNAT, REDIRECT) for each in rule.statements)
        and "th dport" in fields
        and all(_may_be_kubelets(match, addresses) for match in rule.matches)
    )


def _may_be_kubelets(match: Match, addresses: t.Callable[[], t.Iterable[str]]) -> bool:
    if match.field == "th dport":
        return any(map(_is_kubelets, match.values)) != match.is_negated
    if match.field == "meta l4proto":
        return any(value in ("tcp", "all") for value in match.values) != match.is_negated
    if match.field in ("ip daddr", "ip6 daddr"):
        return any(any(holds(value, address) for value in match.values) != match.is_negated for address in addresses())
    return True


def _is_kubelets(ports: str) -> bool:
    """Return whether a port or a range of ports, such as ``10000-10500``, has kubelet's."""
    ends = ports.split("-", 1) if "-" in ports else [ports, ports]
    return all(re.fullmatch("[0-9]{1,5}", end) for end in ends) and int(ends[0]) <= KUBELET <= int(ends[1])


@check(
    "rules-by-the-hundred",
    NOTE,
    f"The node has more than {MANY} policy rules of a family, each of which costs each packet time.",
    "The number of policy rules.",
    "Fewer addresses with a rule of their own.",
    "https://github.com/torvalds/linux/blob/master/net/core/fib_rules.c",
    "Latency grows with the number of pods on a node",
)
def _many_rules(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        count = len(node.rules(family))
        if count > MANY:
            what = f"The node has {count} {family} rules, and the kernel compares a packet with one after the other."
            text = "Give pods addresses by prefix delegation, or fewer pods to the node"
            yield Suspicion(family, what, (f"{count} rules",), Remedy(operator=text))
