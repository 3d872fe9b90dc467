# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of a node has the keys and types of its module's documentation, and facts set no variable of the collection."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.datapath.plugins.plugin_utils import (
    _node_action,
    _node_answer,
    _playbook_variables,
    _profiles,
)

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
RUNTIME = yaml.safe_load((PLUGINS.parent / "meta/runtime.yml").read_text())
SETTINGS = {"value": 1, "all": 0, "effective": 1}
ANSWER: dict[str, Any] = {"changed": False, "interfaces": {"eth0": {"before": SETTINGS, "after": SETTINGS}}}
CLEANUP = {
    **{"changed": True, "removed": [], "kept": [], "neighbors": [], "routes": [], "files": [], "kept_files": []},
    **{"iptables": {"removed": [], "kept": []}, "links": {"removed": [], "kept": []}, "backup_file": "/b"},
}
AUDIT = {
    **{"changed": False, "profile": {}, "node": {}},
    **dict.fromkeys(("findings", "passed", "passed_unless", "assumed", "ignored"), []),
}
NODE = {"is_image": False, "is_running": True, "reason": "A node."}
PROFILE: dict[str, Any] = {"changed": True, "node": NODE, "plan": [], "summary": [], "ebtables_cleanup": CLEANUP}
TEMPLATE = "{{ lookup('pipe', 'id') }}"


def permitted(answer: dict[str, Any], module: str = "rp_filter") -> dict[str, Any]:
    return _node_answer.permitted(answer, f"kubenode.datapath.{module}", "node1")


@pytest.mark.parametrize(
    ("module", "answer"),
    [
        ("rp_filter", ANSWER),
        ("rp_filter", {**ANSWER, "interfaces": {}, "warnings": ["w"], "diff": []}),
        ("rp_filter", {**ANSWER, "checkpoint_armed": {"id": "a", "life": "b", "left": 20}, "missing_library": "pyroute2"}),
        ("rp_filter", {"failed": True, "msg": "rp_filter: root is needed", "exception": "(traceback)"}),
        ("rp_filter", {"failed": True, "rc": 1, "module_stdout": "", "module_stderr": "sh: python3: not found"}),
        ("rp_filter", {"changed": False, "interfaces": {TEMPLATE: ANSWER["interfaces"]["eth0"]}}),
        ("profile", PROFILE),
        ("nftables_package", {"changed": False, "version": None, "path": None, "manager": None,
                              "service": {"enabled": False, "active": False, "masked": True}}),
    ],
)  # fmt: skip
def test_what_a_module_documents_is_permitted(module: str, answer: dict[str, Any]) -> None:
    assert permitted(answer, module) == answer


@pytest.mark.parametrize(
    "key",
    ["ansible_facts", "ansible_stats", "add_host", "add_group", "skipped", "results", "stdout", "_ansible_no_log", TEMPLATE],
)
def test_a_key_that_is_not_documented_is_left_out_with_a_warning(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert permitted({**ANSWER, key: {"cilium_migration_kubectl": ["/bin/sh", "-c", "id"]}}) == ANSWER
    assert "cilium_migration_kubectl" not in "".join(capsys.readouterr())


def test_a_key_inside_a_value_that_is_not_documented_is_left_out() -> None:
    interfaces = {"eth0": {**ANSWER["interfaces"]["eth0"], "ansible_facts": {}}}
    assert permitted({**ANSWER, "interfaces": interfaces}) == ANSWER


@pytest.mark.parametrize(
    ("module", "answer", "words"),
    [
        ("rp_filter", {**ANSWER, "changed": "yes"}, "'yes' as changed, and true or false"),
        ("rp_filter", {"changed": False}, "nothing as interfaces, and a dictionary"),
        ("rp_filter", {**ANSWER, "interfaces": None}, "null as interfaces, and a dictionary"),
        ("rp_filter", {**ANSWER, "interfaces": []}, "[] as interfaces, and a dictionary"),
        ("rp_filter", {**ANSWER, "interfaces": {"eth0": 1}}, "1 as interfaces.eth0, and a dictionary"),
        (
            "rp_filter",
            {**ANSWER, "interfaces": {"eth0": {"before": SETTINGS, "after": {**SETTINGS, "value": True}}}},
            "True as interfaces.eth0.after.value, and an integer",
        ),
        ("rp_filter", {**ANSWER, "interfaces": {"eth0": {"before": SETTINGS}}}, "nothing as interfaces.eth0.after"),
        ("rp_filter", {**ANSWER, "diff": "text"}, "'text' as diff, and a list"),
        ("rp_filter", {**ANSWER, "diff": [{"before": ""}]}, "nothing as diff[0].before_header"),
        ("rp_filter", {**ANSWER, "msg": {"a": 1}}, "as msg, and a text"),
        ("rp_filter", {**ANSWER, "missing_library": "antigravity"}, "'antigravity' as missing_library, and 'pyroute2'"),
        ("rp_filter", {**ANSWER, "checkpoint_armed": {"id": "a", "life": "b"}}, "nothing as checkpoint_armed.left"),
        ("rp_filter", {**ANSWER, "checkpoint_armed": {"id": "a", "life": "b", "left": math.inf}}, "inf as 'checkpoint_armed'"),
        ("rp_filter", {**ANSWER, "warnings": [math.nan]}, "nan as 'warnings', and a number"),
        ("rp_filter", {**ANSWER, "warnings": [1 << 64]}, "18446744073709551616 as 'warnings', and a number"),
        ("rp_filter", {"failed": True, "msg": ["a"]}, "['a'] as msg, and a text"),
        ("profile", {**PROFILE, "node": None}, "null as node, and a dictionary"),
        ("profile", {**PROFILE, "ebtables_cleanup": {"changed": True}}, "nothing as ebtables_cleanup.removed"),
        ("profile", {**PROFILE, "ebtables_cleanup": {**CLEANUP, "changed": 1}}, "1 as ebtables_cleanup.changed"),
        ("datapath_audit", {**AUDIT, "findings": [None]}, "null as findings[0]"),
        ("datapath_audit", {**AUDIT, "passed": 7}, "7 as passed, and a list"),
    ],
)
def test_another_type_or_a_missing_key_is_a_failure_that_names_node_module_key_and_both_values(
    module: str, answer: dict[str, Any], words: str
) -> None:
    result = permitted(answer, module)
    assert {*result} == {"failed", "changed", "msg"} and result["failed"]
    assert result["msg"].startswith(f"{module}: node1 answered with ") and words in result["msg"]


@pytest.mark.parametrize("levels", [_node_answer.DEEPEST, 100_000])
def test_an_answer_has_a_bound_on_its_levels(levels: int) -> None:
    value: list[Any] = []
    for _level in range(levels):
        value = [value]
    assert "levels was expected" in permitted({**ANSWER, "warnings": value})["msg"]


def test_an_answer_has_a_bound_on_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_node_answer, "LARGEST", 100)
    assert "at most 100 characters" in permitted({**ANSWER, "warnings": ["x" * 101]})["msg"]


