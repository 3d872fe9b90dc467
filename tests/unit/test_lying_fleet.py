# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge of runs with lying nodes notices what breaks a law, and lies are what they are named after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer
from lab import honest_answers, lies, lying_fleet
from lab.lies import Liar
from lab.lying_fleet import HONEST, Run
from lab.playbook import Played

LIARS = {"liar0": {"lying_node_lie": "added: commands"}}
NODE: dict[str, Any] = {"state": "ok", "seconds": 1.0, "stats": {}, "changes": [], "warnings": []}


def run(folder: Path) -> Run:
    for name in ("markers", "reports"):
        (folder / name).mkdir(parents=True)
    for name in ("rollout.json", "rollout.md", "audit.json"):
        (folder / "reports" / name).write_text(json.dumps({"nodes": {host: {"findings": []} for host in HONEST}}))
    report = {"ended": "now", "nodes": {host: {**NODE} for host in (*HONEST, *LIARS)}}
    results = [{"host": host, "task": "Change", "failed": False, "result": {}} for host in (*HONEST, *LIARS)]
    calls = [[f"--context={host}", "cordon", host] for host in (HONEST[0], *LIARS)]
    return Run(Played("NODES ***", 0, {}), results, report, calls, [f"{folder}/tmp/x"], [["kubectl", "get"]], [], folder)


def delegated(target: str) -> dict[str, Any]:
    result = {"_ansible_delegated_vars": {"ansible_delegated_host": target}}
    return {"host": "liar0", "task": "Change", "failed": False, "result": result}


def failed(message: str) -> dict[str, Any]:
    return {"host": "liar0", "task": "Change", "failed": True, "result": {"msg": message}}


VIOLATIONS: dict[str, tuple[Callable[[Run], object], str]] = {
    "a program of a lie": (lambda run: (run.folder / "markers/liar0").touch(), "liar0 (added: commands) ran a program"),
    "another program": (lambda run: run.programs.append(["/bin/sh", "-c", "id"]), "the controller started /bin/sh -c id"),
    "a package": (lambda run: run.requests.append(["liar0", "archive", ["secret/a.py"]]), "a node got secret/a.py"),
    "a file": (lambda run: run.writes.append("/etc/cron.d/x"), "the controller wrote /etc/cron.d/x"),
    "a file that a node names": (lambda run: run.writes.append(f"{run.folder}/elsewhere/x"), "the controller wrote "),
    "a folder that a node names": (lambda run: (run.folder / "elsewhere").mkdir(), "the controller made a folder"),
    "kubectl for another node": (lambda run: run.kubectl.append(["--context=liar0", "drain", HONEST[0]]), "kubectl of liar0"),
    "kubectl with an option": (lambda run: run.kubectl.append(["--context=liar0", "cordon", "--all"]), "got ['--all']"),
    "a task on another node": (lambda run: run.results.append(delegated(HONEST[0])), "Change of liar0 (added: commands) went to"),
    "a new host": (lambda run: run.results.append({**delegated("localhost"), "host": "added"}), "the host added was added"),
    "a new host in the report": (lambda run: run.report["nodes"].update(added=NODE), "the host added was added"),
    "a missing report": (lambda run: (run.folder / "reports/rollout.md").unlink(), "the report rollout.md is missing"),
    "a report without an end": (lambda run: run.report.update(ended=None), "the report of the run is not complete"),
    "another state of an honest node": (
        lambda run: run.report["nodes"][HONEST[1]].update(state="failed"),
        "state of honest2 was ok",
    ),
    "another audit of an honest node": (
        lambda run: (run.folder / "reports/audit.json").write_text('{"nodes": {}}'),
        "audit.json of honest1 was ",
    ),
    "a message that is no sentence": (
        lambda run: run.results.append(failed("'int' object is not subscriptable")),
        "liar0 (added: commands) failed by ",
    ),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_of_each_law_is_noticed(tmp_path: Path, violation: str) -> None:
    alone, together = run(tmp_path / "alone"), run(tmp_path / "together")
    assert lying_fleet.violations(alone, together, LIARS) == []
    violate, sentence = VIOLATIONS[violation]
    violate(together)
    assert [one for one in lying_fleet.violations(alone, together, LIARS) if sentence in one]


def test_a_summary_that_is_missing_and_an_error_of_ansible_are_noticed(tmp_path: Path) -> None:
    alone, together = run(tmp_path / "alone"), run(tmp_path / "together")
    broken = together._replace(played=Played("ERROR! Unexpected Exception", 250, {}))
    sentences = lying_fleet.violations(alone, broken, LIARS)
    assert sentences == ["the summary of the run is missing", "Ansible printed 'ERROR! Unexpected Exception'"]


@pytest.mark.parametrize("module", sorted({path.stem for path in honest_answers.MODULES.glob("*.py")}))
def test_an_honest_answer_passes_the_check_of_answers(module: str) -> None:
    answer = honest_answers.answers()[module]
    assert _node_answer.permitted(answer, f"kubenode.datapath.{module}", "node") == answer


LIAR = Liar("liar0", "honest1", "/markers/liar0", "/elsewhere")


def test_each_lie_differs_from_the_honest_answer() -> None:
    honest = {**honest_answers.answers()["cni_info"], "changed": True}
    truth = lies.printed("", honest, LIAR, ())
    for lie in lies.every(len(lies.paths(honest))):
        if not lie.startswith(("huge", "type")):  # which take time, or are of a type that a value has
            assert lies.printed(lie, honest, LIAR, ["cilium_migration_kubectl"]) != truth, lie


def test_a_lie_about_a_path_changes_nothing_else() -> None:
    answer = {"a": [{"b": 1}, {"b": 2}], "c": {"d": "e"}}
    assert lies.paths(answer) == [("a",), ("a", 0), ("a", 0, "b"), ("c",), ("c", "d")]
    assert lies.replaced(answer, ("a", 0, "b"), None) == {"a": [{"b": None}, {"b": 2}], "c": {"d": "e"}}
    assert lies.replaced(answer, ("c", "d")) == {"a": [{"b": 1}, {"b": 2}], "c": {}}
