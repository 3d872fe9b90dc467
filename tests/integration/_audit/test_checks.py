# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each check of datapath_audit, on a node with the trouble that it looks for: a finding, which the remedy removes."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from check_rows import ROWS

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet_text
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .troubles import TROUBLES, Trouble


def test_each_check_has_a_trouble_or_a_row() -> None:
    assert {*TROUBLES, *ROWS} == {check.id for check in catalogue.CHECKS}


@pytest.mark.parametrize("check", TROUBLES)
def test_a_trouble_is_found_and_its_remedy_ends_it(check: str) -> None:
    trouble = TROUBLES[check]
    with trouble.scene() as node:
        healthy = trouble.audit(node, check)
        trouble.make(node)
        before = node.snapshot()
        findings = trouble.audit(node, check)
        assert node.snapshot() == before
        finding = next(finding for finding in findings if finding["subject"] == trouble.subject)
        assert (finding["id"], finding["state"], finding["proof"]) == (check, "present", trouble.proof), finding
        assert finding["evidence"] == trouble.evidence
        # What no packet and no counter shows is a note.
        assert finding["severity"] == "note" or finding["proof"] in ("twin", "counter")
        assert bool(finding["packet"]) == (trouble.proof == "twin")
        if finding["packet"]:
            assert_a_trace_has_the_same_answer(node, finding, trouble)
        if trouble.commands or trouble.files:
            assert healthy == []
        mend(node, finding, trouble)
        assert (trouble._replace(edit=None) if trouble.is_in_snapshot else trouble).audit(node, check) == []


# Whose packets leave the node, with an address by which a cloud or a policy of another node drops them, or arrive where no
# program listens.
LOST_BEYOND = (
    "probe-port-closed",
    "reply-by-other-interface",
    "mark-rule-late",
    "pod-rule-within-network",
    "pod-source-translated",
)


def assert_a_trace_has_the_same_answer(node: NamespaceNode, finding: dict[str, Any], trouble: Trouble) -> None:
    """The packet is lost as it is printed; where the audit added a Service or the settings of the next boot, so is the packet of
    the finding.
    """
    added = "as kube-proxy would make it"
    has_added = any(added in sentence for sentence in finding["added"])
    of_finding = {"finding": f"{finding['id']}:{finding['subject']}", "context": trouble.context}
    asked = of_finding if has_added or trouble.files else {"packet": packet_text.options(finding["packet"])}
    evidence = {"snapshot": trouble.snapshot(node)} if trouble.edit else {}
    traced = Steps(node, "datapath_trace", {**asked, **evidence}).run()
    of_audit = finding["trace"]
    for key in ("verdict", "interface", "culprit"):
        assert traced[key] == of_audit[key]
    command = f" `{traced['depends_on'][0]['ask']}` shows whether it is so." if traced["depends_on"] else ""
    assert traced["reason"] in (of_audit["reason"], f"{of_audit['reason']}{command}")  # which an audit asks elsewhere
    assert has_added == any(added in sentence for sentence in traced["assumed"])
    verdicts = {way["verdict"] for way in (traced, traced["reply"]) if way}
    assert verdicts & {"dropped", "rejected"} or finding["id"] in LOST_BEYOND, verdicts


def mend(node: NamespaceNode, finding: dict[str, Any], trouble: Trouble) -> None:
    """Apply the remedy of a finding."""
    remedy = finding["remedy"]
    for command in trouble.undo or (remedy or {}).get("commands", ()):
        node.run(shlex.split(command))
    if trouble.undo or trouble.is_in_snapshot:
        return
    if remedy.get("module"):
        Steps(node, remedy["module"].rpartition(".")[2], remedy["options"]).run()
    elif remedy["task"]:
        scenes.apply(node, yaml.safe_load(remedy["task"])[0])
