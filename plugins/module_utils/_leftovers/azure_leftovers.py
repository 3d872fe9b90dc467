# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leftovers of azure-vnet and azure-cns other than ebtables rules, neighbours and routes.

From the sources of Azure/azure-container-networking: network/snat/snat_linux.go, network/network_linux.go,
network/networkutils/networkutils_linux.go, network/transparent_vlan_endpointclient_linux.go, cni/network/invoker_cns.go,
cns/restserver/internalapi_linux.go; of its mode transparent-tunnel from pull request 4319.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import typing as t

from .._cni import cni
from .._netfilter import iptables
from .._netfilter.iptables import Rule, Table
from . import judge
from .leftover import ADDRESS, CHAIN, LINK, NAMESPACE, NEIGHBOUR, POLICY_RULE, ROUTE, RULE, SET, SYSCTL, Leftover

VNET, CNS = "azure-vnet", "azure-cns"
NAT_BRIDGE = judge.NAT_BRIDGE
NAT_BRIDGE_SUBNET = "169.254.128.0/17"
NAT_LINKS = ("azSnatveth0", "azSnatveth1")  # ovs_endpoint_snatroute_linux.go
WIRE_SERVER, METADATA = "168.63.129.16/32", "169.254.169.254/32"  # the first is also Azure's DNS server
SECOND_NAMESPACE = re.compile(r"az_ns_\d+")  # of mode transparent-vlan
TUNNEL_SET, TUNNEL_TABLE, TUNNEL_MARK = "azure-tt-local-pods", 101, 3  # of mode transparent-tunnel, which keeps them without pods
TABLES = {"ip": ("raw", "mangle", "filter", "nat"), "ip6": ("mangle", "nat")}  # where the rules of SHAPES are
FIRST_HOST = 1


class Shape(t.NamedTuple):
    """A rule that azure-vnet or azure-cns adds. text: as iptables-save prints it, with {value} for any value.

    is_only_theirs: whether only azure-vnet and azure-cns are known to add such a rule.
    """

    family: str
    table: str
    chains: str
    text: str
    owner: str
    evidence: str
    is_only_theirs: bool = True


_DNS = "SNAT of the pods' DNS requests to Azure to {source}"
_PODS = "-s {pods} ! --dst-type LOCAL"
_SWIFT = "SWIFT|SWIFT-POSTROUTING"
_BRIDGED = f"packets of azure-vnet's bridge {NAT_BRIDGE}"
SHAPES = (
    Shape("ip", "nat", "POSTROUTING", "-j SWIFT", VNET, "jumps to azure-vnet's chain"),
    Shape("ip", "nat", "POSTROUTING", "-j SWIFT-POSTROUTING", CNS, "jumps to azure-cns's chain"),
    Shape("ip", "nat", _SWIFT, f"{_PODS} -d {WIRE_SERVER} -p udp --dport 53 -j SNAT --to-source {{source}}", VNET, _DNS),
    Shape("ip", "nat", _SWIFT, f"{_PODS} -d {WIRE_SERVER} -p tcp --dport 53 -j SNAT --to-source {{source}}", VNET, _DNS),
    Shape(
        "ip", "nat", _SWIFT, f"{_PODS} -d {METADATA} -p tcp --dport 80 -j SNAT --to-source {{source}}", VNET,
        "SNAT of the pods' requests to the metadata service to {source}",
    ),
    Shape("ip", "nat", "POSTROUTING", "-s {nat} -j MASQUERADE", VNET, f"masquerades the addresses of {NAT_BRIDGE}"),
    Shape("ip", "filter", "INPUT", "-j AZURECNIINPUT", VNET, "jumps to azure-vnet's chain"),
    Shape("ip", "filter", "OUTPUT", "-j AZURECNIOUTPUT", VNET, "jumps to azure-vnet's chain"),
    Shape("ip", "filter", r"AZURECNI\w+", "-s {from} -d {to} -j ACCEPT", VNET, "accepts packets between node and pod"),
    *(
        Shape("ip", "filter", chain, f"{side} {NAT_BRIDGE} --state RELATED,ESTABLISHED -j ACCEPT", VNET, f"accepts {_BRIDGED}")
        for chain, side in (("AZURECNIINPUT", "-i"), ("AZURECNIOUTPUT", "-o"))
    ),
    *(
        Shape("ip", "filter", chain, f"-d {{range}} {side} {NAT_BRIDGE} -j {verdict}", VNET, f"{verb} {_BRIDGED}")
        for chain, side in (("FORWARD", "-i"), ("INPUT", "-i"), ("OUTPUT", "-o"))
        for verdict, verb in (("DROP", "drops"), ("ACCEPT", "accepts"))
    ),
    Shape("ip", "filter", "FORWARD", "-j ACCEPT", VNET, "accepts all forwarded packets; other programs add it too", False),
    Shape(
        "ip", "filter", "FORWARD", f"-d {WIRE_SERVER} -p tcp --dport 80 -j DROP", VNET,
        "keeps pods from WireServer; AKS nodes have the same rule of AgentBaker, so leave it there", False,
    ),
    Shape("ip", "mangle", "PREROUTING", "-i {pod} -j MARK --set-xmark 0x3/0xffffffff", VNET, "marks packets of the pod at {pod}"),
    Shape(
        "ip6", "mangle", "POSTROUTING", "-j MARK --set-xmark 0x0/0xffffffff", VNET,
        "deletes the mark by which kube-proxy and others recognise packets to masquerade",
    ),
    Shape("ip6", "nat", "POSTROUTING", "-s {pods6} -j SNAT --to-source {source}", VNET, "SNAT of the pods to {source}"),
)  # fmt: skip


