# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Assumptions about what a snapshot does not contain."""

from __future__ import annotations

import copy
import ipaddress
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._core.names import DOTTED
from .._snapshot import settings as setting_model
from .._snapshot.assumption import LINK, SETTING, Assumption, Concern
from .._snapshot.open_facts import ADDRESSES, ROUTES, OpenFact
from .._snapshot.settings import put
from .._snapshot.values import Entry, entries
from . import snapshot_form
from .blueprint import BOTH, LOOPBACK, LOOPBACK_ADDRESSES, is_of_network
from .substitutions import ASSUMED, STATED, replaced

_POD = "assumed-pod"
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


def complete(snapshot: Entry, assume: Entry, packet: Ends) -> tuple[dict[str, t.Any], list[Assumption]]:
    """Return the snapshot with the settings of ``assume``, forwarding on and routes for the packet, and all assumptions.

    assume: settings as sysctl names them, with their values. Raises Invalid.
    """
    snapshot_form.check(snapshot)
    interface = packet.interface
    values = _checked(assume)
    assumptions = [Assumption.from_plain(plain) for plain in entries(snapshot, "assumed")]
    assumptions += (replaced(STATED, f"{key} = {value}, as the option assume says.") for key, value in values.items())
    completed = with_settings(snapshot, assume)
    settings = completed["settings"]
    links = list(completed.get("links") or ())
    if interface == LOOPBACK:
        raise Invalid("packet.interface", interface, "a link by which packets come in. Leave it out if the node itself sends")
    if interface and not any(link.get("name") == interface for link in links if isinstance(link, dict)):
        if completed.get("links"):
            names = ", ".join(str(link.get("name")) for link in links)
            raise Invalid("packet.interface", interface, f"a link of the node: {names}")
        links.append(new_card(interface))
        assumptions.append(replaced(ASSUMED, f"{interface} is not known. It is assumed to be a network interface that is up."))
    completed["links"] = links
    assumptions += _assumed_forwarding(settings, links)
    assumptions += _without_effect(values, {str(link.get("name")) for link in links})
    for key in setting_model.BRIDGED.values():
        if key not in (settings.get("node") or {}) and any(link.get("kind") == "bridge" for link in links):
            # A snapshot of a kernel without the module lacks it, and in outputs it is an open fact.
            put(settings, key, int(any(entry.fact.fact == key for entry in _open_facts(completed))))
    if not interface:
        _assume_address(completed, packet, assumptions)
    if interface and _lacks_routes(completed, packet.family):
        _assume_routes(completed, packet, assumptions)
    if interface:
        _assume_addresses_of_cards(completed, packet, assumptions)
    if packet.family == "ipv6":
        completed["links"] = _with_link_local(completed["links"], settings.get("ipv6") or {}, assumptions)
    return completed, assumptions


def with_settings(snapshot: Entry, assume: Entry) -> dict[str, t.Any]:
    """Return the snapshot with settings of the option assume. Raises Invalid."""
    settings = copy.deepcopy(dict(snapshot.get("settings") or {}))
    for key, value in _checked(assume).items():
        put(settings, key, value)
    return {**snapshot, "settings": settings}


def new_card(name: str) -> dict[str, t.Any]:
    """Return a network interface that is up and has no address."""
    return {"name": name, "kind": "", "flags": ["UP", "LOWER_UP"], "addresses": []}


def is_card(link: Entry) -> bool:
    """Return whether a link is a network interface of the machine, as far as its kind shows."""
    return not link.get("kind") and link.get("name") != LOOPBACK


def link_route(family: str, to: str, dev: str, table: str = "254") -> Entry:
    """Return a route by a link without a gateway. The default table is main."""
    return {"table": table, "family": family, "to": to, "dev": dev, "scope": "link"}


def _checked(assume: Entry) -> dict[str, int]:
    """Return the settings of the option with their values as numbers. Raises Invalid."""
    return {str(key): _value(key, value) for key, value in assume.items()}


