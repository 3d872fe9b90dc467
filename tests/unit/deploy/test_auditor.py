# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits: its events and metrics from one audit to the next. Its pods are in tests/cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")
pytest.importorskip("prometheus_client")
IMAGE = str(Path(__file__).resolve().parents[3] / "deploy/image")
sys.path.append(IMAGE)

from kubenode_agent import child, node, settings  # noqa: E402
from kubenode_agent import condition as conditions  # noqa: E402
from kubenode_agent.condition import reason  # noqa: E402
from kubenode_agent.settings import Refused  # noqa: E402

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings  # noqa: E402
from unit.audits import audit, present, unclear  # noqa: E402

SETTINGS = {"KUBENODE_PROFILE": "audit", "KUBENODE_NODE": "node1"}
ERROR, RISK, NOTE = present(id="probe-untranslated"), present("risk", subject="eth1"), present("note", id="rules-by-the-hundred")
FAILED = "datapath_audit: nft is not installed"
# A process has one set of metrics. It serves them, and prints what they are and what the API got, after each audit.
PROCESS = """
import json, os, pathlib, signal, sys, urllib.request
from kubenode_agent import __main__ as main, api, child, loop, watch

audits, turns, conditions = json.loads(sys.argv[1]), [[]], [[]]

def request(method, path, content, kind=""):
    if method == "PATCH":
        conditions[-1].extend(content.get("status", {}).get("conditions", ()))
        return {"status": {"conditions": conditions[-1]}}
    turns[-1].append([content["type"], content["reason"], content["message"]])
    return {}

def samples():
    with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['KUBENODE_METRICS_PORT']}/metrics") as answer:
        return [line for line in answer.read().decode().splitlines() if line.startswith("kubenode_")]

def audit(_former):
    turns.append([])
    conditions.append([])
    result = audits.pop(0)
    if not audits:
        os.kill(os.getpid(), signal.SIGTERM)
    return child.Audit({}, result) if isinstance(result, str) else child.Audit(result)

shown = []
def pause(self):
    shown.append(samples())
    return 0

child.preload, watch.watching = int, lambda _folder: None
child.audit, api.request, loop.Loop._pause, main.MANIFEST = audit, request, pause, pathlib.Path(sys.argv[2])
status = main.main()
print(json.dumps({"status": status, "events": turns[1:], "metrics": shown, "conditions": conditions[1:]}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "MANIFEST.json").write_text('{"collection_info": {"version": "1.0"}}')
    return tmp_path


def work(folder: Path, *audits: Any, **settings: str) -> dict[str, Any]:
    """Let an agent make these audits, each a result or the sentence of a failure, and end. settings: further ones of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {
        **SETTINGS,
        **settings,
        "KUBENODE_RUN": str(folder),
        "KUBENODE_METRICS_ADDRESS": "127.0.0.1",
        "KUBENODE_METRICS_PORT": str(port),
    }
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([IMAGE, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", PROCESS, json.dumps(audits), str(folder / "MANIFEST.json")]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


def reasons(result: dict[str, Any]) -> list[list[str]]:
    """The reasons of the events of each audit."""
    return [[event[1] for event in events] for events in result["events"]]


def test_a_finding_has_one_event_when_it_appears_and_another_when_it_comes_back(folder: Path) -> None:
    audits = [audit(ERROR, RISK, NOTE), audit(ERROR, NOTE), FAILED, audit(ERROR), audit(ERROR, RISK)]
    result = work(folder, *audits)
    assert result["events"][0] == [
        ["Warning", "ProbeUntranslated", "error probe-untranslated eth0: Strict filtering drops replies."],
        ["Warning", "RpStrictAsymmetric", "risk rp-strict-asymmetric eth1: Strict filtering drops replies."],
        ["Normal", "RulesByTheHundred", "note rules-by-the-hundred eth0: Strict filtering drops replies."],
    ]
    assert result["events"][2] == [["Warning", "AuditFailed", f"audit 1.0: {FAILED}"]]
    assert [len(events) for events in result["events"]] == [3, 0, 1, 0, 1] and reasons(result)[4] == ["RpStrictAsymmetric"]


def test_a_finding_of_a_check_that_could_not_tell_meanwhile_is_not_new(folder: Path) -> None:
    audits = [audit(ERROR, RISK), audit(unclear(ERROR["id"])), audit(ERROR, RISK)]
    assert reasons(work(folder, *audits)) == [["ProbeUntranslated", "RpStrictAsymmetric"], [], ["RpStrictAsymmetric"]]


def test_a_container_that_starts_again_repeats_no_event(folder: Path) -> None:
    assert reasons(work(folder, audit(ERROR))) == [["ProbeUntranslated"]]
    assert reasons(work(folder, audit(ERROR, RISK))) == [["RpStrictAsymmetric"]]
    (folder / "findings").write_text("[[")
    assert reasons(work(folder, audit(ERROR))) == [["ProbeUntranslated"]], "a file that was cut short is as none"


def test_what_no_packet_proves_has_its_event_with_the_second_audit_in_a_row(folder: Path) -> None:
    once = present("risk", proof="configuration")
    other = present("risk", subject="eth1", proof="counter")
    assert reasons(work(folder, *[audit(once), audit(), audit(once), audit(once, other), audit(other)])) == [
        *([], [], []),
        ["RpStrictAsymmetric"],
        ["RpStrictAsymmetric"],
    ]
    assert reasons(work(folder, audit(once), audit(unclear(once["id"])), audit(once)))[2] == ["RpStrictAsymmetric"]


def test_the_node_has_no_condition_by_default(folder: Path) -> None:
    assert work(folder, audit(ERROR), audit())["conditions"] == [[], []]


def test_the_condition_follows_the_audits_and_is_sent_when_it_is_another(folder: Path) -> None:
    audits = [audit(RISK), audit(RISK), audit(ERROR), audit(ERROR, RISK), FAILED, audit()]
    sent = work(folder, *audits, KUBENODE_CONDITION="true")["conditions"]
    assert [[(one["status"], one["reason"]) for one in each] for each in sent] == [
        *([("True", "NoErrorFound")], []),
        *([("False", "ProbeUntranslated")], []),
        [("Unknown", "AuditFailed")],
        [("True", "NoErrorFound")],
    ]
    assert sent[2][0]["message"] == "probe-untranslated eth0: Strict filtering drops replies."


def test_a_condition_is_of_an_audit_alone() -> None:
    for profile, value in (("aks_dual_stack", "true"), ("audit", "yes")):
        with pytest.raises(Refused, match="KUBENODE_CONDITION must be true or false, and true only for an audit"):
            settings.from_environment({**SETTINGS, "KUBENODE_PROFILE": profile, "KUBENODE_CONDITION": value})


UNPROVED = present(proof="counter")
KEYS = [("rp-strict-asymmetric", "eth0")]
HEALTHY = conditions.Condition("True", "NoErrorFound", "No check finds an error.")
RULES = "The subset rules was not read"
CONDITIONS = [
    (audit(), [], None, HEALTHY),
    (audit(RISK, NOTE, unclear("rules-of-one-source", severity="note")), [], None, HEALTHY),
    (audit(unclear("rp-strict-at-boot", severity="risk")), [], None, HEALTHY),
    (audit(unclear()), [], HEALTHY, ("Unknown", "BaseRuleMissing", f"Cannot tell: base-rule-missing: {RULES}.")),
    (audit({**unclear(severity="risk"), "subject": "ipv4"}), [], None, HEALTHY),
    (
        audit(unclear("conntrack-near-full", severity="note"), unclear()),
        *([], HEALTHY),
        ("Unknown", "ConntrackNearFull", f"Cannot tell: conntrack-near-full: {RULES}, and 1 check more."),
    ),
    (audit(UNPROVED), [], HEALTHY, HEALTHY),
    (audit(UNPROVED), [], None, ("Unknown", "RpStrictAsymmetric", "rp-strict-asymmetric eth0: Strict filtering drops replies.")),
    (
        audit(ERROR, UNPROVED, unclear()),
        *(KEYS, HEALTHY),
        ("False", "ProbeUntranslated", "probe-untranslated eth0: Strict filtering drops replies, and 1 error more."),
    ),
    (
        audit(UNPROVED),
        KEYS,
        HEALTHY,
        ("False", "RpStrictAsymmetric", "rp-strict-asymmetric eth0: Strict filtering drops replies."),
    ),
]


@pytest.mark.parametrize(("result", "former", "last", "expected"), CONDITIONS)
def test_errors_make_a_node_unhealthy_and_what_may_hide_one_makes_it_unknown(
    result: Any, former: Any, last: Any, expected: tuple[str, str, str]
) -> None:
    assert conditions.of(findings.read(result), conditions.Certainty(former), last) == expected


def test_a_packet_proves_nothing_of_a_node_that_changed_meanwhile() -> None:
    found = findings.read(audit(ERROR))
    changing = conditions.Certainty([], is_quiet=False)
    assert conditions.of(found, changing, HEALTHY) == HEALTHY
    assert conditions.of(found, changing._replace(former=[("probe-untranslated", "eth0")]), HEALTHY).status == "False"


def test_each_check_that_can_find_errors_says_so() -> None:
    """A check with the severity risk or note that names ERROR in its code finds errors, too."""
    for check in catalogue.CHECKS:
        of_file = vars(sys.modules[check.look.__module__])
        helpers = (of_file.get(name) for name in check.look.__code__.co_names)
        functions: list[Any] = [
            check.look,
            *(each for each in helpers if getattr(each, "__module__", "") == check.look.__module__),
        ]
        assert check.worst == "error" or not any("ERROR" in each.__code__.co_names for each in functions), check.id


def test_many_findings_are_no_storm_of_events(folder: Path) -> None:
    findings = [ERROR, *(present("risk", subject=f"eth{number}") for number in range(node.MOST_EVENTS + 5))]
    first, second, third = reasons(work(folder, *[audit(*findings)] * 3))
    assert (len(first), first[0], len(second), third) == (node.MOST_EVENTS, "ProbeUntranslated", 6, [])


def test_metrics_have_the_findings_of_the_last_audit_that_succeeded(folder: Path) -> None:
    first, failed, last = work(folder, audit(ERROR, unclear()), FAILED, audit())["metrics"]
    finding = 'kubenode_datapath_finding{id="probe-untranslated",severity="error",subject="eth0"} 1.0'
    for samples in (first, failed):
        assert finding in samples and 'kubenode_datapath_cannot_tell{id="base-rule-missing"} 1.0' in samples
    assert 'kubenode_runs_total{result="failed"} 1.0' in failed and 'kubenode_runs_total{result="failed"} 0.0' in first
    assert not [sample for sample in last if "finding" in sample or "cannot_tell" in sample]
    times = [sample for sample in last if sample.startswith("kubenode_datapath_audit_timestamp_seconds ")]
    assert len(times) == 1 and not [sample for sample in last if sample.startswith("kubenode_converged")]


def test_an_audit_that_fails_is_a_node_that_is_not_ready(folder: Path) -> None:
    work(folder, FAILED)
    assert (folder / "trouble").read_text() == f"audit: {FAILED}\n" and not (folder / "ready").exists()
    work(folder, audit())
    assert (folder / "ready").exists() and not (folder / "trouble").exists()


def test_an_audit_cannot_be_undone() -> None:
    with pytest.raises(Refused, match="KUBENODE_STATE must be present for an audit, which leaves nothing on the node"):
        settings.from_environment({**SETTINGS, "KUBENODE_STATE": "absent"})


def test_the_reasons_of_events_are_names_by_the_api_and_each_is_of_one_check() -> None:
    names = [reason(check.id) for check in catalogue.CHECKS]
    assert all(name.isidentifier() and name[0].isupper() and len(name) <= 128 for name in names)
    assert len({*names}) == len(names)


def test_an_audit_is_what_the_child_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_audit", lambda _former: {**audit(ERROR), "digest": "aa"})
    assert child.audit()._replace(seconds=0.0, processor=0.0) == child.Audit(audit(ERROR), digest="aa")
    monkeypatch.setattr(child, "_audit", lambda _former: {**audit(), "findings": 7})
    assert child.audit().sentence == (
        "The answer is refused: result.findings is int; expected is a list, as kubenode.datapath.datapath_audit returns it."
    )


def test_the_result_stays_while_the_state_does(monkeypatch: pytest.MonkeyPatch) -> None:
    states, state = {"bb": audit(ERROR), "cc": audit()}, "bb"
    monkeypatch.setattr(child, "enter", lambda: None)
    monkeypatch.setattr(child.snapshot_backend, "read", lambda *_words, **_options: state)
    monkeypatch.setattr(child.digest, "digest", str)
    monkeypatch.setattr(child.audit_backend, "Audit", lambda node, *_checks, **_options: node)
    monkeypatch.setattr(child.audit_backend, "result", lambda node, _run: states[node])
    first = child.audit()
    monkeypatch.setitem(states, "bb", audit())  # no audit is made
    again = child.audit(first)
    assert again.result == first.result == audit(ERROR) and again.digest == "bb"
    state = "cc"
    assert child.audit(again).result == audit()


def refuses() -> dict[str, Any]:
    raise Failure("nft is not installed")


def errs() -> dict[str, Any]:
    raise RuntimeError("no such key")


def is_killed() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def ends() -> dict[str, Any]:
    os._exit(3)


def hangs() -> dict[str, Any]:
    """Wait for a program in a session of its own, which must end, too."""
    subprocess.run(["sleep", "77.77"], start_new_session=True, check=True)
    return {}


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (refuses, "nft is not installed"),
        (errs, "RuntimeError: no such key"),
        (is_killed, "the audit ended with status -9 and without a result"),
        (ends, "the audit ended with status 3 and without a result"),
        (hangs, "the audit did not end within 0.5 s and was killed"),
    ],
)
def test_a_child_that_fails_ends_no_agent_and_leaves_nothing(work: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LIMIT", 0.5 if work is hangs else 60.0)
    assert child.run(work)[:2] == ({}, sentence)
    assert subprocess.run(["pgrep", "-f", "sleep 77.77"], check=False).returncode == 1


def test_a_childs_result_is_printable_and_its_processor_time_is_known() -> None:
    ended = child.run(lambda: {"name": "eth0\x1b[2J", "sum": sum(range(3_000_000))})
    assert ended.result["name"] == "eth0\\x1b[2J" and ended.processor > 0.02


def test_a_pod_that_does_not_see_the_node_is_not_audited_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "FIRST", "self")
    assert child.audit().sentence == (
        "Process self is in this pod, so that the pod would be audited instead of the node. Set hostPID of the pod to true"
    )
    monkeypatch.setattr(child, "FIRST", 1 << 30)
    assert child.audit().sentence.startswith(f"The namespaces of process {1 << 30} cannot be entered: No such file or directory.")
