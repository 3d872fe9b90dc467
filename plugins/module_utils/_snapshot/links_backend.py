# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the node's links and their addresses."""

from __future__ import annotations

import typing as t

from .._interfaces import interfaces_backend
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Address
from .._platform import process
from . import link as model
from .snapshot import Notes


def links(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return all links of the node's network namespace, by index. Raises Failure."""
    backend = LinkMessages()
    links, addresses = backend.links(), backend.addresses()
    names = {link.number: link.name for link in links}
    interfaces = interfaces_backend.read()
    for namespace in interfaces.unread:
        note(namespace, "The links of this network namespace could not be read.")
    peers = {(interface.namespace, interface.number): interface for interface in interfaces.interfaces}
    of_link: dict[int, list[Address]] = {}
    for address in addresses:
        of_link.setdefault(address.link, []).append(address)
    shown = []
    for link in sorted(links):
        peer = model.peer(link, peers, interfaces.peers) if link.kind == model.VETH else None
        if link.kind == model.VETH and peer is None:
            note(link.name, "Its other end was not found.")
        elif link.kind != model.VETH and model.lower(link).namespace is not None:
            note(link.name, f"The link below it, {model.lower(link).number}, is in another network namespace.")
        if not model.is_read_in_full(link):
            note(link.name, f"Links of kind {link.kind} have settings that this collection does not read.")
        shown.append(model.entry(link, names, of_link.get(link.number, ()), peer))
    return shown
