# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AgentBaker's unit is taken over and restored: on a node that boots, with the metadata service that its script needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node, agentbaker
from lab.container import SystemdNode
from lab.metadata import WELL, Behaviour
from lab.probing import Probing
from lab.waiting import until

TABLE = "ip6 azureSLBProbe"
OURS = "kubenode-nft-ip6-azureSLBProbe.service"
UNIT = f"/etc/systemd/system/{OURS}"
DROP_IN = f"{agentbaker.UNIT}.d/kubenode-nft-ip6-azureSLBProbe.conf"
TAKE_OVER: dict[str, Any] = {"agentbaker": "take_over", "boot_condition": "imds"}
PACE = 0.01  # seconds between probes; without a pause more come than the pod's server accepts, and its backlog drops them
BOOTS = int(os.environ.get("KUBENODE_AGENTBAKER_BOOTS", "3"))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("aksimage", nodes=[Node("node1", pods=["pod1"], system="bookworm")], metadata=True) as running:
        running.node("node1").place_kubelet_stand_in()
        yield running


@pytest.fixture
def bare(lab: Lab) -> Iterator[SystemdNode]:
    """A node without a unit that loads the table."""
    node: SystemdNode = lab.node("node1")
    clean = node.snapshot()
    yield node
    lab.metadata.change(WELL)
    run(node, state="absent")
    node.run(["systemctl", "disable", "--quiet", "--now", agentbaker.NAME], check=False)
    for path in (agentbaker.UNIT, f"{agentbaker.UNIT}.d", agentbaker.RULESET, "/opt/scripts"):
        node.remove(path)
    node.run(["systemctl", "daemon-reload"])
    node.run(["nft", "delete", "table", *TABLE.split()], check=False)
    assert node.snapshot() == clean


@pytest.fixture
def node(bare: SystemdNode) -> SystemdNode:
    """A node of AKS, whose image loads the table."""
    agentbaker.place(bare)
    bare.run(["systemctl", "daemon-reload"])
    bare.run(["systemctl", "start", agentbaker.NAME])
    until("the table is there", lambda: has_table(bare), bare)
    return bare


