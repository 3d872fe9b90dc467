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
from .._snapshot import assumption
from .._snapshot.assumption import Assumption
from .._snapshot.open_facts import ADDRESSES, ROUTES, OpenFact
from .._snapshot.settings import put
from . import snapshot_form
from .blueprint import BOTH, LOOPBACK, LOOPBACK_ADDRESSES, Entry, entries, is_of_network

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
        """The family as routes and settings name it: ipv4 or ipv6."""
        return "ipv6" if ":" in self.destination else "ipv4"


FORWARDING = (("net.ipv4.ip_forward", "ipv4"), ("net.ipv6.conf.all.forwarding", "ipv6"))


def complete(snapshot: Entry, assume: Entry, packet: Ends) -> tuple[dict[str, t.Any], list[Assumption]]:
    """The snapshot with the settings of ``assume``, with forwarding on, and with routes for the packet; and what is assumed.

    assume: settings as sysctl names them, with their values. Raises Invalid.
    """
    snapshot_form.check(snapshot)
    interface = packet.interface
    given = _checked(assume)
    told = [Assumption.from_plain(plain) for plain in entries(snapshot, "assumed")]
    told += (Assumption(f"{key} = {value}, as the option assume says.") for key, value in given.items())
    found = with_settings(snapshot, assume)
    settings = found["settings"]
    for key, family in FORWARDING:
        if not is_told(settings, key, family):
            put(settings, key, 1)
            sentence = f"{key} is not known. It is assumed to be 1, because a Kubernetes node forwards."
            told.append(assumption.about(sentence, assumption.SETTING, key))
    links = list(found.get("links") or ())
    if interface == LOOPBACK:
        raise Invalid("packet.interface", interface, "a link by which packets come in. Leave it out if the node itself sends")
    if interface and not any(one.get("name") == interface for one in links if isinstance(one, dict)):
        if found.get("links"):
            names = ", ".join(str(one.get("name")) for one in links)
            raise Invalid("packet.interface", interface, f"a link of the node: {names}")
        links.append(new_card(interface))
        told.append(Assumption(f"{interface} is not known. It is assumed to be a network interface that is up."))
    found["links"] = links
    told += _without_effect(given, {str(one.get("name")) for one in links})
    if not interface:
        _assume_address(found, packet, told)
    if interface and _lacks_routes(found, packet.family):
        _assume_routes(found, packet, told)
    if interface:
        _assume_addresses_of_cards(found, packet, told)
    if packet.family == "ipv6":
        found["links"] = _with_link_local(found["links"], settings.get("ipv6") or {}, told)
    return found, told


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
    """Whether a link is a network interface of the machine, as far as its kind shows."""
    return not link.get("kind") and link.get("name") != LOOPBACK


def link_route(family: str, to: str, dev: str, table: str = "254") -> Entry:
    """Return a route by a link without a gateway. The default table is main."""
    return {"table": table, "family": family, "to": to, "dev": dev, "scope": "link"}


def _checked(assume: Entry) -> dict[str, int]:
    """The settings of the option. Raises Invalid."""
    return {str(key): _value(key, value) for key, value in assume.items()}


def _with_link_local(links: list[Entry], settings: Entry, told: list[Assumption]) -> list[Entry]:
    """Adds the link-local address from which the kernel asks for neighbours to every link that is up, unless IPv6 is off
    there."""
    found: list[Entry] = []
    for number, one in enumerate(links):
        own = list(one.get("addresses") or ())
        is_told = str(one.get("name")) in settings or one.get("name") == LOOPBACK or "UP" not in (one.get("flags") or ())
        if not is_told and not any(str(address.get("address")).startswith("fe80:") for address in own):
            own.append({"address": f"fe80::ff:{number + 1:x}/64", "peer": "", "scope": "link", "flags": []})
            name, address = str(one.get("name")), f"fe80::ff:{number + 1:x}"
            sentence = f"The link-local address of {name} is not known. It is assumed to be {address}."
            told.append(assumption.about(sentence, assumption.LINK, name))
        found.append({**one, "addresses": own})
    return found


def host_address(address: str) -> Entry:
    """An address of a link, in no network."""
    return {"address": f"{address}/{128 if ':' in address else 32}", "peer": "", "scope": "global", "flags": []}


def link_addresses(links: t.Iterable[Entry]) -> list[str]:
    """The links' own addresses, without the lengths of their networks."""
    return [str(address.get("address")).partition("/")[0] for one in links for address in one.get("addresses") or ()]


def all_addresses(snapshot: Entry) -> t.Iterator[str]:
    """The addresses from which a twin itself may send: of its links, of its routes, and those of the loopback. Also the gateways,
    which answer for their MAC addresses."""
    yield from LOOPBACK_ADDRESSES
    yield from link_addresses(snapshot.get("links") or ())
    for route in snapshot.get("routes") or ():
        for hop in (route, *(route.get("nexthops") or ())):
            yield from (str(hop.get(key) or "") for key in ("src", "via"))


