# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup after azure-vnet itself: its rules go, those of others stay, and all are restored byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, Node, azure_vnet
from lab.azure_vnet import BRIDGE, CILIUM, CONFLIST
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.upstream import AzureVnet
from lab.upstream.azure_vnet import Mode
from lab.waiting import until

PODS = {"pod1": "192.0.2.100", "pod2": "192.0.2.101"}
FOREIGN = [
    "-t nat -A PREROUTING -p IPv4 -i eth0 --ip-dst 10.99.0.1 -j dnat --to-dst 02:aa:00:00:00:01 --dnat-target ACCEPT",
    "-t filter -A FORWARD -p IPv4 --ip-proto tcp --ip-dport 80 -j mark --mark-set 0x5 --mark-target CONTINUE",
]
OF_NODE, OF_POD = {"bridge": 3, "tunnel": 4}, 2
"""How many rules azure-vnet adds for the node in each mode, and for each pod."""


@pytest.fixture(params=OF_NODE)
def mode(request: pytest.FixtureRequest) -> Mode:
    mode: Mode = request.param
    return mode


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab("upstream", nodes=[Node("node1", pods=list(PODS))]) as running:
        yield running


@pytest.fixture
def program(lab: Lab, azure_vnet_binary: Path, mode: Mode) -> AzureVnet:
    """azure-vnet, which has connected the pods of a node with rules of another program. Cilium serves the node now."""
    node: NamespaceNode = lab.node("node1")
    program = AzureVnet(azure_vnet_binary, node, mode)
    for name, address in PODS.items():
        program.add(lab.pod(name), address)
    azure_vnet.ebtables(node, FOREIGN)
    node.write(CONFLIST, azure_vnet.conflist("azure-vnet", "portmap"), 0o600)
    node.write(CILIUM, azure_vnet.conflist("cilium-cni"), 0o600)
    until("the bridge is up", lambda: "state UP" in node.run_from_host(["ip", "link", "show", BRIDGE]))
    return program


def neighbours(node: NamespaceNode) -> list[str]:
    return sorted(node.run_from_host(["ip", "neighbour", "show", "dev", BRIDGE, "nud", "permanent"]).splitlines())


def end(lab: Lab, *names: str) -> None:
    """End pods without azure-vnet, as when another CNI has taken its place."""
    for name in names:
        lab.pod(name).ip(["link delete eth0"])


def test_rules_of_live_pods_are_kept(lab: Lab, program: AzureVnet, mode: Mode) -> None:
    node = program.node
    before = azure_vnet.rules(node)
    assert len(before) == OF_NODE[mode] + OF_POD * len(PODS) + len(FOREIGN)
    cleanup = Steps(node, "ebtables_cleanup")
    assert not cleanup.run()["changed"]
    end(lab, "pod1")
    removed = cleanup.four()["removed"]
    assert [PODS["pod1"] in entry["rule"] for entry in removed] == [True] * OF_POD
    assert azure_vnet.rules(node) == [rule for rule in before if f"{PODS['pod1']} " not in rule]


def test_all_rules_are_removed_and_restored_byte_for_byte(lab: Lab, program: AzureVnet, mode: Mode) -> None:
    node = program.node
    end(lab, *PODS)
    before = node.snapshot(), azure_vnet.listing(node), neighbours(node)
    foreign = [rule for rule in azure_vnet.rules(node) if "10.99.0.1" in rule or "--ip-dport" in rule]
    cleanup = Steps(node, "ebtables_cleanup")
    result = cleanup.four()
    assert len(result["removed"]) == OF_NODE[mode] + OF_POD * len(PODS)
    assert [entry["reason"].partition(":")[0] for entry in result["kept"]] == ["doubtful"]  # it has the shape of azure-vnet's
    assert (azure_vnet.rules(node), neighbours(node)) == (foreign, [])
    restored = cleanup.four(state="restored")
    assert (len(restored["restored"]), restored["differences"]) == (len(result["removed"]), [])
    assert (node.snapshot(), azure_vnet.listing(node), neighbours(node)) == before


def test_azure_vnet_deletes_the_rules_that_were_restored(lab: Lab, program: AzureVnet, mode: Mode) -> None:
    node = program.node
    end(lab, *PODS)
    cleanup = Steps(node, "ebtables_cleanup")
    cleanup.run()
    cleanup.run(state="restored")
    for name in PODS:
        program.delete(lab.pod(name))
    assert not [rule for rule in azure_vnet.rules(node) if any(address in rule for address in PODS.values())]
    assert len(azure_vnet.rules(node)) == OF_NODE[mode] + len(FOREIGN)
