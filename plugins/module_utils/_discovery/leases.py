# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Gateways in the leases of DHCP clients and in the configuration of network daemons, which need not be in a routing table.

Leases and keyfiles of networks that a link has left stay on the disk. So one counts only if the link has its address.
"""

from __future__ import annotations

import contextlib
import re
import socket
import typing as t

from .._core import fields
from .._core.fields import IPV4, Unfit

Gateways = dict[str, str]  # by family, "ipv4" and "ipv6"
Addresses = t.Collection[str]  # those of a link, as fields.show() writes them
MAGIC = b"\x63\x82\x53\x63"  # RFC 2131 section 3, before the options of a DHCP message
YIADDR, OPTIONS = 16, 236  # the client's address, and where the magic cookie begins
PAD, ROUTERS, END = 0, 3, 255  # options of RFC 2132
_KEY = re.compile(r"[\w-]+")
MOST_OF_LEASES = 1 << 20  # characters; dhclient writes its file anew after some twenty leases


def networkd(text: str, addresses: Addresses) -> Gateways:
    """Return the router in a lease of systemd-networkd: lines of KEY=VALUE."""
    values = dict(re.findall(r"^(ADDRESS|ROUTER)=(\S+)", text, re.MULTILINE))
    return gateways([values.get("ROUTER", "")]) if values.get("ADDRESS") in addresses else {}


def dhclient(text: str, link: str, addresses: Addresses) -> Gateways:
    """Return the router in the last lease for a link in a file of dhclient (dhclient.leases(5)), of which only the end counts."""
    whole = (lease.partition("\n}") for lease in text[-MOST_OF_LEASES:].split("lease {")[1:])
    leases = [lease for lease, end, _rest in whole if end and f'interface "{link}"' in lease]
    values = dict(re.findall(r"(fixed-address|option routers) ([0-9.]+)", leases[-1])) if leases else {}
    return gateways([values.get("option routers", "")]) if values.get("fixed-address") in addresses else {}


def message(packet: bytes, addresses: Addresses) -> Gateways:
    """Return the router in a DHCP message, as dhcpcd keeps it as a lease."""
    place = OPTIONS + len(MAGIC)
    if packet[OPTIONS:place] != MAGIC or socket.inet_ntop(IPV4, packet[YIADDR : YIADDR + 4]) not in addresses:
        return {}
    while place + 1 < len(packet) and packet[place] != END:
        kind, length = packet[place], packet[place + 1]
        if kind == ROUTERS and length >= 4 and len(packet) >= place + 6:
            return gateways([socket.inet_ntop(IPV4, packet[place + 2 : place + 6])])
        place += 1 if kind == PAD else 2 + length
    return {}


def network_file(text: str) -> Gateways:
    """Return the gateways of the default routes in the text of a systemd.network(5) file with its drop-ins."""
    values = []
    for section, lines in _sections(text):
        of_section = dict(lines)
        if section == "Network" or (section == "Route" and of_section.get("Destination", "") in ("", "0.0.0.0/0", "::/0")):
            values += [value for key, value in lines if key == "Gateway"]
    return gateways(values)


def keyfile(text: str, link: str, addresses: Addresses) -> Gateways:
    """Return the gateways in a keyfile of NetworkManager (nm-settings-keyfile(5)), if the connection is that of the link."""
    sections = {section: dict(lines) for section, lines in _sections(text)}
    if sections.get("connection", {}).get("interface-name") != link:
        return {}
    values = []
    for family in ("ipv4", "ipv6"):
        lines = sections.get(family, {})
        inline = [value.partition(",") for key, value in lines.items() if re.fullmatch(r"address\d+", key)]
        if any(_canonical(prefix.partition("/")[0]) in addresses for prefix, _comma, _gateway in inline):
            values += [lines.get("gateway", ""), *(gateway for _prefix, _comma, gateway in inline)]
    return gateways(values)


def gateways(values: t.Iterable[str]) -> Gateways:
    """Return the first address of each family; words such as ``_dhcp4`` are skipped."""
    by_family: Gateways = {}
    for value in values:
        with contextlib.suppress(Unfit):
            family, packed = fields.node(value.strip())
            by_family.setdefault("ipv4" if family == IPV4 else "ipv6", fields.show(packed))
    return by_family


def _canonical(address: str) -> str:
    """Return an address as fields.show() writes it; empty for another text."""
    try:
        return fields.show(fields.address(address.strip())[1])
    except Unfit:
        return ""


def _sections(text: str) -> t.Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the sections of an ini file with their assignments. A section may occur several times."""
    section, assignments = "", list[tuple[str, str]]()
    for line in map(str.strip, text.splitlines()):
        key, equals, value = line.partition("=")
        if line.startswith("["):
            yield section, assignments
            section, assignments = line[1:].partition("]")[0], []
        elif equals and _KEY.fullmatch(key.rstrip()):
            assignments.append((key.rstrip(), value.lstrip()))
    yield section, assignments
