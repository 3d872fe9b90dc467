# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The messages that add and remove addresses of links, and that restore what the kernel removes along with an address.

When a link loses its last IPv4 address, the kernel removes the link's neighbours and all IPv4 routes over it, those of a
CNI included (net/ipv4/fib_frontend.c, fib_inetaddr_event). When the first address of a prefix is removed and
promote_secondaries is off, the kernel removes all other addresses of that prefix.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.fields import IPV4, IPV6
from .._netlink.attributes import attributes
from .._routing import route
from .link_message import APPEND, CREATE, NUD_PERMANENT, REPLACE, Address, Link, Message, Request, Scene


def messages(scene: Scene, removed: t.Sequence[Address], added: t.Sequence[Address]) -> t.Iterator[Message]:
    """The messages, in order, that make these changes to the scene.

    IPv6 addresses are removed before others are added, because to the kernel an address with another prefix length is the
    same one. IPv4 addresses are added before others are removed, so that the link always has one.
    """
    links = {link.number: link for link in scene.links}
    left = [one for one in scene.addresses if one not in removed]
    yield from (_removal(one, links) for one in removed if one.family == IPV6)
    for index in dict.fromkeys(one.link for one in added if one.family == IPV4):
        if not _has_ipv4(scene.addresses, index):  # the undo will remove the link's last IPv4 address
            for summary, request in reversed(list(_restored(scene, links[index]))):
                yield Message(summary, None, request)
    for one in added:
        yield Message(f"add {_shown(one, links)}", one.add(links[one.link], links[one.link]), one.delete(links[one.link]))
    for one in removed:
        if one.family == IPV4:
            yield _removal(one, links)
            yield from (_kept(other, links) for other in (*left, *added) if _shares_prefix(other, one))
    going = [one for one in removed if one.family == IPV4]
    staying = [other for other in (*left, *added) if not any(_shares_prefix(other, one) for one in going)]
    for index in dict.fromkeys(one.link for one in going):
        # Addresses that share a prefix with a removed one do not count: the kernel may have removed them before they were
        # added again.
        if not _has_ipv4(staying, index):
            for summary, request in _restored(scene, links[index], [one.local for one in going]):
                yield Message(summary, request, None)


def _has_ipv4(addresses: t.Iterable[Address], index: int) -> bool:
    return any(one.family == IPV4 and one.link == index for one in addresses)


def _shown(one: Address, links: t.Mapping[int, Link]) -> str:
    return f"{one} dev {links[one.link].name}"


def _removal(one: Address, links: t.Mapping[int, Link]) -> Message:
    link = links[one.link]
    return Message(f"remove {_shown(one, links)}", one.delete(link), one.add(link, link))


def _kept(one: Address, links: t.Mapping[int, Link]) -> Message:
    request = one.add(links[one.link], links[one.link])
    return Message(f"keep {_shown(one, links)}", request._replace(flags=CREATE | REPLACE), None)


def _shares_prefix(other: Address, one: Address) -> bool:
    """True if both have the same prefix on the same link, so that the kernel may remove one with the other."""
    places = {(each.family, each.link, fields.network(each.local, each.length)) for each in (other, one)}
    return len(places) == 1


def _restored(scene: Scene, link: Link, gone: t.Collection[bytes] = ()) -> t.Iterator[tuple[str, Request]]:
    """The requests that restore all that the kernel removes with the link's last IPv4 address, each with a summary.

    gone: removed addresses; a route with one of them as its source is not restored. A route that still exists is replaced
    by itself. A route with several hops stays, but its hop over this link is marked dead, and while it exists the kernel
    takes a new route with the same hops for the old one (fib_find_info). Such a route is deleted first.
    """
    for neighbour in scene.neighbours:
        if neighbour.link == link.number and neighbour.family == IPV4 and neighbour.is_permanent:
            yield f"keep {neighbour} dev {link.name}", neighbour.add(link, NUD_PERMANENT)
    over = [one for one in scene.routes if one.family == IPV4 and any(index == link.number for index, _via in one.hops)]
    seen = set()
    for one in sorted(over, key=lambda one: one.has_gateway):  # the kernel looks up a route's gateway when it is added
        source = attributes(one.body, route.HEADER.size).get(route.RTA_PREFSRC)
        if not (one.is_links_own or one.has_nexthop_object or source in gone):
            if len(one.hops) > 1:
                yield f"renew {one} dev {link.name}", one.delete(link, link)
            key = one.table, one.dst, one.metric
            yield f"keep {one} dev {link.name}", one.add(link, link, APPEND if key in seen else REPLACE)
            seen.add(key)
