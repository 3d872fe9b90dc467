# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller reads the option ``dump`` of datapath_trace, and the module gets a snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes

CASES = Path(__file__).parents[2] / "integration/_trace/cases"
PACKET = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth7"}


class Node:
    """Stands for the module on the node: records its arguments, and answers like it."""

    def __init__(self, **result: Any) -> None:
        self.arguments: dict[str, Any] = {}
        self._result = {"assumed": ["by the module"], "ignored": [], **result}

    def run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.arguments = arguments
        return self._result


@pytest.mark.parametrize("name", ["azure-vnet-leftovers", "eni-loadbalancer"])
def test_the_module_gets_a_snapshot_that_json_keeps(name: str) -> None:
    node = Node()
    _pastes.trace({"packet": PACKET, "dump": str(CASES / name), "reply": False}, node.run)
    assert node.arguments.keys() == {"packet", "snapshot", "reply"}
    assert json.loads(json.dumps(node.arguments)) == node.arguments


@pytest.mark.parametrize("packet", [PACKET, json.dumps(PACKET)], ids=["a dictionary", "as a command line gives it"])
def test_the_snapshot_has_the_link_of_the_packet(packet: Any) -> None:
    node = Node()
    _pastes.trace({"packet": packet, "dump": {"ip route": "default via 10.0.0.1 dev eth0"}}, node.run)
    assert {"eth0", "eth7"} <= {link["name"] for link in node.arguments["snapshot"]["links"]}


@pytest.mark.parametrize("dump", [None, {"ip route": "default via 10.0.0.1 dev eth0"}], ids=["of a node", "of pastes"])
def test_a_line_of_text_is_the_same_packet(dump: Any) -> None:
    node = Node()
    _pastes.trace({"packet": "tcp 10.0.0.9 > 192.0.2.1:80 in eth7", "dump": dump}, node.run)
    assert node.arguments["packet"] == {**PACKET, "protocol": "tcp"}
    _pastes.trace({"packet": "tcp 10.0.0.9 > 192.0.2.1:80", "dump": dump}, node.run)
    assert node.arguments["packet"]["interface"] == "auto"
    result = _pastes.trace({"packet": "my packet", "dump": dump}, Node().run)
    assert result["failed"] and result["msg"].startswith("datapath_trace: packet must be a line such as tcp 10.0.0.1:40000 > ")


def test_the_module_gets_what_the_outputs_lack_and_the_result_has_the_lines_that_were_not_understood() -> None:
    dump = {"ip route": "default via 10.0.0.1 dev eth0\ngarbage\n", "pod-ip-route": "default via 10.0.0.1 dev eth0\n"}
    node = Node()
    result = _pastes.trace({"packet": PACKET, "dump": dump}, node.run)
    assert result["assumed"] == ["by the module"] and len(node.arguments["snapshot"]["assumed"]) == 1
    assert len(result["ignored"]) == 1 and "garbage" in result["ignored"][0]


@pytest.mark.parametrize("packet", [None, {"source": "10.0.0.9"}, {"destination": []}])
def test_the_module_names_what_is_wrong_with_a_packet(packet: Any) -> None:
    node = Node(failed=True, msg="packet is wrong")
    result = _pastes.trace({"packet": packet, "dump": {"ip route": "default via 10.0.0.1 dev eth0"}}, node.run)
    assert result["msg"] == "packet is wrong" and node.arguments["packet"] == packet


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dump": "/nowhere"}, "datapath_trace: dump must be a folder"),
        ({"dump": ""}, "datapath_trace: dump must be a folder"),
        ({"dump": {"\x1b": 5}}, "datapath_trace: dump.\\x1b must be the output of a command"),
        ({"dump": {"x": "y"}, "snapshot": {}}, "datapath_trace: dump must be left out if snapshot is given"),
    ],
)
def test_a_dump_that_cannot_be_read_is_named_and_no_module_runs(arguments: dict[str, Any], message: str) -> None:
    node = Node()
    result = _pastes.trace({"packet": PACKET, **arguments}, node.run)
    assert result["failed"] and result["msg"].startswith(message) and not node.arguments


def test_without_a_dump_the_module_runs_as_it_is() -> None:
    node = Node()
    assert _pastes.trace({"packet": PACKET, "dump": None}, node.run)["assumed"] == ["by the module"]
    assert node.arguments == {"packet": PACKET, "dump": None}
