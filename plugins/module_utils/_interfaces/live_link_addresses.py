# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses that this collection adds to links in the running kernel.

When a link loses its last IPv4 address, the kernel removes the link's neighbours and all IPv4 routes over it, those of a
CNI included (net/ipv4/fib_frontend.c, fib_inetaddr_event). When the first address of a prefix is removed and
promote_secondaries is off, the kernel removes all other addresses of that prefix. So a change restores these as well.
"""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import IPV4, IPV6
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._files import files, managed_files
from .._netlink.attributes import attributes
from .._routing import route
from . import link_address
from .boot_link_addresses import BootLinkAddresses
from .link_address import AddedAddress, LinkAddress
from .link_backend import Apply, LinkMessages
from .link_message import (
    APPEND,
    CREATE,
    NOPREFIXROUTE,
    NUD_PERMANENT,
    REPLACE,
    Address,
    Link,
    Message,
    Request,
    Scene,
    new_address,
)

# A boot empties /run, as it removes the addresses.
RECORD = "/run/kubenode/link-addresses.json"


class ObservedAddresses(t.NamedTuple):
    """links: by name. own: the current addresses that this collection has added, according to its record or its units."""

    scene: Scene
    links: t.Mapping[str, Link]
    own: t.Mapping[AddedAddress, Address]
    record: frozenset[AddedAddress]
    file: managed_files.ObservedFiles


class Changes(t.NamedTuple):
    """satisfied: desired addresses that a foreign address satisfies, each with that address."""

    added: tuple[LinkAddress, ...] = ()
    removed: tuple[AddedAddress, ...] = ()
    kept: tuple[AddedAddress, ...] = ()
    satisfied: tuple[tuple[LinkAddress, Address], ...] = ()

    def report(self) -> dict[str, t.Any]:
        """Return the module's result."""
        return {
            "added": [str(address) for address in self.added],
            "removed": [str(entry.address) for entry in self.removed],
            "kept": len(self.kept),
            "satisfied_by": [
                {"object": f"{address} dev {desired.dev}", "owner": "another program"} for desired, address in self.satisfied
            ],
        }


class LiveLinkAddresses:
    """Makes the addresses that this collection has added equal ``desired``, which maps each to the option that it is from.

    is_present: if false, removes the ``desired`` addresses instead, or all for None. Only own addresses are removed.
    boot: the units; addresses that started units have added are own, too. The plan's report is a Changes.
    """

    plane = Plane.IMMEDIATE
    name = "addresses of links"

    def __init__(
        self,
        backend: LinkMessages,
        file_system: files.Files,
        boot: BootLinkAddresses,
        desired: t.Mapping[LinkAddress, str] | None,
        is_present: bool,
    ) -> None:
        self._backend = backend
        self._files = file_system
        self._boot = boot
        self._desired = desired
        self._is_present = is_present

    def observe(self) -> ObservedAddresses:
        scene = self._backend.scene()
        links = {link.name: link for link in scene.links}
        file = self._record_file(frozenset()).observe()
        recorded = file.states[RECORD]
        record = link_address.record_from(recorded.text if isinstance(recorded, files.Content) else "")
        by_units = {AddedAddress(links[address.dev].number, address) for address in self._boot.added() if address.dev in links}
        names = {link.number: link.name for link in scene.links}
        # A renamed link keeps its index and its addresses.
        current_entries = {
            entry._replace(address=entry.address._replace(dev=names[entry.ifindex]))
            for entry in record | by_units
            if entry.ifindex in names
        }
        current = {(address.link, str(address)): address for address in scene.addresses if address.flags & NOPREFIXROUTE}
        keys = {entry: (entry.ifindex, entry.address.prefix) for entry in sorted(current_entries)}
        own_addresses = {entry: current[key] for entry, key in keys.items() if key in current}
        return ObservedAddresses(scene, links, own_addresses, record, file)

    def links(self) -> dict[str, int]:
        """Return the links that keep or get an address of this collection: their indexes by name."""
        observed = self.observe()
        changes = self._changes(observed)
        names = [address.dev for address in (*(entry.address for entry in changes.kept), *changes.added)]
        return {name: observed.links[name].number for name in names}

    def plan(self, observed: ObservedAddresses) -> Plan:
        changes = self._changes(observed)
        added = {AddedAddress(observed.links[address.dev].number, address) for address in changes.added}
        remaining = frozenset({*changes.kept, *added})
        if remaining and not (changes.added or changes.removed or _has_stale_record(observed, remaining)):
            return Plan(report=changes)
        announcing, settling = self._record_file(remaining | observed.own.keys()), self._record_file(remaining)
        steps = (
            *announcing.plan(observed.file).steps,
            *_applied(tuple(self._messages(changes, observed))),
            *managed_files.settling(announcing, settling, observed.file),
        )
        before = "".join(f"ip address {entry.address.words}\n" for entry in changes.removed)
        after = "".join(f"ip address {address.words}\n" for address in changes.added)
        return Plan(steps, whole(before, after), changes)

    def _changes(self, observed: ObservedAddresses) -> Changes:
        own_entries = {entry.address: entry for entry in observed.own}
        if not self._is_present:
            gone = own_entries if self._desired is None else self._desired
            removed = tuple(entry for address, entry in own_entries.items() if address in gone)
            return Changes((), removed, tuple(entry for address, entry in own_entries.items() if address not in gone))
        desired = self._desired or {}
        for address, option in desired.items():
            if address.dev not in observed.links:
                raise Invalid(f"{option}.dev", address.dev, "a link of this node unless immediate is false")
        foreign = {
            (address.link, address.local): address for address in observed.scene.addresses if address not in observed.own.values()
        }
        places = {
            address: (observed.links[address.dev].number, address.local) for address in desired if address not in own_entries
        }
        return Changes(
            tuple(address for address, place in places.items() if place not in foreign),
            tuple(entry for address, entry in own_entries.items() if address not in desired),
            tuple(entry for address, entry in own_entries.items() if address in desired),
            tuple((address, foreign[place]) for address, place in places.items() if place in foreign),
        )

    def _messages(self, changes: Changes, observed: ObservedAddresses) -> t.Iterator[Message]:
        links = observed.links
        added = [
            new_address(links[address.dev].number, address.local, address.length, address.flags) for address in changes.added
        ]
        return _changing(observed.scene, [observed.own[entry] for entry in changes.removed], added)

    def remember(self, observed: ObservedAddresses) -> Plan:
        """Plan only to add to the record the addresses that units have added."""
        if observed.own.keys() <= observed.record:
            return Plan()
        plan = self._record_file(observed.record | observed.own.keys()).plan(observed.file)
        return plan._replace(objects=())

    def _record_file(self, record: t.AbstractSet[AddedAddress]) -> managed_files.ManagedFiles:
        entry = managed_files.text(RECORD, link_address.record_text(record))
        return managed_files.ManagedFiles(self._files, [entry], "immediate", claimed=(RECORD,))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend, self._files)