def run(node: SystemdNode, check: bool = False, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = node.module("nftables_probe_snat", options, check=check, timeout=180)
    assert not result.get("failed"), result
    return result


def has_table(node: SystemdNode) -> bool:
    return f"table {TABLE}\n" in node.run(["nft", "list", "tables"]).stdout


def properties(node: SystemdNode, unit: str, *names: str) -> list[str]:
    return node.run(["systemctl", "show", "--value", *(f"--property={name}" for name in names), unit]).stdout.split()


def state_of(node: SystemdNode, unit: str) -> str:
    return properties(node, unit, "ActiveState")[0]


def four_steps(node: SystemdNode, **options: Any) -> None:
    """Checked, run, checked again, run again: the run does what check mode predicts, and a further run changes nothing."""
    before = node.snapshot()
    foretold = run(node, check=True, **options)
    assert foretold["changed"] and node.snapshot() == before
    assert run(node, **options) == foretold
    for check in (True, False):
        assert not run(node, check=check, **options)["changed"]


def take_over(node: SystemdNode, **options: Any) -> None:
    result = run(node, **{**TAKE_OVER, **options})
    assert (result["changed"], result["managed_by"], result["agentbaker"]) == (True, None, "enabled")
    expect_ours(node)


def expect_ours(node: SystemdNode) -> None:
    assert (state_of(node, OURS), state_of(node, agentbaker.NAME)) == ("active", "inactive")


def give_back(node: SystemdNode, before: dict[str, Any]) -> None:
    result = run(node, state="absent")
    assert (result["changed"], result["managed_by"]) == (True, agentbaker.NAME)
    expect_theirs(node, before)


def expect_theirs(node: SystemdNode, before: dict[str, Any]) -> None:
    assert properties(node, agentbaker.NAME, "ActiveState", "UnitFileState") == ["active", "enabled"]
    until("the node is as before", lambda: node.snapshot() == before, node)


def test_the_unit_is_taken_over_and_given_back_without_a_lost_probe(lab: Lab, node: SystemdNode) -> None:
    before, pod = node.snapshot(), lab.pod("pod1").address
    with closing(Probing(lambda: lab.load_balancer.probe_tcp(pod, 8080, timeout=0.9), PACE)) as probing:
        four_steps(node, **TAKE_OVER)
        expect_ours(node)
        four_steps(node, state="absent")
        expect_theirs(node, before)
    assert not probing.record.lost and probing.record.sent > 50, probing.record.lost


def test_each_boot_has_the_table_before_kubelet(lab: Lab, node: SystemdNode) -> None:
    before = node.snapshot()
    take_over(node)
    for boot in range(BOOTS):
        node.reboot()
        assert TABLE in node.kubelet_starts()[-1].tables, boot
        assert properties(node, agentbaker.NAME, "ActiveState", "ConditionResult") == ["inactive", "no"]
        assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
    assert not run(node, **TAKE_OVER)["changed"]
    give_back(node, before)
    node.reboot()
    until("the table is there", lambda: has_table(node), node)
    assert properties(node, agentbaker.NAME, "ActiveState", "ConditionResult") == ["active", "yes"]


def test_neither_nftables_service_nor_a_start_of_the_former_unit_loses_the_table(node: SystemdNode) -> None:
    take_over(node)
    for event in ("start", "restart", "stop"):
        node.run(["systemctl", event, "nftables.service"])
        until(f"the table is back after {event}", lambda: has_table(node), node)
    node.run(["systemctl", "restart", agentbaker.NAME])
    assert state_of(node, agentbaker.NAME) == "inactive"
    assert not run(node, **TAKE_OVER)["changed"]


@pytest.mark.thorough
def test_the_former_unit_may_come_after_ours(bare: SystemdNode) -> None:
    run(bare, **TAKE_OVER)
    agentbaker.place(bare)
    before = bare.snapshot()
    assert not run(bare, **TAKE_OVER)["changed"]
    bare.reboot()
    assert TABLE in bare.kubelet_starts()[-1].tables
    assert properties(bare, agentbaker.NAME, "ActiveState", "ConditionResult") == ["inactive", "no"]
    assert not run(bare, **TAKE_OVER)["changed"] and bare.snapshot() == before


def test_our_unit_beside_a_former_one_that_came_later_is_put_right(bare: SystemdNode) -> None:
    """Both are enabled: a run without the option agentbaker gives way to the former unit, and one with it takes it over."""
    run(bare)
    agentbaker.place(bare)
    bare.run(["systemctl", "daemon-reload"])
    bare.reboot()
    until("AgentBaker's unit is active", lambda: state_of(bare, agentbaker.NAME), bare, expected="active")
    take_over(bare)
    back = run(bare)
    assert back["changed"] and back["managed_by"] == agentbaker.NAME
    assert not bare.exists(UNIT) and not bare.exists(DROP_IN)
    assert state_of(bare, agentbaker.NAME) == "active" and has_table(bare)
    assert not run(bare)["changed"]


def test_a_former_unit_that_tries_again_and_again_ends(lab: Lab, node: SystemdNode) -> None:
    lab.metadata.change(Behaviour(fault="refused"))
    node.run(["systemctl", "restart", agentbaker.NAME])
    until("AgentBaker's unit has failed", lambda: properties(node, agentbaker.NAME, "SubState"), node, expected=["auto-restart"])
    run(node, agentbaker="take_over")
    until("AgentBaker's unit is inactive", lambda: state_of(node, agentbaker.NAME), node, expected="inactive")
    run(node, state="absent")  # AgentBaker's unit fails again, for its own reasons
    assert properties(node, agentbaker.NAME, "SubState")[0] in ("auto-restart", "running")
    assert has_table(node)
    lab.metadata.change(WELL)
    until("AgentBaker's unit is active", lambda: state_of(node, agentbaker.NAME), node, expected="active")


def test_a_table_of_other_options_is_handed_over_as_the_former_unit_loads_it(node: SystemdNode) -> None:
    before = node.snapshot()
    take_over(node, priority=-290)
    give_back(node, before)
    node.run(["systemctl", "restart", agentbaker.NAME])  # nft refuses another priority for existing chains
    until("AgentBaker's unit is active", lambda: state_of(node, agentbaker.NAME), node, expected="active")
    assert node.snapshot() == before


def test_a_unit_that_fails_leaves_the_former_one_in_charge(node: SystemdNode) -> None:
    node.write(f"{UNIT}.d/operator.conf", "[Service]\nExecStart=\nExecStart=/bin/false\n")
    before = node.snapshot()
    failed = node.module("nftables_probe_snat", TAKE_OVER, timeout=180)
    assert failed["failed"] and "All changes were undone" in failed["msg"], failed
    until("the node is as before", lambda: node.snapshot() == before, node)
    assert state_of(node, agentbaker.NAME) == "active" and state_of(node, OURS) == "inactive"
    node.remove(f"{UNIT}.d")


def test_absent_completes_an_absent_that_was_killed(node: SystemdNode) -> None:
    """As after a kill between the removal of the collection's unit and the start of AgentBaker's."""
    before = node.snapshot()
    take_over(node)
    for path in (f"/etc/systemd/system/multi-user.target.wants/{OURS}", UNIT):
        node.remove(path)
    node.run(["systemctl", "daemon-reload"])
    give_back(node, before)


def test_a_table_on_the_running_node_alone_leaves_the_boot_to_the_former_unit(node: SystemdNode) -> None:
    before = node.snapshot()
    result = run(node, permanent=False, agentbaker="take_over")
    assert not result["changed"] and result["managed_by"] == agentbaker.NAME
    assert node.snapshot() == before


@pytest.mark.parametrize("option", sampled(["report", "take_over"], lambda option: option == "take_over"))
def test_files_without_an_enabled_unit_own_nothing(bare: SystemdNode, option: str) -> None:
    """As on Azure Container Linux."""
    agentbaker.place(bare, is_enabled=False)
    before = bare.snapshot()
    result = run(bare, agentbaker=option)
    assert result["changed"] and (result["managed_by"], result["agentbaker"]) == (None, "disabled")
    bare.reboot()
    assert TABLE in bare.kubelet_starts()[-1].tables
    assert not run(bare, agentbaker=option)["changed"]
    assert run(bare, state="absent")["changed"]
    assert bare.snapshot() == before and state_of(bare, agentbaker.NAME) == "inactive"
