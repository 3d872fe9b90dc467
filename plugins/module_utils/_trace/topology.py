# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The topology of a node: the neighbours of each link, the other end of each link, and the link by which a reply comes in."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._routing.route import Route
from .._snapshot import values
from .._snapshot.assumption import Assumption
from .._snapshot.values import MAIN, UNUSABLE, Neighbour, Pod, Snapshot
from .._twin import assumptions, blueprint, pod_links
from .._twin.blueprint import LOOPBACK, WORLD_MAC, Blueprint
from .._twin.reachable import packed
from .._twin.substitutions import NEIGHBOR, replaced
from .culprit import DOWN, NO_CARRIER, Link
from .frame import Frame, Request, is_group
from .lookup import Query, Tables, shown_rule
from .packet import ICMPV6, Packet

_OVERLAY = re.compile(r"flannel\S*|vxlan\S*|cilium_vxlan")  # by which a node reaches the pods of others
ENDLESS = ("dummy", "ifb")  # kinds of links behind which there is nothing
OUTSIDE_KINDS = ("", "bond", "bridge", "team", "veth", "vlan")  # of links that may lead to a cloud's network; others are tunnels
PERMANENT = "PERMANENT"
NO_LINK = values.Link()
VXLAN = "vxlan"
# Settings of a VXLAN without which its forwarding database and its group alone decide where frames go (net/vxlan/vxlan_core.c).
OF_DATABASE = ("learning", "proxy", "l2miss", "l3miss", "external")
FLOODED = "00:00:00:00:00:00"  # of the entry of that database for what has no entry


_ASSUMED = {*map(packed, assumptions.BENCHMARK.values())}


class Departure(t.NamedTuple):
    """How a pod sends a packet.

    link: of the node, by which the packet comes in; empty if it takes another way. interface: of the pod; empty if the pod has no
    route. route: by which the pod sends. gateway: whose MAC address the pod needs; empty if no output shows the pod's links. mac:
    which it has for it; empty if it asks. is_permanent: whether it never asks. has_default: whether any table of the pod has a
    default route of the family.
    """

    link: str
    interface: str
    route: Route | None = None
    gateway: bytes = b""
    mac: bytes = b""
    is_permanent: bool = False
    has_default: bool = True


class PodSide:
    """The side of one pod. networks: of its addresses; None if no output shows them."""

    def __init__(self, pod: Pod) -> None:
        self.networks = None if pod.addresses is None else [*map(_prefix, pod.addresses)]
        self.bridged, self.netfilter = pod.bridged, pod.netfilter
        unbuilt: list[Assumption] = []
        routes = [route for route, _protocol in blueprint.parsed_routes(pod.routes, unbuilt)]
        self.is_whole = not unbuilt and not any(rule.unread for rule in pod.rules)
        self.tables = Tables(blueprint.parsed_rules(pod.rules), routes)
        self._neighbours = {(each.dev, each.address): each for each in pod.neighbours if _has_answered(each)}

    def neighbour(self, interface: str, address: bytes) -> Neighbour | None:
        return self._neighbours.get((interface, fields.show(address)))


class PodSides:
    """The sides of the pods that a snapshot has, by the node's links."""

    def __init__(self, snapshot: Snapshot) -> None:
        groups = pod_links.by_namespace(snapshot.links, snapshot.routes or ())
        self._ends = {link.name: (namespace, link.peer.name) for namespace, group in groups.items() for link in group}
        self._near = {end: link for link, end in self._ends.items()}
        self._pods = {pod.namespace: pod for pod in snapshot.pods}
        self._sides: dict[str, PodSide] = {}  # a packet meets two of hundreds

    def of(self, link: str) -> PodSide | None:
        """Return the side of the pod at a link; None if it is not known, or passes frames on from there."""
        namespace, interface = self._ends.get(link, ("", ""))
        if namespace not in self._pods:
            return None
        if namespace not in self._sides:
            self._sides[namespace] = PodSide(self._pods[namespace])
        side = self._sides[namespace]
        return None if interface in side.bridged or not side.is_whole else side

    def has(self, link: str, address: bytes) -> bool | None:
        """Return whether the pod at a link has an address; None if that is not known."""
        side = self.of(link)
        if side is None or side.networks is None:
            return None
        host = ipaddress.ip_address(address)
        return any(host.version == network.version and host in network for network in side.networks)

    def has_any(self, link: str, address: bytes) -> bool:
        """Return whether the pod at a link has an address of the same family that other machines reach."""
        side, version = self.of(link), ipaddress.ip_address(address).version
        of_family = (network for network in (side.networks if side else None) or () if network.version == version)
        return any(not (network.is_loopback or network.is_link_local) for network in of_family)

    def departure(self, sent: Packet, link: str) -> Departure | None:
        """Return how the pod at a link sends a packet; None if its side is not known."""
        side = self.of(link)
        if side is None:
            return None
        ports = sent.source_port, sent.destination_port
        route = side.tables.decide(Query(sent.source, sent.destination, LOOPBACK, 0, sent.protocol, *ports)).route
        if route is None or not route.hops:
            return Departure("", "", route, has_default=side.tables.has_default(sent.family))
        hop = route.hops[0]
        near = self._near.get((self._ends[link][0], hop.dev), "")
        if side.networks is None:
            return Departure(near, hop.dev, route)
        gateway = hop.via or sent.destination
        neighbour = side.neighbour(hop.dev, gateway)
        mac = blueprint.mac_bytes(neighbour.mac) if neighbour else b""
        return Departure(near, hop.dev, route, gateway, mac, neighbour is not None and neighbour.state == PERMANENT)


