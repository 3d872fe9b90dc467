# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""By which of its interfaces a pod answers that has several of them."""

from __future__ import annotations

import typing as t

from .._twin import blueprint, pod_links
from .._twin.blueprint import LOOPBACK, Entry
from .lookup import Query, Tables
from .packet import Packet


class Way(t.NamedTuple):
    """The way of an answer from a pod. link: of the node, by which the answer comes in; empty if the answer takes another way.

    interface: of the pod, by which the answer leaves; empty if the pod has no route.
    """

    link: str
    interface: str


class PodSides:
    """The pods of which a snapshot has the rules and the routes."""

    def __init__(self, snapshot: Entry) -> None:
        links = {str(link["name"]): link for group in pod_links.by_namespace(snapshot).values() for link in group}
        self._tables = {
            str(pod.get("namespace")): Tables(
                blueprint.parsed_rules(pod), (route for route, _protocol in blueprint.parsed_routes(pod, []))
            )
            for pod in blueprint.entries(snapshot, "pods")
        }
        self._near = {
            (str(peer.get("namespace")), str(peer.get("name"))): name for name, link in links.items() if (peer := link["peer"])
        }
        self._namespaces = {name: namespace for (namespace, _far), name in self._near.items()}

    def way(self, request: Packet, link: str) -> Way:
        """Return the way of the answer to a packet that has left by a link to a pod. A pod with one interface answers by it."""
        namespace = self._namespaces.get(link, "")
        tables = self._tables.get(namespace)
        if tables is None:
            return Way(link, link)
        answer = request.replied("")
        ports = answer.source_port, answer.destination_port
        route = tables.decide(Query(answer.source, answer.destination, LOOPBACK, 0, answer.protocol, *ports)).route
        interface = route.hops[0].dev if route and route.hops else ""
        return Way(self._near.get((namespace, interface), ""), interface)
