# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assumptions about what a snapshot does not contain."""

from __future__ import annotations

import ipaddress
import typing as t

from .._core import fields, nearest
from .._core.errors import Invalid
from .._core.names import DOTTED
from .._snapshot import settings as setting_model
from .._snapshot.assumption import LINK, SETTING, Assumption, Concern
from .._snapshot.open_facts import ADDRESSES, KINDS, ROUTES, OpenFact
from .._snapshot.settings import Settings
from .._snapshot.values import Address, Link, Peer, Snapshot, has_interface_name, link_route, network, new_link
from .blueprint import BOTH, LOOPBACK, LOOPBACK_ADDRESSES, is_of_network
from .substitutions import ASSUMED, STATED, replaced

_POD = "assumed-pod"
ELSEWHERE = "assumed-link"  # that leads to other machines
ENTRANCE = "assumed-in"  # by which a packet comes in whose source no route of the outputs has
BENCHMARK = {"ipv4": "198.18.0.1", "ipv6": "2001:2::1"}  # addresses that no host has (RFC 2544, RFC 5180)


class Ends(t.NamedTuple):
    """The addresses and the interface of a packet. interface: by which it comes in; empty if the node sends it. source: empty if
    the node chooses it.
    """

    destination: str
    interface: str
    source: str = ""

    @property
    def family(self) -> str:
        """Return the family as routes and settings name it: ipv4 or ipv6."""
        return "ipv6" if ":" in self.destination else "ipv4"


def complete(snapshot: Snapshot, assume: t.Mapping[str, t.Any], packet: Ends) -> tuple[Snapshot, list[Assumption]]:
    """Return the snapshot with the settings of ``assume``, forwarding on and routes for the packet, and all assumptions.

    assume: settings as sysctl names them, with their values. Raises Invalid.
    """
    interface, given = packet.interface, _checked(assume)
    stated = (replaced(STATED, f"{key} = {value}, as the option assume says.") for key, value in given.items())
    assumptions = [*snapshot.assumed, *stated]
    completed = with_settings(snapshot, assume)
    if interface == LOOPBACK:
        raise Invalid("packet.interface", interface, "a link by which packets come in. Leave it out if the node itself sends")
    if interface and not snapshot.link(interface):
        # A listing of pasted outputs without the loopback has not all links.
        if interface != ENTRANCE and snapshot.links and (snapshot.open is None or snapshot.link(LOOPBACK)):
            names = ", ".join(link.name for link in snapshot.links)
            raise Invalid("packet.interface", interface, f"a link of the node: {names}")
        completed = completed.with_link(new_link(interface))
        what = f"The link behind which {packet.source} is" if interface == ENTRANCE else interface
        assumptions.append(replaced(ASSUMED, f"{what} is not known. It is assumed to be a network interface that is up."))
    completed = completed._replace(settings=_with_forwarding(completed.settings, completed.links, assumptions))
    assumptions += _without_effect(given, {link.name for link in completed.links})
    lacking = [key for key in setting_model.BRIDGED.values() if key not in completed.settings.node]
    if any(link.kind == "bridge" for link in completed.links):
        # A snapshot of a kernel without the module lacks it, and in outputs it is an open fact.
        completed = with_settings(completed, {key: int(bool(_open(completed, key))) for key in lacking})
    if not interface:
        completed = _with_address(_with_way_out(completed, packet, assumptions), packet, assumptions)
    if interface and _lacks_routes(completed, packet.family):
        completed = _with_routes(completed, packet, assumptions)
    elif interface:
        completed = _with_way_back(completed, packet, assumptions)
    if interface:
        completed = _with_addresses_of_cards(completed, packet, assumptions)
    if packet.family == "ipv6":
        completed = completed._replace(links=_with_link_local(completed.links, completed.settings.by_link("ipv6"), assumptions))
    return completed, assumptions


def with_settings(snapshot: Snapshot, assume: t.Mapping[str, t.Any]) -> Snapshot:
    """Return the snapshot with settings of the option assume. Raises Invalid."""
    return snapshot._replace(settings=snapshot.settings.with_values(_checked(assume))) if assume else snapshot


def is_card(link: Link) -> bool:
    """Return whether a link is a network interface of the machine, as far as its kind shows."""
    return not link.kind and link.name != LOOPBACK


def _checked(assume: t.Mapping[str, t.Any]) -> dict[str, int]:
    """Return the settings of the option with their values as numbers. Raises Invalid."""
    return {str(key): _value(key, value) for key, value in assume.items()}


def _with_link_local(links: t.Iterable[Link], settings: setting_model.By, assumptions: list[Assumption]) -> list[Link]:
    """Add a link-local address, from which the kernel asks for neighbours, to each link that is up and has no IPv6 settings."""
    changed: list[Link] = []
    for number, link in enumerate(links, 1):
        needs_none = link.name in settings or link.name == LOOPBACK or not link.is_up
        if not needs_none and not any(address.startswith("fe80:") for address in link.addresses):
            address = f"fe80::ff:{number:x}"
            link = link.with_address(Address(f"{address}/64", "", "link"))
            sentence = f"The link-local address of {link.name} is not known. It is assumed to be {address}."
            assumptions.append(replaced(ASSUMED, sentence, Concern(LINK, link.name)))
        changed.append(link)
    return changed


