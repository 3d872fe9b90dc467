# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of a role, from each source of Ansible, are checked although the host cannot be reached."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import collection, playbook
from lab.playbook import Played

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
