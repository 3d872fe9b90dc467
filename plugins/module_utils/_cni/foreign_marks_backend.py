# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the marks that the node has of other programs. Read only; loads no kernel module."""

from __future__ import annotations

import contextlib
import socket
import typing as t

from .._core.errors import Failure
from .._interfaces import link_message
from .._netlink import sockets, wireguard
from .._platform import kernel
from .._routing import routing_backend
from .._ruleset.ruleset import ALL, Table
from . import foreign_marks
from .foreign_marks import ForeignMark

WIREGUARD = "wireguard"  # the kind of a link
# By the kernel's module that lists the sockets of a protocol, its number and name.
DIAGNOSING = {"tcp_diag": (socket.IPPROTO_TCP, "TCP"), "udp_diag": (socket.IPPROTO_UDP, "UDP")}


def read(tables: t.Iterable[Table], protocol: int, own: str, comment: str = "") -> list[ForeignMark]:
    """Return the marks. tables: those of the node. The other arguments are those of foreign_marks. Raises Failure."""
    return [
        *foreign_marks.of_rules(routing_backend.listed_rules(), protocol),
        *of_links(),
        *foreign_marks.of_tables(tables, own, comment),
        *_of_sockets(),
    ]


def of_links() -> t.Iterator[ForeignMark]:
    """Yield the marks that WireGuard links give to their outer packets. Raises Failure."""
    links = map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC))
    for link, mark in wireguard.marks([link.name for link in links if link.kind == WIREGUARD]).items():
        yield ForeignMark(mark, ALL, f"the WireGuard link {link}")


def _of_sockets() -> t.Iterator[ForeignMark]:
    """Yield the marks of sockets. A kernel without the module of a protocol does not list them."""
    for module, (number, name) in DIAGNOSING.items():
        with contextlib.suppress(Failure):
            for mark, port in (sockets.marks(number) if kernel.is_ready(module) else {}).items():
                yield ForeignMark(mark, ALL, f"a {name} socket with port {port}")