_OPTIONS = [(shape, iptables.meaning(shape.text)) for shape in SHAPES]


class Bridge(t.NamedTuple):
    """A bridge of azure-vnet's. ports: names of the links in it. addresses: with their lengths.

    routes: those over it that do not belong to its addresses.
    """

    name: str
    ports: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


class Tunnel(t.NamedTuple):
    """The node's objects of the mode transparent-tunnel, as ip shows them: policy rules and routes of its table. has_set: of
    ipset."""

    rules: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    has_set: bool = False


class Facts(t.NamedTuple):
    """Facts about the node.

    rules: of iptables; former: those that earlier runs of ebtables_cleanup removed. unread: tables not read.
    chains: table and name of each chain with one of azure-vnet's names.
    addresses: all of the node, without lengths. subnets: of pods, from state files on the node and in the backup.
    nat_bridge: azSnatbr, if it exists. bridge: azure-vnet's other bridge. ovs: names of its Open vSwitch bridges.
    links: names of all links. switched: those in an Open vSwitch. neighbours: permanent ones on azSnatbr, address and text.
    proxies: links of azure-vnet's that answer ARP for others. namespaces: names in /run/netns.
    served: a link by which azure-vnet serves a pod; is_configured: whether a runtime uses it; has_cns: azure-cns runs.
    """

    rules: tuple[Rule, ...] = ()
    chains: tuple[tuple[Table, str], ...] = ()
    unread: t.Collection[Table] = ()
    addresses: frozenset[str] = frozenset()
    subnets: frozenset[str] = frozenset()
    nat_bridge: Bridge | None = None
    bridge: Bridge | None = None
    ovs: tuple[str, ...] = ()
    links: frozenset[str] = frozenset()
    switched: frozenset[str] = frozenset()
    neighbours: tuple[tuple[str, str], ...] = ()
    proxies: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    served: str = ""
    is_configured: bool = False
    has_cns: bool = False
    former: tuple[Rule, ...] = ()
    tunnel: Tunnel = Tunnel()

    def in_use(self, owner: str) -> str:
        """Return why the objects of an owner may be in use; empty if they are not in use."""
        if self.served:
            return f"azure-vnet still serves the pod at {self.served}"
        if self.is_configured:
            return "the runtime's CNI configuration is azure-vnet's"
        return "azure-cns runs" if owner == CNS and self.has_cns else ""

    def leftover(
        self, kind: str, place: str, text: str, evidence: str, command: str, is_certain: bool = True, owner: str = VNET
    ) -> Leftover:
        """Return an object of azure-vnet's or azure-cns's, which is not certain while it may be in use."""
        used = self.in_use(owner)
        return Leftover(kind, place, text, owner, f"{evidence}; {used}" if used else evidence, is_certain and not used, command)


