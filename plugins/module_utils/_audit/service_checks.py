# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the addresses of Services, to which a load balancer or a router outside leads packets."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import re
import typing as t

from .._ruleset.ruleset import DNAT, PROTOCOL
from .._snapshot import proc_net
from .._twin.pod_links import Network
from . import clients, purpose
from .finding import check
from .node import FAMILIES, IPV4, IPV6, IPVS_LINK, MAIN, TABLES_OF, TCP, Node
from .reverse_path_checks import STRICT
from .suspicion import ERROR, NOTE, RISK, Remedy, Suspicion, Trial, Unobserved

# In the sets of kube-proxy in its mode ipvs, which has the addresses of load balancers on kube-ipvs0.
_BALANCER = re.compile(r"^add KUBE-LOAD-BALANCER ([\d.]+),", re.MULTILINE)
Call = tuple[str, dict[str, t.Any]]  # an address to which rules translate, and a packet that they translate to it
# Where the gateway of an interface without a default route may be found, which symmetric_routing needs.
GATEWAY = "ip route show table all dev {link}; networkctl status {link}; nmcli device show {link}"
SHOWN = 3  # lines of evidence
ENDLESS = ("dummy",)  # the kind of kube-ipvs0, behind which there is nothing


@check(
    "service-reply-by-default",
    RISK,
    "Requests to the address of a Service come in by a second interface, and the replies leave by the default route.",
    "The addresses of Services and node ports, the networks of interfaces, and a request to such an address through the twin.",
    "nftables_connmark with a mark for the interface, and policy_routes with a table for it.",
    "https://github.com/metallb/metallb/issues/533",
    "A MetalLB or kube-vip address answers on one network only",
    worst=ERROR,
)
def _reply_by_default(node: Node) -> t.Iterator[Suspicion]:
    """Yield interfaces by which requests to a Service come in, and whose replies leave by another one."""
    uplinks = functools.cache(node.uplinks)  # a node may have thousands of Services
    first: dict[tuple[t.Any, ...], _Entrance] = {}
    for entrance in _entrances(node):
        first.setdefault((entrance.link, entrance.is_meant, ":" in entrance.address), entrance)
    for entrance in first.values():
        link, address, protocol, port, is_meant = entrance
        family = IPV6 if ":" in address else IPV4
        uplink = next(iter(uplinks(family)), "")
        if uplink in ("", link):
            continue
        served = f"{address}, the address of a Service," if is_meant else f"the node port {port} of {address}"
        what = (
            f"Requests to {served} come in by {link}, in whose network it is, and the replies leave by {uplink}, the way of the"
            " default route."
        )
        packet = {"destination": address, "protocol": protocol, "destination_port": port, "interface": link}
        is_strict = family == IPV4 and node.filter_mode(link) == STRICT
        defaults = tuple(str(route) for route in node.routes(family) if route.to == "default")
        evidence = (f"{protocol} {address}:{port}", *defaults)
        for client in clients.of(node, family, link):
            severity = ERROR if is_strict and client.is_observed else RISK if is_meant else NOTE
            lost = f"{what} One from {client.address} is lost."
            yield Suspicion(
                link, lost, evidence, Remedy(ask=GATEWAY.format(link=link)), Trial({"source": client.address, **packet}), severity
            )


class _Entrance(t.NamedTuple):
    """An interface by which requests to a Service come in. is_meant: whether nothing else than clients can be meant there."""

    link: str
    address: str
    protocol: str
    port: int
    is_meant: bool