def _assume_address(found: dict[str, t.Any], packet: Ends, told: list[Assumption]) -> None:
    """The address from which the node sends, if the snapshot has none: on the link by which most packets leave."""
    is_ipv6 = packet.family == "ipv6"
    own = link_addresses(one for one in found["links"] if one.get("name") != LOOPBACK)
    known = any((":" in one) == is_ipv6 and not one.startswith("fe80:") for one in own)
    if known or packet.source.startswith(("127.", "::1", "fe80:")):
        return
    address = packet.source or BENCHMARK[packet.family]
    ways = [route.get("dev") for route in found.get("routes") or () if route.get("to") == "default"]
    uplink = next((one for one in found["links"] if one.get("name") in ways), None)
    if uplink:
        changed = {**uplink, "addresses": [*(uplink.get("addresses") or ()), host_address(address)]}
        found["links"] = [changed if one is uplink else one for one in found["links"]]
        sentence = f"The address from which the node sends is not known. It is assumed to be {address}, on {uplink['name']}."
        told.append(Assumption(sentence))


def _assume_addresses_of_cards(found: dict[str, t.Any], packet: Ends, told: list[Assumption]) -> None:
    """An address on each card, if no output has those of the links: without one, the kernel masquerades nothing, and drops what
    loose filtering would pass."""
    is_ipv6 = packet.family == "ipv6"
    own = link_addresses(one for one in found["links"] if one.get("name") != LOOPBACK)
    is_known = any((":" in one) == is_ipv6 and not one.startswith("fe80:") for one in own)
    if is_known or not any(entry.fact.fact == ADDRESSES for entry in _open_facts(found)):
        return
    base = ipaddress.ip_address(BENCHMARK[packet.family])
    links = list(found["links"])
    for number, link in enumerate(links):
        if is_card(link):
            sentence = f"The address of {link['name']} is not known. It is assumed to be {base + number}."
            told.append(assumption.about(sentence, assumption.LINK, str(link["name"])))
            links[number] = {**link, "addresses": [*(link.get("addresses") or ()), host_address(str(base + number))]}
    found["links"] = links


def _assume_routes(found: dict[str, t.Any], packet: Ends, told: list[Assumption]) -> None:
    """Adds a pod at the destination, and a route back: without any route, the twin would not show the rest of the path."""
    destination, family = packet.destination, packet.family
    near: Entry = next((one for one in found["links"] if one["name"] == packet.interface), {})
    back = near.get("master") or packet.interface
    pods = [one for one in found["links"] if destination in ((one.get("peer") or {}).get("addresses") or ())]
    others = list(found.get("routes") or ())
    if destination in link_addresses(found["links"]):
        found["routes"] = [*others, link_route(family, "default", back)]
        told.append(Assumption(f"The routes are not known. All is assumed to be reached by {back}."))
        return
    if not pods:
        peer = {"namespace": "", "name": "eth0", "mac": "", "addresses": [destination]}
        pods = [{"name": _POD, "kind": "veth", "flags": ["UP", "LOWER_UP"], "addresses": [], "peer": peer}]
        found["links"] = [*found["links"], *pods]
    ways = ((destination, pods[0]["name"]), ("default", back))
    found["routes"] = [*others, *(link_route(family, to, dev) for to, dev in ways)]
    sentence = f"The routes are not known. {destination} is assumed to be a pod at the link {pods[0]['name']}, and all else to be"
    told.append(Assumption(f"{sentence} reached by {back}."))


def _lacks_routes(snapshot: Entry, family: str) -> bool:
    """Whether no output has routes of the family."""
    routes = snapshot.get("routes")
    is_open = any(entry.fact.fact == ROUTES and entry.family in ("", family) for entry in _open_facts(snapshot))
    has_none = not any(str(route.get("family") or "ipv4") == family for route in routes or ())
    return routes is None or (is_open and has_none)


def _open_facts(snapshot: Entry) -> t.Iterator[OpenFact]:
    return map(OpenFact.from_plain, entries(snapshot, "open"))


def _without_effect(given: t.Mapping[str, int], links: t.Collection[str]) -> t.Iterator[Assumption]:
    """Name settings of links that the node does not have."""
    for key, value in given.items():
        of_family: dict[str, t.Any] = {}
        put(of_family, key, value)
        for link in {name for family in ("ipv4", "ipv6") for name in of_family.get(family, {})} - {*BOTH, LOOPBACK, *links}:
            yield Assumption(f"{key} has no effect: the node has no link {link}.")


def _value(key: object, value: object) -> int:
    if not is_of_network(str(key).translate(DOTTED) if str(key).startswith("net.") else str(key)):
        raise Invalid(f"assume.{key}", value, "the setting of a network that decides what happens to a packet")
    try:
        return fields.number(value, 0, fields.UINT32)
    except Unfit as unfit:
        raise Invalid(f"assume.{key}", value, str(unfit)) from None


def is_told(settings: Entry, key: str, family: str) -> bool:
    """Whether the settings say if the node forwards."""
    every = (settings.get(family) or {}).get("all") or {}
    return key in (settings.get("node") or {}) or "forwarding" in every or settings.get(family) == {}
