# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""azure-vnet's leftovers on a node, and the evidence that distinguishes them from objects that still serve a pod.

From the sources of Azure/azure-container-networking: ebtables/ebtables.go, network/bridge_networkclient_linux.go,
network/bridge_endpointclient_linux.go, network/manager.go, platform/os_linux.go.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._cni import cni
from .._cni.cni import AzureVnet
from .._core import fields
from .._core.fields import Prefix, Unfit
from .._core.printable import first_of
from .._ebtables import ebtables
from .._ebtables.ebtables import Meaning
from .._interfaces.interface import Interface, other_ends
from .._netfilter.chain import Chains, ListedRule, Place
from .._routing.neighbour import Neighbour
from .state_file import Endpoint, Nic, State

REMOVE, KEEP, DOUBTFUL = "remove", "keep", "doubtful"

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
CONFIGURATION = f"{cni.FOLDER}/10-azure.conflist"
BRIDGE = re.compile(r"azure\d+")
HOST_LINK = re.compile(r"azv[0-9a-f]{7}([0-9a-f]{4})?")  # v1.0.0 uses the shorter form
NAT_BRIDGE = "azSnatbr"
VIRTUAL_ROUTER = re.compile(r"00:00:5e:00:0[12]:[0-9a-f]{2}")  # RFC 9568, section 7.3 (VRRP)
VIRTUAL_MAC = "12:34:56:78:9a:bc"  # used in tunnel mode; no interface has it
SOLICITED_NODES = "ff02::1:ff00:0/104"  # RFC 4291, section 2.7.1
NODE_LOCAL_DNS = "169.254.20.10"  # ipsToRouteViaHost of the configurations that AKS ships


class LeftoverVerdict(t.NamedTuple):
    """Whether to remove or keep a rule, a neighbour or a route, and why. verb: REMOVE, KEEP or DOUBTFUL (kept as well)."""

    verb: str
    reason: str

    @property
    def is_leftover(self) -> bool:
        return self.verb == REMOVE

    def __str__(self) -> str:
        return f"doubtful: {self.reason}" if self.verb == DOUBTFUL else self.reason


# Shapes of azure-vnet's rules


class Shape(t.NamedTuple):
    """A rule that looks like one of azure-vnet's. kind: as in TEMPLATES; the other fields are values from the rule."""

    kind: str
    address: str = ""
    mac: str = ""
    link: str = ""
    prefix: str = ""


POD_KINDS = ("ARP reply", "pod")
# Kind, table, chain, rule with placeholders. In tunnel mode the ARP reply rule of a pod names VIRTUAL_MAC.
TEMPLATES = (
    ("ARP reply", "nat", "PREROUTING", "-p ARP --arp-op Request --arp-ip-dst {address} -j arpreply --arpreply-mac {mac}"),
    ("pod", "nat", "PREROUTING", "-p IPv4 -i {link} --ip-dst {address} -j dnat --to-dst {mac}"),
    ("pod", "nat", "PREROUTING", "-p IPv6 -i {link} --ip6-dst {address} -j dnat --to-dst {mac}"),
    ("source MAC", "nat", "POSTROUTING", "-s Unicast -o {link} -j snat --to-src {mac} --snat-arp"),
    ("flooded replies", "nat", "PREROUTING", "-p ARP -i {link} --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff"),
    ("tunnel", "nat", "PREROUTING", f"-i {{link}} -j dnat --to-dst {VIRTUAL_MAC}"),
    ("ARP drop", "nat", "POSTROUTING", "-p ARP -o {link} --arp-op Request --arp-ip-dst {prefix} -j DROP"),
    (
        "solicitation", "filter", "FORWARD",
        "-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o {link} -j DROP",
    ),
    ("subnet", "broute", "BROUTING", "-p IPv6 --ip6-dst {prefix} -j ACCEPT"),
    ("routed family", "broute", "BROUTING", "-p IPv4 -j redirect"),
    ("routed family", "broute", "BROUTING", "-p IPv6 -j redirect"),
    ("routed host", "broute", "BROUTING", "-p IPv4 --ip-dst {address} -j redirect"),
    ("VLAN drop", "nat", "PREROUTING", "-p 802_1Q -j DROP"),  # network/snat/snat_linux.go
)  # fmt: skip