class Topology:
    """assumed: collects what is taken for granted. up: the links that are up, also after changes."""

    def __init__(self, snapshot: Snapshot, built: Blueprint, assumed: list[Assumption]) -> None:
        self._assumed = assumed
        self._is_partial = snapshot.open is not None  # of outputs, which may lack addresses
        self.links = {link.name: link for link in snapshot.links}
        self._macs = {link.name: link.mac for link in built.links}
        self._without_carrier = {
            link.name for link in built.links if link.kind != "bridge" and link.is_up and not link.has_carrier
        }
        self.up = {name for name, link in self.links.items() if link.is_up}
        self._indexes = {link.name: link.number for link in built.links}
        self._unsolved: set[tuple[str, bytes]] = set()
        self.known_macs: dict[tuple[str, bytes], bytes] = {}
        for neighbour in snapshot.neighbors:
            place = neighbour.dev, packed(neighbour.address)
            if neighbour.is_failed:
                self._unsolved.add(place)
            elif blueprint.is_mac(neighbour.mac):
                self.known_macs[place] = blueprint.mac_bytes(neighbour.mac)
        self._full = {size for size in (4, 16) if _has_full_table(snapshot, size)}
        routes = snapshot.routes or ()
        self._to_pods, self._uplinks = pod_links.divided(snapshot.links, routes)
        self._usual = pod_links.uplinks(route for route in routes if route.table == MAIN) - self._to_pods
        self._networks = {name: pod_links.networks(link) for name, link in self.links.items()}
        self._clouds = self._uplinks | {route.dev for route in routes if self._is_by_near_gateway(route)}
        every = [(name, address) for name, link in self.links.items() for address in link.address_info]
        self._addresses = {packed(address.host): name for name, address in every if not address.is_unusable}
        self._unusable = {
            packed(address.host): (name, next(flag for flag in UNUSABLE if flag in address.flags))
            for name, address in every
            if address.is_unusable
        }
        self.pod_sides = PodSides(snapshot)
        self._far = {
            packed(address.partition("/")[0]): name for name, link in self.links.items() for address in link.peer.addresses
        }
        self._before = self._far, self._clouds

    def _is_by_near_gateway(self, route: values.Route) -> bool:
        """Return whether a route names a gateway in a network of its link, as that of a cloud, and not a tunnel's other end."""
        gateway = packed(route.via)
        networks = self._networks.get(route.dev, ()) if self.kind(route.dev) in OUTSIDE_KINDS else ()
        return bool(gateway) and any(ipaddress.ip_address(gateway) in network for network in networks)

    def link(self, name: str) -> values.Link:
        """Return a link; an empty one if the node has none of the name."""
        return self.links.get(name, NO_LINK)

    def learn(self, packet: Packet) -> None:
        """Note what one packet shows, and forget what others showed.

        The source of a packet that a pod's link brings in is the pod's address, unless the pod's addresses are known.

        A link by which a packet comes in from a network that it does not have leads to a router, so it is an uplink.
        """
        self._far, self._clouds = dict(self._before[0]), self._before[1]
        is_known = (
            self._far_addresses(packet.interface)
            or self.pod_sides.has(packet.interface, packet.source) is not None
            or packet.source in self._addresses
            or packet.source == packet.destination
        )
        if self.is_pod(packet.interface) and not is_known:
            self._far.setdefault(packet.source, packet.interface)
        link = self.bridge(packet.interface) or packet.interface
        networks = self._networks.get(link, ()) if self.kind(link) in OUTSIDE_KINDS and not self.is_pod(packet.interface) else ()
        if networks and not any(ipaddress.ip_address(packet.source) in network for network in networks):
            self._clouds = self._clouds | {link}

    def kind(self, link: str) -> str:
        return self.link(link).kind

    def broken(self, link: str) -> Link | None:
        """Return a link that no packet passes, with the reason; None if packets pass."""
        if link not in self.up:
            return Link(link, DOWN)
        if link not in self._without_carrier:
            return None
        peer = self.links[link].peer
        return Link(link, NO_CARRIER, peer.name if peer.is_down else "")

    def lost_uplink(self, is_ipv6: bool) -> str:
        """Return the link that may have had the default route of a family that has none: one with addresses, or to the pods of
        other nodes, that is down, and otherwise one with that of the other family in table main and without an address; empty if
        there is none, or are several.
        """
        cards = {
            name
            for name in self.links
            if name != LOOPBACK and (not self.kind(name) or values.has_interface_name(name) or _OVERLAY.fullmatch(name))
        }
        down = [name for name in cards if name not in self.up and (self.links[name].addresses or _OVERLAY.fullmatch(name))]
        bare = [name for name in self._usual if not self.has_address(name, is_ipv6) and self.kind(name) not in ENDLESS]
        return (down or bare)[0] if len(down or bare) == 1 else ""

    def has_address(self, link: str, is_ipv6: bool) -> bool:
        """Return whether a link has an address of a family, besides link-local ones of IPv6 and assumed ones, or may have."""
        own = (address for address, name in self._addresses.items() if name == link and address not in _ASSUMED)
        return self._is_partial or any((len(address) == 16) == is_ipv6 and not _is_link_local(address) for address in own)

    def _reaches(self, link: str, mac: str) -> bool:
        """Return whether a tunnel may have an end to which it sends frames for a MAC address. Any other link has."""
        tunnel = self.link(link)
        is_open = tunnel.kind != VXLAN or tunnel.database is None or any(tunnel.settings.get(each, 1) for each in OF_DATABASE)
        ends = {each.mac for each in tunnel.database or ()}
        return is_open or bool(tunnel.remote) or not ends.isdisjoint({mac, FLOODED})

    def is_pod(self, link: str) -> bool:
        """Return True if a pod, or another network namespace of the node, is at the other end."""
        return link in self._to_pods

    def bridge(self, link: str) -> str:
        """Return the bridge that a link is a port of; empty for none."""
        master = self.link(link).master
        return master if self.kind(master) == "bridge" else ""

    def tells_hairpin(self, port: str) -> bool:
        """Return True if it is known whether a bridge sends a frame back by the port that it came in by."""
        return "hairpin" in self.link(port).settings

    def _is_outside(self, link: str) -> bool:
        """Return True for an uplink, and for the port by which a bridge leads to an uplink."""
        bridge = self.bridge(link)
        return link in self._uplinks or bool(bridge and self.entrance(bridge) == link)

    def _leads_outside(self, bridge: str) -> bool:
        """Return True for a bridge with a port that does not lead to a pod."""
        return bool(bridge) and self.entrance(bridge) != bridge and not self.is_pod(self.entrance(bridge))

    def owner(self, address: bytes) -> str:
        """Return the link that has an address; empty if none has."""
        return self._addresses.get(address, "")

    def unusable(self, address: bytes) -> tuple[str, str]:
        """Return the link that has an address of which duplicate address detection goes on or failed, and that flag."""
        return self._unusable.get(address, ("", ""))

    def has_order(self, link: str, is_ipv6: bool) -> bool:
        """Return whether it is known which of a link's addresses comes first. Of a single one it is."""
        of_family = (address for address in self.link(link).address_info if address.is_ipv6 == is_ipv6)
        usual = [address for address in of_family if address.scope in ("", "global")]
        return len(usual) < 2 or not any("inferred" in address.flags for address in usual)

    def entrance(self, link: str) -> str:
        """Return the link by which packets from outside come in to a link: of a bridge, the port that leads to no pod."""
        ports = [name for name, other in self.links.items() if other.master == link] if self.kind(link) == "bridge" else []
        outside = [port for port in ports if not self.is_pod(port)] or [port for port in ports if not self._far_addresses(port)]
        return outside[0] if outside else link

    def own_mac(self, link: str) -> bytes:
        """Return the MAC address that the node has on a link, or its bridge if the link is a port of one."""
        return self._macs.get(self.bridge(link)) or self._macs[link]

    def is_own(self, mac: bytes) -> bool:
        """Return whether a link of the node has a MAC address."""
        return mac in self._macs.values()

    def is_mac_known(self, mac: bytes) -> bool:
        """Return True if a link of the node, the other end of one, or a neighbour has the MAC address."""
        ends = (self._peer_mac(name) for name in self.links)
        return mac in (*self._macs.values(), *ends, *self.known_macs.values())

    def network_of(self, address: bytes) -> str:
        """Return the network of a link's own address that has an address, with the link; empty for none."""
        host = ipaddress.ip_address(address)
        every = ((network, name) for name, networks in self._networks.items() for network in networks)
        return next(
            (f"{network} dev {name}" for network, name in every if host.version == network.version and host in network), ""
        )

    def answer(self, link: str, request: Request) -> tuple[bytes | None, bytes]:
        """Return the MAC address that answers a request on a link, None if none does, and that to which the answer is sent."""
        misled = self.misled(link, request)
        return self.neighbour(link, request.target), misled.mac if misled else request.mac

    def misled(self, link: str, request: Request) -> Departure | None:
        """Return how a pod sends its answer to another MAC address than that of who asks; None if it does not, as with ARP.

        An advertisement of IPv6 goes to the pod's own neighbour (net/ipv6/ndisc.c), and a request changes no permanent one.
        """
        if len(request.sender) != 16 or not any(request.sender):
            return None
        departure = self.pod_sides.departure(Packet(request.target, request.sender, ICMPV6), link)
        return departure if departure and departure.is_permanent and departure.mac != request.mac else None

    def neighbour(self, link: str, address: bytes) -> bytes | None:
        """Return the MAC address that answers on a link for an address; None if none does."""
        has = self.pod_sides.has(link, address)
        if has is not None:
            return (self._peer_mac(link) or self.world_mac(link)) if has else None
        if any((name, address) in self._unsolved for name in (link, self.bridge(link))) or self.kind(link) in ENDLESS:
            return None
        if not self._reaches(link, FLOODED):
            return None
        far = self._far.get(address)
        if far is None and self.is_pod(link) and self._leads_outside(self.bridge(link)):
            return None  # the node also asks at the port that leads outside, where the address answers
        is_open = far is None and not self._far_addresses(link) and address not in self._addresses
        # Routes of two tables may lead to an address by two links, behind each of which it is then taken to be.
        if far == link or address in self._far_addresses(link) or (is_open and not self._is_of_another_pod(link)):
            if not self.is_pod(link):
                sentence = f"{fields.show(address)} is assumed to answer on {link}: it is not among the neighbours."
                self._assume(replaced(NEIGHBOR, sentence))
            return self._peer_mac(link) or self.world_mac(link)
        return None

    def without_address(self, port: str, address: bytes) -> str:
        """Return the only port of a bridge at which a pod is that has no address of the family of one; empty for none or several.

        port: of the bridge.
        """
        ports = [name for name in self._to_pods if self.bridge(port) and self.bridge(name) == self.bridge(port)]
        lacking = [name for name in ports if self.pod_sides.of(name) and not self.pod_sides.has_any(name, address)]
        return lacking[0] if len(lacking) == 1 else ""

    def _is_of_another_pod(self, port: str) -> bool:
        """Return whether the pod at a port of a bridge is known, and the bridge has a port whose pod is not."""
        bridge, known = self.bridge(port), set(self._far.values())
        others = [name for name in self._to_pods - known if self.bridge(name) == bridge]
        return bool(bridge) and port in known and bool(others)

    def _far_addresses(self, link: str) -> set[bytes]:
        """Return the addresses of the other end; empty if it may pass frames on to others, as the port of a bridge does.

        The kernel gives such a port a link-local address.
        """
        addresses = (packed(text.partition("/")[0]) for text in self.link(link).peer.addresses)
        return {address for address in addresses if address and not _is_link_local(address)}

    def world_mac(self, link: str) -> bytes:
        return blueprint.made_mac(WORLD_MAC, self._indexes[link])

    def _peer_mac(self, link: str) -> bytes:
        mac = self.link(link).peer.mac
        return blueprint.mac_bytes(mac) if blueprint.is_mac(mac) else b""

    def macs(self, packet: Packet) -> tuple[bytes, bytes]:
        """Return the source and the destination of the frame by which a packet comes in."""
        link = packet.interface
        bridge = self.bridge(link)
        known = (self.known_macs.get((name, packet.source)) for name in (link, bridge))
        source = self._peer_mac(link) or next(filter(None, known), b"") or self.world_mac(link)
        to_pod = self._far.get(packet.destination, "")
        is_port = bridge in self._macs and bool(to_pod) and self.links[to_pod].master == bridge
        if is_port and self._is_on_link(bridge, packet.destination):
            return source, self._peer_mac(to_pod) or self.world_mac(to_pod)
        router = self.entrance(bridge) if bridge in self._macs and self._is_no_gateway(bridge) else link
        if router not in (link, bridge):
            return source, self._peer_mac(router) or self.world_mac(router)
        owner = bridge if bridge in self._macs and self.is_pod(link) else link
        return source, self._macs[owner]

    def _is_no_gateway(self, bridge: str) -> bool:
        """Return whether a bridge has no address, so that no machine at its ports sends packets to it."""
        addresses = map(packed, self.links[bridge].addresses)
        return bool(self._addresses) and all(map(_is_link_local, addresses))

    def _is_on_link(self, bridge: str, address: bytes) -> bool:
        """Return whether a pod at a bridge reaches an address without the node, which is its gateway to other networks."""
        networks = self._networks[bridge]
        return not networks or any(ipaddress.ip_address(address) in network for network in networks)

    def trouble(self, link: str, frame: Frame) -> str:
        """Return why the other end of a link does not take a frame; empty if it does."""
        if self.kind(link) in ENDLESS:
            return f"nothing is behind {link}, a link of kind {self.kind(link)}"
        if not self._reaches(link, frame.destination_mac.hex(":")):
            return f"the forwarding database of {link} has no entry for {frame.destination_mac.hex(':')}"
        mac, addresses = self._peer_mac(link), self._far_addresses(link)
        passes_on = self._is_outside(link) and not addresses
        if mac and frame.destination_mac != mac and not is_group(frame.destination_mac) and not passes_on:
            return f"it is sent to {frame.destination_mac.hex(':')}, but the other end of {link} has {mac.hex(':')}"
        has, to = self.pod_sides.has(link, frame.packet.destination), frame.packet.destination
        is_lacking = bool(addresses) and to not in addresses and self._far.get(to) != link if has is None else not has
        if is_lacking and self.is_pod(link):
            return f"the pod at {link} does not have the address {fields.show(frame.packet.destination)}"
        return ""

    def origin(self, source: bytes, tables: Tables) -> tuple[str, str]:
        """Return the link to which a cloud sends packets for an address, and the evidence as text; empty without evidence."""
        owner = self.owner(source)
        if owner and owner != LOOPBACK and self.kind(owner) not in ENDLESS and not self.is_pod(owner):
            return owner, f"is an address of {owner}"
        for rule in tables.rules:
            if rule.src[0] == source:
                leads = {hop.dev for route in tables.of_table(rule.family, rule.table) if not route.dst[1] for hop in route.hops}
                outside = [name for name in sorted(leads) if not self.is_pod(name)]
                if outside:
                    return outside[0], f"belongs to {outside[0]} ({shown_rule(rule)})"
        return "", ""

    def foreign_source(self, left: Packet, link: str, tables: Tables) -> tuple[str, str]:
        """Return the uplink to which a packet's source belongs, and the evidence; empty if the packet leaves by it."""
        owner, evidence = self.origin(left.source, tables)
        is_other = owner not in ("", link) and self.kind(owner) != "bridge" and not self.is_pod(link)
        return (owner, evidence) if is_other and {owner, link} <= self._clouds else ("", "")

    def is_elsewhere(self, source: bytes, came_in_by: str, link: str, tables: Tables) -> bool:
        """Return whether an answer leaves by another uplink than its request came in by, and its source is of no known uplink."""
        are_two = came_in_by != link and {came_in_by, link} <= self._clouds
        return are_two and not self.is_pod(link) and self.origin(source, tables)[0] not in self._clouds

    def is_away(self, address: bytes, near: str, link: str) -> bool:
        """Return whether an address is a neighbour on the link ``near``, and not behind another link."""
        here, there = (self.bridge(name) or name for name in (near, link))
        return here != there and self._is_neighbour(here, address) and not self._is_neighbour(there, address)

    def _is_neighbour(self, link: str, address: bytes) -> bool:
        """Return whether a network of a link has an address, or the node has resolved it there."""
        host = ipaddress.ip_address(address)
        of_networks = any(host.version == network.version and host in network for network in self._networks.get(link, ()))
        return of_networks or (link, address) in self.known_macs

    def is_answered(self, address: bytes, link: str, is_translated: bool) -> bool:
        """Return whether an answer to the source of a packet that left by a link comes in there.

        It does to an address of the node, and of a machine in the link's network. A source that the node itself has written may
        be no machine's.
        """
        return address in self._addresses or not is_translated and self._is_neighbour(self.bridge(link) or link, address)

    def pod_link(self, address: bytes) -> str:
        """Return the link to the pod that has an address; empty if none is known to have it."""
        link = self._far.get(address, "")
        return link if self.is_pod(link) else ""

    def has_learned(self, link: str, mac: bytes) -> bool:
        """Return whether the node knows a neighbour on a link by its MAC address."""
        return any(place[0] == link and known == mac for place, known in self.known_macs.items())

    def is_of_network(self, address: bytes, link: str) -> bool:
        return self._is_neighbour(self.bridge(link) or link, address)

    def may_return(self, sent: Packet, departed: Packet, link: str) -> bool:
        """Return whether who sent a packet to the node may send it again: it leaves by the same link for an address of the link's
        network of which nothing shows that a machine has it, and its source is behind a router.
        """
        near = self.bridge(link) or link
        is_back = (self.bridge(sent.interface) or sent.interface) == near and sent.flow == departed.flow
        is_near = self.is_of_network(departed.destination, link) and (near, departed.destination) not in self.known_macs
        return is_back and is_near and not self.is_of_network(departed.source, link)

    def targets(self, link: str, destination: bytes) -> list[bytes]:
        """Return the addresses of the node for one of which a machine on a link asks, to send a packet: the destination in the
        link's network, or else the next hop, which may be any address of the node there; empty if the packet is for another one.
        """
        near = self.bridge(link) or link
        if self.is_of_network(destination, link):
            return [destination] if self.owner(destination) else []
        return [address for address, owner in self._addresses.items() if owner == near and len(address) == len(destination)]

    def is_table_full(self, link: str, address: bytes) -> bool:
        """Return whether the node has as many neighbours as it may, and an address on a link is none of them."""
        return len(address) in self._full and (link, address) not in self.known_macs

    def is_point_to_point(self, link: str) -> bool:
        """Return whether a link asks for no MAC address, such as a tunnel."""
        return pod_links.is_point_to_point(self.link(link))

    def reply_link(self, left: Packet, link: str, tables: Tables) -> str:
        """Return the link by which the answer comes in to a packet that has left by ``link``.

        A pod with one interface answers by its link. In the cloud, the answer is sent to the interface that owns the address.
        """
        owner, _evidence = ("", "") if self.is_pod(link) else self.origin(left.source, tables)
        return self.entrance(owner) if owner else link

    def _assume(self, assumption: Assumption) -> None:
        if assumption not in self._assumed:
            self._assumed.append(assumption)


def _prefix(value: object) -> pod_links.Network:
    """Return the addresses of an entry of table local. Raises Invalid."""
    try:
        return ipaddress.ip_network(str(value))
    except ValueError:
        raise Invalid("snapshot.pods.addresses", value, "IP addresses, as a snapshot has them") from None


def _has_answered(neighbour: Neighbour) -> bool:
    return blueprint.is_mac(neighbour.mac) and not neighbour.is_failed


def _has_full_table(snapshot: Snapshot, size: int) -> bool:
    """Return whether the node has as many neighbours of a family as it may. size: of an address."""
    key = f"net.ipv{4 if size == 4 else 6}.neigh.default.gc_thresh3"
    most, counted = snapshot.settings.node.get(key), (each for each in snapshot.neighbors if each.is_counted)
    return most is not None and sum(len(packed(each.address)) == size for each in counted) >= int(most)


def _is_link_local(address: bytes) -> bool:
    return len(address) == 16 and ipaddress.ip_address(address).is_link_local
