# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of a load balancer: what they need, the programs that translate them, and the tables that a boot or a unit loses."""

from __future__ import annotations

from typing import Any

import pytest

from lab import Lab, bpf
from lab.node import NamespaceNode
from lab.steps import Steps

from .auditing import concluded, findings
from .healthy_nodes import KERNEL, Entry, Node

# Which checks count depends on what the load balancer probes: the node's health port, or the ports of each Service


AZURE = {"cloud": "azure"}
SHARED = {**AZURE, "probe_mode": "shared"}


def of_context(node: NamespaceNode, context: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The id, the state and the subject of each finding of the two checks."""
    found = findings(node, "probe-untranslated", "probe-port-closed", context=context)
    return [(finding["id"], finding["state"], finding["subject"]) for finding in found]


def test_the_shared_probe_ends_at_the_node_and_needs_no_translation(lab: Lab, node: NamespaceNode) -> None:
    node.ip([f"route add 10.240.0.5 dev {node.pods[0].link}"])
    server = node.serve(10256)
    assert lab.load_balancer.probe_http(node.address, 10256) is not None
    assert of_context(node, SHARED) == []
    assert of_context(node, {**AZURE, "probe_mode": "servicenodeport"}) == [("probe-untranslated", "present", "eth0")]
    assert of_context(node, AZURE) == [("probe-untranslated", "present", "eth0")]
    node.stop_serving(server)
    assert lab.load_balancer.probe_http(node.address, 10256) is None
    assert of_context(node, SHARED) == [("probe-port-closed", "present", f"{family} 10256") for family in ("ipv4", "ipv6")]
    assert of_context(node, AZURE) == [("probe-untranslated", "present", "eth0"), ("probe-port-closed", "cannot_tell", "")]
    assert of_context(node, {"cloud": "aws"}) == []


def test_a_port_that_is_open_to_the_node_alone_is_closed(node: NamespaceNode) -> None:
    node.ip([f"route add 10.240.0.5 dev {node.pods[0].link}"])
    snapshot = Steps(node, "datapath_info").run()["snapshot"]
    snapshot["listeners"] = [{"address": "127.0.0.1", "port": 10256}, {"address": node.address, "port": 10256}]
    (finding,) = findings(node, "probe-port-closed", snapshot=snapshot, context=SHARED)
    assert finding["subject"] == "ipv4 10256" and "LISTEN 127.0.0.1:10256" in finding["evidence"]


# Probes on a node with BPF programs: those of this collection translate them, and those of Cilium come before a table


CHECKS = ["probe-untranslated", "probe-no-way-back", "probe-table-beside-cilium"]
CILIUM = "cil_from_netdev"


def audit(node: NamespaceNode, **options: Any) -> list[dict[str, Any]]:
    return findings(node, *CHECKS, **{"context": AZURE, **options})


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


# Units that load tables, and one that flushes them


STATES: dict[str, dict[str, str]] = {
    "active": {"active": "active", "sub": "exited", "result": "success"},
    "failed": {"active": "failed", "sub": "failed", "result": "exit-code"},
    "stopped": {"active": "inactive", "sub": "dead", "result": "success"},
    "skipped": {"active": "inactive", "sub": "dead", "result": "exec-condition"},
    "tried again": {"active": "activating", "sub": "auto-restart", "result": "exit-code"},
    "starting": {"active": "activating", "sub": "start", "result": "success"},
    "without a result": {"active": "inactive", "sub": "dead"},
    "without systemd": {"active": "", "sub": "", "result": ""},
}
FOUND, OPEN = {"active", "failed", "stopped", "tried again"}, {"starting", "without a result", "without systemd"}


def unit(state: str) -> Entry:
    return {"name": f"kubenode-nft-inet-{state.replace(' ', '_')}.service", "is_enabled": True, **STATES[state]}


def lost(check: str, **subsets: Any) -> list[tuple[str, str]]:
    node = Node(KERNEL)
    node.snapshot.update(subsets)
    return [(finding["state"], finding["subject"] or finding["ask"]) for finding in concluded(node.done(), check)["findings"]]


@pytest.mark.parametrize("state", STATES)
def test_a_table_is_lost_unless_its_units_condition_skipped_it(state: str) -> None:
    found = ("present", f"inet {state.replace(' ', '_')}")
    lack = ("cannot_tell", f"systemctl show {unit(state)['name']}")
    assert lost("own-table-lost", units=[unit(state)]) == ([found] if state in FOUND else [lack] if state in OPEN else [])


@pytest.mark.parametrize(("name", "is_found"), [("kubenode_foax_i", False), ("kubenode_0000_i", True), ("cil_from_netdev", True)])
def test_programs_are_lost_if_no_link_has_those_of_the_units_table(name: str, is_found: bool) -> None:
    units = [{**unit("active"), "name": "kubenode-bpf-azureSLBProbe.service", "sub": "running"}]
    programs = [{"link": "eth0", "hook": "tcx", "direction": "ingress", "name": name}]
    found = lost("own-table-lost", units=units, bpf=programs)
    assert found == ([("present", "bpf azureSLBProbe")] if is_found else [])


def test_a_unit_whose_state_is_open_hides_no_other() -> None:
    names = "kubenode-nft-inet-without_systemd.service kubenode-nft-inet-starting.service"
    units = [unit(state) for state in ("without systemd", "failed", "starting", "stopped")]
    assert lost("own-table-lost", units=units) == [
        ("present", "inet failed"),
        ("present", "inet stopped"),
        ("cannot_tell", f"systemctl show {names}"),
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"is_enabled": True, "is_active": True, "is_masked": False}, "present"),
        ({"is_enabled": False, "is_active": True, "is_masked": False}, "present"),
        ({"is_enabled": False, "is_active": True, "is_masked": True}, ""),  # until the next boot
        ({"is_enabled": False, "is_active": True}, "cannot_tell"),
        ({"is_enabled": False, "is_active": False, "is_masked": False}, ""),
    ],
)
def test_a_masked_service_flushes_nothing_although_it_is_active(state: Entry, expected: str) -> None:
    tables = [{"table": {"family": "inet", "name": "other"}}]
    found = lost("flush-coming", nftables=tables, firewalls={"nftables.service": {**state, "flushes": True, "file": "/x"}})
    assert [each for each, _subject in found] == [*filter(None, [expected])]
