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
from contextlib import contextmanager, suppress
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
from .._audit.layouts import LAYOUTS, Layout, TwoUplinks, Vpn
from .._audit.mutation_trials import snapshot_of
from .._trace import random_nodes

DUMP = os.environ.get("HISTORY", "")  # a file for the snapshots of the last history, and its packet
FEWEST, MOST = 5, 50  # innocent changes
MOST_GUILTY, ATTEMPTS = 3, 60
EXACT, INNOCENT, MISSED, OPEN = "exact", "innocent named", "missed", "not known"
# A router forwards no packet that has a link-local source (RFC 4291, 2.5.6). The far end is the router here, and would answer.
LINK_LOCAL = """
nft 'table ip6 router { chain forward {
    type filter hook prerouting priority -150; meta l4proto { tcp, udp } ip6 saddr fe80::/10 ip6 daddr 2000::/3 drop
}; }'
"""
# Two providers, each of which drops what has a source of the other one (BCP 38), as a cloud does: a reply by the other uplink is
# no innocent one.
SOURCE_CHECK = """
sysctl -q -w net.ipv4.conf.up0.rp_filter=1 net.ipv4.conf.up1.rp_filter=1
nft 'table ip6 providers { chain check {
    type filter hook prerouting priority -150; iifname { up0, up1 } ip6 saddr != fe80::/10 fib saddr . iif oif missing drop
}; }'
"""


class Guilty(NamedTuple):
    """A change that ends the connection, with the texts of the differences that it makes."""

    mutation: mutations.Mutation
    texts: frozenset[str]


class History(NamedTuple):
    """guilty: for each guilty change, the texts of its differences. partners: those of innocent changes without which a guilty
    one does not end the connection, so that both are the cause.
    """

    seed: int
    layout: str
    connection: Connection
    innocent: Sequence[mutations.Mutation]
    guilty: Mapping[str, frozenset[str]]
    partners: frozenset[str]
    explanation: Explanation
    seconds: float

    @property
    def verdict(self) -> str:
        named = {*map(_identity, self.explanation.guilty)}
        if not named:  # a guilty change that another one hides is none
            return OPEN if self.guilty or self.explanation.is_loss else EXACT
        if named - self.partners - {text for texts in self.guilty.values() for text in texts}:
            return INNOCENT
        return EXACT if all(named & texts for texts in self.guilty.values()) else MISSED

    def __str__(self) -> str:
        lines = [f"{self.verdict}: seed {self.seed}, {self.layout}, {len(self.innocent)} innocent, {self.seconds:.1f} s"]
        lines += [f"    {self.connection.sender} {self.connection.source} > {self.connection.destination}:{self.connection.port}"]
        lines += [f"    guilty: {change}: {', '.join(sorted(texts))}" for change, texts in self.guilty.items()]
        return "\n".join([*lines, f"    said: {self.explanation.sentence}"])


def _identity(change: Change) -> str:
    """Return what is the same of a change before and after the explanation has let nft write its rule."""
    return " ".join(change.source) or change.text


def _texts(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(_identity, Difference(before, after).changes))


@contextmanager
def _built(
    name: str, changes: Sequence[mutations.Mutation] = ()
) -> Iterator[tuple[Layout, Mapping[str, Machine], Sequence[Any]]]:
    layout = LAYOUTS[name]()
    with network.built(layout) as machines, network.listening(machines) as listeners:
        machines["world"].run(["sh", "-ec", LINK_LOCAL + (SOURCE_CHECK if isinstance(layout, (TwoUplinks, Vpn)) else "")])
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


