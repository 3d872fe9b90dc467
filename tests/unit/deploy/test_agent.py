# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of the DaemonSet: what it accepts, what it makes of a run, and when it runs again. Its pods are in tests/cluster."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("kubernetes")
pytest.importorskip("prometheus_client")
pytest.importorskip("yaml")
sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/image"))

from kubenode_agent import agent, node, playbook, settings, variables  # noqa: E402
from kubenode_agent.playbook import Outcome  # noqa: E402
from kubenode_agent.settings import Refused, Settings  # noqa: E402

PROFILE = "aks_dual_stack"
GIVEN = {"KUBENODE_PROFILE": PROFILE, "KUBENODE_NODE": "node1"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"KUBENODE_PROFILE": "own"}, "KUBENODE_PROFILE must be one of aks_dual_stack, "),
        ({"KUBENODE_NODE": ""}, "KUBENODE_NODE must be "),
        ({"KUBENODE_STATE": "gone"}, "KUBENODE_STATE must be present or absent; 'gone' was given"),
        ({"KUBENODE_INTERVAL": "0"}, "KUBENODE_INTERVAL must be a number from 0.1 to 1440; '0' was given"),
        ({"KUBENODE_INTERVAL": "nan"}, "KUBENODE_INTERVAL must be "),
        ({"KUBENODE_METRICS_PORT": "ten"}, "KUBENODE_METRICS_PORT must be "),
    ],
)
def test_wrong_settings_are_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(Refused) as refused:
        settings.from_environment({**GIVEN, **more})
    assert str(refused.value).startswith(said)


def test_each_profile_has_the_state_that_undoes_it() -> None:
    states = {name: settings.from_environment({**GIVEN, "KUBENODE_PROFILE": name}).desired_state for name in settings.PROFILES}
    assert states == {"aks_dual_stack": "absent", "eni_policy_routing": "absent", "cilium_migration": "restored"}


