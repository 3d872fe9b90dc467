# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of the agent to an API that works, is down, is slow, or lies, against a server with TLS."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/image"))

from kubenode_agent import api as requests  # noqa: E402
from kubenode_agent import node as subject  # noqa: E402
from kubenode_agent import reachability  # noqa: E402
from kubenode_agent.condition import TYPE, Condition  # noqa: E402
from kubenode_agent.node import Node  # noqa: E402

from lab.agent_api import Api, Handler, certify  # noqa: E402
from lab.delivered import TAINT  # noqa: E402

PROFILE, LABEL = "aks_dual_stack", "kubenode.datapath/aks-dual-stack"
OTHER = "example.com/other"
SOON = 0.05  # seconds


@pytest.fixture
def address() -> str:
    return "127.0.0.1"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> Iterator[Api]:
    monkeypatch.setattr(subject, "FIRST", SOON)
    with Api(tmp_path, address) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        monkeypatch.setattr(requests, "ACCOUNT", tmp_path)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def until(taken: Callable[[], bool]) -> bool:
    """Whether the API accepts the request, tried as often as the agent does."""
    for _number in range(100):
        if taken():
            return True
        time.sleep(SOON)
    return False


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_label_taint_and_event_are_the_apis(api: Api) -> None:
    api.taints = [{"key": OTHER}, {"key": TAINT, "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoExecute"}]
    this_node = Node("node1")
    assert this_node.label(PROFILE, "1.0") and this_node.remove_taint(TAINT)
    this_node.event("Warning", "Failed", "no")
    assert (api.labels, api.taints) == ({LABEL: "1.0"}, [{"key": OTHER}])
    (event,) = api.events
    assert (event["involvedObject"]["name"], event["type"], event["reason"], event["message"]) == (
        *("node1", "Warning", "Failed"),
        "no",
    )
    assert this_node.label(PROFILE, None) and this_node.remove_taint(TAINT) and api.labels == {}


