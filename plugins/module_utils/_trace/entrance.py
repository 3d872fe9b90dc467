# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packet that the operator describes, with what a snapshot knows: addresses of names, the link that it comes in by, and the
packets in which tunnels carry it.
"""

from __future__ import annotations

import ipaddress
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._routing.route import LOCAL, Route
from .._snapshot import open_facts, values
from .._snapshot.values import Entry, Link, Snapshot
from .._twin import assumptions, blueprint, pod_links, snapshot_form
from .._twin.blueprint import LOOPBACK
from . import names
from .answer import DROPPED, FORWARDED, Culprit, Way
from .culprit import LACKING, Address
from .lookup import Query, Tables
from .packet import AUTO, SOURCE_PORT, UDP, Packet, from_options

# Ports of UDP of the kernel's own tunnels, where none is given (drivers/net/vxlan/vxlan_core.c, drivers/net/geneve.c).
PORTS = {"vxlan": 8472, "geneve": 6081}
PROTOCOLS = {"ipip": 4, "sit": 41, "gre": 47, "gretap": 47, "ip6tnl": 41, "ip6gre": 47}  # IANA's numbers
TUNNELS = (*PORTS, *PROTOCOLS)


def packet(described: dict[str, t.Any], snapshot: Entry) -> Packet:
    """Return the packet of the option ``packet``, by an assumed link where routes that no output has may lead to its source.

    Raises Invalid, also for a snapshot of another form.
    """
    snapshot_form.check(snapshot)
    sent = from_options(names.resolved(described, snapshot))
    try:
        return placed(sent, snapshot)
    except Invalid:
        link = _near(sent.source, Snapshot.of(snapshot)) if sent.interface == AUTO else ""
        if not link:
            raise
        return sent._replace(interface=link)


def _near(source: bytes, snapshot: Snapshot) -> str:
    """Return the link in whose network an address is, or one to assume; empty if no open route may lead to the address.

    Where all links are known, the error names those that may be meant.
    """
    address = ipaddress.ip_address(source)
    of_family = (entry for entry in snapshot.open or () if entry.family in ("", f"ipv{address.version}"))
    if {open_facts.ROUTES, open_facts.routes("main").fact}.isdisjoint(entry.fact.fact for entry in of_family):
        return ""
    of_links = ((link.name, each.interface) for link in snapshot.links for each in link.address_info)
    near = (name for name, interface in of_links if interface and address in interface.network)
    loopback = snapshot.link(LOOPBACK)  # of a listing of all links, or named by a rule
    return next(near, "" if loopback and (loopback.number or loopback.addresses) else assumptions.ENTRANCE)


def placed(packet: Packet, snapshot: Entry, is_guess: bool = False) -> Packet:
    """Return the packet with the link behind which its source is, in place of AUTO and of a bridge, whose ports take frames.

    is_guess: takes the uplink of the default route, if the packet may come in by several. Raises Invalid if no link leads there,
    or if several uplinks do.
    """
    model = Snapshot.of(snapshot)
    if packet.interface == AUTO:
        return packet._replace(interface=_link_to(packet.source, packet.destination, model, is_guess))
    return packet._replace(interface=_port(packet.interface, model, fields.show(packet.source)) if packet.interface else "")


def _link_to(source: bytes, destination: bytes, snapshot: Snapshot, is_guess: bool) -> str:
    """Find the link of the pod with the source address, or of the route to it; empty for an address of the node itself."""
    address, links, routes = fields.show(source), snapshot.links, snapshot.routes or ()
    pods = (link.name for link in links if address in link.peer.addresses)
    is_own = ipaddress.ip_address(address).is_loopback or any(address in link.addresses for link in links)
    pod = "" if is_own else next(pods, None)
    if pod is not None:
        return pod
    parsed = blueprint.parsed_routes(routes, [])
    tables = Tables(blueprint.parsed_rules(snapshot.rules or ()), (route for route, _protocol in parsed))
    route = tables.decide(Query(b"", source)).route
    if route and route.type == LOCAL:
        return ""
    uplinks = _uplinks(snapshot, route)
    dev = route.hops[0].dev if route and route.hops else ""
    if dev and dev not in uplinks:
        return _port(dev, snapshot, address)
    # A sender outside does not know the routes of the node, but the link that has the address to which it sends.
    with_address = [link.name for link in links if link.name in uplinks and fields.show(destination) in link.addresses]
    if len(with_address) == 1:
        return with_address[0]
    if not dev:
        raise _undecided(f"no route leads back to {fields.show(source)}")
    if len(uplinks) > 1 and _is_default(route) and not is_guess:
        raise _undecided(f"it may be each of the uplinks {', '.join(sorted(uplinks))}", f", such as `in {dev}`")
    return dev


def _uplinks(snapshot: Snapshot, route: Route | None) -> set[str]:
    """Return the links to what is outside of the node. route: to a sender."""
    outer = pod_links.outer_links(snapshot.links, snapshot.routes or ()) - {LOOPBACK}  # to which default routes of proxies lead
    hops = route.hops if route and _is_default(route) else ()
    return outer.union(hop.dev for hop in hops[:1])


def _is_default(route: Route | None) -> bool:
    return route is not None and not route.dst[1]


def _undecided(reason: str, example: str = "") -> Invalid:
    return Invalid("packet.interface", AUTO, f"the link by which the packet comes in{example}: {reason}")


def _port(name: str, snapshot: Snapshot, source: str) -> str:
    """Return the link, or the port of a bridge behind which a source is: that of the pod that has it, one of pods for an address
    of the bridge's networks, and one of none for another. Where only the other kind is there, it is the first one.
    """
    bridge = next((link for link in snapshot.links if (link.name, link.kind) == (name, "bridge")), None)
    ports = [link for link in snapshot.links if link.master == name] if bridge else []
    if not bridge or not ports:
        return name
    address = ipaddress.ip_address(source)
    is_near = any(each.interface and address in each.interface.network for each in bridge.address_info)
    of_pods = pod_links.pod_links(ports, ())
    return min(ports, key=lambda port: (source not in port.peer.addresses, (port.name in of_pods) is not is_near)).name


class Carrier(t.NamedTuple):
    """A packet in which a tunnel carries another one. is_reply: whether the other one is a reply."""

    link: str
    packet: Packet
    is_reply: bool

    @property
    def wants_reply(self) -> bool:
        """Return whether connection tracking takes what comes back for the answer: packets of UDP have ports of their own."""
        return self.packet.protocol != UDP


def carriers(snapshot: Entry, way: Way) -> t.Iterator[Carrier]:
    """Yield what carries a packet and its reply through the tunnels by which they leave and come in, as far as that is known."""
    links = {link.name: link for link in values.links(snapshot) if link.kind in TUNNELS}
    ends = {each.interface: _remote(links[each.interface], each) for each in way.both if each.interface in links}
    used = {name for each in way.both for name in (each.came_in_by, each.interface)}.intersection(links)
    packets = {name: between_ends(snapshot, links[name], ends.get(name, "")) for name in used}
    for each in way.both:
        for name, is_sent in ((each.came_in_by, False), (each.interface, True)):
            for packet in packets.get(name, ()):
                if is_sent is not bool(packet.interface):
                    yield Carrier(name, packet, each is not way)


def received(way: Way) -> Way:
    """Return the way of what carries other packets, which is lost if it comes in for an address that the node does not have."""
    if not way.came_in_by or way.verdict != FORWARDED or not way.met.frame:
        return way
    address = fields.show(way.met.frame.packet.destination)
    reason, culprit = f"{address} is no address of the node.", Culprit.of(Address(address, LACKING))
    return way._replace(verdict=DROPPED, interface="", reason=reason, culprit=culprit)


def _remote(link: Link, way: Way) -> str:
    """Return the other end of a tunnel to which a packet left; empty if that is not known."""
    mac = way.met.frame.destination_mac.hex(":") if way.met.frame else ""
    told = (entry.dst for entry in link.database or () if entry.mac == mac)
    gateways = (fields.show(hop.via) for hop in way.met.route.hops if hop.via) if way.met.route else iter(())
    return link.remote or next(told, "") or (next(gateways, "") if link.kind in PROTOCOLS else "")


def between_ends(snapshot: Entry, link: Link, remote: str = "") -> list[Packet]:
    """Return a packet of a tunnel to its other end, and one from there if it is known where that comes in; none if an address is
    not known.

    remote: the other end; empty for any that the tunnel has.
    """
    told = (entry.dst for entry in link.database or ())
    far = _machine(remote or link.remote or next(filter(None, told), ""))
    if not far:
        return []
    parsed = blueprint.parsed_routes(values.routes(snapshot), [])
    tables = Tables(blueprint.parsed_rules(values.rules(snapshot)), (route for route, _protocol in parsed))
    route = tables.decide(Query(b"", far)).route
    below = next((each for each in values.links(snapshot) if route and each.name in route.links), Link())
    local, addresses = _machine(link.local), below.of_family("ipv6" if len(far) == 16 else "ipv4")
    near = local or (_machine(addresses[0]) if addresses else b"")
    if len(near) != len(far):
        return []
    port = int(link.port) if link.port.isdigit() else PORTS.get(link.kind, 0)
    ends = (UDP if link.kind in PORTS else PROTOCOLS[link.kind], SOURCE_PORT if port else 0, port)
    sent = Packet(local, far, *ends)
    try:
        return [sent, placed(Packet(far, near, *ends, AUTO), snapshot, is_guess=True)]
    except Invalid:  # no route leads to the other end
        return [sent]


def _machine(address: str) -> bytes:
    """Return the address of one machine in network order; empty for another text, as of a group."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return b""
    return b"" if host.is_multicast or host.is_unspecified else host.packed
