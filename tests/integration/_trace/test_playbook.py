# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``trace``, on a folder of outputs and on nodes."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, playbook
from lab.playbook import Played

CASE = Path(__file__).parent / "cases/azure-vnet-leftovers"
PACKET = {"source": "10.240.0.4", "destination": "10.240.0.32", "destination_port": 80, "interface": "eth0"}
CULPRIT = "-A PREROUTING -p IPv4 -i eth0 --ip-dst 10.240.0.32 -j dnat --to-dst a2:96:88:20:cb:c6 --dnat-target ACCEPT"


def play(inventory: Path, **variables: Any) -> Played:
    played = playbook.play(inventory, "kubenode.datapath.trace", variables=variables)
    assert "skipping: " not in played.output
    return played


def test_a_folder_of_outputs_needs_no_node(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"nodes": {"hosts": {"unreachable.invalid": {}}}}')
    files = {name: tmp_path / name for name in ("trace_text", "trace_html", "trace_mermaid")}
    done = play(
        inventory, trace_dump=str(CASE), trace_packet=str(PACKET), **{name: str(path) for name, path in files.items()}
    ).well()
    text = files["trace_text"].read_text()
    assert f"\n! rule     bridge nat PREROUTING        {CULPRIT}  -> accept\n" in text and "\nWhat helps\n" in text
    assert text in done.output, "as text, and not quoted"
    page, chart = files["trace_html"].read_text(), files["trace_mermaid"].read_text()
    assert CULPRIT in page and str(CASE) in page and chart.startswith("flowchart TB\n") and ":::bad" in chart


def test_a_line_of_tcpdump_is_a_packet(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"nodes": {"hosts": {}}}')
    line = "12:34:56.789012 eth0  In  IP 10.240.0.4.40000 > 10.240.0.32.80: Flags [S], seq 1, win 64240, length 0"
    done = play(inventory, trace_dump=str(CASE), trace_packet=line).well()
    assert f"! rule     bridge nat PREROUTING        {CULPRIT}" in done.output


def test_a_node_of_a_bundle_of_many(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"nodes": {"hosts": {}}}')
    with tarfile.open(tmp_path / "nodes.tar.xz", "w:xz") as archive:
        archive.add(CASE, "node1")
        archive.add(CASE.parent / "eni-loadbalancer", "node2")
    given = {"trace_dump": str(tmp_path / "nodes.tar.xz"), "trace_packet": str(PACKET)}
    assert "node must be one of the nodes of the bundle: node1, node2" in play(inventory, **given).output
    assert f"! rule     bridge nat PREROUTING        {CULPRIT}" in play(inventory, **given, trace_node="node1").well().output


@pytest.mark.each_core
def test_nodes_are_traced_there_or_on_the_controller_and_each_has_a_page(lab: Lab, tmp_path: Path) -> None:
    for number in (1, 2):
        lab.node(f"node{number}")
    pod = lab.pod("pod1")
    inventory = lab.write_inventory(tmp_path / "inventory.json")
    given = {"trace_packet": {"destination": pod.address, "destination_port": 8080}, "trace_reply": "false"}
    refused = play(inventory, **given, trace_html=str(tmp_path / "answer.html"))
    assert refused.failed and "the run has 2 nodes. Nothing was traced" in refused.output
    for more in ({}, {"trace_on_controller": "true", "trace_print": "false"}):
        done = play(inventory, **given, **more, trace_html=f"{tmp_path}/pages/").well()
        assert (f"\nnode1\ndelivered by {pod.link}: " in done.output) is ("trace_print" not in more)
        assert {page.name for page in tmp_path.glob("pages/*")} == {"node1.html", "node2.html"}
        page = (tmp_path / "pages/node1.html").read_text()
        assert "<dd>node1</dd>" in page and "<dd>the running node</dd>" in page and "kernel " in page
        assert re.search(r"<dt>Time</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</dd>", page), "of the snapshot"