def _entrances(node: Node) -> t.Iterator[_Entrance]:
    """Yield the interfaces in whose networks addresses of Services are, and those at which kube-proxy serves node ports."""
    networks = [
        (network, link.name) for link in node.all_links() if link.kind not in ENDLESS for network in node.networks(link.name)
    ]
    for address, protocol, port in node.services():
        number = ipaddress.ip_address(address)
        names = {name for network, name in networks if number in network}
        if not any(number in network for network in node.context.service_ranges):
            # In the networks of several, which one answers for the address may be the one that is meant to.
            yield from (_Entrance(name, address, protocol, port, len(names) == 1) for name in sorted(names))
    of_pods = node.pods_of_enis()  # to which a cloud sends what is for pods
    with_network = {name for _network, name in networks} - {*of_pods}
    cards = [link.name for link in purpose.cards(node) if link.name in with_network and "UP" in link.flags]
    for family in FAMILIES:
        for port in node.ports_of(family)[:1] if cards else ():
            own = [(card, address) for card in cards for address in node.addresses(card, family)[:1]]
            # kube-proxy serves them at all addresses, also of networks for storage and management, which may have own tables.
            apart = {rule.source.partition("/")[0] for rule in node.rules(family) if rule.table != MAIN}
            served = (each for each in own if each[1] not in apart and node.serves_node_ports(family, each[1]))
            yield from (_Entrance(*each, TCP, port, is_meant=False) for each in served)


@check(
    "lb-address-local",
    NOTE,
    "A load balancer that probes from its own address, which kube-proxy in its mode ipvs has put on the node, gets no answer.",
    "kube-proxy's set of load balancers, the node's addresses, and the packets that the kernel dropped because of their source"
    " since boot, in all network namespaces: they do not tell from which address these came.",
    "A host name or ipMode Proxy in the status of the Service.",
    "https://github.com/hetznercloud/hcloud-cloud-controller-manager/issues/58",
    "The load balancer's probes fail on nodes where kube-proxy uses ipvs",
)
def _local_balancer(node: Node) -> t.Iterator[Suspicion]:
    """Yield addresses of load balancers that the node has itself, if packets that came in from such an address were dropped."""
    with contextlib.suppress(Unobserved):
        if not _martians(node):
            return
    balancers = {*_BALANCER.findall(node.sets())}
    local = {address: link for address, link in node.links_by_address(IPV4).items() if address in balancers}
    for address in sorted(local) if local and _martians(node) else ():
        what = (
            f"{address}, the address of a load balancer, is one of the node on {local[address]}. What comes in from it is dropped"
            " as coming from the node itself: if the load balancer probes from it, the node counts as unhealthy."
        )
        text = (
            "Let the cloud's controller give the Service a host name or ipMode Proxy in place of the address, so that kube-proxy"
            " leaves it alone"
        )
        remedy = Remedy(operator=text, commands=(f"ip address del {address}/32 dev {local[address]}",))
        evidence = (f"inet {address} dev {local[address]}", f"in_martian_src {_martians(node)}")
        yield Suspicion(address, what, evidence, remedy)


def _martians(node: Node) -> int:
    """Return how many packets were dropped because of their source, and not by a reverse-path filter."""
    dropped = node.count("routing", proc_net.MARTIANS[0])
    if dropped is None:
        raise Unobserved("How many packets were dropped because of their source is open.", f"cat {proc_net.ROUTING}")
    return max(0, dropped - (node.count("packets", "TcpExt.IPReversePathFilter") or 0))


@check(
    "proxy-mode-ipvs",
    NOTE,
    "kube-proxy runs in its mode ipvs: Kubernetes 1.40 does not start it so by default, and 1.43 no more has this mode.",
    "The addresses on kube-ipvs0, which kube-proxy makes in this mode alone.",
    "Another mode of kube-proxy, nftables or iptables, before the upgrade to 1.40.",
    "https://github.com/kubernetes/enhancements/pull/6120",
    "kube-proxy does not start after an upgrade of Kubernetes",
)
def _proxy_mode(node: Node) -> t.Iterator[Suspicion]:
    addresses = [address for family in FAMILIES for address in node.addresses(IPVS_LINK, family)]
    if addresses:
        what = (
            f"{IPVS_LINK} has addresses of Services ({len(addresses)}): kube-proxy runs in its mode ipvs, or did so before its"
            " present mode iptables, which leaves them there. From Kubernetes 1.40 on kube-proxy does not start in the mode ipvs"
            " without the feature gate KubeProxyIPVS, and 1.43 has no such mode."
        )
        text = "Set mode of kube-proxy's configuration to nftables or iptables before the upgrade to 1.40, and reboot the node"
        evidence = tuple(f"inet{'6' * (':' in address)} {address} dev {IPVS_LINK}" for address in addresses[:SHOWN])
        yield Suspicion(IPVS_LINK, what, evidence, Remedy(operator=text))


