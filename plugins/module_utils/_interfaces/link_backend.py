# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists links with their addresses, neighbours and routes through rtnetlink, and sends them back in the kernel's own encoding.

Almost every message is one that the kernel has listed. So pyroute2 is not needed on a node that is about to change the link
by which it is managed.
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
from .._core.plan import UndoBackend
from .._netlink import attributes, wire
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
    """Send all of ``messages``, even if the kernel refuses some. A change that is already made is not an error."""

    messages: tuple[Message, ...]


class Await(t.NamedTuple):
    """Wait until the link with this number has local routes for ``addresses``.

    The kernel adds the local route of an IPv6 address after it has acknowledged the message (net/ipv6/addrconf.c,
    addrconf_dad_work). Deleting another link delays that work, and the node would answer for the address on neither link.
    """

    link: int
    addresses: tuple[bytes, ...]


Operation = t.Union[Apply, Restore, Await]
PATIENCE, PAUSE = 2.0, 0.001  # seconds; the kernel takes less than one millisecond


class LinkMessages(UndoBackend):
    """The backend."""

    OPERATIONS = t.get_args(Operation)
    VALUES = (Message, Request)

    def links(self) -> tuple[link_message.Link, ...]:
        return tuple(map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)))

    def addresses(self) -> tuple[link_message.Address, ...]:
        """Return the addresses of all links, of both families."""
        return tuple(map(link_message.address_from, _bodies(routing_backend.GETADDR)))

    def routes(self) -> tuple[link_message.Route, ...]:
        """Return the routes of all tables, of both families."""
        return tuple(filter(None, map(link_message.route_from, _bodies(routing_backend.GETROUTE))))

    def scene(self) -> Scene:
        """Return all links, addresses, neighbours and routes, of both families and all tables."""
        return Scene(
            self.links(),
            self.addresses(),
            tuple(map(link_message.neighbour_from, _bodies(routing_backend.GETNEIGH))),
            self.routes(),
        )

    def perform(self, operation: Operation) -> None:
        """Send the messages, or wait. Raises Failure with the refused message and the kernel's answer."""
        if isinstance(operation, Await):
            _await(operation)
            return
        refused: dict[int, wire.Refused] = {}
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
            accepted = tuple(message for number, message in enumerate(operation.messages) if number not in refused)
            try:
                self.perform(Apply(accepted).inverse())
            except Failure as trouble:
                raise Failure(f"{error}. It could not be undone: {trouble}") from error
            raise

    def verify(self, operation: Operation) -> list[str]:
        """Return how the node differs from the operation's result; see UndoBackend.

        Not compared: neighbours, which the kernel learns and drops by itself, and the settings of a bridge's port.
        """
        if isinstance(operation, Await):
            return []
        scene = self.scene()
        final = {_subject(message.do): message for message in operation.messages if message.do}  # the last message wins
        return [
            f"the kernel does not show the result of: {message.summary}"
            for message in final.values()
            if message.do and not _is_done(message.do, scene)
        ]


def _subject(request: Request) -> t.Any:
    """Return the key of the object that a message changes. Two messages with the same key change the same object."""
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


def _is_done(request: Request, scene: Scene) -> bool:
    """Return whether the scene shows the result of the request."""
    if request.kind in (NEWADDR, DELADDR):
        address = link_message.address_from(request.body)
        is_there = any((existing.link, existing.key) == (address.link, address.key) for existing in scene.addresses)
    elif request.kind in (NEWROUTE, DELROUTE):
        is_there = any(_subject(Request(NEWROUTE, 0, existing.body)) == _subject(request) for existing in scene.routes)
        is_there = is_there or _is_one_of_several(request, scene)
    elif request.kind in (NEWLINK, DELLINK, SETLINK):
        link = link_message.link_from(request.body)
        current = {existing.number: existing for existing in scene.links}.get(link.number)
        if request.kind == SETLINK:
            return current is not None and current.master == link.master
        is_there = current is not None
    else:
        return True
    return is_there == (request.kind not in DELETING)


def _is_one_of_several(request: Request, scene: Scene) -> bool:
    """Return whether the route is a hop of another IPv6 route: the kernel merges routes with one key into a multipath route."""
    route = link_message.route_from(request.body)
    return route is not None and any(
        (other.family, other.table, other.dst, other.metric) == (route.family, route.table, route.dst, route.metric)
        and {*route.hops} <= {*other.hops}
        for other in scene.routes
        if other.family == IPV6
    )


def _bodies(kind: int) -> t.Iterator[bytes]:
    """Return the kernel's listing of one kind of object, for both families."""
    return (body for family in (IPV4, IPV6) for body in routing_backend.dump(kind, family))


def _await(operation: Await) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        routes = map(link_message.route_from, _bodies(routing_backend.GETROUTE))
        is_there = {route.dst[0] for route in routes if route and route.type == LOCAL and route.hops == ((operation.link, b""),)}
        missing = [fields.show(address) for address in operation.addresses if address not in is_there]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise Failure(f"the kernel has added no local route for {', '.join(missing)} within {PATIENCE:g} s")
        time.sleep(PAUSE)


def _send(messages: t.Sequence[Message], refused: dict[int, wire.Refused]) -> None:
    """Send all messages, even if some are refused. Stores the refusals in ``refused``, by the message's position."""
    for start in range(0, len(messages), routing_backend.CHUNK):
        chunk = messages[start : start + routing_backend.CHUNK]
        requests = [_packed(message.do, start + number) for number, message in enumerate(chunk) if message.do]
        refused.update(wire.exchange(requests))


def _packed(request: Request, number: int) -> bytes:
    return attributes.message(request.kind, request.flags, request.body, number)


def _troubles(messages: t.Sequence[Message], refused: t.Mapping[int, wire.Refused], fine: t.Collection[int]) -> list[str]:
    """Return an error text for each refusal that counts.

    fine: error codes that mean that the change is already made. A delete message may always find its object gone.
    """
    troubles = []
    for number, answer in sorted(refused.items()):
        message = messages[number]
        if message.do and answer.code not in (GONE if message.do.kind in DELETING else fine):
            said = os.strerror(answer.code) + (f" ({answer.text.rstrip('.')})" if answer.text else "")
            troubles.append(f"the kernel refused to {message.summary}: {said}")
    return troubles