def test_a_server_with_a_certificate_of_another_authority_gets_no_token(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certify(tmp_path, "ca", "authority")
    assert not Node("node1").label(PROFILE, "1.0")
    assert "certificate verify failed" in caplog.text and api.asked == []


def silent(request: Handler) -> bool:
    time.sleep(1)
    return True


def by_bytes(request: Handler) -> bool:
    """Each byte of the answer comes before the timeout, but the whole answer does not."""
    with contextlib.suppress(OSError):
        for _number in range(100):
            request.wfile.write(b"H")
            time.sleep(0.01)
    return True


def endless(request: Handler) -> bool:
    with contextlib.suppress(OSError):
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            request.wfile.write(b"{" * (1 << 20))
    return True


def cut(request: Handler) -> bool:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{")
    request.close_connection = True
    return True


def says(status: int, content: Any) -> Callable[[Handler], bool]:
    def behaves(request: Handler) -> bool:
        request.answer(status, content)
        return True

    return behaves


SOUND = {"kind": "Node", "metadata": {"name": "node1", "labels": {LABEL: "0.9"}}, "spec": {"taints": [{"key": TAINT}]}}
TROUBLES = {
    "silent": silent,
    "by bytes": by_bytes,
    "cut": cut,
    "endless": endless,
    "a page": says(200, "<html>Welcome</html>"),
    "nothing": says(200, ""),
    "a list": says(200, []),
    "an empty object": says(200, {}),
    "unchanged": says(200, SOUND),
    "strange": says(200, {"metadata": 1, "spec": {"taints": {"a": 1}}}),
    "gone": says(404, {"message": "nodes node1 not found"}),
    "forbidden": says(403, {"message": "no"}),
    "too many": says(429, {"message": "later"}),
    "expired": says(410, {"message": "too old resource version"}),
    "overloaded": says(503, "upstream"),
    "elsewhere": says(307, ""),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_answer_holds_the_agent_up_or_ends_it_and_what_was_to_be_told_is_told_later(
    api: Api, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subject, "LIMIT", 0.3)
    this_node = Node("node1")
    api.behaves = TROUBLES[trouble]
    began = time.monotonic()
    assert not this_node.label(PROFILE, "1.0") and not this_node.remove_taint(TAINT)
    assert time.monotonic() - began < 0.9 and "The API did not take the taint of node node1" in caplog.text
    assert api.taints == [{"key": TAINT, "effect": "NoSchedule"}]
    api.behaves = lambda _request: False
    assert until(lambda: this_node.label(PROFILE, "1.0")) and until(lambda: this_node.remove_taint(TAINT))
    assert (api.labels, api.taints) == ({LABEL: "1.0"}, [])


def test_a_list_of_taints_that_changes_between_look_and_patch_loses_no_other_taint(api: Api) -> None:
    def behaves(request: Handler) -> bool:
        if request.command == "PATCH":
            api.taints.insert(0, {"key": OTHER})
            api.behaves = lambda _request: False
        return False

    api.behaves = behaves
    this_node = Node("node1")
    assert not this_node.remove_taint(TAINT) and len(api.taints) == 2
    assert until(lambda: this_node.remove_taint(TAINT)) and api.taints == [{"key": OTHER}]


def test_a_token_that_has_ended_is_read_again(api: Api) -> None:
    """The client itself reads it a minute after the last time, by a clock that may be set back."""
    this_node = Node("node1")
    assert this_node.label(PROFILE, "1.0")
    api.set_token("second")
    assert until(lambda: this_node.label(PROFILE, "1.1")) and api.labels == {LABEL: "1.1"}


def test_an_api_that_is_down_is_asked_less_and_less_often(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(subject, "FIRST", 4.0)
    monkeypatch.setattr(subject.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(subject.random, "uniform", lambda low, high: (low + high) / 2)
    api.behaves = says(503, "")
    this_node, asked = Node("node1"), list[float]()
    while now[0] < 300:
        if not this_node.label(PROFILE, "1.0") and len(api.asked) > len(asked):
            asked.append(now[0])
        now[0] += 5
    assert asked == [0, 5, 15, 35, 70, 130, 190, 250]


def test_an_event_that_the_api_never_takes_does_not_hold_up_the_others(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.behaves = lambda request: request.body["message"] == "bad" and says(422, {"message": "Invalid value"})(request)
    this_node = Node("node1")
    this_node.event("Warning", "Failed", "bad")
    this_node.event("Warning", "Failed", "good")
    assert [event["message"] for event in api.events] == ["good"]
    assert "refused an event of node node1: (422)" in caplog.text


def test_an_event_has_the_time_at_which_it_happened(api: Api) -> None:
    this_node = Node("node1")
    api.behaves = says(503, "")
    this_node.event("Normal", "Applied", "a")
    before = time.time()
    time.sleep(0.2)
    api.behaves = lambda _request: False

    def is_sent() -> bool:
        this_node.flush()
        return bool(api.events)

    assert until(is_sent)
    text = api.events[0]["firstTimestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00", text)
    assert subject.datetime.datetime.fromisoformat(text).timestamp() < before + 0.1


READY = {"type": "Ready", "status": "True"}
WELL = Condition("True", "NoErrorFound", "No check finds an error.")
ILL = Condition("False", "PathLost", f"path-lost: {'x' * 2000}.")


def own_condition(api: Api) -> dict[str, Any]:
    (own,) = (one for one in api.conditions if one["type"] == TYPE)
    return own


def test_a_condition_keeps_the_time_of_its_last_transition_and_renews_its_heartbeat(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, clock = datetime(2026, 1, 2, 3, 4, 5, 678, timezone.utc), [0.0]
    monkeypatch.setattr(subject, "_now", lambda: now + timedelta(seconds=clock[0]))
    monkeypatch.setattr(subject.time, "monotonic", lambda: clock[0])
    api.conditions = [READY, {"type": TYPE, "status": "True", "lastTransitionTime": "2025-12-01T00:00:00Z"}]
    own, seen = Node("node1"), []
    for clock[0], condition in ((0, WELL), (100, WELL), (400, WELL), (500, ILL), (900, ILL), (1000, WELL)):
        own.set_condition(condition)
        sent = own_condition(api)
        seen.append((sent["status"], sent["lastHeartbeatTime"][-9:], sent["lastTransitionTime"][-9:]))
    assert seen == [
        ("True", "03:04:05Z", "00:00:00Z"),  # of the agent's former pod
        ("True", "03:04:05Z", "00:00:00Z"),  # too soon for another heartbeat
        ("True", "03:10:45Z", "00:00:00Z"),
        ("False", "03:12:25Z", "03:12:25Z"),
        ("False", "03:19:05Z", "03:12:25Z"),
        ("True", "03:20:45Z", "03:20:45Z"),
    ]
    assert READY in api.conditions and {*api.asked} == {"PATCH /api/v1/nodes/node1/status"}
    clock[0], asked = 9999, len(api.asked)
    own.flush()
    assert len(api.asked) == asked, "without an audit there is nothing to say"


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_condition_that_the_api_does_not_take_is_sent_later_with_the_time_of_its_change(
    api: Api, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "LIMIT", 0.3)
    own, began = Node("node1"), datetime.now(timezone.utc).replace(microsecond=0)
    api.behaves = TROUBLES[trouble]
    own.set_condition(ILL)
    ended = datetime.now(timezone.utc)
    assert api.conditions == []
    time.sleep(1.1)
    api.behaves = lambda _request: False

    def is_set() -> bool:
        own.flush()
        return bool(api.conditions)

    assert until(is_set)
    sent = own_condition(api)
    assert began <= datetime.fromisoformat(sent["lastTransitionTime"].replace("Z", "+00:00")) <= ended
    assert (sent["reason"], len(sent["message"])) == ("PathLost", subject.LONGEST)


def test_an_event_that_the_api_did_not_take_outlives_the_agent(api: Api, tmp_path: Path) -> None:
    api.behaves = says(503, "")
    path = tmp_path / "events"
    Node("node1", path).event("Normal", "Applied", "a")
    api.behaves = lambda _request: False
    Node("node1", path).flush()
    Node("node1", path).flush()
    path.write_text("[[")
    Node("node1", path).flush()
    assert [event["message"] for event in api.events] == ["a"]


def test_the_same_event_is_sent_again_before_the_api_has_forgotten_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    this_node, now = Node("node1"), [0.0]
    monkeypatch.setattr(subject.time, "monotonic", lambda: now[0])
    for now[0] in range(0, 4000, 600):
        this_node.event("Warning", "Failed", "no")
    assert len(api.events) == 2


@pytest.mark.parametrize(
    ("behaves", "said"),
    [
        (lambda _request: False, ""),
        (says(403, {"message": "no"}), ""),
        (says(429, {"message": "later"}), ""),
        (says(503, "upstream"), "the API of Kubernetes answered (503) upstream"),
        (cut, "the API of Kubernetes did not answer: "),
        (says(200, "<html>Welcome</html>"), "the API of Kubernetes did not answer: "),
    ],
)
def test_the_api_is_reached_if_it_answers_itself(api: Api, behaves: Callable[[Handler], bool], said: str) -> None:
    api.behaves = behaves
    assert reachability.ask("node1").startswith(said) and bool(reachability.ask("node1")) == bool(said)


def test_a_server_of_another_authority_is_not_the_api(api: Api, tmp_path: Path) -> None:
    certify(tmp_path, "ca", "authority")
    assert "certificate verify failed" in reachability.ask("node1")


def test_the_proof_is_a_program_of_the_agent_that_enters_the_nodes_network(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reachability.COMMAND[:4] == ("nsenter", "--target=1", "--net", "--")
    for argv, said in (
        (("true",), ""),
        (("sh", "-c", "echo no >&2; exit 1"), "no"),
        (("false",), "false ended with 1"),
        (("/none",), "/none: No such file or directory"),
    ):
        monkeypatch.setattr(reachability, "COMMAND", argv)
        assert reachability.trouble() == said
