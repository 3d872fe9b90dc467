# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what pods have themselves: addresses, rules, routes, neighbours and listening sockets."""

from __future__ import annotations

import os
import typing as t

from .._cni import cni_backend
from .._core import fields
from .._core.errors import Failure
from .._files import files
from .._interfaces import interfaces_backend
from .._interfaces.interface import Interface, other_ends
from .._netfilter import chains_backend
from .._netlink import nfnetlink, sock_diag, wire
from .._platform import kernel, process
from .._routing import routing_backend, rt_names
from .._routing.route import LOCAL
from . import entries, proc_net
from .snapshot import Notes

LOOPBACK = {1: "lo"}  # which has no MAC address, so that it is not among the interfaces


def pods(_run: process.Runner, note: Notes, with_listeners: bool = True) -> list[dict[str, t.Any]]:
    """Return what each network namespace with an end of a veth of the node has itself: its addresses, as its table local has
    them, its rules, its other routes, its neighbours, whether it has rules of netfilter, and its listening sockets.

    with_listeners: a trace needs none of these.
    """
    interfaces = interfaces_backend.read().interfaces
    by_namespace: dict[str, list[Interface]] = {end.namespace: [] for end in other_ends(interfaces).values()}
    for interface in interfaces:
        by_namespace.get(interface.namespace, []).append(interface)
    sides: dict[str, dict[str, t.Any]] = {}
    diagnosis = [sock_diag.SOCK_DIAG] if with_listeners and has_diagnosis() else []
    netfilter = [wire.NETFILTER] if kernel.is_ready("nf_tables") else []
    for namespace in interfaces_backend.entered(by_namespace, *diagnosis, *netfilter):
        name = namespace.name
        try:
            is_filtered = any(nfnetlink.has_rules(namespace.opener(each)) for each in netfilter) or _has_legacy_tables(name)
            side = {"netfilter": is_filtered, **_side(by_namespace[name], namespace.opener())}
            sides[name] = {"namespace": name, **side}
            opener = namespace.opener(sock_diag.SOCK_DIAG) if diagnosis else None
            sides[name].update(_listeners(name, opener) if with_listeners else {})
        except (OSError, Failure) as error:
            if interfaces_backend.exists(name):  # otherwise the pod has ended
                note(name, f"The routes of this network namespace could not be read: {error}.")
    return [sides[name] for name in by_namespace if name in sides]


def _side(inside: t.Sequence[Interface], opener: wire.Opener) -> dict[str, t.Any]:
    """Return the side of a pod. inside: its interfaces. Raises OSError, Failure."""
    names = LOOPBACK | {interface.number: interface.link for interface in inside}
    rules, routes = routing_backend.listed_rules(opener), routing_backend.listed_routes(names, opener)
    neighbours = routing_backend.listed_neighbours(names, opener)
    local = [route for route, _protocol in routes if route.type == LOCAL]
    return {
        "addresses": [fields.show_prefix(route.dst, "") for route in local],
        "bridged": sorted(interface.link for interface in inside if interface.master),
        "rules": [entries.rule(*listed) for listed in rules],
        "routes": [entries.route(*listed) for listed in routes if listed[0].table != rt_names.TABLES["local"]],
        "neighbors": [entries.neighbour(neighbour) for neighbour in neighbours],
    }


def _has_legacy_tables(namespace: str) -> bool:
    """Return whether a namespace has tables of iptables-legacy; False if no process in it is known."""
    folder = _proc_net(namespace)
    names = (os.path.basename(path) for path, _program in chains_backend.LEGACY.values())
    return bool(folder) and any(chains_backend.legacy_tables(f"{folder}/{name}") for name in names)


def _proc_net(namespace: str) -> str:
    """Return the folder with what the kernel says of a namespace; empty if no process in it is known."""
    process_id = namespace.removeprefix("process ")
    return f"/proc/{process_id}/net" if process_id.isdigit() else ""


def has_diagnosis() -> bool:
    """Return whether the kernel lists sockets without loading a module for it."""
    try:
        return kernel.is_ready(sock_diag.MODULE) and sock_diag.listeners() is not None
    except Failure:  # a kernel without it
        return False


def listening(folder: str = "/proc/net", opener: wire.Opener | None = None) -> list[dict[str, t.Any]]:
    """Return the listening TCP sockets by port and address, each once. Raises Failure.

    opener: opens a socket for sock_diag.listeners(). folder: has what is read without one.
    """
    if opener:
        sockets = [{"address": fields.show(address), "port": port} for address, port in sock_diag.listeners(opener)]
    else:
        sockets = []
        for path in filter(os.path.exists, (f"{folder}/{name}" for name in proc_net.SOCKETS)):
            with files.answering(path):
                sockets += proc_net.listeners(files.text(path))
    once = {(entry["port"], entry["address"]): entry for entry in sockets}
    return [once[key] for key in sorted(once)]


def _listeners(namespace: str, opener: wire.Opener | None) -> dict[str, t.Any]:
    """Return the listening sockets of a namespace; nothing if no process in it is known. Raises Failure."""
    folder = _proc_net(namespace)
    return {"listeners": listening(folder, opener)} if folder else {}


def neighbors(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the permanent neighbours at the other ends of the node's veths, each with the name of the node's end."""
    interfaces = interfaces_backend.read().interfaces
    ends_of: dict[str, dict[int, str]] = {}
    for node_end, end in other_ends(interfaces).items():
        ends_of.setdefault(end.namespace, {})[end.number] = node_end.link
    permanent_neighbours = []
    for namespace in interfaces_backend.entered(ends_of):
        ends = ends_of[namespace.name]
        try:
            listed = routing_backend.listed_neighbours(ends, namespace.opener())
        except (OSError, Failure) as error:
            if interfaces_backend.exists(namespace.name):  # otherwise the pod has ended
                note(namespace.name, f"The neighbours of this network namespace could not be read: {error}.")
            continue
        permanent = (entry for entry in listed if entry.is_permanent and entry.link in ends.values())
        permanent_neighbours += [{"link": entry.link, "address": entry.address, "mac": entry.mac} for entry in permanent]
    return permanent_neighbours


def addresses(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the addresses of each pod by its name, as the container runtime recorded them."""
    return [attachment.entry() for attachment in cni_backend.attachments()]
