# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packets that are too large for a link or a route, and what is said where the packet was small."""

from __future__ import annotations

import errno
import os
import typing as t

from .._core import fields
from .._core.fields import IPV4, IPV6
from .._routing.rt_names import MAIN
from .._snapshot import tunnels
from .._snapshot.assumption import LINK, Assumption, Concern
from .._twin.substitutions import SIZE, TUNNEL_HEAD, replaced
from .answer import Way
from .culprit import Mtu, Object, RouteMtu
from .kernel_events import Observation
from .lookup import Query, Tables
from .packet import Packet
from .topology import Topology

TAG = 4  # of a VLAN, for which a veth and a port of a bridge have room (include/linux/netdevice.h, is_skb_forwardable)
TOO_LARGE = ("FragFails", "InTooBigErrors")  # counters of net/ipv4/ip_output.c and net/ipv6/ip6_output.c


def explained(observation: Observation, query: Query, topology: Topology, tables: Tables) -> tuple[str, Object] | None:
    """Explain a packet that is lost because of its length; None if it is not, or if the packet is small."""
    packet = observation.sent
    if not packet.length:
        return None
    entrance, room = mtu_of(topology, packet.interface), TAG if _far(topology, packet.interface) else 0
    if packet.interface and 0 < entrance < packet.length - room:
        return _explanation(packet, Mtu(packet.interface, entrance), "takes no larger packet")
    is_told = observation.error == os.strerror(errno.EMSGSIZE)
    if is_told or any(name.endswith(TOO_LARGE) for name in observation.counters):
        limit = _limit(query, topology, tables)
        return _explanation(packet, limit, "leads no larger packet") if limit else None
    ports = [] if topology.owner(query.destination) else _smaller_ports(packet, topology)
    return _explanation(packet, Mtu(ports[0], mtu_of(topology, ports[0])), "passes no larger frame") if len(ports) == 1 else None


def mtu_of(topology: Topology, link: str) -> int:
    """Return the MTU of a link; 0 if it is not known."""
    return topology.link(link).mtu


def _far(topology: Topology, link: str) -> Mtu | None:
    """Return the MTU of the other end of a link; None if it is not known."""
    size = topology.link(link).peer.mtu
    return Mtu(link, size, is_far=True) if size else None


def divided(packet: Packet, topology: Topology) -> Packet:
    """Return a packet as the other end of its link sends it, which divides what is larger than itself."""
    far = _far(topology, packet.interface)
    most = far.size if far else mtu_of(topology, packet.interface) if packet.is_reply else 0
    return packet._replace(length=most) if 0 < most < packet.length and not packet.is_whole else packet


def unsent(packet: Packet, topology: Topology) -> tuple[str, Object] | None:
    """Explain a packet that the other end of its link does not send because of its length; None for one that it sends."""
    far = _far(topology, packet.interface)
    return _explanation(packet, far, "sends no larger packet") if far and far.size < packet.length else None


def untaken(packet: Packet, links: t.Iterable[str], topology: Topology) -> tuple[str, Object] | None:
    """Explain a packet that the other end of a link, by which it leaves, does not take because of its length."""
    ends = (_far(topology, link) for link in links)
    far = next((end for end in ends if end and end.size < packet.length), None)
    return _explanation(packet, far, "takes no larger packet") if far else None


def _explanation(packet: Packet, limit: Mtu | RouteMtu, what_it_does: str) -> tuple[str, Object]:
    whole = " and must not be divided" if packet.is_whole else ""
    return f"The packet has {packet.length} bytes{whole}, and {limit} {what_it_does}.", limit


def _limit(query: Query, topology: Topology, tables: Tables) -> Mtu | RouteMtu | None:
    """Return the least MTU of the route of a packet and of the link by which it leaves; None if none is known."""
    route = tables.decide(query).route
    links = [Mtu(link, mtu_of(topology, link)) for link in sorted(route.links if route else ()) if mtu_of(topology, link)]
    least = min(links, key=lambda link: link.size, default=None)
    return RouteMtu(route) if route and route.mtu and (least is None or route.mtu < least.size) else least


def _smaller_ports(packet: Packet, topology: Topology) -> list[str]:
    """Return the other ports of the bridge by which a packet came in that pass no frame of its length."""
    bridge = topology.bridge(packet.interface)
    ports = [name for name in topology.links if bridge and topology.bridge(name) == bridge and name != packet.interface]
    return [name for name in ports if 0 < mtu_of(topology, name) < packet.length - TAG]


def notes(length: int, way: Way, topology: Topology, tables: Tables) -> t.Iterator[Assumption]:
    """Yield what a larger packet may meet on the way of a small one, and what a tunnel does to one of a length."""
    for each in way.both:
        link, limit = each.interface, _limit(each.met.query, topology, tables) if each.met.query and each.met.frame else None
        if not limit:
            continue
        size = limit.size if isinstance(limit, Mtu) else limit.route.mtu
        far = _far(topology, link)
        if far and far.size < size:
            limit, size = far, far.size
        below = _below(link, topology, tables)
        head = tunnels.head(topology.link(link))
        inner = below.size - head if below else size
        if below and inner < min(length or size, size):
            sentence = f"{link} puts {head} bytes before a packet, and {below} is below it."
            if length:
                yield replaced(TUNNEL_HEAD, sentence, Concern(LINK, link), subject=link)
            else:
                yield replaced(SIZE, f"A small packet was sent. {sentence} One of more than {inner} bytes may not pass.")
        elif not length and each.came_in_by and size < mtu_of(topology, each.came_in_by):
            yield replaced(SIZE, f"A small packet was sent. One of more than {size} bytes may not pass: {limit}.")


def _below(link: str, topology: Topology, tables: Tables) -> Mtu | None:
    """Return the least MTU of the links that may carry a tunnel; None for another link."""
    if topology.kind(link) not in tunnels.HEADS:
        return None

    def leading(address: str) -> list[str]:
        routes = [route for family in (IPV4, IPV6) for route in tables.of_table(family, MAIN) if not route.dst[1]]
        to_end = tables.decide(Query(b"", fields.address(address)[1])).route if address else None
        return sorted({name for route in ([to_end] if to_end else routes) for name in route.links})

    names = tunnels.carriers(topology.links[link], leading)
    mtus = [Mtu(name, mtu_of(topology, name)) for name in names if mtu_of(topology, name)]
    return min(mtus, key=lambda mtu: mtu.size, default=None)
