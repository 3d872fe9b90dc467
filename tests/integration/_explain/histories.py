# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories of a node: changes of which a connection survives all but one to three, as real packets tell, and what ``explain``
says of the snapshots before and after.

A guilty change ends the connection alone, beside all innocent ones. ``python3 tests/toolchain.py run python -m
integration._explain.histories FIRST COUNT`` prints each history whose guilty changes are not exact, and the counts.
"""

from __future__ import annotations

import collections
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._explain import explain_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.differences import Change
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.explanation import Explanation
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.node_differences import Difference
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance
from lab import network
from lab.entering import LabError
from lab.machine import Machine
from lab.network import Connection

from .._audit import mutations
from .._audit.layouts import LAYOUTS, Layout
from .._audit.mutation_trials import snapshot_of
from .._trace import random_nodes

DUMP = os.environ.get("HISTORY", "")  # a file for the snapshots of the last history, and its packet
FEWEST, MOST = 5, 50  # innocent changes
MOST_GUILTY, ATTEMPTS = 3, 300
EXACT, INNOCENT, MISSED, OPEN = "exact", "innocent named", "missed", "not known"


class History(NamedTuple):
    """guilty: for each guilty change, the texts of its differences."""

    seed: int
    layout: str
    connection: Connection
    innocent: Sequence[mutations.Mutation]
    guilty: Mapping[str, frozenset[str]]
    explanation: Explanation
    seconds: float

    @property
    def verdict(self) -> str:
        named = {*map(_identity, self.explanation.guilty)}
        if not named:  # a guilty change that another one hides is none
            return OPEN if self.guilty or self.explanation.is_loss else EXACT
        if named - {text for texts in self.guilty.values() for text in texts}:
            return INNOCENT
        return EXACT if all(named & texts for texts in self.guilty.values()) else MISSED

    def __str__(self) -> str:
        lines = [f"{self.verdict}: seed {self.seed}, {self.layout}, {len(self.innocent)} innocent, {self.seconds:.1f} s"]
        lines += [f"    {self.connection.sender} {self.connection.source} > {self.connection.destination}:{self.connection.port}"]
        lines += [f"    guilty: {change}: {', '.join(texts)}" for change, texts in self.guilty.items()]
        return "\n".join([*lines, f"    said: {self.explanation.sentence}"])


def _identity(change: Change) -> str:
    """Return what is the same of a change before and after the explanation has let nft write its rule."""
    return " ".join(change.source) or change.text


class _Node:
    """A node that is built anew whenever a change has ended its connection."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextmanager
    def built(self, changes: Sequence[mutations.Mutation]) -> Iterator[tuple[Layout, Mapping[str, Machine], Sequence[Any]]]:
        layout = LAYOUTS[self.name]()
        with network.built(layout) as machines, network.listening(machines) as listeners:
            for change in changes:
                change.apply(machines)
            yield layout, machines, listeners


def _passes(connection: Connection, machines: Mapping[str, Machine], listeners: Sequence[Any]) -> bool:
    """Return whether a connection is complete; a busy machine may be slow, so one that is not is tried again."""
    for machine in machines.values():
        machine.run_from_host(["sh", "-c", "ip -4 route flush cache; ip -6 route flush cache"])
    return any(connection in network.Exchange(machines, listeners, [connection]).complete for _attempt in range(2))


def _is_of_packets(change: mutations.Mutation) -> bool:
    """Return whether a small packet through the node shows it: not where the node answers no request of ARP, so that none comes
    in, where a router's MAC address is wrong, or where only large ones are lost.
    """
    return not change.is_unknowable and change.kind != "mtu" and "arp_ignore" not in change.change


def history(seed: int, most: int = MOST) -> History:
    """Draw changes until as many are innocent and guilty as are wanted, and explain the whole. most: innocent changes."""
    chance = random.Random(seed)
    node = _Node(chance.choice([*LAYOUTS]))
    count, wanted = chance.randint(FEWEST, most), chance.randint(1, MOST_GUILTY)
    with node.built(()) as (layout, machines, listeners):
        connections = [each for each in layout.connections() if not each.length and each.port]
        connection = next(each for each in chance.sample(connections, len(connections)) if _passes(each, machines, listeners))
    innocent: list[mutations.Mutation] = []
    guilty: list[tuple[mutations.Mutation, frozenset[str]]] = []
    for _attempt in range(ATTEMPTS):
        if len(innocent) >= count and len(guilty) >= wanted:
            break
        with node.built(innocent) as (layout, machines, listeners):
            without = snapshot_of(layout, machines)
            while len(innocent) < count or len(guilty) < wanted:
                change = mutations.drawn(layout, machines, chance)
                try:
                    change.apply(machines)
                except LabError:
                    break
                after = snapshot_of(layout, machines)
                if _passes(connection, machines, listeners):
                    if len(innocent) >= count:
                        break
                    innocent.append(change)
                    without = after
                    continue
                texts = frozenset(_identity(each) for each in Difference(without, after).changes)
                # A change of iptables loads all of its rules, so that a second one would make the first undone.
                is_apart = all(change.kind != other.kind and not texts & found for other, found in guilty)
                if texts and len(guilty) < wanted and is_apart and _is_of_packets(change):
                    guilty.append((change, texts))
                break
    while True:
        try:
            with node.built(()) as (layout, machines, _listeners):
                before = snapshot_of(layout, machines)
                for change in (*innocent, *(change for change, _texts in guilty)):
                    change.apply(machines)
                after = snapshot_of(layout, machines)
            break
        except LabError:  # two guilty changes of one object
            guilty.pop()
    if DUMP:
        Path(DUMP).write_text(json.dumps([before, after, connection.packet]))
    started = time.monotonic()
    packet = entrance.packet(connection.packet, before)
    explained = explain_backend.explain(before, after, packet, {}, random_nodes.run)
    seconds = time.monotonic() - started
    # With a link that goes down, the kernel removes what another change removed: that is in no snapshot.
    shown = {_identity(each) for each in Difference(before, after).changes}
    named = {str(change): texts & shown for change, texts in guilty if texts & shown}
    return History(seed, node.name, connection, innocent, named, explained, seconds)


def main() -> None:
    first, count = map(int, sys.argv[1:])
    verdicts: collections.Counter[str] = collections.Counter()
    seconds = []
    for seed in range(first, first + count):
        each = history(seed)
        verdicts[each.verdict] += 1
        seconds.append(each.seconds)
        if each.verdict != EXACT:
            print(each, flush=True)
        print(f"{seed}: {dict(verdicts)}", file=sys.stderr, flush=True)
    print(f"{dict(verdicts)}, {sum(seconds) / len(seconds):.1f} s each, {max(seconds):.1f} s at most")


if __name__ == "__main__":
    main()
