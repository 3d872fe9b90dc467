# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The packet that the operator describes, with what a snapshot knows: addresses of names, and the link that it comes in by."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._routing.route import LOCAL
from .._twin import blueprint, pod_links, snapshot_form
from .._twin.assumptions import link_addresses
from .._twin.blueprint import LOOPBACK, Entry, entries
from . import names
from .lookup import Query, Tables
from .packet import AUTO, Packet, from_options


def packet(described: dict[str, t.Any], snapshot: Entry) -> Packet:
    """Return the packet of the option ``packet``. Raises Invalid, also for a snapshot of another form."""
    snapshot_form.check(snapshot)
    return placed(from_options(names.resolved(described, snapshot)), snapshot)


def placed(packet: Packet, snapshot: Entry) -> Packet:
    """Return the packet with the link behind which its source is, in place of AUTO.

    Raises Invalid if no link leads there, or if several uplinks do.
    """
    if packet.interface != AUTO:
        return packet
    return packet._replace(interface=_link_to(packet.source, packet.destination, snapshot))


def _link_to(source: bytes, destination: bytes, snapshot: Entry) -> str:
    """Find the link of the pod with the source address, or of the route to it; empty for an address of the node itself."""
    shown = fields.show(source)
    if shown in link_addresses(entries(snapshot, "links")):
        return ""
    for link in entries(snapshot, "links"):
        if shown in ((link.get("peer") or {}).get("addresses") or ()):
            return str(link["name"])
    tables = Tables(blueprint.parsed_rules(snapshot), (route for route, _protocol in blueprint.parsed_routes(snapshot, [])))
    route = tables.decide(Query(b"", source)).route
    if route is None or not route.hops:
        expected = f"the link by which the packet comes in: no route leads back to {shown}"
        raise Invalid("packet.interface", AUTO, expected)
    if route.type == LOCAL:
        return ""
    is_default = not route.dst[1]
    return _port(_uplink(route.hops[0].dev, destination, snapshot) if is_default else route.hops[0].dev, snapshot)


def _uplink(of_default: str, destination: bytes, snapshot: Entry) -> str:
    """Find the uplink by which a packet from outside comes in: a sender does not know the node's default route.

    of_default: the uplink of that route. Raises Invalid if the packet may come in by another one.
    """
    # Default routes of proxies lead to the loopback interface, or to a veth between namespaces of the node.
    inner = {LOOPBACK, *pod_links.pod_links({**snapshot, "routes": []})}
    uplinks = {of_default} | (pod_links.uplinks(snapshot) - inner)
    shown = fields.show(destination)
    with_address = uplinks.intersection(
        str(link["name"]) for link in entries(snapshot, "links") if shown in link_addresses([link])
    )
    for candidates in (uplinks, with_address):
        if len(candidates) == 1:
            return candidates.pop()
    listed = ", ".join(sorted(uplinks))
    expected = f"the link by which the packet comes in, such as `in {of_default}`: it may be each of the uplinks {listed}"
    raise Invalid("packet.interface", AUTO, expected)


def _port(name: str, snapshot: Entry) -> str:
    """Return the link, or the first port of a bridge, behind which the pods of the bridge are."""
    ports = (str(link["name"]) for link in entries(snapshot, "links") if link.get("master") == name)
    kinds = {link.get("name"): link.get("kind") for link in entries(snapshot, "links")}
    return next(ports, name) if kinds.get(name) == "bridge" else name
