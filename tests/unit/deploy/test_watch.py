# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent keeps of the changes of its node. The kernel's own notifications are in tests/integration."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

pytest.importorskip("prometheus_client")
sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/image"))

from kubenode_agent import watch as subject  # noqa: E402
from kubenode_agent.auditor import OF_OTHERS, OF_PODS, Auditor  # noqa: E402
from kubenode_agent.child import Audit  # noqa: E402
from kubenode_agent.settings import Settings  # noqa: E402
from kubenode_agent.watch import Before, Budget, Watch  # noqa: E402

from ansible_collections.kubenode.datapath.plugins.module_utils._listener import node_change  # noqa: E402
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.node_change import Change, Reader  # noqa: E402
from unit import audits  # noqa: E402

ROUTE = Change("route", "removed", "ip route 10.1.0.5 dev veth3", 9, b"\n\1\0\5", port=812)
POD = Change("link", "added", "link veth8", 8, is_pods=True)
RULESET = Change("ruleset", "changed", "the ruleset of nftables", program="process 7 (kube-proxy)")


class Source:
    """A socket whose messages are changes. None stands for those that the kernel dropped."""

    def __init__(self, *_options: int) -> None:
        self.reading, self._writing = os.pipe()
        self.waiting: list[Change | None] = []

    def fileno(self) -> int:
        return self.reading

    def pending(self, _most: int) -> Iterator[Change | None]:
        while self.waiting:
            yield self.waiting.pop(0)


class Passing(Reader):
    """Takes changes for messages."""

    def __init__(self) -> None:
        pass

    @staticmethod
    def port(message: object) -> int:
        return message.port if isinstance(message, Change) else 0

    def change(self, message: object) -> Change | None:
        return message if isinstance(message, Change) else None


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "OF_NODE", "/proc/self/ns/net")
    monkeypatch.setattr(subject, "Notifications", Source)
    monkeypatch.setattr(subject, "_reader", Passing)
    monkeypatch.setattr(subject, "_settings", lambda: {"net.ipv4.ip_forward": 1})
    monkeypatch.setattr(subject.listener_backend, "sender_at_once", lambda port: "process 812 (ip)" if port == 812 else "")
    monkeypatch.setattr(subject.listener_backend, "sender", lambda port: f"process {port}, which has ended")
    monkeypatch.setattr(node_change, "QUIET", 0.0)


def noted(watch: Watch, *changes: Change | None) -> Before:
    """What an audit says that follows these changes."""
    cast("list[Source]", watch._sockets)[0].waiting.extend(changes)
    return watch.close()


