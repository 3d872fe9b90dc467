# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend bpf through real boots: systemd, a unit that is killed, stopped or updated, and a link that comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from lab import Lab, Node, bpf
from lab.container import SystemdNode
from lab.node import POD_PORT
from lab.waiting import until

UNIT = "kubenode-bpf-azureSLBProbe.service"
ANOTHER = [{"source": "fe80::10", "translated": "2001:db8:ffff::10"}]


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with Lab("bpf", nodes=[Node("node1", pods=["pod1"], system="bookworm")]) as lab:
        lab.node("node1").place_kubelet_stand_in()
        yield lab


@pytest.fixture
def node(running: Lab) -> SystemdNode:
    """A node with the programs, before a program that hands probes to the pod as Cilium's do."""
    node: SystemdNode = running.node("node1")
    assert not run(node)["failed"]
    return node


def run(node: SystemdNode, **options: object) -> dict[str, object]:
    result: dict[str, object] = node.module("nftables_probe_snat", {"backend": "bpf", **options})
    assert not result["failed"], result
    return result


def is_answered(lab: Lab) -> bool:
    answered: bool = lab.load_balancer.probe_tcp(lab.pod("pod1").address, POD_PORT)
    return answered


def shown(node: SystemdNode, unit: str, name: str) -> str:
    return node.run(["systemctl", "show", "--value", f"--property={name}", unit]).stdout.strip()


def test_each_boot_attaches_the_programs_before_kubelet_starts(running: Lab, node: SystemdNode) -> None:
    for _boot in range(2):
        node.reboot()
        assert shown(node, UNIT, "ActiveState") == "active" and is_answered(running)
        ready = int(shown(node, UNIT, "ActiveEnterTimestampMonotonic"))
        assert ready <= int(shown(node, "kubelet.service", "ExecMainStartTimestampMonotonic"))
    assert not run(node)["changed"]


def test_a_unit_that_is_killed_or_stopped_leaves_probes_answered(running: Lab, node: SystemdNode) -> None:
    node.run(["systemctl", "kill", "--signal=KILL", UNIT])
    assert is_answered(running)
    until(f"{UNIT} is active again", lambda: shown(node, UNIT, "ActiveState"), node, expected="active")
    node.run(["systemctl", "stop", UNIT])
    assert is_answered(running)
    assert run(node)["changed"] and shown(node, UNIT, "ActiveState") == "active"


def test_what_others_remove_comes_back_in_front(running: Lab, node: SystemdNode) -> None:
    pod = running.pod("pod1")
    bpf.detach(node, "tcx", probe_programs.name("azureSLBProbe", "ingress"))
    bpf.detach(node, "tcx egress", probe_programs.name("azureSLBProbe", "egress"))
    bpf.attach(node, "tcx", "cil_from_netdev", to=pod.link)
    until("probes are answered again", lambda: is_answered(running), node)


def test_an_update_and_absent_reach_the_unit(running: Lab, node: SystemdNode) -> None:
    run(node, probes=ANOTHER)
    assert not is_answered(running) and not run(node, probes=ANOTHER)["changed"]
    run(node)
    assert is_answered(running)
    error = node.module("nftables_probe_snat", {"backend": "bpf", "state": "absent", "permanent": False})
    assert f"{UNIT} is active and would undo the change" in error["msg"]
    run(node, state="absent")
    assert not is_answered(running)
    assert node.run(["systemctl", "--failed", "--no-legend"]).stdout == "" and not node.exists(f"/etc/systemd/system/{UNIT}")
