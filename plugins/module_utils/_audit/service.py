# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Service by which a request from outside reaches a pod: one that the node has, or one that a snapshot gets, by a rule before
all others that translates a port of the node to the pod, as kube-proxy's do.
"""

from __future__ import annotations

import typing as t

from .._core.fields import endpoint
from .._ruleset.service_rules import Entrance
from .._snapshot.values import Entry, Snapshot
from .._twin import worlds
from .suspicion import Trial

PORT = 32765  # kube-proxy's default range of node ports ends at 32767
POD_PORT = 8080


def request(packet: t.Mapping[str, t.Any], pod: str, served: t.Mapping[str, Entrance]) -> Trial:
    """Return a request to a pod. packet: to the node, without a port. served: how requests reach pods by the node's Services."""
    entrance = served.get(pod)
    if entrance is None:
        return Trial({**packet, "destination_port": PORT}, pod)
    address = entrance.address or packet["destination"]
    return Trial({**packet, "destination": address, "destination_port": int(entrance.port)})


def sentence(pod: str) -> str:
    return f"No Service of the node leads to {pod}: the twin has one as kube-proxy would make it, with node port {PORT}."


def added(snapshot: Entry, link: str, pod: str) -> dict[str, t.Any]:
    """Return the snapshot with a Service. link: by which requests come in. pod: the address of its endpoint."""
    is_ipv6 = ":" in pod
    rule = f"-A PREROUTING -i {link} -p tcp -m tcp --dport {PORT} -j DNAT --to-destination {endpoint(pod, POD_PORT)}"
    return worlds.with_translations(Snapshot.of(snapshot), "ip6" if is_ipv6 else "ip", [rule]).world()
