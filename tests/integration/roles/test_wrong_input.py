# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong variables of the roles, one after another on one node: each is an error that names the variable, and nothing changes.

The controller refuses most of them before the node is asked, which unit/test_role_variables.py tests. Here are those that only
the node can refuse, and one of the others for each role.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, playbook
from lab.node import NamespaceNode

Wrong = tuple[str, Any]  # a variable without the role's prefix, and its value

PRIMARY = {"name": "eth0", "primary": True, "ipv4": ["192.0.2.10"]}
SECOND = {"name": "eth1", "gateway": {"ipv4": "10.0.1.1"}, "table": 1101, "ipv4": ["10.0.1.10"]}
UPLINKS = [{"name": "eth0", "gateway": "192.0.2.1"}, {"name": "eth1", "gateway": "10.0.1.1"}]
RIGHT: dict[str, dict[str, Any]] = {
    "eni_policy_routing": {
        "mode": "runtime",
        "layout": "custom",
        "connmark": "always",
        "pod_interfaces": ["veth-*"],
        "enis": [PRIMARY, SECOND],
    },
    "aks_dual_stack": {"mode": "runtime", "ipv6": "always"},
    "symmetric_routing": {"mode": "runtime", "uplinks": UPLINKS},
}
WRONG: dict[str, list[Wrong]] = {
    "eni_policy_routing": [
        *(("remedi", "loose"), ("enis", [PRIMARY, {**SECOND, "name": "eth9"}]), ("primary_interface", "eth9")),
        *(("mark", "{{ nothing_of_this_name }}"), ("protocol", "bird")),
    ],
    "aks_dual_stack": [
        *(("interface", "eth9"), ("path", "/nowhere/at/all.nft")),
        ("rehearse_packets", [{"destination": "nowhere"}]),
    ],
    "symmetric_routing": [
        *(("uplinks", [{"name": "eth1"}]), ("uplinks", [{"name": "eth9", "gateway": "192.0.2.1"}])),
        ("uplinks", [{**UPLINKS[0], "metric": 5}]),
    ],
}


@pytest.mark.parametrize("role", RIGHT)
def test_wrong_variables_are_told_by_name_and_leave_the_node_as_it_was(lab: Lab, tmp_path: Path, role: str) -> None:
    node: NamespaceNode = lab.node("node1")
    node.ip(["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up"])
    before = node.snapshot()
    inventory = lab.write_inventory(tmp_path / "inventory.json")
    for arguments in (["--check"], []):
        told = played(inventory, tmp_path, role, arguments)
        unnamed = [
            (name, value, said) for (name, value), said in zip(WRONG[role], told, strict=True) if not said.startswith(f"{role}_")
        ]
        assert not unnamed
    assert node.snapshot() == before


def played(inventory: Path, folder: Path, role: str, arguments: Sequence[str]) -> list[str]:
    """The error about each, from one play."""
    tasks = [task for name, value in WRONG[role] for task in attempt(role, {**RIGHT[role], name: value})]
    keep = {"content": "{{ told | to_json }}", "dest": str(folder / "told.json")}
    last = {"ansible.builtin.copy": keep, "delegate_to": "localhost", "check_mode": False}
    play = playbook.write(folder / "play.json", [*tasks, last])
    result = playbook.play(inventory, play, *arguments)
    assert not result.failed, result.output[-3000:]
    said: list[str] = json.loads((folder / "told.json").read_text())
    return said


def attempt(role: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    """Records the error; none if the role accepted the variable."""
    given = {f"{role}_{name}": value for name, value in variables.items()}
    include = {"ansible.builtin.include_role": {"name": f"kubenode.datapath.{role}"}, "vars": given}
    note = {"ansible.builtin.set_fact": {"told": "{{ told | default([]) + [said] }}"}}
    content = {**note, "vars": {"said": "nothing was said"}}
    refused = {**note, "vars": {"said": "{{ ansible_failed_result.msg }}"}}
    return [{"block": [include, content], "rescue": [refused]}]