_Keys = frozenset[tuple[str, bool]]


def _keys(meaning: Meaning) -> _Keys:
    return frozenset((name, negated) for name, negated, _value in meaning)


def _by_keys() -> dict[tuple[str, str, _Keys], list[tuple[str, dict[str, str]]]]:
    shapes: dict[tuple[str, str, _Keys], list[tuple[str, dict[str, str]]]] = {}
    for kind, table, chain, text in TEMPLATES:
        meaning = ebtables.meaning(text)
        values = {name: value for name, _negated, value in meaning}
        shapes.setdefault((table, chain, _keys(meaning)), []).append((kind, values))
    return shapes


_SHAPES = _by_keys()


def shape_of(place: Place, rule: ListedRule) -> Shape | None:
    """Return the shape of a rule; None if azure-vnet writes no such rule."""
    return _shape_of(place.table, place.chain, rule.text)


@functools.cache
def _shape_of(table: str, chain: str, text: str) -> Shape | None:
    meaning = ebtables.meaning(text)
    by_option = {name: value for name, _negated, value in meaning}
    for kind, values in _SHAPES.get((table, chain, _keys(meaning)), ()):
        slots = {value.strip("{}"): by_option[name] for name, value in values.items() if value.startswith("{")}
        if all(value.startswith("{") or by_option[name] == value for name, value in values.items()):
            return _shape(kind, slots)
    return None


def _shape(kind: str, slots: dict[str, str]) -> Shape | None:
    """Return the shape that the values give; None if the address is a subnet, or the MAC is not a MAC address."""
    if "address" in slots:
        try:
            address, length = ebtables.prefix(slots["address"])
        except Unfit:
            return None
        if length != len(address) * 8:
            return None
        slots["address"] = fields.show(address)
    if not MAC.fullmatch(slots.get("mac", VIRTUAL_MAC)):
        return None
    return Shape(kind, **slots)


def has_shapes(chains: Chains) -> bool:
    """Return whether any of the rules looks like one of azure-vnet's."""
    return any(shape_of(place, rule) for place, rules in chains.items() for rule in rules)


# Evidence


def pod_links(interfaces: t.Sequence[Interface]) -> dict[Interface, Interface | None]:
    """Return the node's end of the link of each live pod of azure-vnet -> the pod's end, None if it is not among the
    interfaces."""
    ends = other_ends(interfaces)
    of_node = (interface for interface in interfaces if not interface.namespace and HOST_LINK.fullmatch(interface.link))
    return {interface: ends.get(interface) for interface in of_node}