def find(facts: Facts) -> list[Leftover]:
    """Return the leftovers, in an order in which their commands can be run: jumps, the rules of the chains, the chains, all
    else."""
    return [*_of_iptables(facts), *_of_tunnel(facts), *_of_ipv6_nat(facts), *_of_nat_bridge(facts), *_of_other_links(facts)]


def gateways(bridge: Bridge, subnets: t.Iterable[str], rules: t.Iterable[Rule]) -> list[tuple[str, str]]:
    """Return the addresses of the bridge that are the gateway of azure-vnet's IPv6 pods, each with the pods' subnet.

    azure-vnet gives the bridge the first address of the subnet in its mode ipv6nat. subnets: from its state file. rules: of
    iptables; one of azure-vnet's names the subnet as well.
    """
    pods = {subnet for subnet in subnets if ":" in subnet} | _translated(rules)
    return [
        (address, subnet)
        for address in bridge.addresses
        for subnet in sorted(pods)
        if ipaddress.ip_interface(address) == ipaddress.ip_interface(_first_host(subnet))
    ]


def may_be_gateway(address: str) -> bool:
    """Return whether an address with its length is the first of an IPv6 subnet."""
    return ":" in address and ipaddress.ip_interface(address) == ipaddress.ip_interface(_first_host(address))


def _first_host(subnet: str) -> str:
    network = ipaddress.ip_network(subnet, strict=False)
    return f"{network.network_address + FIRST_HOST}/{network.prefixlen}"


def is_own(rule: Rule) -> bool:
    """Return whether a rule has a shape that no other program than azure-vnet and azure-cns is known to add."""
    if _names_tunnel_set(rule):
        options = iptables.meaning(rule.text)
        return rule.table.name == "raw" and (options.get("-j") == "NOTRACK" or "--notrack" in options)
    shape, slots = _shape_of(rule)
    return shape is not None and shape.is_only_theirs and slots.get("nat", NAT_BRIDGE_SUBNET) == NAT_BRIDGE_SUBNET


def _names_tunnel_set(rule: Rule) -> bool:
    return f"--match-set {TUNNEL_SET} " in rule.text


def _shape_of(rule: Rule) -> tuple[Shape | None, dict[str, str]]:
    """Return the shape of a rule, and its values; None and no values if azure-vnet adds no such rule."""
    candidates = _shapes_in(rule.table.family, rule.table.name, rule.chain)
    values = iptables.meaning(rule.text) if candidates else {}
    for shape, options in candidates:
        if options.keys() == values.keys():
            slots = {value[1:-1]: values[name] for name, value in options.items() if value.startswith("{")}
            if all(value.startswith("{") or values[name] == value for name, value in options.items()):
                return shape, slots
    return None, {}


@functools.cache  # kube-proxy has thousands of chains, and tens of thousands of rules
def _shapes_in(family: str, table: str, chain: str) -> list[tuple[Shape, iptables.Meaning]]:
    return [
        (shape, options)
        for shape, options in _OPTIONS
        if (shape.family, shape.table) == (family, table) and re.fullmatch(shape.chains, chain)
    ]