def test_variables_are_read_as_data() -> None:
    text = "aks_dual_stack_probes: [{source: 'fe80::1', translated: 'fd00::1'}]\naks_dual_stack_priority: -290\n"
    probes = [{"source": "fe80::1", "translated": "fd00::1"}]
    assert variables.parse(text, PROFILE) == {"aks_dual_stack_probes": probes, "aks_dual_stack_priority": -290}
    assert variables.parse("# nothing\n", PROFILE) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "must be YAML"),
        ("- a", "must be a dictionary of variables; list was given"),
        ("ansible_connection: local", "variables that begin with aks_dual_stack_; 'ansible_connection' was given"),
        ("eni_policy_routing_state: absent", "variables that begin with aks_dual_stack_"),
        ("1: 2", "variables that begin with aks_dual_stack_"),
        ("aks_dual_stack_table: \"{{ lookup('pipe', 'id') }}\"", "aks_dual_stack_table must be a value, not a template"),
        ("aks_dual_stack_before: [{a: ['{% if 1 %}']}]", "aks_dual_stack_before must be a value, not a template"),
        ("aks_dual_stack_probes: [{'{{ a }}': 1}]", "not a template"),
        ("aks_dual_stack_table: !unsafe x", "must be YAML"),
        ("aks_dual_stack_table: !!python/object/apply:os.system [id]", "must be YAML"),
        ("aks_dual_stack_table: 2026-11-24", "must have only texts, numbers, lists and dictionaries"),
        (f"aks_dual_stack_table: {'[' * 30}{']' * 30}", "nested at most 20 deep"),
        ("[" * 100_000, "must be YAML"),
        (f"aks_dual_stack_table: {'x' * (1 << 20)}", "at most 1048576 characters"),
    ],
)
def test_what_is_no_data_is_refused(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        variables.parse(text, PROFILE)
    assert said in str(refused.value)


def report(state: str, trouble: str = "", **result: Any) -> dict[str, Any]:
    changes = [{"task": "Apply", "action": "kubenode.datapath.profile", "result": result}] if result else []
    return {"nodes": {playbook.NODE: {"state": state, "trouble": trouble, "changes": changes}}}


@pytest.mark.parametrize(
    ("found", "status", "outcome"),
    [
        (report("ok"), 0, Outcome("ok")),
        (
            report("changed", rp_filter={"changed": True}, policy_routes={"changed": False}),
            0,
            Outcome("changed", modules=("rp_filter",)),
        ),
        (report("failed", "profile: nft says no"), 2, Outcome("failed", "profile: nft says no", ("profile",))),
        (report("failed", "x must be y"), 2, Outcome("failed", "x must be y")),
        (report("unreachable"), 4, Outcome("failed", "unreachable")),
        (None, 1, Outcome("failed", "ansible-playbook ended with 1: no such playbook")),
        (report("ok"), 250, Outcome("failed", "ansible-playbook ended with 250: no such playbook")),
        ({"nodes": {}}, 0, Outcome("failed", "ansible-playbook ended with 0: no such playbook")),
    ],
)
def test_a_run_is_what_its_report_and_its_status_say(found: Any, status: int, outcome: Outcome) -> None:
    assert playbook.outcome_of(found, status, "no such\n playbook\n") == outcome


class Recorder:
    """Stands for the node's object and for the metrics."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def tell(*arguments: Any) -> bool:
            self.told.append((name, *arguments))
            return self.takes

        return tell


class Stage:
    """An agent whose runs answer as they are told, and that ends after the last of them."""

    def __init__(self, folder: Path, *outcomes: Outcome, takes: bool = True, **options: Any) -> None:
        self.api, self.metrics = Recorder(takes), Recorder()
        self.runs: list[tuple[str, dict[str, Any]]] = []
        self._outcomes = list(outcomes)
        self._ended = threading.Event()
        told = Settings(PROFILE, "node1", folder=folder, state=folder, **options)
        self.agent = agent.Agent(told, cast(Any, self.api), cast(Any, self.metrics), self._run, "1.0", self._ended)

    def _run(self, profile: str, given: Mapping[str, Any]) -> Outcome:
        self.runs.append((profile, dict(given)))
        outcome = self._outcomes.pop(0)
        if not self._outcomes:
            self._ended.set()
        return outcome


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(agent, "TICK", 0.01)
    (tmp_path / variables.FILE).write_text("aks_dual_stack_ipv6: address\n")
    return tmp_path


def test_a_converged_node_is_ready_labelled_and_free_of_its_taint(folder: Path) -> None:
    stage = Stage(folder, Outcome("changed", modules=("nftables_probe_snat",)))
    stage.agent.work()
    assert stage.runs == [(PROFILE, {"aks_dual_stack_ipv6": "address"})]
    assert (folder / agent.READY).exists() and not (folder / agent.TROUBLE).exists()
    assert [one for one in stage.api.told if one != ("flush",)] == [
        ("event", "Normal", "Applied", "aks_dual_stack 1.0: changed nftables_probe_snat"),
        ("label", PROFILE, "1.0"),
        ("remove_taint", "kubenode.datapath/not-ready"),
    ]


def test_a_failure_is_told_and_the_node_keeps_its_taint(folder: Path) -> None:
    stage = Stage(folder, Outcome("failed", "profile: nft says no", ("profile",)))
    stage.agent.work()
    assert (folder / agent.TROUBLE).read_text() == "aks_dual_stack: profile: nft says no\n" and not (
        folder / agent.READY
    ).exists()
    assert [one for one in stage.api.told if one != ("flush",)] == [
        ("event", "Warning", "Failed", "aks_dual_stack 1.0: profile: nft says no")
    ]


def test_refused_variables_run_nothing_until_they_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / variables.FILE).write_text("own: 1\n")
    stage = Stage(folder, Outcome("ok"))
    looks: list[int] = []
    real = variables.text_in

    def text_in(where: Path) -> str:
        looks.append(1)
        if len(looks) == 4:
            assert "aks_dual_stack: variables.yaml of the ConfigMap must have only" in (folder / agent.TROUBLE).read_text()
            (folder / variables.FILE).write_text("aks_dual_stack_ipv6: never\n")
        return real(where)

    monkeypatch.setattr(variables, "text_in", text_in)
    stage.agent.work()
    assert stage.runs == [(PROFILE, {"aks_dual_stack_ipv6": "never"})] and ("refused",) in stage.metrics.told


def test_what_another_program_undid_is_told_as_a_correction(folder: Path) -> None:
    stage = Stage(folder, Outcome("changed", modules=("a",)), Outcome("changed", modules=("a",)), interval=0.0001)
    stage.agent.work()
    assert [one[2] for one in stage.api.told if one[0] == "event"] == ["Applied", "Corrected"]
    assert [one[2] for one in stage.metrics.told if one[0] == "ran"] == [True, False]


def test_an_api_that_does_not_answer_is_told_again_and_stops_nothing(folder: Path) -> None:
    stage = Stage(folder, Outcome("ok"), Outcome("ok"), takes=False, interval=0.005)
    stage.agent.work()
    assert len(stage.runs) == 2 and sum(one[0] == "label" for one in stage.api.told) > 2


def test_the_profile_is_undone_by_its_own_state_and_the_label_goes(folder: Path) -> None:
    stage = Stage(folder, Outcome("ok"), undoes=True)
    stage.agent.work()
    assert stage.runs[0][1]["aks_dual_stack_state"] == "absent" and ("label", PROFILE, None) in stage.api.told


def test_without_an_api_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    own = node.Node("node1")
    assert not own.label(PROFILE, "1.0") and not own.remove_taint("a")
    own.event("Normal", "Applied", "a")
    assert "The API did not take the label of node node1" in caplog.text


def test_events_wait_for_the_api_and_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own, takes = node.Node("node1"), [False]
    sent: list[Any] = []

    def tried(what: str, call: Any) -> bool:
        if takes[0]:
            call(None)
        return takes[0]

    monkeypatch.setattr(own, "_tried", tried)
    monkeypatch.setattr(own, "_event", lambda _api, *event: sent.append(event))
    for number in range(12):
        own.event("Warning", "Failed", str(number))
    takes[0] = True
    own.flush()
    own.event("Warning", "Failed", "11")
    assert [event[2] for event in sent] == [str(number) for number in range(2, 12)]


def test_files_of_a_run_are_the_owners_alone(tmp_path: Path) -> None:
    written = playbook._written(tmp_path / "a.json", {"a": 1})
    assert written.stat().st_mode & 0o777 == 0o600 and json.loads(written.read_text()) == {"a": 1}
