# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Addresses that come to links and go from them, and what the kernel takes along that has to stay.

With a link's last IPv4 address all IPv4 routes over it and its neighbours go, those of a CNI as well (net/ipv4/fib_frontend.c,
fib_inetaddr_event); with the first address of a prefix, where promote_secondaries is off, all others of that prefix.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.fields import IPV4, IPV6
from .._netlink.attributes import attributes
from .._routing import route
from .link_message import APPEND, CREATE, NUD_PERMANENT, REPLACE, Address, Link, Message, Request, Scene


def messages(scene: Scene, removed: t.Sequence[Address], added: t.Sequence[Address]) -> t.Iterator[Message]:
    """What leads from the scene to one with these changes.

    An IPv6 address that changes its length is the same to the kernel, so that it goes before it comes. An IPv4 address comes
    first, so that the link is never without.
    """
    links = {link.number: link for link in scene.links}
    left = [one for one in scene.addresses if one not in removed]
    yield from (_removal(one, links) for one in removed if one.family == IPV6)
    for index in dict.fromkeys(one.link for one in added if one.family == IPV4):
        if not _has_ipv4(scene.addresses, index):  # to take ours back is to take the last one
            for summary, request in reversed(list(_swept(scene, links[index]))):
                yield Message(summary, None, request)
    for one in added:
        yield Message(
            f"add {_shown(one, links)}", one.add(links[one.link], links[one.link]), one.delete(links[one.link])
        )
    for one in removed:
        if one.family == IPV4:
            yield _removal(one, links)
            yield from (_keeping(other, links) for other in (*left, *added) if _is_near(other, one))
    going = [one for one in removed if one.family == IPV4]
    staying = [other for other in (*left, *added) if not any(_is_near(other, one) for one in going)]
    for index in dict.fromkeys(one.link for one in going):
        if not _has_ipv4(staying, index):  # or but for those of a prefix, which may have gone and come
            for summary, request in _swept(scene, links[index], [one.local for one in going]):
                yield Message(summary, request, None)


def _has_ipv4(addresses: t.Iterable[Address], index: int) -> bool:
    return any(one.family == IPV4 and one.link == index for one in addresses)


def _shown(one: Address, links: t.Mapping[int, Link]) -> str:
    return f"{one} dev {links[one.link].name}"


def _removal(one: Address, links: t.Mapping[int, Link]) -> Message:
    link = links[one.link]
    return Message(f"remove {_shown(one, links)}", one.delete(link), one.add(link, link))


def _keeping(one: Address, links: t.Mapping[int, Link]) -> Message:
    request = one.add(links[one.link], links[one.link])
    return Message(f"keep {_shown(one, links)}", request._replace(flags=CREATE | REPLACE), None)


def _is_near(other: Address, one: Address) -> bool:
    """Whether both are of one prefix on one link, so that one of them depends on the other."""
    places = {(each.family, each.link, fields.network(each.local, each.length)) for each in (other, one)}
    return len(places) == 1


def _swept(scene: Scene, link: Link, gone: t.Collection[bytes] = ()) -> t.Iterator[tuple[str, Request]]:
    """What brings back all that goes with the link's last IPv4 address, but what is about addresses that are ``gone``.

    A route that has not gone is replaced by itself. One with several hops stays, but its hop by this link is dead, and the kernel
    takes a route with the same hops for that one as long as it is there (fib_find_info).
    """
    for neighbour in scene.neighbours:
        if neighbour.link == link.number and neighbour.family == IPV4 and neighbour.is_permanent:
            yield f"keep {neighbour} dev {link.name}", neighbour.add(link, NUD_PERMANENT)
    over = [one for one in scene.routes if one.family == IPV4 and any(index == link.number for index, _via in one.hops)]
    seen = set()
    for one in sorted(over, key=lambda one: one.has_gateway):  # a gateway is looked up when a route by it is added
        source = attributes(one.body, route.HEADER.size).get(route.RTA_PREFSRC)
        if not (one.is_links_own or one.has_nexthop_object or source in gone):
            if len(one.hops) > 1:
                yield f"renew {one} dev {link.name}", one.delete(link, link)
            key = one.table, one.dst, one.metric
            yield f"keep {one} dev {link.name}", one.add(link, link, APPEND if key in seen else REPLACE)
            seen.add(key)
