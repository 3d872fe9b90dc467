# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes on a node with BPF programs: those of this collection translate them, and those of Cilium come before a table."""

from __future__ import annotations

from typing import Any

import pytest

from lab import Lab, bpf
from lab.node import NamespaceNode
from lab.steps import Steps

CHECKS = ["probe-untranslated", "probe-no-way-back", "probe-table-beside-cilium"]
CILIUM = "cil_from_netdev"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    return node


def audit(node: NamespaceNode, **options: Any) -> list[dict[str, Any]]:
    asked = {"checks": CHECKS, "context": {"cloud": "azure"}, **options}
    findings: list[dict[str, Any]] = Steps(node, "datapath_audit", asked).run()["findings"]
    return findings


def translate(node: NamespaceNode, **options: Any) -> dict[str, Any]:
    return Steps(node, "nftables_probe_snat", {"permanent": False, **options}).run()


def test_programs_of_this_collection_translate_as_the_table_does(node: NamespaceNode) -> None:
    assert [finding["id"] for finding in audit(node)] == ["probe-untranslated"]
    translate(node, backend="bpf")
    assert audit(node) == []
    node.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=0"])
    (finding,) = audit(node)
    assert (finding["id"], finding["state"], finding["proof"]) == ("probe-no-way-back", "present", "twin")
    assert finding["evidence"][0].startswith("BPF program kubenode_")
    translate(node, state="absent")
    assert [finding["id"] for finding in audit(node)] == ["probe-untranslated"]


def test_a_node_of_cilium_has_the_programs_as_the_remedy(node: NamespaceNode) -> None:
    bpf.attach(node, "tcx", CILIUM)
    (finding,) = audit(node)
    assert (finding["id"], finding["state"], finding["severity"]) == ("probe-untranslated", "present", "note")
    assert finding["remedy"]["options"] == {"interface": "eth0", "backend": "bpf"}
    assert "backend: bpf" in finding["remedy"]["task"]
    assert f"eth0 tcx ingress {CILIUM}" in finding["evidence"] and CILIUM in finding["what"]
    assert CILIUM in finding["unless"][0] and finding["ask"].startswith("tcpdump -ni eth0 ")  # a twin has no such program
    translate(node, **finding["remedy"]["options"])
    (finding,) = audit(node)  # what Cilium's program does with the translated probe stays open
    assert (finding["id"], finding["state"]) == ("probe-no-way-back", "cannot_tell") and CILIUM in finding["what"]


def test_programs_at_xdp_come_before_any_remedy(node: NamespaceNode) -> None:
    bpf.attach(node, "XDP", "cil_xdp_entry")
    (finding,) = audit(node)
    assert (finding["id"], finding["state"]) == ("probe-untranslated", "present")
    assert "acceleration to disabled" in finding["remedy"]["operator"]


def test_the_table_beside_cilium_leads_to_the_programs(node: NamespaceNode) -> None:
    translate(node, table="another")
    bpf.attach(node, "ingress", CILIUM)
    by_check = {finding["id"]: finding for finding in audit(node)}
    assert by_check.keys() == {"probe-no-way-back", "probe-table-beside-cilium"}
    finding = by_check["probe-table-beside-cilium"]
    assert finding["what"].startswith("If Cilium replaces kube-proxy") and "shared probe mode" in finding["what"]
    translate(node, **finding["remedy"]["options"])
    assert "probe-table-beside-cilium" not in {finding["id"] for finding in audit(node)}
    assert not node.run(["nft", "list", "tables"]).stdout


@pytest.mark.parametrize("name", ["ipv6_hp_ingress", "kubenode_0000_i"])
def test_another_program_that_may_translate_leaves_it_open(node: NamespaceNode, name: str) -> None:
    """Microsoft's, or one of another version of this collection, of which outputs show no more than the name."""
    bpf.attach(node, "tcx", name)
    bpf.attach(node, "tcx", CILIUM)
    (finding,) = audit(node)
    assert (finding["id"], finding["state"], finding["remedy"]) == ("probe-untranslated", "cannot_tell", None)
