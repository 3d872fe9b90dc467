# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules that route by the source address, with exceptions for destinations that the node reaches without its uplinks.

The table of an uplink has no routes to pods, bridges and tunnels. So table main is looked up first, without its default routes:
main has a route to each new pod. It also has the networks of the other uplinks, and would send a reply out by another uplink than
the request came in by. So packets to these networks look up the uplink's table, unless main has a longer prefix there, as for a
pod whose address is in the network of an uplink.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from . import rt_names
from .route import Route

MAIN = "main"
EXCEPTIONS = 3  # the number of priorities before the rule's own
Entry = dict[str, t.Any]  # a rule as policy_routes takes it


def rules(source: str, table: int, priority: int, networks: t.Iterable[str]) -> t.Iterator[Entry]:
    """Yield the rule by which packets from ``source`` look up ``table``, after its exceptions.

    networks: prefixes of the other uplinks, of any family.
    """
    family = fields.prefix(source)[0]
    for network in networks:
        of_network, (_address, length) = fields.prefix(network)
        if of_network == family and length:
            selector = {"from": source, "to": network}
            yield {"priority": priority - 3, **selector, "table": MAIN, "suppress_prefixlength": length}
            yield {"priority": priority - 2, **selector, "table": table}
    yield {"priority": priority - 1, "from": source, "table": MAIN, "suppress_prefixlength": 0}
    yield {"priority": priority, "from": source, "table": table}


def networks(routes: t.Iterable[Route]) -> dict[str, list[str]]:
    """Map each link to the prefixes that table main has on it. Single addresses and link-local prefixes are no networks."""
    by_link: dict[str, list[str]] = {}
    for route in routes:
        address, length = route.dst
        if route.table != rt_names.MAIN or not route.is_connected or not 0 < length < len(address) * 8:
            continue
        if not (len(address) == 16 and fields.is_link_local(address)):
            for hop in route.hops:
                by_link.setdefault(hop.dev, []).append(fields.show_prefix(route.dst, ""))
    return by_link
