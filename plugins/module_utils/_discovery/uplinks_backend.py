# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the uplinks of the node, and from the leases of DHCP clients their gateways."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import typing as t
from pathlib import Path

from .._core import fields
from .._core.fields import IPV4, Unfit
from .._files import files
from .._interfaces import link_message
from .._routing import routing_backend
from .._routing.routing_backend import Netlink
from .uplinks import Link, NodeState

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
        if any(fields.address_or_empty(prefix.partition("/")[0].strip()) in addresses for prefix, _comma, _gateway in inline):
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


UNIVERSE = 0  # the scope of an address, include/uapi/linux/rtnetlink.h
NETWORKD = "/run/systemd/netif"
NETWORKMANAGER = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")
DHCPCD = {"/var/lib/dhcpcd": "", "/var/lib/dhcpcd5": "dhcpcd-"}  # the beginning of a lease's name, by folder
DHCLIENT = ("/var/lib/dhcp", "/var/lib/dhclient", "/var/lib/NetworkManager")
LEASES = (f"{NETWORKD}/leases", *DHCPCD, *DHCLIENT)


def read(protocol: int) -> NodeState:
    """Return the state of the node. protocol: that of own rules and routes."""
    addresses = _addresses()
    links = [*map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC))]
    names = {link.number: link.name for link in links}
    netlink = Netlink()
    routes = netlink.routes()
    own_defaults = {
        route.table: hop.dev for route, owner in routes for hop in route.hops if owner == protocol and not route.dst[1]
    }
    rules = (rule for rule, owner in netlink.rules() if owner == protocol and rule.fwmark)
    return NodeState(
        {link.name: _link(link, names.get(link.master, ""), tuple(addresses.get(link.number, ()))) for link in links},
        [route for route, owner in routes if owner != protocol],
        {own_defaults[rule.table]: rule.fwmark for rule in rules if rule.table in own_defaults},
    )


def _link(link: link_message.Link, master: str, addresses: tuple[str, ...]) -> Link:
    return Link(link.number, addresses, _leases(link.number, link.name, addresses) if addresses else {}, master)


def _addresses() -> dict[int, list[str]]:
    """Return the addresses of global scope by the index of their link, in the kernel's order."""
    by_link: dict[int, list[str]] = {}
    for family in (fields.IPV4, fields.IPV6):
        for address in map(link_message.address_from, routing_backend.dump(routing_backend.GETADDR, family)):
            if address.scope == UNIVERSE:
                by_link.setdefault(address.link, []).append(fields.show(address.local))
    return by_link


def _leases(index: int, name: str, addresses: Addresses) -> dict[str, str]:
    """Return the gateways of a link that its leases and the files of network daemons name. A lease comes before a file."""
    gateways: dict[str, str] = {}
    for source in _sources(index, name, addresses):
        gateways = {**source, **gateways}
    return gateways


def _sources(index: int, name: str, addresses: Addresses) -> t.Iterator[dict[str, str]]:
    yield networkd(files.text_or_empty(f"{NETWORKD}/leases/{index}"), addresses)
    for folder in DHCLIENT:
        for path in _newest(folder, "dhclient*.lease*"):
            yield dhclient(files.text_or_empty(path), name, addresses)
    for folder, beginning in DHCPCD.items():
        yield message(_bytes(f"{folder}/{beginning}{name}.lease"), addresses)
    yield network_file("\n".join(files.text_or_empty(path) for path in _network_files(index)))
    for folder in NETWORKMANAGER:
        for path in _newest(folder, "*.nmconnection"):
            yield keyfile(files.text_or_empty(path), name, addresses)


def _newest(folder: str, pattern: str) -> list[str]:
    """Return the files of a folder, the newest first."""
    dated = []
    for path in Path(folder).glob(pattern):
        with contextlib.suppress(OSError):
            dated.append((os.stat(path).st_mtime, str(path)))
    return [path for _time, path in sorted(dated, reverse=True)]


def _bytes(path: str) -> bytes:
    """Return the content of a regular file; empty if it cannot be read."""
    try:
        with files.regular(path, errors="surrogateescape", newline="") as file:
            return file.read().encode("utf-8", "surrogateescape")
    except OSError:
        return b""


def _network_files(index: int) -> list[str]:
    """Return the file by which systemd-networkd configures a link, and its drop-ins."""
    state = files.text_or_empty(f"{NETWORKD}/links/{index}")
    values = dict(line.partition("=")[::2] for line in state.splitlines())
    names = f"{values.get('NETWORK_FILE', '')}:{values.get('NETWORK_FILE_DROPINS', '')}"
    return [path for path in re.split(r'[:"\s]+', names) if path]