def test_an_audit_says_what_changed_before_it_and_who_did_it(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.close() == Before("", True) and watch.is_quiet()
    by_other = ROUTE._replace(text="ip route default", port=813, address=b"", link=7)
    assert noted(watch, ROUTE, by_other).sentence == (
        "ip route 10.1.0.5 dev veth3 removed by process 812 (ip); ip route default removed by process 813, which has ended"
    )
    programs = [entry["program"] for entry in json.loads((tmp_path / "changes").read_text())]
    assert programs == ["process 812 (ip)", "process 813, which has ended"]
    many = [ROUTE._replace(text=f"ip route 10.1.0.{number}", port=0) for number in range(5)]
    assert noted(watch, *many).sentence.endswith("ip route 10.1.0.2 removed by a program that is not known; 2 changes more")


def test_a_burst_with_a_pod_is_not_over_and_names_other_changes_first(tmp_path: Path) -> None:
    before = noted(Watch(tmp_path), POD, ROUTE)
    assert before == Before("ip route 10.1.0.5 dev veth3 removed by process 812 (ip); 1 change more", is_over=False)
    assert noted(Watch(tmp_path), POD).sentence == "link veth8 added by a program that is not known"
    of_pod = ROUTE._replace(link=8)
    added = [of_pod._replace(verb="added", text=f"ip route 10.1.0.{number}") for number in range(4)]
    assert noted(Watch(tmp_path), POD, *added, of_pod).sentence.startswith("ip route 10.1.0.5 dev veth3 removed by ")


def test_of_changes_of_no_pod_what_is_gone_comes_first(tmp_path: Path) -> None:
    address = Change("address", "added", "10.1.0.1/32 dev veth3", 9, b"\n\1\0\1", port=812)
    assert noted(Watch(tmp_path), address, ROUTE).sentence.startswith("ip route 10.1.0.5 dev veth3 removed by ")


def test_a_program_that_changes_the_ruleset_is_usual_from_its_second_time_on(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    for is_unusual in (True, False):
        watch.burst.add(RULESET, time.monotonic())
        assert watch.is_unusual() is is_unusual and watch.close().sentence
    for number in range(2 * subject.MOST_USUAL):
        noted(watch, RULESET._replace(program=f"process 7 (program{number})"))
    assert len(watch._usual) == subject.MOST_USUAL


def test_notifications_that_the_kernel_dropped_are_unusual(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.burst.lose(time.monotonic())
    assert watch.is_unusual() and not watch.is_quiet() and watch.close().sentence == "more than the kernel could tell"


def test_a_setting_without_a_notification_is_seen_by_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "SETTINGS", 0.0)
    watch = Watch(tmp_path)
    monkeypatch.setattr(subject, "_settings", lambda: {"net.ipv4.ip_forward": 0})
    watch.receive(0.0)
    assert watch.close().sentence == "net.ipv4.ip_forward = 0, changed by a program that is not known"


def test_the_history_is_bounded_and_outlives_a_container(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    noted(watch, *(ROUTE._replace(text=str(number)) for number in range(3 * subject.MOST)))
    assert len(watch.history) == subject.MOST and watch.history[-1].text == str(3 * subject.MOST - 1)
    assert Watch(tmp_path).history == watch.history
    (tmp_path / "changes").write_text('[{"kind": ')
    assert not Watch(tmp_path).history


def test_many_programs_at_once_are_not_looked_for_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(subject.listener_backend, "sender_at_once", asked.append)
    noted(Watch(tmp_path), *(ROUTE._replace(text=str(port), port=port) for port in range(1, 5 * subject.BUSY)))
    assert len(asked) == subject.BUSY


def test_a_budget_is_a_share_of_a_processor_and_saves_no_more_than_so_much() -> None:
    budget = Budget(0.01, 3.0, 0.0)
    budget.spend(2.0, 0.0)
    assert budget.permits(0.0)
    budget.spend(2.0, 0.0)
    assert not budget.permits(99.0) and budget.permits(101.0)
    budget.spend(3.1, 1e6)
    assert not budget.permits(1e6)


def test_an_agent_that_cannot_listen_audits_by_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_options: int) -> Source:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subject, "OF_NODE", "/proc/self/ns/user")
    assert subject.watching(tmp_path) is None and "the pod is not in the network of its node (hostNetwork)" in caplog.text
    monkeypatch.setattr(subject, "OF_NODE", "/proc/self/ns/net")
    monkeypatch.setattr(subject, "Notifications", refused)
    assert subject.watching(tmp_path) is None
    assert "audits by its interval alone: [Errno 1] Operation not permitted" in caplog.text


class Listened:
    """A watch whose burst is over."""

    def __init__(self, is_unusual: bool, before: Before | None = None, is_quiet: bool = True) -> None:
        self.burst = node_change.Burst()
        self.burst.add(ROUTE, 0.0)
        self.is_unusual, self.close, self.is_quiet = lambda: is_unusual, lambda: before or Before(), lambda: is_quiet

    def receive(self, _seconds: float) -> None:
        pass


def auditor(folder: Path, watch: Any, *results: Any, processor: float = 1.0) -> tuple[Auditor, Mock]:
    node, waiting = Mock(room=10, has_condition=None), iter(results)
    settings = Settings("audit", "node1", state=folder, condition=True)

    def audit(_former: Audit | None) -> Audit:
        return Audit(next(waiting), processor=processor)

    return Auditor(settings, node, Mock(), audit, "1.0", threading.Event(), watch), node


@pytest.mark.parametrize(("is_unusual", "most"), [(True, OF_OTHERS[1]), (False, OF_PODS[1])])
def test_a_change_that_is_over_is_audited_as_long_as_its_budget_pays(is_unusual: bool, most: float, tmp_path: Path) -> None:
    agent, _node = auditor(tmp_path, Listened(is_unusual), *[audits.audit()] * 99, processor=most / 2 + 0.1)
    audited = 0
    while not agent._rest(0.01) and agent._is_due():
        agent._turn()
        audited += 1
    assert audited == 2


@pytest.mark.parametrize(("listens", "intervals"), [(True, 3), (False, 1)])
def test_a_node_on_which_nothing_changes_is_audited_at_every_third_interval(
    listens: bool, intervals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda _low, _high: 1.0)
    agent, _node = auditor(tmp_path, Listened(False) if listens else None)
    assert agent._pause() == intervals * 600
    agent._failures = 1
    assert agent._pause() == 60
    agent._failures, agent._is_open = 0, True
    assert agent._pause() == 60


def test_a_finding_says_what_changed_and_waits_for_a_second_audit_if_pods_are_coming(tmp_path: Path) -> None:
    found = audits.audit(audits.present())
    for before, is_quiet, events in ((Before("a removed"), True, 1), (Before("a", False), True, 0), (Before("a"), False, 0)):
        folder = tmp_path / f"{before.is_over}{is_quiet}"
        folder.mkdir()
        agent, node = auditor(folder, Listened(True, before, is_quiet), found, found)
        agent._turn()
        assert node.queue.call_count == events and node.set_condition.call_args[0][0].status == ("False" if events else "Unknown")
        agent._again = 0.0
        agent._turn()
        assert node.queue.call_count == 1 and node.set_condition.call_args[0][0].status == "False"
        said = node.queue.call_args[0][2]
        assert said.startswith(
            "error rp-strict-asymmetric eth0 after a removed: " if events else "error rp-strict-asymmetric eth0: "
        )
