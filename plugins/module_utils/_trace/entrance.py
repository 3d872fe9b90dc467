# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""By which link a packet comes in, if the operator does not say it."""

from __future__ import annotations

from .._core import fields
from .._core.errors import Invalid
from .._routing.route import LOCAL
from .._twin import blueprint
from .._twin.blueprint import Entry, entries
from .lookup import Query, Tables
from .packet import AUTO, Packet


def placed(packet: Packet, snapshot: Entry) -> Packet:
    """Return the packet with the link behind which its source is, in place of AUTO. Raises Invalid if no link leads there."""
    return packet._replace(interface=_link_to(packet.source, snapshot)) if packet.interface == AUTO else packet


def _link_to(source: bytes, snapshot: Entry) -> str:
    """The link of the pod with the address, or of the route to it; empty for an address of the node itself."""
    shown = fields.show(source)
    for link in entries(snapshot, "links"):
        if shown in [str(address.get("address")).partition("/")[0] for address in link.get("addresses") or ()]:
            return ""
    for link in entries(snapshot, "links"):
        if shown in ((link.get("peer") or {}).get("addresses") or ()):
            return str(link["name"])
    tables = Tables(blueprint.parsed_rules(snapshot), (route for route, _protocol in blueprint.parsed_routes(snapshot, [])))
    route = tables.decide(Query(b"", source)).route
    if route is None or not route.hops:
        expected = f"the link by which the packet comes in: no route leads back to {shown}"
        raise Invalid("packet.interface", AUTO, expected)
    return "" if route.type == LOCAL else _port(route.hops[0].dev, snapshot)


def _port(name: str, snapshot: Entry) -> str:
    """The link, or the first port of a bridge, behind which the pods of the bridge are."""
    ports = (str(link["name"]) for link in entries(snapshot, "links") if link.get("master") == name)
    kinds = {link.get("name"): link.get("kind") for link in entries(snapshot, "links")}
    return next(ports, name) if kinds.get(name) == "bridge" else name