def all_addresses(snapshot: Snapshot) -> t.Iterator[str]:
    """Yield the addresses from which a twin itself may send: those of its links, its routes and the loopback. The gateways are
    among them, because they answer for their MAC addresses.
    """
    yield from LOOPBACK_ADDRESSES
    yield from (address for link in snapshot.links for address in link.addresses)
    for route in snapshot.routes or ():
        yield route.src
        yield from (hop.via for hop in route.hops)


def near_addresses(snapshot: Snapshot) -> t.Iterator[str]:
    """Yield the addresses for whose MAC addresses pods may ask the node, and those at the other ends of its tunnels."""
    yield from (hop.via for pod in snapshot.pods for route in pod.routes for hop in route.hops)
    yield from (address.peer.partition("/")[0] for link in snapshot.links for address in link.address_info)


def _has_addresses(snapshot: Snapshot, packet: Ends) -> bool:
    """Return whether a link has an address of the packet's family, besides link-local ones and those of the loopback."""
    addresses = (address for link in snapshot.links if link.name != LOOPBACK for address in link.addresses)
    return any((":" in address) == (packet.family == "ipv6") and not address.startswith("fe80:") for address in addresses)


def _with_address(snapshot: Snapshot, packet: Ends, assumptions: list[Assumption]) -> Snapshot:
    """Add a source address to the link of the default route, or of another one, if no link has an address of the family."""
    is_chosen = not packet.source and not _open(snapshot, ADDRESSES)  # by the kernel, be it a link-local one
    if _has_addresses(snapshot, packet) or is_chosen or packet.source.startswith(("127.", "::1", "fe80:")):
        return snapshot
    address = packet.source or BENCHMARK[packet.family]
    routes = sorted(snapshot.routes or (), key=lambda route: route.to != "default")
    of_routes = (snapshot.link(route.dev) for route in routes if route.family == packet.family and route.dev != LOOPBACK)
    uplink = next(filter(None, of_routes), None)
    if uplink is None:
        return snapshot
    sentence = f"The address from which the node sends is not known. It is assumed to be {address}, on {uplink.name}."
    assumptions.append(replaced(ASSUMED, sentence))
    return snapshot.with_link(uplink.with_address(Address.of_host(address)))


def _with_addresses_of_cards(snapshot: Snapshot, packet: Ends, assumptions: list[Assumption]) -> Snapshot:
    """Add an address to each network interface, or to the link of the packet, if no output shows the addresses of the links.

    Without an address, the kernel masquerades nothing, and drops what loose filtering would pass.
    """
    if _has_addresses(snapshot, packet) or not _open(snapshot, ADDRESSES):
        return snapshot
    base = ipaddress.ip_address(BENCHMARK[packet.family])
    near = snapshot.link(packet.interface)
    entrance = near and near.master or packet.interface
    has_card = any(map(is_card, snapshot.links))
    for number, link in enumerate(snapshot.links):
        if is_card(link) or (not has_card and link.name == entrance):
            sentence = f"The address of {link.name} is not known. It is assumed to be {base + number}."
            assumptions.append(replaced(ASSUMED, sentence, Concern(LINK, link.name)))
            snapshot = snapshot.with_link(link.with_address(Address.of_host(str(base + number))))
    return snapshot


def _with_routes(snapshot: Snapshot, packet: Ends, assumptions: list[Assumption]) -> Snapshot:
    """Add a pod at the destination, and a route back: without any route, the twin would not show the rest of the path."""
    destination, family = packet.destination, packet.family
    near = snapshot.link(packet.interface)
    back = near and near.master or packet.interface
    if any(destination in link.addresses for link in snapshot.links):
        assumptions.append(replaced(ASSUMED, f"The routes are not known. All is assumed to be reached by {back}."))
        return snapshot.with_routes([link_route(family, "default", back)])
    pod = next((link for link in snapshot.links if destination in link.peer.addresses), None)
    bare = [link for link in snapshot.links if link.kind == "veth" and not (link.master or link.peer.addresses)]
    bare = [link for link in bare if link.name != packet.interface]
    if pod is None and len(bare) == 1:
        pod = bare[0]._replace(peer=Peer("", "eth0", addresses=(destination,)))
        snapshot = snapshot.with_link(pod)
    if pod is None:
        pod = new_link(_POD, "veth", Peer("", "eth0", addresses=(destination,)))
        snapshot = snapshot.with_link(pod)
    sentence = f"The routes are not known. {destination} is assumed to be a pod at the link {pod.name}, and all else to be"
    assumptions.append(replaced(ASSUMED, f"{sentence} reached by {back}."))
    return snapshot.with_routes([link_route(family, destination, pod.name), link_route(family, "default", back)])


