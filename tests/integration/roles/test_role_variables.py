# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of roles, from each source of Ansible; wrong ones are named before and on a node."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Lab, collection, playbook
from lab.node import NamespaceNode
from lab.playbook import Played

# Variables of a role, from each source of Ansible, are checked although the host cannot be reached


ROLE = "eni_policy_routing"
ACTION = "kubenode.datapath.role_variables"
ENIS = [{"name": "eth0", "primary": True}, {"name": "eth1", "gateway": {"ipv4": "10.0.1.1"}, "table": 1101}]
GOOD: dict[str, Any] = {
    "eni_policy_routing_layout": "custom",
    "eni_policy_routing_enis": ENIS,
    "eni_policy_routing_pod_interfaces": ["veth-*"],
    "eni_policy_routing_checkpoint": 30,
}
BEGUN = "The role has begun."
TYPO = {"eni_policy_routing_remedi": "loose"}
TOLD = "eni_policy_routing_remedi is not a variable of the role eni_policy_routing. Did you mean eni_policy_routing_remedy?"


class Site:
    """The real role, between a check of its variables and tasks that show how far it came; a host without an address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        role = folder / "roles" / ROLE
        for part in ("meta", "defaults", "templates"):
            shutil.copytree(collection.CHECKOUT / "roles" / ROLE / part, role / part)
        (role / "tasks").mkdir()
        tasks = json.loads(json.dumps(yaml.safe_load((collection.CHECKOUT / "roles" / ROLE / "tasks/main.yml").read_text())))
        begun = {"name": "Show that the variables are right", "ansible.builtin.debug": {"msg": BEGUN}}
        check = {"name": "Check the variables", ACTION: {"role": ROLE}}
        for name, listed in (("main", tasks), ("other", [check, begun])):
            (role / f"tasks/{name}.yml").write_text(json.dumps(listed))

    def play(self, play: dict[str, Any], *arguments: str, host: dict[str, Any] | None = None) -> Played:
        hosts = self._folder / "hosts.json"
        variables = {"ansible_host": "host.invalid", **(host or {})}
        hosts.write_text(json.dumps({"all": {"hosts": {"node1": variables}}}))
        file = self._folder / "play.yml"
        file.write_text(json.dumps([{"hosts": "node1", "gather_facts": False, **play}]))
        return playbook.play(hosts, file, *arguments)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def include(tasks: str = "main", **variables: Any) -> dict[str, Any]:
    return {"tasks": [{"ansible.builtin.include_role": {"name": ROLE, "tasks_from": tasks}, "vars": variables}]}


def by_text(variables: dict[str, Any]) -> list[str]:
    """As Packer gives extra variables: key=value, all values text."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in variables.items()}
    return [word for name, text in texts.items() for word in ("-e", f"{name}='{text}'")]


WAYS: dict[str, Any] = {
    "inventory": lambda site, given: site.play({"roles": [ROLE]}, host=given),
    "vars of the play": lambda site, given: site.play({"roles": [ROLE], "vars": given}),
    "vars of the role": lambda site, given: site.play({"roles": [{"role": ROLE, "vars": given}]}),
    "parameters of the role": lambda site, given: site.play({"roles": [{"role": ROLE, **given}]}),
    "include_role": lambda site, given: site.play(include(**given)),
    "import_role": lambda site, given: site.play(
        {"tasks": [{"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "other"}, "vars": given}]}
    ),
    "set_fact": lambda site, given: site.play({"pre_tasks": [{"ansible.builtin.set_fact": given}], "roles": [ROLE]}),
    "extra variables": lambda site, given: site.play({"roles": [ROLE]}, *by_text(given)),
    "pre_tasks": lambda site, given: site.play({"pre_tasks": [{ACTION: {"role": ROLE}}], "vars": given}),
}


@pytest.mark.parametrize("way", WAYS)
def test_variables_may_come_from_everywhere(site: Site, way: str) -> None:
    """The error lists every wrong variable, so an error with one line shows that the other variables are right."""
    refused = WAYS[way](site, {**GOOD, **TYPO})
    assert refused.failed and f'"msg": "{TOLD}"' in refused.output, refused.output


def test_wrong_values_are_told_before_the_host_is_looked_at(site: Site) -> None:
    """Types and choices included, which ansible-core would report with other texts."""
    given = {**GOOD, "eni_policy_routing_enis": "eth0", "eni_policy_routing_protocol": "x"}
    refused = site.play({"roles": [ROLE]}, *by_text(given), "--tags", ROLE)
    assert refused.failed and " unreachable=0 " in refused.output, refused.output
    told = "eni_policy_routing_enis must be a list of dictionaries, or JSON text of such a list; 'eth0' was given"
    assert (
        "Print the state" not in refused.output
        and f'"msg": "{told}\\neni_policy_routing_protocol must be an integer; ' in refused.output
    )


def test_a_role_that_runs_twice_is_checked_twice(site: Site) -> None:
    again = site.play({"tasks": [*include("other", **GOOD)["tasks"], *include(**GOOD, **TYPO)["tasks"]]})
    assert again.failed and BEGUN in again.output and f'"msg": "{TOLD}"' in again.output, again.output


def test_what_tasks_have_registered_is_no_variable_of_the_role(site: Site) -> None:
    before = [
        {"ansible.builtin.debug": {"msg": "x"}, "register": "eni_policy_routing_done"},
        {"ansible.builtin.debug": {"msg": "x"}, "register": "eni_policy_routing_skipped", "when": False},
        {"ansible.builtin.debug": {"msg": "x"}, "register": "eni_policy_routing_looped", "loop": [1, 2]},
        {"ansible.builtin.fail": {}, "register": "eni_policy_routing_failed", "ignore_errors": True},
    ]
    for arguments in ([], ["--check", "--diff"]):
        passed = site.play({"pre_tasks": before, **include("other")}, *arguments, host=GOOD)
        assert not passed.failed and passed.changed == 0 and BEGUN in passed.output, passed.output


# Wrong variables of the roles, one after another on one node: each is an error that names the variable, and nothing changes.
#
# The controller refuses most of them before the node is asked, which unit/test_role_variables.py tests. Here are those that only
# the node can refuse, and one of the others for each role


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
def test_wrong_variables_are_told_by_name_and_leave_the_node_as_it_was(
    lab: Lab, node: NamespaceNode, tmp_path: Path, role: str
) -> None:
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