class Evidence(t.NamedTuple):
    """The facts by which rules, neighbours and routes of a node are judged.

    states: state files of the node and of the backup. former: address and MAC of each pod whose rules earlier runs removed.
    configurations: CNI configurations of the node and of the backup.
    traces: further objects that only azure-vnet creates: paths of files, names of chains.
    interfaces: live interfaces of all readable network namespaces; unread: names of the others.
    bridges: azure-vnet's existing bridges; ports: the links in them.
    host_routes: address -> links of the routes to this address alone.
    addresses: prefixes that no longer belong to azure-vnet's pods, by the operator's word.
    """

    states: tuple[State, ...] = ()
    former: frozenset[tuple[str, str]] = frozenset()
    configurations: tuple[AzureVnet, ...] = ()
    traces: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    unread: tuple[str, ...] = ()
    bridges: frozenset[str] = frozenset()
    ports: frozenset[str] = frozenset()
    neighbours: tuple[Neighbour, ...] = ()
    host_routes: t.Mapping[str, frozenset[str]] = {}
    addresses: tuple[Prefix, ...] = ()

    @property
    def has_trace(self) -> bool:
        """Return whether azure-vnet has ever been on the node. If not, rules of its shapes belong to other programs."""
        return (
            bool(self.states or self.former or self.traces or self.bridges or self.pod_links)
            or any(configuration.is_there for configuration in self.configurations)
            or any(interface.link == NAT_BRIDGE for interface in self.interfaces if not interface.namespace)
        )

    @property
    def pod_links(self) -> dict[Interface, Interface | None]:
        return pod_links(self.interfaces)

    @property
    def hidden(self) -> str:
        """Return why interfaces of pods may be missing, as a sentence; empty if the interfaces include those of all pods.

        All namespaces must have been readable, and the other end of each of azure-vnet's links must be among the interfaces.
        A container that sees the node's network but not its processes misses namespaces without noticing it.
        """
        unseen = [interface.link for interface, end in self.pod_links.items() if end is None]
        namespaces = [*self.unread, *(f"that of the other end of {link}" for link in unseen)]
        return f"not all network namespaces could be read: {first_of(namespaces, 3)}" if namespaces else ""


