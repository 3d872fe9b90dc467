# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of a node that decide about packets, as values: remedies and certainty follow from these, and from no sentence."""

from __future__ import annotations

import typing as t

from .._routing.route import BLACKHOLE, PROHIBIT, UNREACHABLE, Route
from .._routing.rule import LOOKUP, Rule

DOWN, NO_CARRIER, NO_HAIRPIN = "down", "no carrier", "hairpin"  # why a link passes no frame
_OF_LINK = {DOWN: "is down", NO_CARRIER: "has no carrier", NO_HAIRPIN: "hairpin off"}
LINK_LOCAL, EXPIRED, LACKING, NONE = "link-local", "expired", "lacking", "none"  # why an address stops a packet
REVERSE_PATH, FORWARDING = "rp_filter", ("forwarding", "ip_forward")  # names of settings
BRIDGE = "bridge"  # the family of tables that see frames


class ChainRule(t.NamedTuple):
    """A rule of a chain, or the chain's policy, whose handle is 0. line: as its tool prints it."""

    family: str
    table: str
    chain: str
    line: str
    handle: int = 0

    def __str__(self) -> str:
        # A rule of iptables names its chain itself, and one of nft does not.
        return f"{self.family} {self.table}{'' if self.is_of_iptables else f' {self.chain}'}: {self.line}"

    @property
    def is_of_iptables(self) -> bool:
        return self.line.startswith("-")


class VirtualServer(t.NamedTuple):
    """A virtual server of IPVS. name: as ipvsadm prints it."""

    name: str

    def __str__(self) -> str:
        return f"ipvs: {self.name}"


class Setting(t.NamedTuple):
    """A setting of the kernel. path: below /proc/sys."""

    path: str
    value: int

    def __str__(self) -> str:
        return f"{self.key} = {self.value}"

    @property
    def key(self) -> str:
        """Return the name of the setting for sysctl."""
        return ".".join(part.replace(".", "/") for part in self.path.split("/"))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Neighbor(t.NamedTuple):
    """A neighbour on a link. mac: empty if it does not answer."""

    link: str
    address: str
    mac: str = ""

    def __str__(self) -> str:
        return f"{self.address} dev {self.link} {f'lladdr {self.mac}' if self.mac else 'FAILED'}"


class Link(t.NamedTuple):
    """A link. trouble: DOWN, NO_CARRIER or NO_HAIRPIN; empty for another one. far: the other end of it that is down."""

    name: str
    trouble: str = ""
    far: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.words}".rstrip()

    @property
    def words(self) -> str:
        """Return what the trouble is, as words to follow the name."""
        return f"{_OF_LINK.get(self.trouble, '')}{f', as {self.far} at its other end is down' if self.far else ''}"


class Mtu(t.NamedTuple):
    """A link that passes no larger packet. size: bytes. is_far: whether it is the other end of the link."""

    link: str
    size: int
    is_far: bool = False

    def __str__(self) -> str:
        return f"{'the other end of ' if self.is_far else ''}{self.link} mtu {self.size}"


class RouteMtu(t.NamedTuple):
    """A route that leads no larger packet."""

    route: Route

    def __str__(self) -> str:
        return str(self.route)


class Address(t.NamedTuple):
    """An address in the packet's header. trouble: LINK_LOCAL, EXPIRED, LACKING, NONE, a flag of the kernel or empty.

    owner: the link of the node that has it, or whose pod lacks it, or empty if the node lacks it; with NONE, the link that has no
    address of a family, which stands for the address.
    """

    address: str
    trouble: str = ""
    owner: str = ""

    def __str__(self) -> str:
        if self.trouble == EXPIRED:
            return "ttl 1"
        if self.trouble == LACKING:
            return f"no address {self.address} {f'in the pod at {self.owner}' if self.owner else 'on the node'}"
        if self.trouble == NONE:
            return f"no address of {self.address} on {self.owner}"
        if self.trouble == LINK_LOCAL:
            return f"source {self.address} is link-local"
        return f"{self.address} dev {self.owner} {self.trouble}".rstrip().removesuffix(" dev")


class NoRoute(t.NamedTuple):
    """A route that is missing. place: where it is missing, if not on the node. network: that is behind a link of the node by the
    link's own address, and to which no route leads, as ``ip route`` takes it: ``10.60.1.0/24 dev cni0``.
    """

    destination: str
    source: str = ""
    place: str = ""
    network: str = ""

    def __str__(self) -> str:
        none = f", as none leads to {self.network}" if self.network else ""
        return f"no route {f'from {self.source} ' if self.source else ''}to {self.destination}{self.place}{none}"


class Programs(t.NamedTuple):
    """BPF programs on the path."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.names)


class TrafficFilter(t.NamedTuple):
    """A filter of traffic control, as text."""

    text: str

    def __str__(self) -> str:
        return self.text


Object = t.Union[
    TrafficFilter, ChainRule, VirtualServer, Rule, Route, Setting, Neighbor, Link, Mtu, RouteMtu, Address, NoRoute, Programs
]
KINDS: dict[type, str] = {
    **dict.fromkeys((ChainRule, VirtualServer, Rule, TrafficFilter), "rule"),
    **dict.fromkeys((Route, RouteMtu), "route"),
    Setting: "sysctl",
    Neighbor: "neighbor",
    **dict.fromkeys((Link, Mtu), "link"),
    Address: "address",
    Programs: "bpf",
    NoRoute: "missing",
}


def identity(decider: Object | None) -> Object | None:
    """Return what is the same in each world: the kernel numbers rules in the order in which they are loaded."""
    return decider._replace(handle=0) if isinstance(decider, ChainRule) else decider


def is_filter(decider: Object | None) -> bool:
    """Return whether it is the kernel's filter of reverse paths."""
    return isinstance(decider, Setting) and decider.name == REVERSE_PATH


def is_blocking(decider: Object | None) -> bool:
    """Return whether a rule or a route stops packets by its type."""
    if isinstance(decider, Rule):
        return decider.action != LOOKUP
    return isinstance(decider, Route) and decider.type in (BLACKHOLE, UNREACHABLE, PROHIBIT)


def is_shown_in_outputs(decider: Object | None) -> bool:
    """Return whether it is an object that outputs have as a line, and not a setting, or something that is missing."""
    return isinstance(decider, ChainRule) or is_blocking(decider) or (isinstance(decider, Link) and bool(decider.trouble))


def is_of_network(length: int, decider: Object | None) -> bool:
    """Return whether it is a rule or a route for all of a network, and not for a part of it. length: of its prefix, in bits."""
    return isinstance(decider, (Route, Rule)) and decider.dst[1] <= length


def is_forwarding(decider: Object | None) -> bool:
    return isinstance(decider, Setting) and decider.name in FORWARDING


def is_neighbor(decider: Object | None) -> bool:
    return isinstance(decider, Neighbor)


def is_of_bridge(decider: Object | None) -> bool:
    return isinstance(decider, ChainRule) and decider.family == BRIDGE


def is_of_firewalld(decider: Object | None) -> bool:
    return isinstance(decider, ChainRule) and decider.table == "firewalld"
