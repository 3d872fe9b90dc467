# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The packets in which a tunnel carries others between nodes, and which rules of the node may stop as well."""

from __future__ import annotations

import ipaddress
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._snapshot import values
from .._snapshot.values import Entry, Link
from .._twin import blueprint
from . import entrance
from .answer import Way
from .lookup import Query, Tables
from .packet import AUTO, SOURCE_PORT, UDP, Packet

# Ports of UDP of the kernel's own tunnels, where none is given (drivers/net/vxlan/vxlan_core.c, drivers/net/geneve.c).
PORTS = {"vxlan": 8472, "geneve": 6081}
PROTOCOLS = {"ipip": 4, "sit": 41, "gre": 47, "gretap": 47, "ip6tnl": 41, "ip6gre": 47}  # IANA's numbers
KINDS = (*PORTS, *PROTOCOLS)


class Carrier(t.NamedTuple):
    """A packet in which a tunnel carries another one. is_reply: whether the other one is a reply."""

    link: str
    packet: Packet
    is_reply: bool

    @property
    def wants_reply(self) -> bool:
        """Return whether connection tracking takes what comes back for the answer: packets of UDP have ports of their own."""
        return self.packet.protocol != UDP


def of_way(snapshot: Entry, way: Way) -> t.Iterator[Carrier]:
    """Yield what carries a packet and its reply through the tunnels by which they leave and come in, as far as that is known."""
    links = {link.name: link for link in values.links(snapshot) if link.kind in KINDS}
    ends = {each.interface: _remote(links[each.interface], each) for each in way.both if each.interface in links}
    for each in way.both:
        for name, is_sent in ((each.came_in_by, False), (each.interface, True)):
            for packet in between(snapshot, links[name], ends.get(name, "")) if name in links else ():
                if is_sent is not bool(packet.interface):
                    yield Carrier(name, packet, each is not way)


def _remote(link: Link, way: Way) -> str:
    """Return the other end of a tunnel to which a packet left; empty if that is not known."""
    mac = way.met.frame.destination_mac.hex(":") if way.met.frame else ""
    told = (entry.dst for entry in link.database or () if entry.mac == mac)
    gateways = (fields.show(hop.via) for hop in way.met.route.hops if hop.via) if way.met.route else iter(())
    return link.remote or next(told, "") or (next(gateways, "") if link.kind in PROTOCOLS else "")


def between(snapshot: Entry, link: Link, remote: str = "") -> list[Packet]:
    """Return a packet of a tunnel to its other end, and one from there; none if an address is not known.

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
    local, own = _machine(link.local), below.of_family("ipv6" if len(far) == 16 else "ipv4")
    near = local or (_machine(own[0]) if own else b"")
    if len(near) != len(far):
        return []
    port = int(link.port) if link.port.isdigit() else PORTS.get(link.kind, 0)
    ends = (UDP if link.kind in PORTS else PROTOCOLS[link.kind], SOURCE_PORT if port else 0, port)
    try:
        received = entrance.placed(Packet(far, near, *ends, AUTO), snapshot, is_guess=True)
    except Invalid:  # no route leads to the other end
        return []
    return [Packet(local, far, *ends), received]


def _machine(address: str) -> bytes:
    """Return the address of one machine in network order; empty for another text, as of a group."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return b""
    return b"" if host.is_multicast or host.is_unspecified else host.packed