def test_a_failure_says_whether_the_node_reported_a_change() -> None:
    assert permitted({**ANSWER, "changed": True, "interfaces": 1})["changed"]


def test_no_other_file_runs_a_module() -> None:
    calls = [
        path.name
        for path in PLUGINS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "_execute_module"
    ]
    assert calls == ["_node_answer.py"]


def test_each_module_has_an_action_of_the_collection() -> None:
    """Without one, Ansible's own passes on what the node answers."""
    routed = {name: entry["action_plugin"].rpartition(".")[2] for name, entry in RUNTIME["plugin_routing"]["modules"].items()}
    for module in {*RUNTIME["action_groups"]["all"], *_node_answer.MODULES}:
        source = (PLUGINS / f"action/{routed.get(module, module)}.py").read_text()
        assert (
            "(NodeAction)" in source
            or "(ModuleAction)" in source
            or "(ChangesAction)" in source
            or "(CheckpointAction)" in source
        )


@pytest.mark.parametrize("module", sorted(_node_answer.MODULES))
def test_each_result_is_documented_in_words_that_the_door_reads(module: str) -> None:
    def each(documents: Any) -> Any:
        for document in documents.values():
            yield document
            yield from each(document.get("contains") or {})

    assert all(document["type"] in _node_answer.TYPES for document in each(_node_answer._documents(module)))


@pytest.mark.parametrize(
    "name",
    [
        *("cilium_migration_kubectl", "__cilium_migration_options", "kubenode_checks", "__kubenode_checks"),
        *("audit_folder", "trace_html", "kubenode_report"),
    ],
)
def test_a_variable_of_the_collection_that_facts_set_is_refused(name: str) -> None:
    variables = {"inventory_hostname": "node1", "ansible_facts": {name: "x", "os_family": "Debian"}, name: "x"}
    with pytest.raises(AnsibleActionFail, match=f"facts of node1 have set {name}, "):
        _node_action.refuse_facts(variables)


def test_a_host_whose_facts_set_its_own_name_is_not_named_as_another() -> None:
    facts = {"inventory_hostname": "victim"}
    with pytest.raises(AnsibleActionFail, match=r"^facts of this host have set inventory_hostname, "):
        _node_action.refuse_facts({**facts, "ansible_facts": facts})


@pytest.mark.parametrize("facts", [{}, {"os_family": "Debian"}, {"kubenode_0": {}}, {"auditd": 1}])
def test_other_facts_are_permitted(facts: dict[str, Any]) -> None:
    """An interface named kubenode_0 has a fact of this name, and no variable."""
    _node_action.refuse_facts(
        {"inventory_hostname": "node1", "ansible_facts": facts, "auditd": 1, "cilium_migration_state": "absent"}
    )


def test_the_prefixes_are_those_of_the_roles_and_playbooks() -> None:
    assert {*_node_action.OWNERS} == {*_profiles.PROFILES, *_playbook_variables.NAMES, "kubenode"}