def _drawn(
    name: str, connection: Connection, counts: tuple[int, int], chance: random.Random
) -> tuple[Sequence[mutations.Mutation], Sequence[Guilty]]:
    """Draw innocent and guilty changes, as many as are wanted of each, or as are found in some attempts; each guilty one ends the
    connection beside all innocent ones.
    """
    innocent: list[mutations.Mutation] = []
    guilty: list[mutations.Mutation] = []
    proved: list[Guilty] = []
    for _attempt in range(ATTEMPTS):
        if len(innocent) >= counts[0] and len(guilty) >= counts[1]:
            proved = [*_proved(name, connection, innocent, guilty)]
            guilty = [each.mutation for each in proved]
            if len(guilty) >= counts[1]:
                break
        with _built(name, innocent) as (layout, machines, listeners):
            while len(innocent) < counts[0] or len(guilty) < counts[1]:
                change = mutations.drawn(layout, machines, chance)
                try:
                    change.apply(machines)
                except LabError:
                    break
                if _passes(connection, machines, listeners):
                    if len(innocent) >= counts[0]:
                        break
                    innocent.append(change)
                    continue
                is_apart = all(change.kind != each.kind for each in guilty)
                if len(guilty) < counts[1] and is_apart and _is_of_packets(change):
                    guilty.append(change)
                break
    else:
        proved = [*_proved(name, connection, innocent, guilty)]
    return innocent, proved


def _proved(
    name: str, connection: Connection, innocent: Sequence[mutations.Mutation], changes: Sequence[mutations.Mutation]
) -> Iterator[Guilty]:
    """Yield those changes that end the connection beside all innocent ones: beside what was drawn later, one may do nothing."""
    for change in changes:
        # A later change may have removed the object of this one.
        with suppress(LabError), _built(name) as (layout, machines, listeners):
            before = snapshot_of(layout, machines)
            for each in innocent:
                each.apply(machines)
            without = _texts(before, snapshot_of(layout, machines))
            change.apply(machines)
            every = _texts(before, snapshot_of(layout, machines))
            # With a link, the kernel removes a route by which an innocent change was innocent: no snapshot shows that.
            if without < every and not _passes(connection, machines, listeners):
                yield Guilty(change, every - without)


def history(seed: int, most: int = MOST) -> History:
    """Draw changes until as many are innocent and guilty as are wanted, and explain the whole. most: innocent changes."""
    chance = random.Random(seed)
    name = chance.choice([*LAYOUTS])
    counts = chance.randint(FEWEST, most), chance.randint(1, MOST_GUILTY)
    with _built(name) as (layout, machines, listeners):
        connections = [each for each in layout.connections() if not each.length and each.port]
        connection = next(each for each in chance.sample(connections, len(connections)) if _passes(each, machines, listeners))
    innocent, guilty = _drawn(name, connection, counts, chance)
    while True:
        try:
            with _built(name) as (layout, machines, listeners):
                before = snapshot_of(layout, machines)
                for change in (*innocent, *(each.mutation for each in guilty)):
                    change.apply(machines)
                after = snapshot_of(layout, machines)
                if not guilty or not _passes(connection, machines, listeners):
                    break
        except LabError:  # two guilty changes of one object
            pass
        guilty = guilty[:-1]
    if DUMP:
        Path(DUMP).write_text(json.dumps([before, after, connection.packet]))
    started = time.monotonic()
    packet = entrance.packet(connection.packet, before)
    explained = explain_backend.explain(before, after, packet, {}, random_nodes.run)
    seconds = time.monotonic() - started
    # With a link that goes down, the kernel removes what another change removed: that is in no snapshot.
    shown = _texts(before, after)
    named = {str(each.mutation): each.texts & shown for each in guilty if each.texts & shown}
    unexpected = {*map(_identity, explained.guilty)} - {text for texts in named.values() for text in texts}
    partners = _partners(name, connection, innocent, guilty, unexpected)
    return History(seed, name, connection, innocent, named, partners, explained, seconds)


def _partners(
    name: str, connection: Connection, innocent: Sequence[mutations.Mutation], guilty: Sequence[Guilty], named: set[str]
) -> frozenset[str]:
    """Return those texts of innocent changes that are named and without which a guilty one does not end the connection."""
    found: set[str] = set()
    for change in innocent if named else ():
        rest = [each for each in innocent if each is not change]
        for each in guilty:
            try:
                with _built(name) as (layout, machines, listeners):
                    before = snapshot_of(layout, machines)
                    for other in (*rest, each.mutation):
                        other.apply(machines)
                    if _passes(connection, machines, listeners):
                        found |= named - _texts(before, snapshot_of(layout, machines))
            except LabError:  # which a later change needs
                continue
    return frozenset(found)


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
