# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law of substitutions: of a live node, odd or broken, the trace is certain only of what the node's own kernel does."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import Phase

from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend
from lab import network
from lab.collection import CHECKOUT

from . import odd_nodes, random_nodes

SNAPSHOT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from plugins.module_utils._platform import process
from plugins.module_utils._snapshot import snapshot, snapshot_backend

def run(argv, stdin=None, *_more):
    return process.run(argv, stdin, {"PATH": process.SEARCH_PATH})

print(json.dumps(snapshot_backend.read(run, snapshot.PACKET_PATH)))
"""
PACKETS = 6  # of a node, which takes longer to build than a packet takes to be sent
ARRIVED = ("delivered", "forwarded")


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[collections.Counter[str]]:
    """Counts the answers that are not certain, by the facts on which they depend. `make fuzz` prints it."""
    counts: collections.Counter[str] = collections.Counter()
    yield counts
    terminal: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal:
        terminal.write_line(f"\nof {counts['all']} answers: {dict(counts.most_common())}")


def answered(snapshot: dict[str, Any], connection: network.Connection) -> dict[str, Any]:
    asked = trace_backend.Question(snapshot, packet.from_options(connection.packet), {})
    return trace_backend.judge(asked, random_nodes.run).answer.plain()


@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=14, deadline=None, suppress_health_check=[*hypothesis.HealthCheck], phases=[Phase.generate])
def test_what_is_certain_is_what_the_kernel_does(seed: int, tally: collections.Counter[str]) -> None:
    node = odd_nodes.OddNode(seed)
    connections = node.chance.sample([*node.connections()], PACKETS)
    with network.built(node) as machines, network.listening(machines):
        snapshot = json.loads(machines["node"].run([sys.executable, "-c", SNAPSHOT, str(CHECKOUT)]).stdout)
        truth = network.connect(machines, connections)
    wrong = []
    for connection, is_made in truth.items():
        found = answered(snapshot, connection)
        arrives = found["verdict"] in ARRIVED and (found["reply"] or {}).get("verdict") in ARRIVED
        tally["all"] += 1
        for fact in found["depends_on"][:1]:
            tally[fact["fact"].partition(":")[0]] += 1
        if found["certain"] and arrives is not is_made:
            wrong.append((connection, is_made, found["verdict"], found["reason"], (found["reply"] or {}).get("reason")))
    assert not wrong, (node.layout, node.broken, wrong)
