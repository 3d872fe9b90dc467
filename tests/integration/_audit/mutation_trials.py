# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials of the audit: a healthy node is broken by one change, real packets tell what is lost, and the audit has to name it. Its
remedies are applied, and real packets tell what arrives then.

A change is unknowable, and counted apart if the audit does not name it, if nothing on the node differs from a node that is meant
to be so. That is one kind: a permanent neighbour on an uplink with a wrong MAC address. An administrator enters a router's in the
same way, and no other object of the node has the right one.

``python3 tests/toolchain.py run python -m integration._audit.mutation_trials FIRST COUNT`` prints a table.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import random
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import ERROR, PRESENT, RISK
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot
from lab import network
from lab.collection import CHECKOUT
from lab.entering import LabError
from lab.machine import Machine
from lab.network import Connection, Network

from .._trace import odd_nodes
from . import cure_trials, mutations
from .auditing import concluded
from .cure_trials import CURED, HARMED, NOT_CURED, Cure
from .layouts import LAYOUTS, Layout

# The software of the machine that the tests run on is no part of the node: of it, an audit gets what a namespace has of its own.
SUBSETS = (*snapshot.PACKET_PATH, "listeners", "pod_neighbors", "counters")
SNAPSHOT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from plugins.module_utils._platform import process
from plugins.module_utils._snapshot import snapshot_backend

def run(argv, stdin=None, *_more):
    return process.run(argv, stdin, {"PATH": process.SEARCH_PATH})

print(json.dumps(snapshot_backend.read(run, sys.argv[2:])))
"""
FOUND, OTHER, MISSED, UNKNOWABLE, FALSE, QUIET = "found", "other", "missed", "unknowable", "false", "quiet"


class Trial(NamedTuple):
    """lost: the connections that the change ends. findings: errors and risks that the healthy node does not have. cures: what
    became of their remedies. snapshot: of the broken node.
    """

    seed: int
    layout: str
    mutation: mutations.Mutation
    lost: Sequence[Connection]
    findings: Sequence[Mapping[str, Any]]
    cures: Sequence[Cure]
    seconds: Mapping[str, float]
    snapshot: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        if not self.lost:
            return FALSE if self.findings else QUIET
        if any(self.mutation.is_named_in(_decider(finding)) for finding in self.findings):
            return FOUND
        if self.mutation.is_unknowable:
            return UNKNOWABLE
        return OTHER if self.findings else MISSED

    def __str__(self) -> str:
        lines = [f"{self.verdict}: seed {self.seed}, {self.layout}, {self.mutation}; {len(self.lost)} paths lost"]
        lines += [f"    lost: {each.sender} {each.source} > {each.destination}:{each.port}" for each in self.lost[:3]]
        return "\n".join(
            [*lines, *(f"    {brief(finding)}" for finding in self.findings), *(f"    {cure}" for cure in self.cures)]
        )


def brief(finding: Mapping[str, Any]) -> str:
    return f"{finding['severity']} {finding['id']} {finding['subject']}: {finding['what']}"


def _decider(finding: Mapping[str, Any]) -> str:
    """Return what a finding says of the object that is wrong.

    Its packet, evidence and remedy are left out: these name the addresses of pods whatever is wrong.
    """
    trace = finding["trace"] or {}
    culprits = [way["culprit"]["text"] for way in (trace, trace.get("reply")) if way and way["culprit"]]
    return "\n".join([finding["subject"], finding["what"], *culprits])


def snapshot_of(node: Network, machines: Mapping[str, Machine]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(machines["node"].run([sys.executable, "-c", SNAPSHOT, str(CHECKOUT), *SUBSETS]).stdout)
    return {**read, snapshot.POD_ADDRESSES: node.records} if isinstance(node, Layout) else read


def audited(read: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the errors and risks that an audit finds present."""
    result = concluded(read)
    return [each for each in result["findings"] if each["state"] == PRESENT and each["severity"] in (ERROR, RISK)]


@functools.cache
def healthy(layout: str) -> tuple[dict[str, Any], ...]:
    """Return the errors and risks of a healthy node, which are false."""
    node = LAYOUTS[layout]()
    with network.built(node) as machines, network.listening(machines):
        return tuple(audited(snapshot_of(node, machines)))


def lost(layout: Layout, machines: Mapping[str, Machine], listeners: Sequence[Any]) -> list[Connection]:
    """Return the connections that are not complete. A busy machine may be slow, so one that is lost is tried again, without what
    machines have learnt of the sizes that other connections' paths pass.
    """
    waiting = [*layout.connections()]
    for _attempt in range(2):
        for machine in machines.values():
            machine.run_from_host(["sh", "-c", "ip -4 route flush cache; ip -6 route flush cache"])
        complete = network.Exchange(machines, listeners, waiting).complete
        waiting = [connection for connection in waiting if connection not in complete]
    return waiting


