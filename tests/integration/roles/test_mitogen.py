# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection with mitogen's strategy, by which one Python on the node serves all tasks of a play."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Node
from lab.controller import Controller

ROLE: dict[str, Any] = {"ansible.builtin.include_role": {"name": "kubenode.datapath.aks_dual_stack"}}
CUTTING = {"rules": [{"priority": 700, "to": "192.0.2.1", "action": "blackhole"}], "checkpoint": 10}
HARMLESS = {"rules": [{"priority": 700, "to": "203.0.113.1", "action": "blackhole"}], "checkpoint": 60}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with Lab("mitogen", nodes=[Node("node0")]) as lab:
        yield Controller(lab.load_balancer, tmp_path, lab.nodes)


def play(controller: Controller, *tasks: dict[str, Any], strategy: str = "mitogen_linear") -> str:
    """The output of the play, which has run all tasks or failed."""
    package = importlib.util.find_spec("ansible_mitogen")
    assert package and package.origin
    environment = {"ANSIBLE_STRATEGY_PLUGINS": str(Path(package.origin).parent / "plugins/strategy")}
    process = controller.start(tasks, "-vvvv", strategy=strategy, environment=environment)
    said, _nothing = process.communicate(timeout=120)
    assert "Traceback" not in said and ("SSH: EXEC" in said) == (strategy == "linear"), said
    return said


def test_a_role_is_run_and_found_converged(controller: Controller) -> None:
    assert "changed=1" in play(controller, ROLE)
    (node,) = controller.nodes
    assert "azureSLBProbe" in node.read("/etc/kubenode/probe-snat.nft")  # there is no systemd, so that it is loaded at the boot
    assert "changed=0" in play(controller, ROLE, ROLE, ROLE)
    assert "changed=0" in play(controller, ROLE, strategy="linear")


def test_a_change_is_confirmed_over_a_new_connection_or_rolled_back(controller: Controller) -> None:
    (node,) = controller.nodes
    assert "changed=1" in play(controller, {"kubenode.datapath.policy_routes": HARMLESS})
    assert "203.0.113.1" in node.run(["ip", "rule"]).stdout and node.exists("/etc/kubenode/policy-routes-75.json")
    said = play(controller, {"kubenode.datapath.policy_routes": CUTTING})
    assert "was rolled back at" in said and "as it was not confirmed over a new connection within 10 s" in said
    rules = node.run(["ip", "rule"]).stdout
    assert "203.0.113.1" in rules and "192.0.2.1" not in rules
