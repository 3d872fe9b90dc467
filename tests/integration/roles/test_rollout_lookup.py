# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a playbook of this collection takes from its variables before the first host, by ansible-playbook --list-hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sampling import marked

from lab import playbook

PROFILE = "kubenode.datapath.aks_dual_stack"
PACKET = "tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.ini"
    path.write_text("[nodes]\nnode1\nnode2\n[gpu-pool]\nnode1\n")
    return path


def listed(inventory: Path, name: str | Path, *arguments: str) -> str:
    """Return what ansible-playbook prints, after its status, with each space or line break as one space."""
    result = playbook.run([playbook.PROGRAM, "-i", str(inventory), str(name), "--list-hosts", *arguments])
    return " ".join([str(result.status), *result.output.split()])


def importing(folder: Path, name: str, **variables: Any) -> Path:
    path = folder / "site.yml"
    path.write_text(json.dumps([{"import_playbook": f"kubenode.datapath.{name}", "vars": variables}]))
    return path


@pytest.mark.each_core
@pytest.mark.parametrize(
    ("name", "variables", "text"),
    [
        ("trace", {"trace_packet": PACKET, "kubenode_target": "gpu-pool"}, "1 of 2 nodes (pattern gpu-pool)"),
        ("trace", {"trace_packet": PACKET, "trace_dump": "dump"}, "1 of 1 node (pattern localhost)"),
        ("aks_dual_stack", {"aks_dual_stack_state": "absent"}, "batches 1, 25 %, absent"),
        ("aks_dual_stack", {"aks_dual_stack_state": "{{ state_of_node }}"}, "25 %, aks_dual_stack_state of each node"),
        ("aks_dual_stack", {"kubenode_checks": [{"address": "{{ ansible_host }}", "port": 22}]}, "2 of 2 nodes"),
        ("aks_dual_stack", {"kubenode_target": ["node1", "node2"]}, "(pattern node1,node2)"),
    ],
)
def test_a_playbook_that_imports_another_sets_its_variables(
    inventory: Path, name: str, variables: dict[str, Any], text: str
) -> None:
    output = listed(inventory, importing(inventory.parent, name, **variables))
    assert output.startswith("0 ") and text in output, output


UNUSABLE = [
    ("kubenode_target=", "kubenode_target must be a pattern of hosts; it is empty."),
    ("kubenode_batches=0", "kubenode_batches is '0'; it must be a number of nodes"),
    ("kubenode_report={{ nothing }}", "kubenode_report must have a value that can be computed"),
    ("kubenode_report=/tmp/report.json", "kubenode_report is /tmp/report.json, and the callback that writes it is not"),
    ("kubenode_batches=many", "batches is 'many'"),
    ("kubenode_max_failed_percentage=few", "kubenode_max_failed_percentage must be a number from 0 to 100; 'few'"),
    ("kubenode_max_failed_percentage=101", "kubenode_max_failed_percentage must be a number from 0 to 100; '101'"),
    ("kubenode_checks_timeout=long", "kubenode_checks_timeout must be an integer; 'long'"),
    ("kubenode_checks=[{address: a}]", "kubenode_checks[0].port must be given"),
    ("kubenode_checks=[{address: a, port: http}]", "kubenode_checks[0].port must be an integer; 'http'"),
    ("kubenode_checks=[{address: a, port: 80, via: node2}]", "kubenode_checks[0].via must be left out"),
    ("kubenode_checks=[{address: a, port: 80000}]", "kubenode_checks[0].port must be a number from 1 to 65535"),
    ("kubenode_checks=[{address: a, port: 80, from: node9}]", "kubenode_checks[0].from must be a host"),
]


@pytest.mark.parametrize(("argument", "text"), marked(UNUSABLE, lambda case: case in UNUSABLE[:3], pytest.mark.each_core))
def test_a_value_that_cannot_be_used_is_an_error(inventory: Path, argument: str, text: str) -> None:
    name, _equals, value = argument.partition("=")
    output = listed(inventory, PROFILE, "-e", f"{name}='{value}'")
    assert not output.startswith("0 ") and text in output, output


def test_extra_variables_come_from_files_and_limits_are_ansibles(inventory: Path) -> None:
    extra = inventory.with_name("extra.json")
    extra.write_text(json.dumps({"ansible_user": "x", "unrelated": "ü\a", "kubenode_target": "node1"}))
    retry = inventory.with_name("site.retry")
    retry.write_text("node2\n")
    assert "1 of 2 nodes (pattern node1)" in listed(inventory, PROFILE, "-e", f"@{extra}")
    assert "1 of 2 nodes" in listed(inventory, PROFILE, "--limit", f"@{retry}")
    assert "1 of 2 nodes (pattern nodes, limit all:!node1)" in listed(inventory, PROFILE, "--limit", "all:!node1")