def trial(seed: int) -> Trial:
    """Build a node, break it, send its packets and audit it. If the kernel refuses a change, build another node for another."""
    chance = random.Random(seed)
    name = chance.choice([*LAYOUTS])
    healthy(name)
    while True:
        clock = Clock()
        layout = LAYOUTS[name]()
        with network.built(layout) as machines, network.listening(machines) as listeners:
            clock.stop("build")
            mutation = mutations.drawn(layout, machines, chance)
            try:
                mutation.apply(machines)
            except LabError:
                continue
            clock.stop("mutate")
            gone = lost(layout, machines, listeners)
            clock.stop("connect")
            read = snapshot_of(layout, machines)
            clock.stop("snapshot")
            findings = _without(audited(read), healthy(name))
            clock.stop("audit")
            still_lost = functools.partial(lost, layout, machines, listeners)
            cures = [*cure_trials.tried(machines["node"], findings, read, still_lost, gone)]
            clock.stop("cure")
        return Trial(seed, name, mutation, gone, findings, cures, clock.seconds, read)


def of_odd_node(seed: int) -> list[dict[str, Any]] | None:
    """Return the errors and risks of a random odd node that loses no packet, which are false; None for one that loses some."""
    node = odd_nodes.OddNode(seed)
    with network.built(node) as machines, network.listening(machines) as listeners:
        # A pod that is the endpoint of its Service need not reach itself.
        waiting = [each for each in node.connections() if each.port and (each.sender, each.port) != ("pod2", 80)]
        for _attempt in range(2):  # a busy machine may be slow
            complete = network.Exchange(machines, listeners, waiting).complete
            waiting = [connection for connection in waiting if connection not in complete]
        return None if waiting else audited(snapshot_of(node, machines))


def of_change(name: str, make: Callable[[mutations.Source], Iterator[mutations.Mutation]], change: str) -> Trial:
    """Return the trial of one change of a layout."""
    layout = LAYOUTS[name]()
    with network.built(layout) as machines, network.listening(machines) as listeners:
        sources = ((layout, machines, random.Random(seed)) for seed in range(99))  # each draws a machine
        mutation = next(each for source in sources for each in make(source) if each.change == change)
        mutation.apply(machines)
        gone = lost(layout, machines, listeners)
        read = snapshot_of(layout, machines)
        return Trial(0, name, mutation, gone, audited(read), (), {}, read)


def of_commands(name: str, commands: Mapping[str, Sequence[str]]) -> tuple[Sequence[Connection], Sequence[str]]:
    """Return what is lost after commands, and what errors and risks of an audit say is wrong. commands: by machine."""
    layout = LAYOUTS[name]()
    with network.built(layout) as machines, network.listening(machines) as listeners:
        for machine, lines in commands.items():
            for line in lines:
                machines[machine].run(shlex.split(line))
        gone = lost(layout, machines, listeners)
        return gone, [_decider(finding) for finding in audited(snapshot_of(layout, machines))]


def _without(findings: Sequence[Mapping[str, Any]], false: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    before = {(each["id"], each["subject"]) for each in false}
    return [each for each in findings if (each["id"], each["subject"]) not in before]


class Clock:
    """The seconds of the parts of a trial, and those in which a processor was busy for it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start, self._last = sum(os.times()[:4]), time.monotonic()

    def stop(self, part: str) -> None:
        last, self._last = self._last, time.monotonic()
        self.seconds |= {part: self._last - last, "of processors": sum(os.times()[:4]) - self._start}


def main() -> None:
    first, count = map(int, sys.argv[1:])
    for name in LAYOUTS:
        for finding in healthy(name):
            print(f"healthy {name}: {brief(finding)}", flush=True)
    trials = []
    for seed in range(first, first + count):
        done = trial(seed)
        trials.append(done)
        times = " ".join(f"{part} {seconds:.2f}" for part, seconds in done.seconds.items())
        print(f"{done}\n    [{times}]", flush=True)
    print(table(trials))


def table(trials: Sequence[Trial]) -> str:
    """Return the counts of verdicts by layout and by kind of mutation, and in all."""
    verdicts = (FOUND, OTHER, MISSED, UNKNOWABLE, FALSE, QUIET)
    counts: dict[str, collections.Counter[str]] = {}
    for each in trials:
        for row in (each.layout, each.mutation.kind, "all"):
            counts.setdefault(row, collections.Counter())[each.verdict] += 1
    rows = [name for name in (*LAYOUTS, *sorted({each.mutation.kind for each in trials}), "all") if name in counts]
    lines = [f"{name:30}" + "".join(f"{counts[name][verdict]:11}" for verdict in verdicts) for name in rows]
    listed = [
        f"{verdict}: seeds {' '.join(str(each.seed) for each in trials if each.verdict == verdict)}"
        for verdict in (OTHER, MISSED, FALSE)
    ]
    for verdict in (CURED, NOT_CURED, HARMED):
        seeds = [str(each.seed) for each in trials for cure in each.cures if cure.verdict == verdict]
        listed.append(f"{verdict}: {len(seeds)} remedies, seeds {' '.join(seeds)}")
    return "\n".join([" " * 30 + "".join(f"{verdict:>11}" for verdict in verdicts), *lines, *listed])


if __name__ == "__main__":
    main()
