# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of tasks of one of three nodes lie: the report of the run is written, and says the same of the others."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Node, Rollout
from lab import playbook
from unit._render.test_rollout import RESULT, SCHEMA
from unit.lies import lies
from unit.schemas import errors

Data = dict[str, t.Any]
DIFF = {"before_header": "boot: file", "after_header": "boot: file", "before": "", "after": "a line\n"}
ITEM = {"ansible_loop_var": "item", "item": 1, "failed": True, "msg": "no", "changed": True, "results": ["a package"]}
CHECK = {"answers": False, "moment": "after", "connection": {"address": "192.0.2.7", "port": 443, "from": "node2"}}
RESULTS: dict[str, Data] = {
    _rollout.PROFILE: {**RESULT, "differences": [DIFF], "audits": {"before": {"passed": []}, "after": None}},
    _rollout.NODE_REPORT: {**CHECK, "report": ["a line"], "warnings": ["a warning"]},
    _rollout.ROLLOUT_CHECK: {**CHECK, "is_kept_back": True, "failed": True},
    _rollout.SET_STATS: {"ansible_stats": {"per_host": True, "aggregate": True, "data": {"audit": {"passed": ["x"]}}}},
    "kubenode.datapath.rp_filter": {"changed": True, "interfaces": {"eth0": {"before": {"value": 1}}}, "results": [ITEM]},
    "ansible.builtin.command": {
        **{"changed": True, "failed": True, "msg": "no", "stderr": "no", "results": [ITEM], "warnings": ["a warning"]},
        **{"_ansible_delegated_vars": {"ansible_delegated_host": "node3"}, "ansible_stats": {"per_host": True, "data": {"x": 1}}},
    },
}


def add(node: Node, name: str, action: str, result: t.Any, end: str = "") -> None:
    """Add a task as the callback does."""
    node.is_begun = True
    node.add(1.0)
    if end:
        node.end, node.trouble, node.action = end, f"Task: {_rollout.sentence(result)}", action
    if _rollout.changes(result, name):
        node.change("Task", action, result)
    for entry in (result, *_rollout.items(result)):
        node.note(action, entry, False)
    node.conclude(node.end)


def run(action: str, lie: t.Any, end: str = "") -> Rollout:
    """Return a run of two nodes whose profile was applied, and of a third whose task has this result."""
    nodes = {name: Node() for name in ("node1", "node2", "node3")}
    for name in ("node1", "node2"):
        add(nodes[name], name, _rollout.PROFILE, RESULTS[_rollout.PROFILE])
        add(nodes[name], name, _rollout.NODE_REPORT, RESULTS[_rollout.NODE_REPORT])
    add(nodes["node3"], "node3", action, lie, end)
    return Rollout("play", False, "then", "now", nodes, {"collection": "1.0.0", "ansible": "2.17.0"})


def no_number(word: str) -> t.NoReturn:
    raise AssertionError(f"{word} is no JSON")


def written(rolled: Rollout) -> Data:
    """Return the report as a file has it, after all other formats and the summary were written."""
    data = rolled.data()
    for write in (rollout.as_junit, rollout.as_markdown, rollout.as_page):
        assert write(data).encode()
    assert all(line.isprintable() for _state, line in rolled.lines())
    assert all(isinstance(text, str) for _names, diff in _rollout.common_diffs(rolled.nodes) for text in diff.values())
    report: Data = json.loads(json.dumps(data, default=str), parse_constant=no_number)
    return report


@pytest.mark.parametrize("action", RESULTS)
@pytest.mark.parametrize("end", ["", "failed"])
def test_whatever_a_result_is_the_report_says_the_same_of_the_other_nodes(action: str, end: str) -> None:
    honest = written(run(action, RESULTS[action], end))
    for path, lie in lies(RESULTS[action]):
        if not path:
            continue  # Ansible lets no result pass that is no dictionary
        report = written(run(action, lie, end))
        assert [*errors(report, SCHEMA)] == [], path
        assert [report["nodes"][name] for name in ("node1", "node2")] == [honest["nodes"][name] for name in ("node1", "node2")]