@check(
    "bridge-netfilter-off",
    ERROR,
    "A pod drops the replies of a Service, such as DNS, whose pod is on the same bridge: no rule translates them back.",
    "net.bridge.bridge-nf-call-iptables, the pods on bridges, the rules that translate, and a request of a pod through the twin.",
    "Set net.bridge.bridge-nf-call-iptables to 1, and load the module br_netfilter at boot.",
    "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/",
    "Pods on a bridge get no answer from a Service, such as DNS, whose pod is on the same node",
)
def _unseen_on_bridge(node: Node) -> t.Iterator[Suspicion]:
    for family in FAMILIES:
        key = f"net.bridge.bridge-nf-call-{TABLES_OF[family]}tables"
        with contextlib.suppress(Unobserved):
            if node.sysctl(key):
                continue
        for bridge, port in {node.entrance(link.name): link.name for link in node.pod_links()}.items():
            networks = [network for network in node.networks(bridge) if (network.version == 6) == (family == IPV6)]
            if bridge == port or not networks:
                continue
            calls = list(_translated_to(node, family, networks))
            if not (calls or any((":" in address) == (family == IPV6) for address, *_port in node.services())):
                continue
            what = (
                f"{key} is {node.sysctl(key)}: the rules that translate Services do not see frames between ports of {bridge}, and"
                " a pod there drops the replies of a Service whose pod is on the same bridge."
            )
            text = f"Load br_netfilter and set {key} to 1, in files of /etc/modules-load.d and /etc/sysctl.d too"
            remedy = Remedy(operator=text, commands=(f"sysctl -w {key}=1",))
            risk = Suspicion(key, what, (f"{key} = 0", f"{port} master {bridge}"), remedy, severity=RISK)
            for packet in _of_pods(node, family, bridge, calls):
                yield risk._replace(trial=Trial(packet, is_shown_by_remedy=True), severity="")
            yield risk


def _translated_to(node: Node, family: str, networks: t.Iterable[Network]) -> t.Iterator[Call]:
    """Yield the calls that rules translate to addresses of networks."""
    for table in node.tables([family], "nat"):
        for rule in table.rules():
            address, port = rule.value(f"{TABLES_OF[family]} daddr").partition("/")[0], rule.value("th dport")
            behind = table.walk(rule.verdict.target) if rule.verdict else ()
            for each in (each for part in (rule, *behind) for each in part.statements if each.kind == DNAT and address):
                if port.isdecimal() and any(_is_in(each.address, network) for network in networks):
                    protocol = rule.value(PROTOCOL) or "tcp"
                    yield each.address, {"destination": address, "destination_port": int(port), "protocol": protocol}


def _is_in(address: str, network: Network) -> bool:
    with contextlib.suppress(ValueError):  # a range of addresses
        return ipaddress.ip_address(address) in network
    return False


def _of_pods(node: Node, family: str, bridge: str, calls: t.Iterable[Call]) -> t.Iterator[dict[str, t.Any]]:
    """Yield the packet of a pod on a bridge to an address that stands for another pod there, if the pods' addresses are known."""
    with contextlib.suppress(Unobserved):
        pods = {pod: link for pod, link in node.pods_of(family).items() if node.entrance(link) == bridge}
        pairs = ((pod, packet) for target, packet in calls if target in pods for pod in pods if pod != target)
        for pod, packet in itertools.islice(pairs, 1):
            yield {**packet, "source": pod, "interface": pods[pod]}
