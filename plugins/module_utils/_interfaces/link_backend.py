# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Links with their addresses, neighbours and routes, through rtnetlink: listed, and sent back in the kernel's own words.

Hardly anything is encoded that the kernel has not said itself, so that pyroute2 is not needed on a node that is about to change
the link by which it is managed.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import typing as t

from .._core import fields
from .._core.errors import Failure
from .._core.fields import IPV4, IPV6
from .._routing import routing_backend
from .._routing.route import LOCAL
from . import link_message
from .link_message import (
    DELADDR,
    DELETING,
    DELLINK,
    DELNEIGH,
    DELROUTE,
    NEWADDR,
    NEWLINK,
    NEWNEIGH,
    NEWROUTE,
    SETLINK,
    Message,
    Request,
    Scene,
)

GONE = (*routing_backend.GONE, errno.EADDRNOTAVAIL)


class Apply(t.NamedTuple):
    """All of ``messages``, in order, or none of them."""

    messages: tuple[Message, ...]

    def inverse(self) -> Restore:
        return Restore(tuple(message.inverse() for message in reversed(self.messages)))


class Restore(t.NamedTuple):
    """As many of ``messages`` as are still to be sent; one that is refused does not keep the others back."""

    messages: tuple[Message, ...]


class Await(t.NamedTuple):
    """Wait until the link with this number answers for ``addresses``.

    The kernel adds the local route of an IPv6 address after it has answered to the message (net/ipv6/addrconf.c,
    addrconf_dad_work). A link that goes keeps that work waiting, and by then the address would be on neither.
    """

    link: int
    addresses: tuple[bytes, ...]


Operation = t.Union[Apply, Restore, Await]
PATIENCE, PAUSE = 2.0, 0.001  # seconds; it takes less than one millisecond


class LinkMessages:
    """The edge."""

    OPERATIONS = t.get_args(Operation)

    def links(self) -> tuple[link_message.Link, ...]:
        return tuple(map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)))

    def addresses(self) -> tuple[link_message.Address, ...]:
        """Of both families."""
        return tuple(map(link_message.address_from, _bodies(routing_backend.GETADDR)))

    def scene(self) -> Scene:
        """Everything, of both families and all tables."""
        return Scene(
            self.links(),
            self.addresses(),
            tuple(map(link_message.neighbour_from, _bodies(routing_backend.GETNEIGH))),
            tuple(filter(None, map(link_message.route_from, _bodies(routing_backend.GETROUTE)))),
        )

    def perform(self, operation: Operation) -> None:
        """Raises Failure that names what was refused and why."""
        if isinstance(operation, Await):
            _await(operation)
            return
        refused: dict[int, routing_backend.Refused] = {}
        if isinstance(operation, Restore):
            _send(operation.messages, refused)
            troubles = _troubles(operation.messages, refused, (errno.EEXIST,))
            if troubles:
                raise Failure("; ".join(troubles))
            return
        try:
            _send(operation.messages, refused)
            troubles = _troubles(operation.messages, refused, ())
            if troubles:
                raise Failure(troubles[0])
        except BaseException as error:
            done = tuple(message for number, message in enumerate(operation.messages) if number not in refused)
            try:
                self.perform(Apply(done).inverse())
            except Failure as trouble:
                raise Failure(f"{error}. It could not be undone: {trouble}") from error
            raise

    def verify(self, operation: Operation) -> list[str]:
        """What is not as the operation should have left it; see rollback_program.Backend.

        Neighbours, which the kernel forgets and learns by itself, and settings of a bridge's port are not compared.
        """
        if isinstance(operation, Await):
            return []
        scene = self.scene()
        final = {_subject(message.do): message for message in operation.messages if message.do}  # the last one decides
        return [
            f"it does not read back: {message.summary}"
            for message in final.values()
            if message.do and not _holds(message.do, scene)
        ]


def _subject(request: Request) -> t.Any:
    """What a message is about; another message may be about the same."""
    if request.kind in (NEWADDR, DELADDR):
        address = link_message.address_from(request.body)
        return NEWADDR, address.link, address.key
    route = link_message.route_from(request.body) if request.kind in (NEWROUTE, DELROUTE) else None
    if route:
        return NEWROUTE, route.family, route.table, route.dst, route.metric, route.hops
    if request.kind in (NEWNEIGH, DELNEIGH):
        neighbour = link_message.neighbour_from(request.body)
        return NEWNEIGH, neighbour.family, neighbour.link, neighbour.address
    return NEWLINK, request.kind == SETLINK, link_message.link_from(request.body).number


def _holds(request: Request, scene: Scene) -> bool:
    """Whether the kernel shows what a message asked for."""
    if request.kind in (NEWADDR, DELADDR):
        address = link_message.address_from(request.body)
        is_there = any((one.link, one.key) == (address.link, address.key) for one in scene.addresses)
    elif request.kind in (NEWROUTE, DELROUTE):
        is_there = any(_subject(Request(NEWROUTE, 0, one.body)) == _subject(request) for one in scene.routes)
        is_there = is_there or _is_one_of_several(request, scene)
    elif request.kind in (NEWLINK, DELLINK, SETLINK):
        link = link_message.link_from(request.body)
        found = {one.number: one for one in scene.links}.get(link.number)
        if request.kind == SETLINK:
            return found is not None and found.master == link.master
        is_there = found is not None
    else:
        return True
    return is_there == (request.kind not in DELETING)


def _is_one_of_several(request: Request, scene: Scene) -> bool:
    """The kernel makes one IPv6 route of several with one key."""
    route = link_message.route_from(request.body)
    return route is not None and any(
        (one.family, one.table, one.dst, one.metric) == (route.family, route.table, route.dst, route.metric)
        and {*route.hops} <= {*one.hops}
        for one in scene.routes
        if one.family == IPV6
    )


def _bodies(kind: int) -> t.Iterator[bytes]:
    """Of both families."""
    return (body for family in (IPV4, IPV6) for body in routing_backend.dump(kind, family))


def _await(operation: Await) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = map(link_message.route_from, _bodies(routing_backend.GETROUTE))
        is_there = {one.dst[0] for one in found if one and one.type == LOCAL and one.hops == ((operation.link, b""),)}
        missing = [fields.show(address) for address in operation.addresses if address not in is_there]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise Failure(f"the link does not answer for {', '.join(missing)}")
        time.sleep(PAUSE)


def _send(messages: t.Sequence[Message], refused: dict[int, routing_backend.Refused]) -> None:
    """All of them, whether one is refused or not; notes in ``refused`` what was, by position."""
    for start in range(0, len(messages), routing_backend.CHUNK):
        chunk = messages[start : start + routing_backend.CHUNK]
        requests = [_packed(message.do, start + number) for number, message in enumerate(chunk) if message.do]
        refused.update(routing_backend.exchange(requests))


def _packed(request: Request, number: int) -> bytes:
    size, flags = routing_backend.HEADER.size + len(request.body), routing_backend.REQUEST | request.flags
    return routing_backend.HEADER.pack(size, request.kind, flags, number, 0) + request.body


def _troubles(
    messages: t.Sequence[Message], refused: t.Mapping[int, routing_backend.Refused], fine: t.Collection[int]
) -> list[str]:
    """fine: answers that mean that it is done already; what is to go may always have gone."""
    troubles = []
    for number, answer in sorted(refused.items()):
        message = messages[number]
        if message.do and answer.code not in (GONE if message.do.kind in DELETING else fine):
            said = os.strerror(answer.code) + (f" ({answer.text.rstrip('.')})" if answer.text else "")
            troubles.append(f"the kernel refused to {message.summary}: {said}")
    return troubles
