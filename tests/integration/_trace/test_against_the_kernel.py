# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A packet through a twin has the same fate as through the node, and is certain only of what the kernel of the node does."""

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

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend
from lab import network
from lab.collection import CHECKOUT

from . import odd_nodes, random_nodes

# A packet through a twin of the snapshot or the pasted outputs of a node has the same fate as through the node


def traced(node: random_nodes.Node, snapshot: dict[str, Any]) -> dict[str, Any]:
    asked = trace_backend.Question(snapshot, packet.from_options(node.packet), {})
    return trace_backend.judge(asked, random_nodes.run).answer.plain()


def out(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The frame in the form of random_nodes.seen(); empty if no frame left."""
    left = found["packet"]
    if left is None:
        return []
    text = next(step["text"] for step in found["steps"] if step["kind"] == "out")
    return [(found["interface"], text, left["source_mac"], left["destination_mac"])]


@pytest.mark.parametrize("is_ipv6", [False, True])
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.example(1177)
@hypothesis.example(88262)
@hypothesis.example(274972339)
@hypothesis.example(1926225631)
@hypothesis.example(3966556414)
@hypothesis.settings(max_examples=16, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_node_and_twins_agree(is_ipv6: bool, seed: int) -> None:
    node = random_nodes.Node(seed, is_ipv6)
    real = random_nodes.through_the_node(node)
    expect_agreement(node, real, traced(node, real["snapshot"]))
    pasted = pastes.read(real["pastes"], node.packet["interface"])
    assert not pasted.assumed
    expect_agreement(node, real, traced(node, pasted.snapshot))


def expect_agreement(node: random_nodes.Node, real: dict[str, Any], twin: dict[str, Any]) -> None:
    is_ipv6, seen = node.is_ipv6, real["first"]
    said = f"{node.packet}\nnode: {seen}\ntwin: {twin['verdict']} {twin['interface']} {twin['packet']} {twin['reason']}"
    assert twin["verdict"] != "unknown", said
    if seen["out"]:
        assert out(twin) and out(twin)[0] in [tuple(one) for one in seen["out"]], said
    else:
        assert not out(twin), said
        if twin["verdict"] == "delivered":
            assert seen["delivered"], said
        else:
            # In IPv6, the answer of a neighbour is delivered as well; and if the source is the node's, so is the error.
            is_answered = is_ipv6 or any(f"addr add {node.packet['source']}/" in line for line in node.ip)
            assert (is_answered or not seen["delivered"]) and (twin["verdict"] == "rejected") == seen["rejected"], said
            assert twin["culprit"], said
        if real["dropping"]:
            # The culprit may be the rule that marked the packet, and the reason quotes both.
            assert any(rule in twin["reason"] for rule in real["dropping"]), (twin["reason"], real["dropping"])
    if real["reply"] is not None:
        reply = twin["reply"]
        told = reply and (reply["verdict"], reply["reason"], reply["packet"])
        said = f"{said}\nreply of the node: {real['reply']}\nof the twin: {told}"
        assert reply and reply["came_in_by"] == real["reply"]["by"], said
        assert bool(out(reply)) == bool(real["reply"]["out"]), said
        if out(reply):
            assert out(reply)[0] in [tuple(one) for one in real["reply"]["out"]], said


# The law of substitutions: of a live node, odd or broken, the trace is certain only of what the node's own kernel does


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
