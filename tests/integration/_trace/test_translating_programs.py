# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A probe that BPF programs of this collection translate: a twin has their effect, and that of no other program."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab import Lab, bpf
from lab.load_balancer import PROBE_SOURCE, PROBE_TRANSLATED
from lab.node import NamespaceNode
from lab.steps import Steps

OWN = re.compile(r"kubenode_[0-9a-z]{4}_([ie]) \((?:tcx|tc) of eth0\)")


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    Steps(node, "nftables_probe_snat", {"backend": "bpf", "permanent": False}).run()
    return node


def trace(lab: Lab, node: NamespaceNode, **options: Any) -> dict[str, Any]:
    packet = {"source": PROBE_SOURCE, "destination": lab.pod("pod1").address, "destination_port": 8080, "interface": "eth0"}
    before = node.snapshot()
    result = Steps(node, "datapath_trace", {"packet": packet, **options}).run()
    assert node.snapshot() == before
    return result


def snapshot_of(node: NamespaceNode) -> dict[str, Any]:
    snapshot: dict[str, Any] = Steps(node, "datapath_info").run()["snapshot"]
    return snapshot


def test_a_probe_is_translated_for_certain_and_the_programs_are_named(lab: Lab, node: NamespaceNode) -> None:
    node.run(["nft", "-f", "-"], "table inet own { chain c { type filter hook forward priority 0; counter; }; }")
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
    for options in ({}, {"snapshot": snapshot_of(node)}):
        found = trace(lab, node, **options)
        assert (found["verdict"], found["reply"]["verdict"], found["certain"]) == ("delivered", "forwarded", True)
        assert (found["packet"]["source"], found["reply"]["packet"]["destination"]) == (PROBE_TRANSLATED, PROBE_SOURCE)
        for way, direction, address in ((found, "i", PROBE_TRANSLATED), (found["reply"], "e", PROBE_SOURCE)):
            (step,) = (step for step in way["steps"] if step["kind"] == "rule" and step["where"] != "inet own c")
            program = OWN.fullmatch(step["text"])
            assert program and program[1] == direction
            assert step["where"] == "link eth0" and f"[{address}]" in step["packet"]
        assert all(OWN.search(sentence) for sentence in found["assumed"]) and len(found["assumed"]) == 2


def test_what_meets_no_probe_says_nothing_of_programs(lab: Lab, node: NamespaceNode) -> None:
    packet = {"source": "2001:db8:9::9", "destination": lab.pod("pod1").address, "destination_port": 8080, "interface": "eth0"}
    found = trace(lab, node, packet=packet)
    assert (found["verdict"], found["certain"], found["assumed"]) == ("delivered", True, [])
    assert [step["kind"] for step in found["steps"]] == ["in", "route", "out"]


def test_another_program_on_the_path_stays_open_and_is_the_one_that_is_named(lab: Lab, node: NamespaceNode) -> None:
    bpf.attach(node, "tcx", "cil_from_netdev")
    found = trace(lab, node)
    assert (found["verdict"], found["certain"]) == ("unknown", False)
    assert found["culprit"] == {"kind": "bpf", "text": "cil_from_netdev (tcx of eth0)"}
    assert "kubenode_" not in found["reason"] and f"[{PROBE_TRANSLATED}]" in found["reason"]


@pytest.mark.parametrize("lack", ["tag", "probes", "another version"])
def test_a_program_that_is_known_by_its_name_alone_stays_open(lab: Lab, node: NamespaceNode, lack: str) -> None:
    snapshot = snapshot_of(node)
    for program in snapshot["bpf"]:
        program["tag"] = "0123456789abcdef" if lack == "another version" else program["tag"]
        program.pop(lack, None)
    found = trace(lab, node, snapshot=snapshot)
    assert found["verdict"] == "unknown" and OWN.search(found["culprit"]["text"])


@pytest.mark.parametrize("is_own", [True, False])
def test_what_if_they_were_detached_or_attached(lab: Lab, node: NamespaceNode, is_own: bool) -> None:
    def what_if(**options: Any) -> tuple[str, str, bool]:
        snapshot = {} if is_own else {"snapshot": snapshot_of(node)}
        found = trace(lab, node, changes=[{"nftables_probe_snat": options}], **snapshot)
        return found["before"]["verdict"], found["verdict"], found["certain"]

    assert what_if(state="absent") == ("delivered", "rejected", True)
    assert what_if(state="absent", table="another") == ("delivered", "delivered", True)
    assert what_if(backend="bpf") == ("delivered", "delivered", True)
    Steps(node, "nftables_probe_snat", {"state": "absent", "permanent": False}).run()
    assert what_if(backend="bpf") == ("rejected", "delivered", True)
