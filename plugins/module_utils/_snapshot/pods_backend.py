# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the addresses and permanent neighbours of pods, and by which of its interfaces a pod with several of them answers."""

from __future__ import annotations

import typing as t

from .._cni import cni_backend
from .._core.errors import Failure
from .._interfaces import interfaces_backend
from .._interfaces.interface import Interface, other_ends
from .._platform import process
from .._routing import routing_backend
from . import entries
from .snapshot import Notes

LOOPBACK = {1: "lo"}  # which has no MAC address, so that it is not among the interfaces


def pods(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the rules and routes of each network namespace that has an end of a veth of the node, and a further interface."""
    interfaces = interfaces_backend.read().interfaces
    openers = interfaces_backend.openers()
    routings = []
    for namespace in _with_several_interfaces(interfaces):
        names = LOOPBACK | {interface.number: interface.link for interface in interfaces if interface.namespace == namespace}
        try:
            rules = routing_backend.listed_rules(openers[namespace])
            routes = routing_backend.listed_routes(names, openers[namespace])
        except (KeyError, OSError, Failure) as error:
            if namespace in interfaces_backend.openers():  # otherwise the pod has ended
                note(namespace, f"The routes of this network namespace could not be read: {error}.")
            continue
        routings.append(
            {
                "namespace": namespace,
                "rules": [entries.rule(*listed) for listed in rules],
                "routes": [entries.route(*listed) for listed in routes],
            }
        )
    return routings


def neighbors(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the permanent neighbours at the other ends of the node's veths, each with the name of the node's end."""
    interfaces = interfaces_backend.read().interfaces
    ends_of: dict[str, dict[int, str]] = {}
    for node_end, end in other_ends(interfaces).items():
        ends_of.setdefault(end.namespace, {})[end.number] = node_end.link
    permanent_neighbours = []
    for namespace, opener in interfaces_backend.openers().items():
        ends = ends_of.get(namespace, {})
        try:
            listed = routing_backend.listed_neighbours(ends, opener) if ends else []
        except (OSError, Failure) as error:
            if namespace in interfaces_backend.openers():  # otherwise the pod has ended
                note(namespace, f"The neighbours of this network namespace could not be read: {error}.")
            continue
        permanent = (entry for entry in listed if entry.is_permanent and entry.link in ends.values())
        permanent_neighbours += [{"link": entry.link, "address": entry.address, "mac": entry.mac} for entry in permanent]
    return permanent_neighbours


def addresses(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the addresses of each pod by its name, as the container runtime recorded them."""
    return [attachment.entry() for attachment in cni_backend.attachments()]


def _with_several_interfaces(interfaces: t.Sequence[Interface]) -> list[str]:
    """Return the names of the other namespaces, in the order of the interfaces."""
    namespaces = [interface.namespace for interface in interfaces if interface.namespace]
    joined = {end.namespace for end in other_ends(interfaces).values()}
    return [namespace for namespace in dict.fromkeys(namespaces) if namespace in joined and namespaces.count(namespace) > 1]
