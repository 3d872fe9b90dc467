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
    """Yield the messages, in order, that make these changes to the scene.

    IPv6 addresses are removed before others are added, because to the kernel an address with another prefix length is the
    same one. IPv4 addresses are added before others are removed, so that the link always has one.
    """
    links = {link.number: link for link in scene.links}
    left = [address for address in scene.addresses if address not in removed]
    yield from (_removal(address, links) for address in removed if address.family == IPV6)
    for index in dict.fromkeys(address.link for address in added if address.family == IPV4):
        if not _has_ipv4(scene.addresses, index):  # the undo will remove the link's last IPv4 address
            for summary, request in reversed(list(_restored(scene, links[index]))):
                yield Message(summary, None, request)
    for address in added:
        yield Message(
            f"add {_shown(address, links)}",
            address.add(links[address.link], links[address.link]),
            address.delete(links[address.link]),
        )
    for address in removed:
        if address.family == IPV4:
            yield _removal(address, links)
            yield from (_kept(other, links) for other in (*left, *added) if _shares_prefix(other, address))
    going = [address for address in removed if address.family == IPV4]
    staying = [other for other in (*left, *added) if not any(_shares_prefix(other, address) for address in going)]
    for index in dict.fromkeys(address.link for address in going):
        # Addresses that share a prefix with a removed one do not count: the kernel may have removed them before they were
        # added again.
        if not _has_ipv4(staying, index):
            for summary, request in _restored(scene, links[index], [address.local for address in going]):
                yield Message(summary, request, None)


def _has_ipv4(addresses: t.Iterable[Address], index: int) -> bool:
    return any(address.family == IPV4 and address.link == index for address in addresses)


def _shown(address: Address, links: t.Mapping[int, Link]) -> str:
    return f"{address} dev {links[address.link].name}"


def _removal(address: Address, links: t.Mapping[int, Link]) -> Message:
    link = links[address.link]
    return Message(f"remove {_shown(address, links)}", address.delete(link), address.add(link, link))


def _kept(address: Address, links: t.Mapping[int, Link]) -> Message:
    request = address.add(links[address.link], links[address.link])
    return Message(f"keep {_shown(address, links)}", request._replace(flags=CREATE | REPLACE), None)


def _shares_prefix(other: Address, address: Address) -> bool:
    """Return whether both have the same prefix on the same link, so that the kernel may remove one with the other."""
    places = {(each.family, each.link, fields.network(each.local, each.length)) for each in (other, address)}
    return len(places) == 1


def _restored(scene: Scene, link: Link, gone: t.Collection[bytes] = ()) -> t.Iterator[tuple[str, Request]]:
    """Yield the requests that restore all that the kernel removes with the link's last IPv4 address, each with a summary.

    gone: removed addresses; a route with one of them as its source is not restored. A route that still exists is replaced
    by itself. A route with several hops stays, but its hop over this link is marked dead, and while it exists the kernel
    takes a new route with the same hops for the old one (fib_find_info). Such a route is deleted first.
    """
    for neighbour in scene.neighbours:
        if neighbour.link == link.number and neighbour.family == IPV4 and neighbour.is_permanent:
            yield f"keep {neighbour} dev {link.name}", neighbour.add(link, NUD_PERMANENT)
    over = [
        former for former in scene.routes if former.family == IPV4 and any(index == link.number for index, _via in former.hops)
    ]
    renewed = set()
    for former in sorted(over, key=lambda former: former.has_gateway):  # the kernel looks up a route's gateway when it is added
        source = attributes(former.body, route.HEADER.size).get(route.RTA_PREFSRC)
        if not (former.is_links_own or former.has_nexthop_object or source in gone):
            if len(former.hops) > 1:
                yield f"renew {former} dev {link.name}", former.delete(link, link)
            key = former.table, former.dst, former.metric
            yield f"keep {former} dev {link.name}", former.add(link, link, APPEND if key in renewed else REPLACE)
            renewed.add(key)
