# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugins: confirmed checkpoints, audits around a profile, and packets of a rehearsal."""

from __future__ import annotations

import importlib
import json
import re
import types
import typing as t
from pathlib import Path

import pytest

pytest.importorskip("ansible")  # brings PyYAML; the oldest Python has neither

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._render import mended_text
from ansible_collections.kubenode.datapath.plugins.plugin_utils._audits import Audits
from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import packets, packets_of_checks
from unit.audits import audit, present

# A module with a checkpoint has an action that confirms it. Without one, the node would roll every change back


ROOT = Path(__file__).resolve().parents[2]
PARTS = "ansible_collections.kubenode.datapath.plugins.module_utils._parts"
ROUTED = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["plugin_routing"]["modules"]
MODULES = [
    path.stem
    for path in sorted((ROOT / "plugins/modules").glob("*.py"))
    if (ROOT / f"plugins/module_utils/_parts/{path.stem}.py").exists()
    and "checkpoint" in getattr(importlib.import_module(f"{PARTS}.{path.stem}"), "OPTIONS", {})
]


@pytest.mark.parametrize("module", MODULES)
def test_a_checkpoint_is_confirmed_by_an_action(module: str) -> None:
    action = ROUTED.get(module, {}).get("action_plugin", f"kubenode.datapath.{module}").rpartition(".")[2]
    assert "Checkpoint" in (text := (ROOT / f"plugins/action/{action}.py").read_text()) or "_checkpoint.execute" in text


def test_the_modules_are_all() -> None:
    confirmed = {name for name, entry in ROUTED.items() if entry["action_plugin"].endswith((".rp_filter", ".policy_routes"))}
    assert confirmed < {*MODULES}
    assert {"policy_routes", "rp_filter"} < {*MODULES}


def test_what_the_action_of_several_modules_imports_is_imported_before_ansible_forks() -> None:
    imported = importlib.import_module("ansible_collections.kubenode.datapath.plugins.action").__all__
    for action in {entry["action_plugin"].rpartition(".")[2] for entry in ROUTED.values()}:
        text = (ROOT / f"plugins/action/{action}.py").read_text()
        names = " ".join(re.findall(r"^from ansible_collections.*plugin_utils(.*)", text, re.MULTILINE))
        assert {*re.findall(r"\b_\w+", names)} <= {*imported}, action


@pytest.mark.parametrize(("kind", "key"), [("AnsibleActionFail", "failed"), ("AnsibleConnectionFailure", "unreachable")])
def test_an_error_with_a_text_of_the_node_is_a_result(kind: str, key: str) -> None:
    """ansible-core 2.17 marks a result as data, and registers the text of an error as it is: as a template."""
    errors = importlib.import_module("ansible.errors")
    base = importlib.import_module("ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action").NodeAction

    class Action(base):  # type: ignore[misc, valid-type]
        def run(self, tmp: str | None = None, task_vars: dict[str, object] | None = None) -> dict[str, object]:
            raise getattr(errors, kind)("{{ text of the node }}")

    assert Action.__new__(Action).run() == {key: True, "changed": False, "msg": "{{ text of the node }}"}


@pytest.mark.parametrize("node", [{}, {"kernel": "6.1"}])
def test_the_answer_of_a_failed_profile_may_lack_what_another_one_has(node: dict[str, str]) -> None:
    profile = importlib.import_module("ansible_collections.kubenode.datapath.plugins.action.profile")
    action, answer = profile.ActionModule.__new__(profile.ActionModule), {"failed": True, "msg": "m", "node": node}
    action._applied = lambda call, variables: answer
    call = profile.Call("kubenode.datapath.profile", {}, {}, None, None)
    assert action._executed(call, {}) == answer


