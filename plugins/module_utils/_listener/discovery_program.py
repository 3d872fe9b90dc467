# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Asks the metadata service what a set of rules and routes is that follows from the node's ENIs."""

from __future__ import annotations

import math
import socket
import time
import typing as t

from .._cloud import enis_backend as backend
from .._cloud.metadata import NoMetadata
from .._core.errors import Invalid
from .._interfaces import card
from .._interfaces.card import Card
from .._interfaces.link_message import IFINFO
from .._netlink.attributes import attributes
from .._routing import routing_backend
from . import discovery
from .discovery import Enis, Found

pod_interfaces = discovery.pod_interfaces


class Answer(t.NamedTuple):
    """enis: that was asked for. cards: of the node, when it was asked.

    wish: what they need; None where the metadata is silent, or has not enough of the primary ENI.
    missing: why it may not be all, as sentences. is_answered: whether the metadata answered.
    unsure: links of the cards that are there, and of which the metadata does not tell enough.
    """

    enis: Enis
    cards: frozenset[Card]
    desired: Found | None
    missing: list[str]
    is_answered: bool = True
    unsure: frozenset[str] = frozenset()


def ask(enis: Enis, seconds: float) -> Answer:
    """seconds: within which it is asked again and again, and for one request."""
    there = cards(pod_interfaces(enis))
    try:
        deadline = time.monotonic() + seconds
        _cloud, interfaces = backend.read(enis["cloud"], retries=math.inf, deadline=deadline)
        desired = discovery.found(enis, interfaces)
    except NoMetadata as error:
        return Answer(enis, there, None, [str(error)], is_answered=False)
    except Invalid as error:
        return Answer(enis, there, None, [str(error)])
    known = {one["mac"] for one in interfaces}
    strange = [
        f"{one} is none of the cloud's, as far as its metadata says" for one in sorted(there) if one.mac not in known
    ]
    unsure = frozenset(one.name for one in there if one.mac not in known or one.mac in desired.unfit)
    return Answer(enis, there, desired, [*desired.unfit.values(), *strange], unsure=unsure)


def cards(pods: t.Sequence[str]) -> frozenset[Card]:
    """The node's, without pods' links."""
    bodies = routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)
    return frozenset(filter(None, (_card(body, pods) for body in bodies)))


def _card(body: bytes, pods: t.Sequence[str]) -> Card | None:
    _family, device, index, _flags, _change = IFINFO.unpack_from(body)
    return card.of(device, index, attributes(body, IFINFO.size), pods)