class Judge:
    """Decides whether rules, neighbours and routes are leftovers. Pure: it uses only the evidence.

    chains: all rules of the node, because one rule about a pod helps to judge another.
    """

    def __init__(self, evidence: Evidence, chains: Chains) -> None:
        self._evidence = evidence
        self._hidden = evidence.hidden
        self._endpoints: dict[str, list[Endpoint]] = {}
        for endpoint in (recorded for state in evidence.states for recorded in state.endpoints):
            self._endpoints.setdefault(endpoint.address, []).append(endpoint)
        self._owners: dict[str, list[Interface]] = {}
        self._by_mac: dict[str, Interface] = {}
        for interface in evidence.interfaces:
            self._by_mac.setdefault(interface.mac, interface)
            for address in interface.addresses:
                self._owners.setdefault(address, []).append(interface)
        self._node_links = {interface.link: interface for interface in evidence.interfaces if not interface.namespace}
        self._nics = self._known_nics()
        self._macs_of_nics = {mac for macs in self._nics.values() for mac in macs}
        self._foreign = self._foreign_links()
        self._answers = self._right_neighbours()
        self._bridged = {(neighbour.address, neighbour.mac) for neighbour in evidence.neighbours if self._is_on_bridge(neighbour)}
        self._shapes = {
            (place, rule.text): shape
            for place, rules in (chains.items() if evidence.has_trace else ())
            for rule in rules
            for shape in (shape_of(place, rule),)
            if shape is not None
        }
        pairs = {(shape.address, shape.mac) for shape in self._shapes.values() if shape.kind == "pod"}
        self._pairs = pairs | evidence.former
        self._macs_of: dict[str, set[str]] = {}
        for address, mac in self._pairs:
            self._macs_of.setdefault(address, set()).add(mac)
        self._verdicts: dict[tuple[str, str], LeftoverVerdict] = {}
        self._pods = self._judge_pods()

    def _known_nics(self) -> dict[str, set[str]]:
        """Map the network interfaces that azure-vnet put into its bridge to their current and former MACs."""
        written = [nic for state in self._evidence.states for nic in state.nics]
        ports = [name for name in self._evidence.ports if not HOST_LINK.fullmatch(name) and not name.startswith("veth")]
        nics: dict[str, set[str]] = {}
        for nic in [*written, *(Nic(name) for name in ports)]:
            live = self._node_links[nic.name].mac if nic.name in self._node_links else ""
            nics.setdefault(nic.name, set()).update({nic.mac, live} - {""})
        return nics

    def _foreign_links(self) -> dict[str, str]:
        """Map addresses to links, for addresses that the node reaches by a link that azure-vnet neither created nor put into
        its bridge."""
        evidence = self._evidence
        azure = {*evidence.bridges, *evidence.ports, *self._nics, "lo"}
        link_to = {
            neighbour.address: neighbour.link
            for neighbour in evidence.neighbours
            if neighbour.mac and neighbour.link not in azure
        }
        for address, links in evidence.host_routes.items():
            link_to.update((address, link) for link in links - azure)
        return {address: link for address, link in link_to.items() if not HOST_LINK.fullmatch(link)}

    def _right_neighbours(self) -> dict[tuple[str, str], str]:
        """Map address and MAC to links, for neighbours on links that azure-vnet neither created nor put into its bridge."""
        azure = self._evidence.bridges | self._evidence.ports
        right = (neighbour for neighbour in self._evidence.neighbours if neighbour.mac and neighbour.link not in azure)
        return {
            (neighbour.address, neighbour.mac): neighbour.link for neighbour in right if not HOST_LINK.fullmatch(neighbour.link)
        }

    def _is_on_bridge(self, neighbour: Neighbour) -> bool:
        return neighbour.is_permanent and neighbour.link in self._evidence.bridges

    def _judge_pods(self) -> dict[str, list[str]]:
        """Return the addresses of azure-vnet's pods by verdict, and their links in a bridge as kept: these pods need the rules
        for the node."""
        by_verdict: dict[str, list[str]] = {KEEP: [], DOUBTFUL: [], REMOVE: []}
        shapes = (shape for shape in self._shapes.values() if shape.kind in POD_KINDS and not self._is_nodes_own(shape))
        pairs = {(shape.address, shape.mac) for shape in shapes}
        pairs |= {(address, endpoint.mac) for address, listed in self._endpoints.items() for endpoint in listed}
        for address, mac in sorted(pairs):
            if self._other_holder(address, self._macs(address, mac)):
                continue
            verb = self._pod(address, mac).verb
            if verb != DOUBTFUL or address in self._owners:  # a doubtful address that no interface has needs no rules
                by_verdict[verb].append(address)
        by_verdict[KEEP] += [link for link in sorted(self._evidence.ports) if HOST_LINK.fullmatch(link)]
        return by_verdict

    def rule(self, place: Place, rule: ListedRule) -> LeftoverVerdict | None:
        """Return the verdict on a rule; None if azure-vnet writes no such rule, or was never on the node."""
        shape = self._shapes.get((place, rule.text))
        if shape is None:
            return None
        if shape.kind in POD_KINDS and not self._is_nodes_own(shape):
            return self._pod(shape.address, shape.mac)
        return self._node(shape)

    def neighbour(self, neighbour: Neighbour) -> LeftoverVerdict:
        """Return the verdict on a neighbour on one of azure-vnet's bridges."""
        return self._address(neighbour.address, self._macs(neighbour.address, neighbour.mac), self._pairs)

    def route(self, address: str, link: str) -> LeftoverVerdict:
        """Return the verdict on a route to one address by a link of azure-vnet's."""
        macs = self._macs(address, "")
        if HOST_LINK.fullmatch(link) and address in self._owners and address not in self._foreign:
            return LeftoverVerdict(KEEP, f"{self._owners[address][0]} has the address")
        return self._address(address, macs, self._pairs)

    @property
    def macs(self) -> tuple[str, ...]:
        """Return the MACs of azure-vnet's network interfaces on the node; if none is known, those of all links with an
        address."""
        of_node = {interface.mac for interface in self._node_links.values()}
        addressed = {interface.mac for interface in self._node_links.values() if interface.addresses}
        return tuple(sorted(self._macs_of_nics & of_node or addressed or of_node))

    def obstacle(self, place: Place, rule: ListedRule) -> str:
        """Return why a removed rule must not be restored; empty if it may be restored."""
        shape = shape_of(place, rule)
        if shape is None or shape.kind in POD_KINDS and not self._is_nodes_own(shape):
            return self.obstacle_to(shape.address, shape.mac) if shape else ""
        live = self._node_links[shape.link].mac if shape.link in self._node_links else shape.mac
        return f"{shape.link} has the MAC {live} now" if shape.kind == "source MAC" and live != shape.mac else ""

    def obstacle_to(self, address: str, mac: str) -> str:
        """Return why an object for the address with this MAC must not be restored: it would divert another pod's or link's
        traffic."""
        macs = self._macs(address, mac)
        owners = self._owners.get(address, [])
        if self._other_holder(address, macs) or any(interface.mac in macs for interface in owners):
            return ""
        if owners:
            return f"{owners[0]} has the address now, with the MAC {owners[0].mac}"
        return f"the node reaches the address by {self._foreign[address]} now" if address in self._foreign else ""

    def _is_nodes_own(self, shape: Shape) -> bool:
        """Return whether the rule is for an address of the node itself, not of a pod."""
        interfaces = [interface for interface in self._owners.get(shape.address, ()) if not interface.namespace]
        return not VIRTUAL_ROUTER.fullmatch(shape.mac) and any(
            shape.mac == interface.mac or shape.mac in self._macs_of_nics for interface in interfaces
        )

    def _pod(self, address: str, mac: str) -> LeftoverVerdict:
        """Judge an object for a pod. Cached, because two rules and the rules for the whole node depend on each pod."""
        if (address, mac) not in self._verdicts:
            self._verdicts[address, mac] = self._address(address, self._macs(address, mac), self._bridged)
        return self._verdicts[address, mac]

    def _macs(self, address: str, mac: str) -> frozenset[str]:
        """Return ``mac`` if it is a real one; otherwise all MACs that azure-vnet may have given the pod at this address."""
        if mac not in ("", VIRTUAL_MAC):
            return frozenset((mac,))
        written = {endpoint.mac for endpoint in self._endpoints.get(address, ())}
        return frozenset(written | self._macs_of.get(address, set())) - {VIRTUAL_MAC}

    def _address(self, address: str, macs: frozenset[str], traces: t.Collection[tuple[str, str]]) -> LeftoverVerdict:
        """Return the verdict on an object that sends packets for this address to one of these MACs.

        traces: pairs of address and MAC that other objects of azure-vnet's name.
        """
        holder = self._other_holder(address, macs)
        if holder:
            return LeftoverVerdict(KEEP, holder)
        owners = self._owners.get(address, [])
        serving = [interface for interface in owners if interface.mac in macs]
        if serving:
            return LeftoverVerdict(KEEP, f"serves {serving[0]}, which has the address and the MAC {serving[0].mac}")
        if owners and macs:
            return LeftoverVerdict(REMOVE, f"{owners[0]} has the address now, with the MAC {owners[0].mac}")
        if address in self._foreign:
            return LeftoverVerdict(REMOVE, f"the node reaches the address by {self._foreign[address]} now")
        if self._is_listed(address):
            return LeftoverVerdict(REMOVE, "option addresses contains the address")
        living = sorted(macs & self._by_mac.keys())
        if living:
            return LeftoverVerdict(KEEP, f"{self._by_mac[living[0]]} has the MAC {living[0]}")
        if owners:
            return LeftoverVerdict(DOUBTFUL, f"{owners[0]} has the address, and the MAC that azure-vnet gave it is unknown")
        endpoints = [endpoint for endpoint in self._endpoints.get(address, ()) if endpoint.mac in macs]
        if endpoints:
            return self._recorded(endpoints)
        if any((address, mac) in traces for mac in macs):
            return self._unless_hidden(
                f"azure-vnet set up a pod with the MAC {min(macs)} at the address, and no interface has that MAC"
            )
        if macs:
            return LeftoverVerdict(DOUBTFUL, f"no interface has the MAC {min(macs)}, and the owner of the address is unknown")
        return LeftoverVerdict(DOUBTFUL, "the owner of the address is unknown")

    def _other_holder(self, address: str, macs: frozenset[str]) -> str:
        """Return why an object that sends packets for the address to one of these MACs is correct and not a pod's; empty
        without evidence."""
        routers = sorted(mac for mac in macs if VIRTUAL_ROUTER.fullmatch(mac))
        if routers:
            return f"the MAC {routers[0]} is that of a virtual router (VRRP), and azure-vnet gives no pod such a MAC"
        serving = {interface.mac for interface in self._owners.get(address, ())}
        right = sorted(mac for mac in macs - serving if (address, mac) in self._answers)
        if right:
            return (
                f"is right: the node reaches the address by {self._answers[address, right[0]]}, and there with the MAC {right[0]}"
            )
        return ""

    def _recorded(self, endpoints: t.Sequence[Endpoint]) -> LeftoverVerdict:
        for endpoint in endpoints:
            if endpoint.host_link in self._node_links:
                return LeftoverVerdict(KEEP, f"{endpoint.host_link}, the node's end of {endpoint.pod}'s link, exists")
        endpoint = endpoints[0]
        return self._unless_hidden(
            f"azure-vnet's state file has {endpoint.pod} at the address, and no interface has its MAC {endpoint.mac}"
        )

    def _unless_hidden(self, reason: str) -> LeftoverVerdict:
        return LeftoverVerdict(DOUBTFUL, f"{reason}, but {self._hidden}") if self._hidden else LeftoverVerdict(REMOVE, reason)

    def _is_listed(self, address: str) -> bool:
        packed = fields.address(address)[1]
        return any(
            len(base or packed) == len(packed) and fields.contains((base, length), packed)
            for base, length in self._evidence.addresses
        )

    def _node(self, shape: Shape) -> LeftoverVerdict:
        """Return the verdict on a rule for the whole node, which is removed with the last of azure-vnet's pods."""
        if not self._is_azures(shape):
            return LeftoverVerdict(DOUBTFUL, "it looks like a rule of azure-vnet, but may belong to another program")
        living, unsure = self._pods[KEEP], self._pods[DOUBTFUL]
        if living:
            return LeftoverVerdict(KEEP, f"serves all pods of azure-vnet, of which {living[0]} is in use")
        if unsure:
            return LeftoverVerdict(
                DOUBTFUL, f"it may serve {unsure[0]}, and it is unknown whether azure-vnet's pod there still exists"
            )
        if self._hidden:
            return LeftoverVerdict(DOUBTFUL, self._hidden)
        return LeftoverVerdict(REMOVE, "no pod of azure-vnet is left")

    def _is_azures(self, shape: Shape) -> bool:
        evidence = self._evidence
        configured = [configuration for configuration in evidence.configurations if configuration.is_there]
        is_known = bool(evidence.states or configured or evidence.bridges)
        bridges = evidence.bridges.union(
            *(state.bridges for state in evidence.states), (configuration.bridge for configuration in configured)
        )
        if shape.kind in ("source MAC", "ARP reply"):
            macs = self._nics.get(shape.link, set()) if shape.link else self._macs_of_nics
            of_nics = {nic.address for state in evidence.states for nic in state.nics} - {""}
            is_another = bool(shape.address and of_nics) and shape.address not in of_nics  # such as a virtual router's
            return is_known and shape.mac in macs and not is_another
        if shape.kind in ("flooded replies", "solicitation"):
            return is_known and shape.link in self._nics
        if shape.kind == "VLAN drop":
            return NAT_BRIDGE in self._node_links
        if shape.kind == "tunnel":
            return shape.link in bridges or is_known and shape.link == "az+"
        if shape.kind == "ARP drop":
            return is_known and shape.link.startswith("az")
        if shape.kind == "subnet":
            return is_known and shape.prefix in {SOLICITED_NODES}.union(*(state.subnets for state in evidence.states))
        if shape.kind == "routed host":
            hosts = {NODE_LOCAL_DNS}.union(*(configuration.hosts for configuration in configured))
            return self._is_listed(shape.address) or is_known and shape.address in hosts
        return is_known