def _has_stale_record(observed: ObservedAddresses, remaining: t.Collection[AddedAddress]) -> bool:
    """Return whether a killed run left record entries for addresses that are not on the node, or a temporary file of the record.

    Such an entry would later claim a foreign address. Entries for links that no longer exist do no harm.
    """
    links = {link.number for link in observed.links.values()}
    prefixes = {(entry.ifindex, entry.address.prefix) for entry in remaining}
    recorded = {(entry.ifindex, entry.address.prefix) for entry in observed.record if entry.ifindex in links}
    return bool(recorded - prefixes or observed.file.left_over)


def _applied(messages: tuple[Message, ...]) -> t.Iterator[Step]:
    if messages:
        apply = Apply(messages)
        summary = messages[0].summary if len(messages) == 1 else f"change {len(messages)} addresses"
        yield Step(summary, apply, apply.inverse())


def _changing(scene: Scene, removed: t.Sequence[Address], added: t.Sequence[Address]) -> t.Iterator[Message]:
    """Yield the messages, in order, that make these changes to the scene.

    IPv6 addresses are removed before others are added, because to the kernel an address with another prefix length is the
    same one. IPv4 addresses are added before others are removed, so that the link always has one.
    """
    links = {link.number: link for link in scene.links}
    unmoved = [address for address in scene.addresses if address not in removed]
    yield from (_removal(address, links) for address in removed if address.family == IPV6)
    for index in dict.fromkeys(address.link for address in added if address.family == IPV4):
        if not _has_ipv4(scene.addresses, index):  # the undo will remove the link's last IPv4 address
            for summary, request in reversed(list(_restored(scene, links[index]))):
                yield Message(summary, None, request)
    for address in added:
        yield Message(
            f"add {_object_text(address, links)}",
            address.add(links[address.link], links[address.link]),
            address.delete(links[address.link]),
        )
    for address in removed:
        if address.family == IPV4:
            yield _removal(address, links)
            yield from (_restoring(other, links) for other in (*unmoved, *added) if _shares_prefix(other, address))
    going = [address for address in removed if address.family == IPV4]
    staying = [other for other in (*unmoved, *added) if not any(_shares_prefix(other, address) for address in going)]
    for index in dict.fromkeys(address.link for address in going):
        # Addresses that share a prefix with a removed one do not count: the kernel may have removed them before they were
        # added again.
        if not _has_ipv4(staying, index):
            for summary, request in _restored(scene, links[index], [address.local for address in going]):
                yield Message(summary, request, None)


def _has_ipv4(addresses: t.Iterable[Address], index: int) -> bool:
    return any(address.family == IPV4 and address.link == index for address in addresses)


def _object_text(address: Address, links: t.Mapping[int, Link]) -> str:
    return f"{address} dev {links[address.link].name}"


def _removal(address: Address, links: t.Mapping[int, Link]) -> Message:
    link = links[address.link]
    return Message(f"remove {_object_text(address, links)}", address.delete(link), address.add(link, link))


def _restoring(address: Address, links: t.Mapping[int, Link]) -> Message:
    request = address.add(links[address.link], links[address.link])
    return Message(f"keep {_object_text(address, links)}", request._replace(flags=CREATE | REPLACE), None)


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
