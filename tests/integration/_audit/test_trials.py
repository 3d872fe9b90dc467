# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An audit sends no packet twice through twins of the same world."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer

from .._trace import random_nodes
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
            asked[repr((snapshot, question._replace(end=0.0)))] += 1
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


def test_a_packet_that_passes_the_node_and_is_missed_is_not_certain_if_its_finding_is_repeated() -> None:
    audit = audit_backend.Audit(leftovers(KERNEL).done(), catalogue.CHECKS)
    found = audit_backend.result(audit, random_nodes.run)["findings"]
    missed = next(finding for finding in found if "wireguard.cali" in finding["subject"])
    traced = audit_backend.repeated(audit, f"{missed['id']}:{missed['subject']}", (), True, random_nodes.run)
    assert traced.way.has_arrived and not traced.certain
    assert traced.unknown[-1].partition(". ")[2] in missed["what"]
