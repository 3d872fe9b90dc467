# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads what the rules and routes of uplinks follow from: links, addresses, routes, leases. Starts no process."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import typing as t
from pathlib import Path

from .._core import fields
from .._files import files
from .._interfaces import link_message
from .._routing import routing_backend
from .._routing.routing_backend import Netlink
from . import leases
from .uplinks import Link, NodeState

UNIVERSE = 0  # the scope of an address, include/uapi/linux/rtnetlink.h
NETWORKD = "/run/systemd/netif"
NETWORKMANAGER = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")
DHCPCD = {"/var/lib/dhcpcd": "", "/var/lib/dhcpcd5": "dhcpcd-"}  # the beginning of a lease's name, by folder
DHCLIENT = ("/var/lib/dhcp", "/var/lib/dhclient", "/var/lib/NetworkManager")
LEASES = (f"{NETWORKD}/leases", *DHCPCD, *DHCLIENT)


def read(protocol: int) -> NodeState:
    """Return the state of the node. protocol: that of own routes, which are left out."""
    addresses = _addresses()
    links = [*map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC))]
    names = {link.number: link.name for link in links}
    return NodeState(
        {link.name: _link(link, names.get(link.master, ""), tuple(addresses.get(link.number, ()))) for link in links},
        [route for route, owner in Netlink().routes() if owner != protocol],
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


def _leases(index: int, name: str, addresses: leases.Addresses) -> dict[str, str]:
    """Return the gateways of a link that its leases and the files of network daemons name. A lease comes before a file."""
    gateways: dict[str, str] = {}
    for source in _sources(index, name, addresses):
        gateways = {**source, **gateways}
    return gateways


def _sources(index: int, name: str, addresses: leases.Addresses) -> t.Iterator[dict[str, str]]:
    yield leases.networkd(files.text_or_empty(f"{NETWORKD}/leases/{index}"), addresses)
    for folder in DHCLIENT:
        for path in _newest(folder, "dhclient*.lease*"):
            yield leases.dhclient(files.text_or_empty(path), name, addresses)
    for folder, beginning in DHCPCD.items():
        yield leases.message(_bytes(f"{folder}/{beginning}{name}.lease"), addresses)
    yield leases.network_file("\n".join(files.text_or_empty(path) for path in _network_files(index)))
    for folder in NETWORKMANAGER:
        for path in _newest(folder, "*.nmconnection"):
            yield leases.keyfile(files.text_or_empty(path), name, addresses)


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
    named = f"{values.get('NETWORK_FILE', '')}:{values.get('NETWORK_FILE_DROPINS', '')}"
    return [path for path in re.split(r'[:"\s]+', named) if path]
