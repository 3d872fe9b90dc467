# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is built by a layout: what becomes of real packets there, and what the trace says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Way
from lab import network
from lab.machine import Machine
from lab.network import Connection

from .._audit.layouts import Layout
from .._audit.mutation_trials import snapshot_of
from . import random_nodes


class Node(NamedTuple):
    """A node, and its snapshot."""

    machines: Mapping[str, Machine]
    listeners: Any
    snapshot: dict[str, Any]

    def passes(self, connection: Connection) -> bool:
        return connection in network.Exchange(self.machines, self.listeners, [connection]).complete

    def trace(self, connection: Connection) -> Way:
        question = trace_backend.Question(self.snapshot, entrance.packet(connection.packet, self.snapshot), {})
        return trace_backend.in_one_world(question, random_nodes.run).way


@contextmanager
def built(layout: Layout, words: str = "", machine: str = "node") -> Iterator[Node]:
    """Build the node of a layout, and run a command on a machine of it."""
    with network.built(layout) as machines, network.listening(machines) as listeners:
        if words:
            machines[machine].run(words.split())
        yield Node(machines, listeners, snapshot_of(layout, machines))
