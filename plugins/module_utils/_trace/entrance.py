# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The packet that the operator describes, with what a snapshot knows: addresses of names, and the link that it comes in by."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._routing.route import LOCAL, Route
from .._snapshot.values import Entry, Snapshot
from .._twin import blueprint, pod_links, snapshot_form
from .._twin.blueprint import LOOPBACK
from . import names
from .lookup import Query, Tables
from .packet import AUTO, Packet, from_options


def packet(described: dict[str, t.Any], snapshot: Entry) -> Packet:
    """Return the packet of the option ``packet``. Raises Invalid, also for a snapshot of another form."""
    snapshot_form.check(snapshot)
    return placed(from_options(names.resolved(described, snapshot)), snapshot)


def placed(packet: Packet, snapshot: Entry, is_guess: bool = False) -> Packet:
    """Return the packet with the link behind which its source is, in place of AUTO.

    is_guess: takes the uplink of the default route, if the packet may come in by several. Raises Invalid if no link leads there,
    or if several uplinks do.
    """
    if packet.interface != AUTO:
        return packet
    return packet._replace(interface=_link_to(packet.source, packet.destination, Snapshot.of(snapshot), is_guess))


def _link_to(source: bytes, destination: bytes, snapshot: Snapshot, is_guess: bool) -> str:
    """Find the link of the pod with the source address, or of the route to it; empty for an address of the node itself."""
    address, links, routes = fields.show(source), snapshot.links, snapshot.routes or ()
    pods = (link.name for link in links if address in link.peer.addresses)
    pod = "" if any(address in link.addresses for link in links) else next(pods, None)
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
        return _port(dev, snapshot)
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
    # Default routes of proxies lead to the loopback interface, or to a veth between namespaces of the node.
    inner = {LOOPBACK, *pod_links.pod_links(snapshot.links, ())}
    hops = route.hops if route and _is_default(route) else ()
    return (pod_links.uplinks(snapshot.routes or ()) - inner).union(hop.dev for hop in hops[:1])


def _is_default(route: Route | None) -> bool:
    return route is not None and not route.dst[1]


def _undecided(reason: str, example: str = "") -> Invalid:
    return Invalid("packet.interface", AUTO, f"the link by which the packet comes in{example}: {reason}")


def _port(name: str, snapshot: Snapshot) -> str:
    """Return the link, or the first port of a bridge, behind which the pods of the bridge are."""
    ports = (link.name for link in snapshot.links if link.master == name)
    return next(ports, name) if any(link[:2] == (name, "bridge") for link in snapshot.links) else name
