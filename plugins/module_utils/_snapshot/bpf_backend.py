# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""BPF programs of links, read from the running node."""

from __future__ import annotations

import socket

from .._netlink import bpf, rtnetlink
from .._platform import process
from .snapshot import Notes


def programs(_run: process.Runner, note: Notes) -> list[dict[str, str]]:
    """Return the BPF programs of links, at XDP, tcx and tc. Raises Failure."""
    attached = [(link, program) for link, those in bpf.of_links(dict(socket.if_nameindex())).items() for program in those]
    for link, direction, kind in sorted(
        {(link, program.direction, program.kind) for link, program in attached if program.kind != rtnetlink.BPF}
    ):
        note(f"{link} tc {direction}", f"Filters of kind {kind} are not read. List them with: tc filter show")
    return [
        {"link": link, "hook": program.hook, "direction": program.direction, "name": program.name}
        for link, program in attached
        if program.kind == rtnetlink.BPF
    ]