def _with_link_local(links: list[Entry], settings: Entry, assumptions: list[Assumption]) -> list[Entry]:
    """Add a link-local address, from which the kernel asks for neighbours, to each link that is up and has no IPv6 settings."""
    changed: list[Entry] = []
    for number, link in enumerate(links):
        addresses = list(link.get("addresses") or ())
        needs_none = str(link.get("name")) in settings or link.get("name") == LOOPBACK or "UP" not in (link.get("flags") or ())
        if not needs_none and not any(str(address.get("address")).startswith("fe80:") for address in addresses):
            addresses.append({"address": f"fe80::ff:{number + 1:x}/64", "peer": "", "scope": "link", "flags": []})
            name, address = str(link.get("name")), f"fe80::ff:{number + 1:x}"
            sentence = f"The link-local address of {name} is not known. It is assumed to be {address}."
            assumptions.append(replaced(ASSUMED, sentence, Concern(LINK, name)))
        changed.append({**link, "addresses": addresses})
    return changed


def host_address(address: str) -> Entry:
    """Return an address of a link with the prefix length of a single host."""
    return {"address": f"{address}/{128 if ':' in address else 32}", "peer": "", "scope": "global", "flags": []}


def link_addresses(links: t.Iterable[Entry]) -> list[str]:
    """Return the addresses of the links, without prefix lengths."""
    return [str(address.get("address")).partition("/")[0] for link in links for address in link.get("addresses") or ()]


def all_addresses(snapshot: Entry) -> t.Iterator[str]:
    """Yield the addresses from which a twin itself may send: those of its links, its routes and the loopback. The gateways are
    among them, because they answer for their MAC addresses.
    """
    yield from LOOPBACK_ADDRESSES
    yield from link_addresses(snapshot.get("links") or ())
    for route in snapshot.get("routes") or ():
        for hop in (route, *(route.get("nexthops") or ())):
            yield from (str(hop.get(key) or "") for key in ("src", "via"))


def _assume_address(snapshot: dict[str, t.Any], packet: Ends, assumptions: list[Assumption]) -> None:
    """Add a source address to the link of the default route, if no link has an address of the packet's family."""
    is_ipv6 = packet.family == "ipv6"
    addresses = link_addresses(link for link in snapshot["links"] if link.get("name") != LOOPBACK)
    known = any((":" in address) == is_ipv6 and not address.startswith("fe80:") for address in addresses)
    if known or packet.source.startswith(("127.", "::1", "fe80:")):
        return
    address = packet.source or BENCHMARK[packet.family]
    ways = [route.get("dev") for route in snapshot.get("routes") or () if route.get("to") == "default"]
    uplink = next((link for link in snapshot["links"] if link.get("name") in ways), None)
    if uplink:
        changed = {**uplink, "addresses": [*(uplink.get("addresses") or ()), host_address(address)]}
        snapshot["links"] = [changed if link is uplink else link for link in snapshot["links"]]
        sentence = f"The address from which the node sends is not known. It is assumed to be {address}, on {uplink['name']}."
        assumptions.append(replaced(ASSUMED, sentence))


def _assume_addresses_of_cards(snapshot: dict[str, t.Any], packet: Ends, assumptions: list[Assumption]) -> None:
    """Add an address to each network interface, if no output shows the addresses of the links.

    Without an address, the kernel masquerades nothing, and drops what loose filtering would pass.
    """
    is_ipv6 = packet.family == "ipv6"
    addresses = link_addresses(link for link in snapshot["links"] if link.get("name") != LOOPBACK)
    is_known = any((":" in address) == is_ipv6 and not address.startswith("fe80:") for address in addresses)
    if is_known or not any(entry.fact.fact == ADDRESSES for entry in _open_facts(snapshot)):
        return
    base = ipaddress.ip_address(BENCHMARK[packet.family])
    links = list(snapshot["links"])
    for number, link in enumerate(links):
        if is_card(link):
            sentence = f"The address of {link['name']} is not known. It is assumed to be {base + number}."
            assumptions.append(replaced(ASSUMED, sentence, Concern(LINK, str(link["name"]))))
            links[number] = {**link, "addresses": [*(link.get("addresses") or ()), host_address(str(base + number))]}
    snapshot["links"] = links


