# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derives a policy's rules and routes from the answer to its query: of the metadata service, or of the node itself."""

from __future__ import annotations

import math
import socket
import time
import typing as t

from .._cloud import enis_backend as backend
from .._cloud.metadata import NoMetadata
from .._core.errors import Invalid
from .._interfaces import eni_link
from .._interfaces.eni_link import EniLink
from .._interfaces.link_message import IFINFO
from .._netlink.attributes import attributes
from .._routing import routing_backend
from .._routing.policy import Query
from . import discovery
from .discovery import DerivedPolicy, Enis


class Answer(t.NamedTuple):
    """The answer to a query.

    eni_links: the node's network interfaces before the question, if the policy follows from ENIs.
    desired: the rules and routes; None if there was no answer, or if it does not describe the primary ENI sufficiently.
    missing: sentences that say why ``desired`` may be incomplete. is_answered: whether the metadata service answered.
    unsure: names of network interfaces that the node has and that the answer does not describe sufficiently.
    folders, leases: see folders(), and the versions of the files there before they were read, by path.
    """

    query: Query
    eni_links: frozenset[EniLink]
    desired: DerivedPolicy | None
    missing: list[str]
    is_answered: bool = True
    unsure: frozenset[str] = frozenset()
    folders: t.Sequence[str] = ()
    leases: t.Mapping[str, t.Sequence[int]] = {}


def ask(query: Query, protocol: int, seconds: float) -> Answer:
    """Ask until there is an answer, or ``seconds`` have passed. A single request has the same time limit.

    protocol: that of the policy's own rules and routes.
    """
    return _of_node(query, protocol) if query.source == "uplinks" else _of_cloud(query, seconds)


def _of_node(query: Query, protocol: int) -> Answer:
    from . import uplinks, uplinks_backend  # only policies of uplinks need them

    desired = uplinks.rules_and_routes(query.value, uplinks_backend.read(protocol))
    missing, unsure = [*desired.unfit.values()], frozenset(desired.unfit)
    return Answer(query, frozenset(), desired, missing, unsure=unsure, folders=folders(query))


def _of_cloud(query: Query, seconds: float) -> Answer:
    enis: Enis = query.value
    links = eni_links(discovery.pod_interfaces(enis))
    try:
        deadline = time.monotonic() + seconds
        _cloud, interfaces = backend.read(enis["cloud"], retries=math.inf, deadline=deadline)
        desired = discovery.rules_and_routes(enis, interfaces)
    except NoMetadata as error:
        return Answer(query, links, None, [str(error)], is_answered=False)
    except Invalid as error:
        return Answer(query, links, None, [str(error)])
    macs = {interface["mac"] for interface in interfaces}
    unknown = [f"{link} is not among the ENIs in the cloud's metadata" for link in sorted(links) if link.mac not in macs]
    unsure = frozenset(link.name for link in links if link.mac not in macs or link.mac in desired.unfit)
    missing = [*desired.unfit.values(), *unknown, *desired.left_out.values()]
    return Answer(query, links, desired, missing, unsure=unsure)


def folders(query: Query) -> list[str]:
    """Return the folders with leases that the answer follows from."""
    if query.source != "uplinks":
        return []
    from . import uplinks_backend

    return [*uplinks_backend.LEASES]


def dependencies(query: Query, answer: Answer | None) -> dict[str, t.Any]:
    """Return the fields of change_event.Dependencies that follow from the query.

    The network interfaces are those of the question, because one that was added since needs another question.
    """
    if query.source == "uplinks":
        return {"uplinks": [uplink["name"] for uplink in query.value]}
    pods = discovery.pod_interfaces(query.value)
    return {"pods": pods, "eni_links": sorted(answer.eni_links if answer else eni_links(pods))}


def eni_links(pods: t.Sequence[str]) -> frozenset[EniLink]:
    """Return the node's network interfaces. pods: name patterns of the links of pods, which are left out."""
    bodies = routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)
    return frozenset(filter(None, (_eni_link(body, pods) for body in bodies)))


def _eni_link(body: bytes, pods: t.Sequence[str]) -> EniLink | None:
    _family, device, index, _flags, _change = IFINFO.unpack_from(body)
    return eni_link.of(device, index, attributes(body, IFINFO.size), pods)