ANSWER = {"node": {"reason": "A running node."}, "plan": [], "summary": ["rp_filter (present): changed a, b"], "changed": True}
CHANGES = {"kept": 2, "satisfied_by": [{"owner": "cilium", "object": "x"}] * 21, "added": ["a\nb"], "removed": []}
OF_ROUTING = {
    "network_daemons": {"daemons": [{"name": "systemd-networkd", "verdict": "keeps_foreign", "reason": "It is told to."}]},
    "rp_filter": {"interfaces": {"eth0": {"before": {"effective": 1}, "after": {"effective": 2}}}},
    "policy_routes": {"rules": CHANGES},
}
ROUTING = [
    *("A running node.", "systemd-networkd (keeps foreign): It is told to.", "Changed from 1: reverse-path filtering 2 of eth0"),
    *("There, by the role: 2 rules", *(["There, by cilium: x"] * 20), "There, by other programs: 1 more rules", r"Added: a\nb"),
]
NEEDED = {"nftables_probe_snat": {"managed_by": "", "agentbaker": "", "needed": {"verdict": "possible", "reasons": ["a\nb"]}}}


def reported(role: str, answer: dict[str, object], is_check: bool = False) -> dict[str, object]:
    profile = importlib.import_module("ansible_collections.kubenode.datapath.plugins.action.profile")
    action = profile.ActionModule.__new__(profile.ActionModule)
    action._task = types.SimpleNamespace(check_mode=is_check, no_log=True)
    values = {"state": "present", "remedy": "loose", "connmark": "auto"}
    call = profile.Call("", {}, {}, None, None, profile={"profile": role}, reported=values)
    result: dict[str, object] = action._reported(call, answer, {})
    return result


@pytest.mark.parametrize(
    ("role", "answer", "lines"),
    [
        ("aks_dual_stack", {**ANSWER, **NEEDED}, ["A running node.", r"Need of the table: possible. a\nb"]),
        ("eni_policy_routing", ANSWER, ["A running node."]),
        ("symmetric_routing", ANSWER, ["A running node."]),
        *((role, {**ANSWER, **OF_ROUTING}, ROUTING) for role in ("eni_policy_routing", "symmetric_routing")),
        ("symmetric_routing", {**ANSWER, "node": {"reason": "A\x1b[2J"}}, [r"A\x1b[2J"]),
    ],
)
def test_a_report_has_what_the_node_said_and_no_line_of_the_nodes_own(
    role: str, answer: dict[str, object], lines: list[str]
) -> None:
    assert reported(role, answer)["report"] == [*lines, "rp_filter (present): changed a, b"]
    assert reported(role, answer, is_check=True)["report"] == [*lines, "rp_filter (present): would change a, b"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ANSWER, "in which nftables_probe_snat is missing"),
        ({**ANSWER, "nftables_probe_snat": {"managed_by": ""}}, "in which agentbaker is missing"),
        ({**ANSWER, **NEEDED, "summary": 5}, "in which a value has another type"),
    ],
)
def test_an_answer_that_does_not_fit_the_report_is_an_error_that_keeps_the_change(answer: dict[str, object], reason: str) -> None:
    result = reported("aks_dual_stack", answer)
    assert result["failed"] and result["changed"] and str(result["msg"]).endswith(reason)


@pytest.mark.parametrize("answer", [{**ANSWER, "failed": True}, {"unreachable": True, "changed": False}])
def test_no_report_is_made_of_a_failure(answer: dict[str, object]) -> None:
    assert reported("symmetric_routing", answer) == answer


# The audits around a profile: how many there are, and what becomes of one that fails


Result = dict[str, t.Any]
FAILED: Result = {"failed": True, "msg": "datapath_audit: nft is not installed"}
ALL = mended_text.CHECKS


class Stage:
    """A node whose audits have these results, and on which a profile has this one."""

    def __init__(self, applied: Result, *audits: Result) -> None:
        self.calls: list[t.Any] = []
        self._applied, self._audits = applied, [*audits]

    def audit(self, arguments: Result) -> Result:
        self.calls.append(arguments["checks"])
        return self._audits.pop(0)

    def apply(self) -> Result:
        self.calls.append("profile")
        return self._applied

    def around(self, is_check_mode: bool = False) -> Result:
        return Audits("eni_policy_routing", self.audit).around(self.apply, is_check_mode)


