# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of each node, from the results of its tasks; and the batches of a rollout, from the user's setting."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Node, Rollout

LOOP = {"ansible_loop_var": "item"}  # in the result of each item of a loop


def node(end: str = "", changes: t.Sequence[str] = (), over: bool = True) -> Node:
    """A node that was reached, with the actions that changed it."""
    made = Node(is_begun=True, results=1, seconds=1.26, trouble="Apply: no" if end else "")
    for action in changes:
        made.change("a task", action, {"changed": True})
    if over:
        made.conclude(end)
    return made


@pytest.mark.parametrize(
    ("given", "state", "line"),
    [
        (Node(), "not reached", ""),
        (node(over=False), "running", ""),
        (node(), "ok", ""),
        (node(changes=["kubenode.datapath.rp_filter"] * 2 + ["ansible.builtin.copy"]), "changed", "rp_filter, copy"),
        (node("failed", ["ansible.builtin.copy"]), "failed", "Apply: no"),
        (node("unreachable"), "unreachable", "Apply: no"),
        (Node(is_begun=True, end=_rollout.NO_TASK), "no task ran", ""),
        (Node(is_begun=True, is_over=True), "no result", ""),
        (Node(is_begun=True, is_over=True, results=1, is_kept_back=True), "not reached", ""),
    ],
)
def test_a_state_and_a_line(given: Node, state: str, line: str) -> None:
    assert (given.state, given.line()) == (state, line)


def test_the_module_of_a_failure_is_named_unless_it_was_rescued() -> None:
    failed = node("failed")
    failed.action = "kubenode.datapath.profile"
    assert failed.data()["action"] == "kubenode.datapath.profile"
    failed.add(seconds=1)
    failed.conclude(failed.end)
    assert failed.data()["action"] == ""


def test_a_failure_that_was_rescued_is_none() -> None:
    rescued = node("failed")
    rescued.add(seconds=1)
    rescued.conclude(rescued.end)
    assert (rescued.state, rescued.data()["trouble"]) == ("ok", "")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"msg": "no\n  such file"}, "no such file"),
        ({"msg": "non-zero return code", "stderr": "refused\n"}, "non-zero return code refused"),
        ({"msg": "some failed", "results": [{"msg": "fine", **LOOP}, {"failed": True, "msg": "not fine", **LOOP}]}, "not fine"),
        (
            {"msg": "some failed", "results": [{"msg": "fine", **LOOP}, {"exception": "none", "msg": "not fine", **LOOP}]},
            "not fine",
        ),
        ({"msg": None}, ""),
        ({"censored": "hidden by no_log", "changed": False}, "hidden by no_log"),
        ({"msg": "link eth\x1b[2J\u202e\n"}, "link eth\\x1b[2J\\u202e"),
    ],
)
def test_a_sentence_of_what_failed(result: dict[str, t.Any], said: str) -> None:
    assert _rollout.sentence(result) == said


def test_of_a_loop_neither_items_nor_arguments_are_kept() -> None:
    item = {"ansible_loop_var": "one", "_ansible_item_label": "eth0", "one": {"key": "secret"}, "interfaces": {}}
    result = {"changed": True, "results": [{**item, "invocation": {"module_args": {"checkpoint_command": "secret"}}}]}
    assert _rollout.module_results(result) == {"results": [{"label": "eth0", "interfaces": {}}]}


def test_of_our_modules_the_results_are_kept_and_of_others_the_name() -> None:
    result = {"changed": True, "diff": [], "invocation": {}, "_ansible_no_log": False, "table": "t"}
    told = Node()
    told.change("ours", "kubenode.datapath.rp_filter", result)
    told.change("another's", "ansible.builtin.copy", result)
    assert told.changes == [
        {"task": "ours", "action": "kubenode.datapath.rp_filter", "result": {"table": "t"}},
        {"task": "another's", "action": "ansible.builtin.copy"},
    ]


def test_a_result_of_a_module_is_kept_although_a_profile_has_another_of_its_name() -> None:
    node = Node()
    for name in ("ebtables_cleanup", "profile"):
        node.change("Clean up", f"kubenode.datapath.{name}", {"changed": True, "differences": ["lxc0 is gone"]})
    assert [change["result"] for change in node.changes] == [{"differences": ["lxc0 is gone"]}, {}]


def test_lines_stand_below_each_other_and_are_summed_up() -> None:
    run = Rollout("play", False, "now", nodes={"a": node(), "node10": Node(), "b": node("failed")})
    assert [line for _state, line in run.lines()] == [
        "a       ok            1.3 s",
        "node10  not reached",
        "b       failed        Apply: no  1.3 s",
    ]
    assert run.summary() == "3 nodes: 1 failed, 1 not reached, 1 ok"
    assert run.data()["totals"] == {"failed": 1, "not reached": 1, "ok": 1}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ([1, "25%"], ["1", "25%"]),
        ("[1, 25%]", ["1", "25%"]),
        ('[1, "25%"]', ["1", "25%"]),
        ("50%", ["50%"]),
        (3, ["3"]),
        ("3", ["3"]),
    ],
)
def test_batches_are_read(given: t.Any, read: list[str]) -> None:
    pytest.importorskip("ansible")
    from ansible_collections.kubenode.datapath.plugins.filter.batches import batches

    assert batches(given) == read


@pytest.mark.parametrize("given", ["", "many", "0", -1, [], [1, "half"], "1,2", None, {"a": 1}, True])
def test_a_value_that_is_no_batch_is_refused(given: t.Any) -> None:
    pytest.importorskip("ansible")
    from ansible.errors import AnsibleFilterError

    from ansible_collections.kubenode.datapath.plugins.filter.batches import batches

    with pytest.raises(AnsibleFilterError, match="batches is "):
        batches(given)


def test_equal_nodes_have_one_line_and_in_check_mode_the_future_tense() -> None:
    nodes = {name: node(changes=["kubenode.datapath.rp_filter"]) for name in ("a", "b")}
    nodes["b"].seconds = 2
    nodes["a"].report, nodes["b"].report = ["common", "here"], ["common"]
    run = Rollout("play", True, "now", nodes={**nodes, "c": node("failed")})
    assert [line for _state, line in run.lines()] == [
        "a, b  would change  rp_filter  1.3 to 2.0 s",
        "  common",
        "  a: here",
        "c  failed        Apply: no  1.3 s",
    ]
    assert run.summary() == "3 nodes: 1 failed, 2 would change"


@pytest.mark.parametrize(
    ("result", "is_change"),
    [
        ({"changed": True}, True),
        ({"changed": False}, False),
        ({"changed": True, "_ansible_delegated_vars": {"ansible_delegated_host": "localhost"}}, False),
        ({"changed": True, "_ansible_delegated_vars": {"ansible_delegated_host": "node1"}}, True),
        (
            {"changed": True, "results": [{**LOOP, "changed": True, "_ansible_delegated_vars": {"ansible_delegated_host": "x"}}]},
            False,
        ),
        ({"changed": True, "results": [{**LOOP, "changed": True}]}, True),
        ({"changed": True, "results": [{"changed": False}, "installed: x"]}, True),
    ],
)
def test_a_change_of_another_host_is_none_of_the_node(result: dict[str, t.Any], is_change: bool) -> None:
    assert _rollout.changes(result, "node1") is is_change