@pytest.mark.parametrize(
    ("action", "lie", "sentence"),
    [
        (_rollout.PROFILE, {"summary": [], "node": "x"}, "result.node is 'x'; expected is a dictionary"),
        (_rollout.PROFILE, {"differences": [7]}, "result.differences[0] is int; expected is a dictionary"),
        ("kubenode.datapath.rp_filter", {"changed": True, "interfaces": float("nan")}, "result is float; expected is a number"),
        (_rollout.NODE_REPORT, {**CHECK, "moment": "later"}, "result.moment is 'later'; expected is one of before, after"),
        (_rollout.NODE_REPORT, {**CHECK, "connection": {}}, "result.connection.port is null; expected is a number"),
        (_rollout.SET_STATS, {"ansible_stats": {"per_host": True, "data": None}}, "result.ansible_stats.data is null"),
    ],
)
def test_a_node_whose_answer_is_refused_has_failed_with_a_sentence(action: str, lie: Data, sentence: str) -> None:
    rolled = run(action, lie)
    add(rolled.nodes["node3"], "node3", "ansible.builtin.command", {"changed": False})
    report = written(rolled)
    node = report["nodes"]["node3"]
    assert (node["state"], node["action"], node["warnings"]) == ("failed", action, [node["trouble"]])
    assert node["trouble"].startswith(f"The answer of {action} is refused: {sentence}")
    assert any(node["trouble"] in line for _state, line in rolled.lines()) and report["totals"] == {"failed": 1, "changed": 2}
    failure = ElementTree.fromstring(rollout.as_junit(report)).find("testsuite[@name='node3']/testcase/failure")
    assert failure is not None and failure.get("message") == node["trouble"]


def test_what_a_module_of_another_task_says_of_the_run_is_not_taken() -> None:
    lie = {**CHECK, "is_kept_back": True, "report": ["x"], "ansible_stats": {"per_host": True, "data": {"x": 1}}, "warnings": 7}
    for action in ("ansible.builtin.command", "kubenode.datapath.rp_filter"):
        node = run(action, lie).nodes["node3"]
        assert (node.state, node.stats, node.checks, node.report, node.warnings) == ("ok", {}, {}, [], [])


def test_statistics_of_a_play_do_not_take_the_place_of_the_checks() -> None:
    rolled = run(_rollout.NODE_REPORT, RESULTS[_rollout.NODE_REPORT])
    stats = {"per_host": True, "data": {"checks": 7, "own": 7}}
    add(rolled.nodes["node3"], "node3", _rollout.SET_STATS, {"ansible_stats": stats})
    assert written(rolled)["nodes"]["node3"]["stats"] == {
        "own": 7,
        "checks": {"after": {"answered": [], "silent": [CHECK["connection"]]}},
    }


MODULE = """#!/usr/bin/python
# WANT_JSON
import json, sys
print(json.load(open(sys.argv[1]))["answer"])
"""
# What ansible-core itself survives: 2.17 and 2.18 end the run at an entry of results that is no dictionary.
LIES = {
    "ansible_stats": {"per_host": True, "aggregate": True, "data": {"checks": 7}},
    "results": [{"ansible_loop_var": 7, "changed": True, "results": [7]}],
    "warnings": ["a warning", {"x": None}],
    "_ansible_delegated_vars": 7,
    "is_kept_back": True,
    "msg": {"x": "\x1b[2J"},
    "changed": True,
}


def test_ansible_prints_the_summary_and_writes_all_reports_whatever_a_node_answers(tmp_path: Path) -> None:
    pytest.importorskip("ansible")
    (tmp_path / "lie").write_text(MODULE)
    answers = {"node1": {"changed": True}, "node2": {"changed": False}, "node3": LIES}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {name: {**local, "said": json.dumps(answer)} for name, answer in answers.items()}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    tasks: list[Data] = [
        {"name": "Ask", "lie": {"answer": "{{ said | string }}"}},
        {"set_stats": {"per_host": True, "data": {"own": 7}}, "loop": [1]},
    ]
    path = playbook.write(tmp_path / "play.json", tasks, "all")
    environment = {"ANSIBLE_LIBRARY": str(tmp_path), "ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
    variables = {"kubenode_report": f"{tmp_path}/report.json"}
    played = playbook.play(tmp_path / "hosts.json", path, variables=variables, environment=environment)
    assert "3 nodes: 2 changed, 1 ok" in played.output, played.output
    assert "callback plugin" not in played.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [*errors(report, SCHEMA)] == [] and report["ended"]
    assert [node["stats"] for node in report["nodes"].values()] == [{"own": 7}] * 3
    assert {*report["nodes"]["node3"]["warnings"]} >= {"a warning", "{'x': None}"}
    assert {path.suffix for path in tmp_path.glob("report*")} == {".json", ".xml", ".md", ".html"}
