# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An audit sends no packet twice through twins of the same world, and a twin that fails or is slow changes no other answer."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import exchange_backend, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import work_backend

from .._trace import random_nodes
from .._trace.test_cures import ENIS
from .healthy_nodes import KERNEL, leftovers
from .troubles import TROUBLES


def test_remedies_are_looked_for_with_the_answer_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        snapshot = trouble.snapshot(node)
    asked: Counter[str] = Counter()
    in_a_twin = trace_backend._in_a_twin

    def counted(snapshot: Snapshot, question: trace_backend.Question, *args: Any) -> Answer:
        if not question.changes:
            asked[repr((snapshot, question))] += 1
        return in_a_twin(snapshot, question, *args)

    monkeypatch.setattr(trace_backend, "_in_a_twin", counted)
    audit = audit_backend.Audit(snapshot, catalogue.chosen(["reply-by-other-interface", "rp-strict-asymmetric"]))
    result = audit_backend.result(audit, random_nodes.run)
    assert len(asked) > 1 and max(asked.values()) == 1, result["findings"]


def test_a_twin_that_fails_leaves_open_what_it_was_to_tell_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        snapshot = trouble.snapshot(node)

    def without_memory(*_args: Any) -> Answer:
        raise Failure("the twin was killed")

    whole = audit_backend.result(audit_backend.Audit(snapshot, catalogue.CHECKS), random_nodes.run)
    monkeypatch.setattr(trace_backend, "_in_a_twin", without_memory)
    failed = audit_backend.result(audit_backend.Audit(snapshot, catalogue.CHECKS), random_nodes.run)
    tried = [finding for finding in failed["findings"] if "the twin was killed" in finding["what"]]
    assert tried and {finding["state"] for finding in tried} == {"cannot_tell"}
    assert {*failed["passed"]} == {*whole["passed"]} - {finding["id"] for finding in tried}


CHECKS = ["reply-by-other-interface", "rp-strict-asymmetric", "path-lost"]


@pytest.fixture(scope="module")
def snapshot() -> dict[str, Any]:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        return trouble.snapshot(node)


def findings(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    audit = audit_backend.Audit(snapshot, catalogue.chosen(CHECKS))
    return list(audit_backend.result(audit, random_nodes.run)["findings"])


def test_an_audit_finds_the_same_whatever_the_clock_says(snapshot: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, monotonic, seconds = findings(snapshot), time.monotonic, itertools.count()
    assert [finding["proof"] for finding in quiet] == ["twin"] * len(quiet) and len(quiet) > 1
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + next(seconds))
    assert findings(snapshot) == quiet
    assert next(seconds) > 100


def test_rules_that_cannot_be_loaded_leave_open_the_packets_that_reach_them(snapshot: dict[str, Any]) -> None:
    whole = {finding["subject"]: finding for finding in findings(snapshot)}
    pods = {eni.name: eni.pod_address(0) for eni in ENIS}
    refused = "".join(f"-A BAD -p tcp -m tcp --dport {70_000 + number} -j DROP\n" for number in range(45))
    save = f"*filter\n:FORWARD ACCEPT [0:0]\n:BAD - [0:0]\n-A FORWARD -d {pods['eth1']}/32 -j BAD\n{refused}COMMIT\n"
    tables = [entry for entry in snapshot["iptables"] if (entry["family"], entry["table"]) != ("ip", "filter")]
    added = {"family": "ip", "table": "filter", "backend": "nft", "save": save}
    found = {finding["subject"]: finding for finding in findings({**snapshot, "iptables": [*tables, added]})}
    assert (found["eth1"]["state"], found["eth2"]["state"]) == ("cannot_tell", "present")
    assert "refused more than 40 lines" in found["eth1"]["what"] and whole["eth1"]["state"] == "present"
    assert found["eth2"]["proof"] == "twin" and found["eth2"]["remedy"] is None and whole["eth2"]["remedy"]
    assert "is not offered: Whether it ends other paths was not tried" in found["eth2"]["what"]


def test_a_twin_that_hangs_leaves_open_what_it_was_to_tell_and_is_waited_for_once(
    snapshot: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_backend, "GUARD", 2.0)
    monkeypatch.setattr(exchange_backend.Exchange, "answer", lambda *_args: time.sleep(60))
    started = time.monotonic()
    found = findings(snapshot)
    assert {finding["state"] for finding in found} == {"cannot_tell"} and time.monotonic() - started < 30
    assert {finding["id"] for finding in found} == {"reply-by-other-interface", "path-lost"}
    assert sum("another twin hung" in finding["what"] for finding in found) == len(found) - 1


def test_a_packet_that_passes_the_node_and_is_missed_is_not_certain_if_its_finding_is_repeated() -> None:
    audit = audit_backend.Audit(leftovers(KERNEL).done(), catalogue.CHECKS)
    found = audit_backend.result(audit, random_nodes.run)["findings"]
    missed = next(finding for finding in found if "wireguard.cali" in finding["subject"])
    traced = audit_backend.repeated(audit, f"{missed['id']}:{missed['subject']}", (), True, random_nodes.run)
    assert traced.way.has_arrived and not traced.certain
    assert traced.unknown[-1].partition(". ")[2] in missed["what"]
