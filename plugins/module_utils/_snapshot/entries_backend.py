# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the node's rules, routes and neighbours."""

from __future__ import annotations

import typing as t

from .._core.fields import IPV4, IPV6
from .._netlink import wire
from .._platform import process
from .._routing.neighbour import HEADER
from .._routing.routing_backend import GETNEIGH, Netlink
from . import entries
from .snapshot import Notes

NTF_PROXY = 0x08  # include/uapi/linux/neighbour.h


def rules(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the rules of both families in the kernel's order. Raises Failure."""
    current = Netlink().rules()
    for rule, _protocol in current:
        if rule.unread:
            note(str(rule), "Its entry lacks these attributes.")
    return [entries.rule(*owned) for owned in current]


def routes(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the routes of both families and all tables. Raises Failure."""
    current = Netlink().routes()
    for route, _protocol in current:
        if entries.unread(route):
            note(str(route), "Its entry lacks these attributes.")
    return [entries.route(*owned) for owned in current]


def neighbors(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the neighbours of both families, without those that the kernel itself creates, and the proxies. Raises Failure."""
    backend = Netlink()
    names = backend.links()
    bodies = [body for family in (IPV4, IPV6) for body in wire.dump(GETNEIGH, _proxies(family), "the proxies of neighbours")]
    return [*map(entries.neighbour, backend.neighbours()), *(entries.proxy(body, names) for body in bodies)]


def _proxies(family: int) -> bytes:
    return HEADER.pack(family, 0, 0, NTF_PROXY, 0)
