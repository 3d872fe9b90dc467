# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers about a real node as people read them: a node port of a strict node, and a Service that translates both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid, terminal, trace_page, trace_result
from lab import Eni, EniLab
from lab.eni import CLIENT, PRIMARY
from lab.steps import Steps

NODE_PORT, POD_PORT, OFF, STRICT = 30080, 8080, 0, 1
ENIS = [Eni("eth1", pods=["pod1"], has_address=True)]
POD = ENIS[0].pod_address(0)
PACKET = {"source": CLIENT, "destination": PRIMARY.address, "destination_port": NODE_PORT, "interface": "eth0"}


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, dict[str, Any]]]:
    """By the filter of reverse paths and the backend of kube-proxy's rules."""
    traced = {}
    for name, filter_mode, backend in (
        ("lost", STRICT, "iptables"),
        ("iptables", OFF, "iptables"),
        ("nftables", OFF, "nftables"),
    ):
        with EniLab("answers", ENIS) as lab:
            node = lab.node("node1")
            node.filter_reverse_path(filter_mode)
            node.service(NODE_PORT, [POD], "Local" if name == "lost" else "Cluster", backend=backend)
            traced[name] = Steps(node, "datapath_trace", {"packet": PACKET}).run()
    yield traced


def test_a_lost_packet(answers: dict[str, dict[str, Any]]) -> None:
    answer = answers["lost"]
    text = terminal.trace(answer)
    first, *lines = text.splitlines()
    assert first.startswith("dropped: ") and "strict reverse-path filtering (net.ipv4.conf." in first
    assert lines.index("Packet: dropped") <= terminal.MOST_LINES
    task = answer["cures"][0]["task"].splitlines()
    assert all(f"    {line}" in lines for line in task)
    assert answer["culprit"]["text"] in trace_page.html(answer) and answer["culprit"]["text"] in mermaid.diagram(answer)


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_what_rules_and_connection_tracking_translate(answers: dict[str, dict[str, Any]], backend: str) -> None:
    answer = answers[backend]
    way = trace_result.read(answer).way
    assert way.reply
    request, reply = ([(step.kind, change) for step in each.steps for change in step.changes] for each in (way, way.reply))
    node_port, pod, client = f"{PRIMARY.address}:{NODE_PORT}", f"{POD}:{POD_PORT}", f"{CLIENT}:40000"
    masqueraded = f"{PRIMARY.address}:{answer['packet']['source_port']}"
    assert request == [("rule", ("destination", node_port, pod)), ("rule", ("source", client, masqueraded))]
    assert reply == [("out", ("source", pod, node_port)), ("out", ("destination", masqueraded, client))]
    page, chart = trace_page.html(answer), mermaid.diagram(answer)
    for change in (*request, *reply):
        assert change[1].after in page and change[1].after.replace(":", "#58;") in chart