@pytest.mark.parametrize(
    ("is_changed", "before", "is_check_mode", "calls"),
    [
        (True, audit(present()), False, [ALL, "profile", ["rp-strict-asymmetric"]]),
        (True, audit(present()), True, [ALL, "profile"]),
        (True, audit(), False, [ALL, "profile"]),
        (False, audit(present()), False, [ALL, "profile"]),
    ],
)
def test_a_node_is_audited_again_only_if_a_change_may_have_mended_a_finding(
    is_changed: bool, before: Result, is_check_mode: bool, calls: list[t.Any]
) -> None:
    stage = Stage({"changed": is_changed}, before, audit())
    assert stage.around(is_check_mode)["audit"] and stage.calls == calls


@pytest.mark.parametrize("audits", [[FAILED], [audit(present()), FAILED]])
def test_an_audit_that_fails_is_a_warning_and_the_profile_is_applied(audits: list[Result]) -> None:
    stage = Stage({"changed": True, "warnings": ["first"]}, *audits)
    warning = "The audit around eni_policy_routing failed: datapath_audit: nft is not installed"
    assert stage.around() == {"changed": True, "warnings": ["first", warning]} and "profile" in stage.calls


def test_a_profile_that_fails_is_not_audited_again() -> None:
    stage = Stage({"failed": True, "msg": "no"}, audit(present()))
    assert stage.around() == {"failed": True, "msg": "no"} and stage.calls == [ALL, "profile"]


# The checks that a node itself makes are packets of its rehearsal


OWN = {"address": "10.0.1.11", "port": 8080}
PACKET = {"destination": "10.0.0.10", "protocol": "icmp"}
SENT = {"destination": "10.0.1.11", "destination_port": 8080}


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        (None, []),
        ("", []),
        ([OWN], [SENT]),
        ('[{"address": "10.0.1.11", "port": 8080}]', [SENT]),
        ([{"address": "2001:db8::1", "port": "80"}], [{"destination": "2001:db8::1", "destination_port": "80"}]),
        ([{**OWN, "from": "node1", "before": True}], [SENT]),
        ([{**OWN, "from": "node2"}, {**OWN, "from": "localhost"}], []),
        ([{**OWN, "address": "pod.example.com"}, {**OWN, "address": "ff02::1"}, {**OWN, "address": "0.0.0.0"}, {}], []),
    ],
)
def test_the_checks_of_the_node_itself_are_packets(checks: t.Any, expected: list[t.Any]) -> None:
    assert packets_of_checks(checks, "node1") == expected


@pytest.mark.parametrize("checks", [{"address": "::1"}, "[", ["::1"], 7])
def test_what_is_no_list_of_checks_is_refused(checks: t.Any) -> None:
    with pytest.raises(Invalid, match="^rehearse_checks must be a list of dictionaries, or JSON text of such a list; .* given$"):
        packets_of_checks(checks, "node1")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(None, []), ("", []), ([PACKET], [PACKET]), (json.dumps([PACKET]), [PACKET]), (["icmp ::1 > ::2"], ["icmp ::1 > ::2"])],
)
def test_the_checks_follow_the_packets_of_the_task(listed: t.Any, expected: list[t.Any]) -> None:
    assert packets({"rehearse_packets": listed, "rehearse_checks": [OWN]}, "node1") == [*expected, SENT]


@pytest.mark.parametrize("listed", [PACKET, "[", "icmp", 7])
def test_what_is_no_list_of_packets_is_refused(listed: t.Any) -> None:
    with pytest.raises(Invalid, match="^rehearse_packets must be a list of packets, or JSON text of such a list; .* given$"):
        packets({"rehearse_packets": listed}, "node1")