def _of_iptables(facts: Facts) -> t.Iterator[Leftover]:
    chains = {*facts.chains}
    unsure: set[tuple[Table, str]] = set()
    within: list[Leftover] = []
    beside: list[Leftover] = []
    for rule in facts.rules:
        leftover = _of_rule(facts, rule)
        is_within = bool(cni.AZURE_CHAIN.fullmatch(rule.chain))
        if is_within and (leftover is None or not leftover.is_certain):
            unsure.add((rule.table, rule.chain))
        if is_within and leftover is None:
            why = "azure-vnet adds no such rule to its chain, so another program may have added it"
            leftover = Leftover(RULE, rule.place, rule.text, "unknown", why, False, rule.deletion)
        if leftover:
            (within if is_within else beside).append(leftover)
        elif iptables.jump(rule, chains):
            unsure.add((rule.table, iptables.jump(rule, chains)))
            why = "jumps to azure-vnet's chain, but azure-vnet adds no such rule"
            beside.append(Leftover(RULE, rule.place, rule.text, "unknown", why, False, rule.deletion))
    yield from beside
    yield from within
    for table, chain in facts.chains:
        has_rules = any((rule.table, rule.chain) == (table, chain) for rule in facts.rules)
        evidence = "has azure-vnet's name" + ("" if has_rules else ", and no rules")
        is_read = table not in facts.unread and table.name in TABLES.get(table.family, ())
        if not is_read:
            evidence = "has azure-vnet's name; its rules were not read"
        is_certain = is_read and (table, chain) not in unsure
        yield facts.leftover(CHAIN, str(table), chain, evidence, f"{table.program} -X {chain}", is_certain, _owner(chain))


def _owner(chain: str) -> str:
    return CNS if chain == "SWIFT-POSTROUTING" else VNET


def _of_rule(facts: Facts, rule: Rule) -> Leftover | None:
    if _names_tunnel_set(rule):
        return facts.leftover(RULE, rule.place, rule.text, "has azure-vnet's set", rule.deletion, is_own(rule))
    shape, slots = _shape_of(rule)
    if shape is None:
        return None
    evidence, is_certain = shape.evidence.format(**slots), is_own(rule)
    if "source" in slots:
        has = "the node has" if slots["source"] in facts.addresses else "the node does not have, so that no answer arrives"
        evidence += f", which {has}"
    if "nat" in slots and slots["nat"] not in _nat_subnets(facts):
        return None
    if "pod" in slots and not judge.HOST_LINK.fullmatch(slots["pod"]):
        return None
    if "pods6" in slots and not _is_of_pods(facts, slots["pods6"]):
        is_certain = False
        evidence += "; nothing tells whether the subnet was azure-vnet's"
    if rule.table.family == "ip6" and rule.table.name == "mangle" and not _has_ipv6_nat(facts):
        is_certain = False
        evidence += "; nothing else tells that azure-vnet was in its mode ipv6nat"
    owner = CNS if shape.owner == CNS else _owner(rule.chain)
    return facts.leftover(RULE, rule.place, rule.text, evidence, rule.deletion, is_certain, owner)


def _nat_subnets(facts: Facts) -> set[str]:
    addresses = facts.nat_bridge.addresses if facts.nat_bridge else ()
    return {NAT_BRIDGE_SUBNET, *(str(ipaddress.ip_interface(address).network) for address in addresses)}


def _is_of_pods(facts: Facts, subnet: str) -> bool:
    """Return whether the subnet is that of azure-vnet's pods, by a state file, a rule that was removed, or the bridge's
    gateway."""
    addresses = facts.bridge.addresses if facts.bridge else ()
    return subnet in facts.subnets or subnet in _translated(facts.former) or _first_host(subnet) in addresses


def _has_ipv6_nat(facts: Facts) -> bool:
    return any(_is_of_pods(facts, subnet) for subnet in _translated((*facts.rules, *facts.former)))


def _translated(rules: t.Iterable[Rule]) -> set[str]:
    """Return the subnets of pods whose IPv6 addresses the rules translate."""
    return {slots["pods6"] for rule in rules for slots in (_shape_of(rule)[1],) if "pods6" in slots}


