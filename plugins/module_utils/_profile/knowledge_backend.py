# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the facts that a profile's modules refer to: from systemd and the namespaces, the metadata service and the interfaces."""

from __future__ import annotations

import os
import socket
import typing as t

from .._core.errors import Invalid
from .._platform import kernel, node_mode, process
from . import knowledge
from .knowledge import Values


def learn(options: t.Mapping[str, t.Any], run: process.Runner) -> Values:
    """The facts by name, as the options mode, enis and ipv6 ask for them. Raises Invalid, NoMetadata."""
    verdict = node_mode.by_controller(options["mode"], "", ()) or node_mode.by_node(_seen(run), "")
    values = knowledge.of_mode(verdict.is_image, verdict.reason)
    enis, ipv6 = options["enis"], options["ipv6"]
    if enis:
        asked = _interfaces(enis["cloud"]) if knowledge.asks_for_enis(enis, verdict.is_image) else None
        seen = knowledge.UNSEEN if verdict.is_image else _marks(run)
        values |= knowledge.of_enis(enis, verdict.is_image, asked, seen)
        if not verdict.is_image and not options["later_interfaces"]:
            check_interfaces(knowledge.named_interfaces(enis))
    if ipv6:
        variable = (options["variables"] or {}).get("ipv6.source", "ipv6.source")
        values |= knowledge.of_an_image(ipv6["source"], variable) if verdict.is_image else _ipv6(**ipv6, variable=variable)
    return values


def mode(options: t.Mapping[str, t.Any], run: process.Runner) -> Values:
    """The facts that removing a profile needs."""
    return learn({**options, "enis": None, "ipv6": None}, run)


def check_interfaces(named: t.Mapping[str, str]) -> None:
    """named: by option. Raises Invalid for an interface that the node does not have."""
    there = [name for _index, name in socket.if_nameindex()]
    for option, name in named.items():
        if name not in there:
            known = ", ".join(one for one in there if one != "lo")
            raise Invalid(option, name, f"an interface of this node ({known}), unless later_interfaces is true")


def _seen(run: process.Runner) -> node_mode.Seen:
    """The answer of the shell command node_mode.ASK, without a shell."""
    systemctl = process.find("systemctl")
    state = run([systemctl, "is-system-running"], None).stdout.strip() if systemctl else None
    namespaces = {kind: (_namespace("self", kind), _namespace("1", kind)) for kind in node_mode.KINDS}
    return node_mode.seen(state, namespaces, os.path.isdir("/proc/1/root/run/systemd/system"))


def _namespace(who: str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{who}/ns/{kind}")
    except OSError:
        return ""


def _interfaces(cloud: str) -> list[dict[str, t.Any]]:
    """From the metadata service, as imds_info returns them. Raises NoMetadata."""
    from .._cloud import enis_backend  # only a profile that asks should wait for the import

    return enis_backend.read(cloud)[1]


def _marks(run: process.Runner) -> knowledge.SeenMarks:
    """Raises Failure."""
    from .._cni import marks, marks_backend  # only a profile with ENIs should wait for the imports

    read = marks_backend.read(run)
    return knowledge.SeenMarks(marks.find(read.tables), read.unread)


def _ipv6(source: str, interface: str, variable: str) -> Values:
    if source == "imds":
        from .._cloud import imds_backend  # only a profile that asks should wait for the import

        asking = imds_backend.asking(imds_backend.primary_ipv6, "azure")
        _cloud, named = imds_backend.with_retries(asking, imds_backend.TIMEOUT, retries=imds_backend.RETRIES)
        names = f"names {', '.join(named) or 'no IPv6 address'} for the primary interface"
        return knowledge.of_ipv6(bool(named), f"the metadata service {names}")
    if source == "address":
        found = kernel.global_ipv6_addresses(interface)
        return knowledge.of_ipv6(bool(found), f"{interface} has {', '.join(found) or 'no global address'}")
    return knowledge.of_ipv6(source == "always", f"{variable} says so")
