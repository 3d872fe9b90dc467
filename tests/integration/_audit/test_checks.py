# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of datapath_audit on nodes with the troubles that they look for, and the remedies of what they find."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_rows import ROWS
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet_text
from lab import collection, playbook
from lab.node import NamespaceNode
from lab.steps import Steps
from unit import schemas
from unit._render import test_reports

from .._trace import test_cures as scenes
from .auditing import audited
from .troubles import MARKS, TROUBLES, Trouble

# Each check of datapath_audit, on a node with the trouble that it looks for: a finding, which the remedy removes


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


# datapath_audit on nodes that lose packets: the finding is there, its remedy is applied for real, and the finding is gone


def present(result: dict[str, Any]) -> dict[str, list[str]]:
    """The subjects of the findings by their ids."""
    subjects: dict[str, list[str]] = {}
    for finding in result["findings"]:
        if finding["state"] == "present":
            subjects.setdefault(finding["id"], []).append(finding["subject"])
    return subjects


def test_a_snapshot_of_a_later_format_is_refused(node: NamespaceNode) -> None:
    error = Steps(node, "datapath_audit", {"snapshot": {"format": 99, "unread": []}}).refused()
    assert "snapshot must be a snapshot of format 1. Read the node again, with this version" in error and "format 99" in error


@pytest.mark.parametrize("checks", ["error, rules-by-the-hundred", [" error", "rules-by-the-hundred "]])
def test_blanks_around_a_check_do_not_matter(node: NamespaceNode, checks: str | list[str]) -> None:
    passed = Steps(node, "datapath_audit", {"checks": checks, "prove": False}).run()["passed"]
    assert {"forwarding-off", "rules-by-the-hundred"} <= {*passed}


def test_a_strict_filter_of_the_primary_interface_is_found_and_its_remedy_mends_it() -> None:
    with scenes.shared_enis(scenes.STRICT) as (lab, node):
        node.service(scenes.NODE_PORT, [lab.pod("pod1").address], "Local", backend="iptables")

        def arrives() -> bool:
            return lab.client.fetch(scenes.PRIMARY.address, scenes.NODE_PORT, 0.3) is not None

        before = node.snapshot()
        result = audited(node)
        assert node.snapshot() == before
        assert present(result) == {"rp-strict-asymmetric": ["eth0"], "reply-by-other-interface": ["eth1", "eth2"]}
        finding = result["findings"][0]
        assert (finding["severity"], finding["proof"]) == ("error", "twin")
        assert finding["evidence"] == ["net.ipv4.conf.eth0.rp_filter = 1", "2048: from 10.0.1.11 lookup 1001"]
        assert finding["packet"] == "tcp 198.51.100.7:40000 > 10.0.0.10:30080 in eth0"
        assert (finding["trace"]["verdict"], finding["trace"]["reply"]) == ("dropped", None)
        assert finding["trace"]["culprit"] == {"kind": "sysctl", "text": "net.ipv4.conf.eth0.rp_filter = 1"}
        assert [*schemas.errors(json.loads(findings.as_json({"node1": result})), test_reports.SCHEMA)] == []
        assert result["profile"]["name"] == "eni_policy_routing"
        asked = {"finding": "reply-by-other-interface", "snapshot": Steps(node, "datapath_info").run()["snapshot"]}
        several = "these are: reply-by-other-interface:eth1, reply-by-other-interface:eth2;"
        assert several in Steps(node, "datapath_trace", asked).refused()
        assert not arrives()
        scenes.apply(node, yaml.safe_load(finding["remedy"]["task"])[0])
        assert arrives()
        clean = audited(node)
        assert present(clean) == {} and clean["profile"]["name"] is None


# The playbook of examples/audit on a node with the trouble: mended by the first run, and nothing to do for the second


PLAYBOOK = collection.CHECKOUT / "examples/audit/mend.yml"
STRICT_AT_BOOT = "net.ipv4.conf.eth0.rp_filter = 1"
CASES = [
    ("rp-strict-at-boot", 0, f"sh -c {shlex.quote(f'echo {STRICT_AT_BOOT} > /etc/sysctl.d/50-own.conf')}", 1),
    ("mark-without-rule", 0, f"iptables -t mangle -A PREROUTING {MARKS}", 1),
    ("rule-to-empty-table", 0, "ip rule add from 198.51.100.77 lookup 777", 0),  # left to an operator
]


@pytest.mark.parametrize(("check", "mode", "trouble", "changed"), sampled(CASES, lambda case: case in CASES[1:]))
def test_a_trouble_is_mended_or_printed(tmp_path: Path, check: str, mode: int, trouble: str, changed: int) -> None:
    with scenes.shared_enis(mode) as (lab, node):
        node.run(shlex.split(trouble))
        inventory = lab.write_inventory(tmp_path / "inventory.json")
        plays = (playbook.play(inventory, PLAYBOOK, *words, variables={"audit_check": check}) for words in (["--check"], [], []))
        checked, first, second = (play.well() for play in plays)
        assert (checked.changed, first.changed, second.changed) == (changed, changed, 0), first.output
        assert ("777" in second.output) == (not changed)