def _of_ipv6_nat(facts: Facts) -> t.Iterator[Leftover]:
    if facts.bridge:
        link = facts.bridge.name
        for address, subnet in gateways(facts.bridge, facts.subnets, (*facts.rules, *facts.former)):
            evidence = f"gateway of azure-vnet's pods in {subnet}"
            yield facts.leftover(ADDRESS, f"link {link}", address, evidence, f"ip address del {address} dev {link}")


def _of_tunnel(facts: Facts) -> t.Iterator[Leftover]:
    """Yield the objects of the whole node, of which the set goes last, because rules of iptables name it."""
    evidence = "of azure-vnet's mode transparent-tunnel"
    for text in facts.tunnel.rules:
        priority, _colon, selector = text.partition(" rule ")[2].partition(": ")
        yield facts.leftover(POLICY_RULE, "rules", text, evidence, f"ip rule del priority {priority} {selector}")
    for text in facts.tunnel.routes:
        command = f"ip route del {text.partition(' route ')[2]}"
        yield facts.leftover(ROUTE, f"table {TUNNEL_TABLE}", text, evidence, command)
    if facts.tunnel.has_set:
        yield facts.leftover(SET, "ipset", TUNNEL_SET, evidence, f"ipset destroy {TUNNEL_SET}")


def _of_nat_bridge(facts: Facts) -> t.Iterator[Leftover]:
    bridge = facts.nat_bridge
    if bridge:
        ports, is_idle = _pods_in(bridge), _is_idle(bridge)
        for address, text in facts.neighbours:
            evidence, command = f"permanent, on azure-vnet's {NAT_BRIDGE}", f"ip neigh del {address} dev {NAT_BRIDGE}"
            yield facts.leftover(NEIGHBOUR, f"link {NAT_BRIDGE}", text, evidence, command, is_idle)
        signs = [f"the ports {', '.join(ports)}" if ports else "no pod in it", *(f"the {route}" for route in bridge.routes)]
        evidence = f"has azure-vnet's name, and {', and '.join(signs)}"
        yield facts.leftover(LINK, "links", NAT_BRIDGE, evidence, f"ip link del {NAT_BRIDGE}", is_idle)
    near, far = NAT_LINKS
    if near in facts.links:  # the kernel deletes the other end with it
        evidence, command = f"connects {NAT_BRIDGE} with an Open vSwitch bridge of azure-vnet", f"ip link del {near}"
        if far not in facts.links:
            evidence += f"; its other end {far} is in another network namespace, or was renamed"
        if far in facts.switched:  # Open vSwitch keeps its ports in a separate database
            evidence += f", of which {far} is still a port"
            command = f"ovs-vsctl --if-exists del-port {far} && {command}"
        yield facts.leftover(LINK, "links", near, evidence, command, far in facts.links - facts.switched)


def _pods_in(bridge: Bridge) -> list[str]:
    return [port for port in bridge.ports if port not in NAT_LINKS]


def _is_idle(bridge: Bridge | None) -> bool:
    return bridge is not None and not (_pods_in(bridge) or bridge.routes)


def _of_other_links(facts: Facts) -> t.Iterator[Leftover]:
    for name in facts.ovs:
        evidence = "an Open vSwitch bridge with azure-vnet's name; it may hold the node's interface"
        yield facts.leftover(LINK, "links", name, evidence, f"ovs-vsctl del-br {name}", False)
    for link in facts.proxies:
        key, is_certain = f"net.ipv4.conf.{link}.proxy_arp", link != NAT_BRIDGE or _is_idle(facts.nat_bridge)
        yield facts.leftover(SYSCTL, f"link {link}", f"{key} = 1", "goes with the link", f"sysctl -w {key}=0", is_certain)
    for name in facts.namespaces:
        if SECOND_NAMESPACE.fullmatch(name):
            evidence = "has azure-vnet's name; pods of its mode transparent-vlan may use it"
            yield facts.leftover(NAMESPACE, "/run/netns", name, evidence, f"ip netns delete {name}", False)
