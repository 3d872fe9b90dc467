# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Gateways in the leases of DHCP clients and in the configuration of network daemons, which need not be in a routing table."""

from __future__ import annotations

import re
import socket
import typing as t

from .._core import fields
from .._core.fields import IPV4, Unfit

Gateways = dict[str, str]  # by family, "ipv4" and "ipv6"
MAGIC = b"\x63\x82\x53\x63"  # RFC 2131 section 3, before the options of a DHCP message
OPTIONS = 236  # where the magic cookie begins
PAD, ROUTERS, END = 0, 3, 255  # options of RFC 2132


def assignments(text: str) -> Gateways:
    """Return the router in a lease of systemd-networkd or of NetworkManager: lines of KEY=VALUE."""
    match = re.search(r"^ROUTER=(\S+)", text, re.MULTILINE)
    return gateways([match[1]] if match else [])


def dhclient(text: str, link: str) -> Gateways:
    """Return the router in the last lease for a link in a file of dhclient (dhclient.leases(5))."""
    leases = [
        lease for lease in re.findall(r"lease6? {(.*?)^}", text, re.MULTILINE | re.DOTALL) if f'interface "{link}"' in lease
    ]
    match = re.search(r"option routers ([\d.]+)", leases[-1]) if leases else None
    return gateways([match[1]] if match else [])


def message(packet: bytes) -> Gateways:
    """Return the router in a DHCP message, as dhcpcd keeps it as a lease."""
    if packet[OPTIONS : OPTIONS + 4] != MAGIC:
        return {}
    place = OPTIONS + 4
    while place + 1 < len(packet) and packet[place] != END:
        kind, length = packet[place], packet[place + 1]
        if kind == ROUTERS and length >= 4 and len(packet) >= place + 6:
            return {"ipv4": socket.inet_ntop(IPV4, packet[place + 2 : place + 6])}
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


def keyfile(text: str, link: str) -> Gateways:
    """Return the gateways in a keyfile of NetworkManager (nm-settings-keyfile(5)), if the connection is that of the link."""
    sections = {section: dict(lines) for section, lines in _sections(text)}
    if sections.get("connection", {}).get("interface-name") != link:
        return {}
    of_families = [sections.get(family, {}) for family in ("ipv4", "ipv6")]
    inline = [
        value.split(",")[1]
        for lines in of_families
        for key, value in lines.items()
        if re.match(r"address\d", key) and "," in value
    ]
    return gateways([*(lines["gateway"] for lines in of_families if "gateway" in lines), *inline])


def gateways(values: t.Iterable[str]) -> Gateways:
    """Return the first address of each family; words such as ``_dhcp4`` are skipped."""
    by_family: Gateways = {}
    for value in values:
        try:
            family, _packed = fields.node(value.strip())
        except Unfit:
            continue
        by_family.setdefault("ipv4" if family == IPV4 else "ipv6", value.strip())
    return by_family


def _sections(text: str) -> t.Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the sections of an ini file with their assignments. A section may occur several times."""
    for part in re.split(r"^\s*(?=\[)", text, flags=re.MULTILINE):
        match = re.match(r"\[(\w+)\]", part)
        if match:
            lines = re.findall(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", part, re.MULTILINE)
            yield match[1], lines