def _with_way_back(snapshot: Snapshot, packet: Ends, assumptions: list[Assumption]) -> Snapshot:
    """Add a route to the source by the link of pods, or of a tunnel, by which it comes in, if no output may have it."""
    near = snapshot.link(packet.interface)
    back = near and near.master or packet.interface
    if not _lacks_some(snapshot, packet.family) or has_interface_name(back) or _is_covered(snapshot, packet.source):
        return snapshot
    assumptions.append(replaced(ASSUMED, f"Routes are not known. {packet.source} is assumed to be reached by {back}."))
    return snapshot.with_routes([link_route(packet.family, packet.source, back)])


def _with_way_out(snapshot: Snapshot, packet: Ends, assumptions: list[Assumption]) -> Snapshot:
    """Add a default route for a packet of the node if a cut output of routes has none for its destination."""
    has_default = any(route.to == "default" and route.family == packet.family for route in snapshot.routes or ())
    is_cut = any(entry.is_cut for entry in _open(snapshot, ROUTES) if entry.family in ("", packet.family))
    if not is_cut or has_default or _is_covered(snapshot, packet.destination):
        return snapshot
    named = (link.name for link in snapshot.links if has_interface_name(link.name))
    out = next(named, ELSEWHERE)
    assumptions.append(replaced(ASSUMED, f"The routes are cut. {packet.destination} is assumed to be reached by {out}."))
    snapshot = snapshot if snapshot.link(out) else snapshot.with_link(new_link(out))
    return snapshot.with_routes([link_route(packet.family, "default", out)])


def _is_covered(snapshot: Snapshot, address: str) -> bool:
    """Return whether a route that is no default route leads to an address."""
    prefixes = (network(route.to) for route in snapshot.routes or () if route.to != "default")
    return any(prefix and ipaddress.ip_address(address) in prefix for prefix in prefixes)


def _lacks_some(snapshot: Snapshot, family: str) -> bool:
    """Return whether the routes of table main are open, all of them or some."""
    names = (ROUTES, f"{ROUTES}:main")
    return any(entry.fact.fact in names and entry.family in ("", family) for entry in snapshot.open or ())


def _lacks_routes(snapshot: Snapshot, family: str) -> bool:
    """Return whether no output has routes of the family."""
    is_open = any(entry.family in ("", family) for entry in _open(snapshot, ROUTES))
    return snapshot.routes is None or (is_open and not any(route.family == family for route in snapshot.routes))


def _open(snapshot: Snapshot, fact: str) -> list[OpenFact]:
    return [entry for entry in snapshot.open or () if entry.fact.fact == fact]


def _without_effect(values: t.Mapping[str, int], links: t.Collection[str]) -> t.Iterator[Assumption]:
    """Name settings of links that the node does not have."""
    for key, value in values.items():
        of_key = Settings().with_values({key: value})
        for link in {name for family in setting_model.FAMILIES for name in of_key.by_link(family)} - {*BOTH, LOOPBACK, *links}:
            yield replaced(STATED, f"{key} has no effect: the node has no link {link}.")


def _value(key: object, value: object) -> int:
    if not is_of_network(str(key).translate(DOTTED) if str(key).startswith("net.") else str(key)):
        facts = nearest.listed(str(key).partition(":")[0], KINDS)
        raise Invalid("assume", key, f"a setting of a network that decides what happens to a packet, or a fact, such as {facts}")
    return int(fields.checked(f"assume.{key}", value, lambda number: fields.number(number, 0, fields.UINT32)))


def open_forwarding(settings: Settings, family: str, links: t.Collection[Link]) -> dict[str, str]:
    """Return the settings of forwarding that a snapshot lacks, each with the link by which packets come in.

    A port of a bridge hands its packets to the bridge.
    """
    if settings.lacks(family):
        return {}
    bridges = {link.name for link in links if link.kind == "bridge"}
    names = (link.name for link in links if link.master not in bridges)
    unknown = (name for name in names if name != LOOPBACK and settings.forwarding(family, name) is None)
    return {setting_model.forwarding_key(family, name): name for name in unknown}


def _with_forwarding(settings: Settings, links: t.Collection[Link], assumptions: list[Assumption]) -> Settings:
    """Give each link whose forwarding is not known that of all links; 1 if that is not known either."""
    for family in setting_model.FAMILIES:
        every = settings.forwarding_of_all(family)
        reason = ", because a Kubernetes node forwards" if every is None else ", as that of all links is"
        for key in open_forwarding(settings, family, links):
            sentence = f"{key} is not known. It is assumed to be {1 if every is None else every}{reason}."
            assumptions.append(replaced(ASSUMED, sentence, Concern(SETTING, key)))
        if every is None and not settings.lacks(family):
            settings = settings.with_values({setting_model.forwarding_key(family, setting_model.ALL): 1})
    return settings
