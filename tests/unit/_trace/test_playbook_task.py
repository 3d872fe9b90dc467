# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of cures: YAML with the options of a role, a module or a command, and no template of Ansible in it."""

from __future__ import annotations

import importlib
import shlex

import pytest

pytest.importorskip("yaml")

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils import _profiles
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields, option, playbook_task
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._parts import rp_filter
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import BLACKHOLE, Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import cures
from unit._trace.test_cures import BRIDGED, ONE_UPLINK, PROBE, STRICT, candidates_for, rule_of, with_enis, with_rule


def test_a_task_of_a_profile_has_the_variables_of_its_role_and_that_of_a_module_its_options() -> None:
    tried = [
        *candidates_for(STRICT, with_enis(table=2)),
        *candidates_for(PROBE, ONE_UPLINK),
        *candidates_for(BRIDGED, ONE_UPLINK),
    ]
    profiles = [cure for cure in tried if cure.kind == cures.PROFILE]
    assert len(profiles) == 9
    for cure in profiles:
        (task,) = yaml.safe_load(cure.task)
        role = task["ansible.builtin.include_role"]["name"].removeprefix("kubenode.datapath.")
        model = importlib.import_module(f"{_profiles.__name__}.{role}")
        options = {name.removeprefix(f"{role}_"): value for name, value in task.get("vars", {}).items()}
        values, errors = option.read(model.OPTIONS, options, model.UNDO)
        assert options.keys() <= model.OPTIONS.keys() and not errors and not [*model.conflicts(values, False)]
    (module,) = candidates_for(STRICT, ONE_UPLINK)
    ((task),) = yaml.safe_load(module.task)
    assert task["kubenode.datapath.rp_filter"] == {"interfaces": ["eth0"], "mode": "loose"}
    assert task["kubenode.datapath.rp_filter"].keys() <= rp_filter.OPTIONS.keys()


def test_a_task_of_a_command_has_its_words() -> None:
    """Ansible would replace $HOME by the home of the user."""
    rule = 'ip filter: -A FORWARD -m comment --comment "no way $HOME" -m mark --mark 0x10 -j DROP'
    snapshot = {"rules": [{"priority": 100}], **with_rule(rule)}
    for decider in (Rule(fields.IPV4, 100, (bytes([10, 0, 0, 0]), 8), action=BLACKHOLE), rule_of(rule)):
        ((cure),) = candidates_for(decider, snapshot)
        ((task),) = yaml.safe_load(cure.task)
        assert task["ansible.builtin.command"] == {"argv": shlex.split(cure.change), "expand_argument_vars": False}


@pytest.mark.parametrize(
    "text", ["off", "Yes", "1001", "0x10", "a: b", "# no", "- x", "", "a\\b\"c'", "*x", "null", "1:30", "fd00::/8"]
)
def test_a_text_stays_a_text_in_yaml(text: str) -> None:
    task = playbook_task.of_module(text, "rp_filter", {"interfaces": [text, {"name": text, "number": 7, "is": True}], "x": text})
    ((read),) = yaml.safe_load(task)
    options = {"interfaces": [text, {"name": text, "number": 7, "is": True}], "x": text}
    assert read == {"name": text, "kubenode.datapath.rp_filter": options}


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "{% x %}", "{# x #}", "a\nb", "\x1b[2J", "\u202e"])
def test_a_text_that_ansible_would_execute_is_in_no_task(text: str) -> None:
    with pytest.raises(Invalid):
        playbook_task.of_command("Remove it", ["iptables", "-D", "FORWARD", "--comment", text])
    comment = f'ip filter: -A FORWARD -m comment --comment "{text}" -j DROP'
    assert candidates_for(rule_of(comment), {}) == []
