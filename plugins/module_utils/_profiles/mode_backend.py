# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the node whether it is an image, and for its links."""

from __future__ import annotations

import os
import socket
import typing as t

from .._core.errors import Invalid
from .._platform import node_mode, process
from .._platform.node_mode import ModeVerdict


def verdict(mode: str, run: process.Runner) -> ModeVerdict:
    """Return whether the host is a running node or an image. mode: the option."""
    return node_mode.by_controller(mode, "", ()) or node_mode.by_node(_answer(run), "")


def check_links(places: t.Mapping[str, str]) -> None:
    """Raise Invalid for an interface that the node does not have. places: the names of interfaces, by option.

    Raises Invalid for an interface that the node does not have.
    """
    links = [name for _index, name in socket.if_nameindex()]
    for option, name in places.items():
        if name not in links:
            names = ", ".join(link for link in links if link != "lo")
            raise Invalid(option, name, f"an interface of this node ({names}), unless later_interfaces is true")


def _answer(run: process.Runner) -> node_mode.Answer:
    """Return the answer of the shell command node_mode.ASK, without a shell."""
    systemctl = process.find("systemctl")
    state = run([systemctl, "is-system-running"], None).stdout.strip() if systemctl else None
    namespaces = {kind: (_namespace("self", kind), _namespace("1", kind)) for kind in node_mode.KINDS}
    return node_mode.answer_of(state, namespaces, os.path.isdir("/proc/1/root/run/systemd/system"))


def _namespace(pid: str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""