def _assume_routes(snapshot: dict[str, t.Any], packet: Ends, assumptions: list[Assumption]) -> None:
    """Add a pod at the destination, and a route back: without any route, the twin would not show the rest of the path."""
    destination, family = packet.destination, packet.family
    near: Entry = next((link for link in snapshot["links"] if link["name"] == packet.interface), {})
    back = near.get("master") or packet.interface
    pods = [link for link in snapshot["links"] if destination in ((link.get("peer") or {}).get("addresses") or ())]
    others = list(snapshot.get("routes") or ())
    if destination in link_addresses(snapshot["links"]):
        snapshot["routes"] = [*others, link_route(family, "default", back)]
        assumptions.append(replaced(ASSUMED, f"The routes are not known. All is assumed to be reached by {back}."))
        return
    if not pods:
        peer = {"namespace": "", "name": "eth0", "mac": "", "addresses": [destination]}
        pods = [{"name": _POD, "kind": "veth", "flags": ["UP", "LOWER_UP"], "addresses": [], "peer": peer}]
        snapshot["links"] = [*snapshot["links"], *pods]
    ways = ((destination, pods[0]["name"]), ("default", back))
    snapshot["routes"] = [*others, *(link_route(family, to, dev) for to, dev in ways)]
    sentence = f"The routes are not known. {destination} is assumed to be a pod at the link {pods[0]['name']}, and all else to be"
    assumptions.append(replaced(ASSUMED, f"{sentence} reached by {back}."))


def _lacks_routes(snapshot: Entry, family: str) -> bool:
    """Return whether no output has routes of the family."""
    routes = snapshot.get("routes")
    is_open = any(entry.fact.fact == ROUTES and entry.family in ("", family) for entry in _open_facts(snapshot))
    has_none = not any(str(route.get("family") or "ipv4") == family for route in routes or ())
    return routes is None or (is_open and has_none)


def _open_facts(snapshot: Entry) -> t.Iterator[OpenFact]:
    return map(OpenFact.from_plain, entries(snapshot, "open"))


def _without_effect(values: t.Mapping[str, int], links: t.Collection[str]) -> t.Iterator[Assumption]:
    """Name settings of links that the node does not have."""
    for key, value in values.items():
        of_family: dict[str, t.Any] = {}
        put(of_family, key, value)
        for link in {name for family in ("ipv4", "ipv6") for name in of_family.get(family, {})} - {*BOTH, LOOPBACK, *links}:
            yield replaced(STATED, f"{key} has no effect: the node has no link {link}.")


def _value(key: object, value: object) -> int:
    if not is_of_network(str(key).translate(DOTTED) if str(key).startswith("net.") else str(key)):
        raise Invalid(f"assume.{key}", value, "the setting of a network that decides what happens to a packet")
    try:
        return fields.number(value, 0, fields.UINT32)
    except Unfit as unfit:
        raise Invalid(f"assume.{key}", value, str(unfit)) from None


def open_forwarding(settings: Entry, family: str, links: t.Iterable[Entry]) -> dict[str, str]:
    """Return the settings of forwarding that a snapshot lacks, each with the link by which packets come in.

    A port of a bridge hands its packets to the bridge.
    """
    if settings.get(family) == {}:  # the kernel lacks the family
        return {}
    bridges = {link.get("name") for link in links if link.get("kind") == "bridge"}
    names = (str(link.get("name")) for link in links if link.get("master") not in bridges)
    unknown = (name for name in names if name != LOOPBACK and setting_model.forwarding(settings, family, name) is None)
    return {setting_model.forwarding_key(family, name): name for name in unknown}


def _assumed_forwarding(settings: dict[str, t.Any], links: t.Sequence[Entry]) -> t.Iterator[Assumption]:
    """Give each link whose forwarding is not known that of all links; 1 if that is not known either."""
    for family in setting_model.FAMILIES:
        every = setting_model.forwarding_of_all(settings, family)
        reason = ", because a Kubernetes node forwards" if every is None else ", as that of all links is"
        for key in open_forwarding(settings, family, links):
            sentence = f"{key} is not known. It is assumed to be {1 if every is None else every}{reason}."
            yield replaced(ASSUMED, sentence, Concern(SETTING, key))
        if every is None and settings.get(family) != {}:
            put(settings, setting_model.forwarding_key(family, setting_model.ALL), 1)
