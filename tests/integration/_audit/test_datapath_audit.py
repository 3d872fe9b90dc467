# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_audit on nodes that lose packets: the finding is there, its remedy is applied for real, and the finding is gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps
from unit import schemas
from unit._render import test_reports

from .._trace import test_cures as scenes


def audit(node: NamespaceNode, **options: Any) -> dict[str, Any]:
    return Steps(node, "datapath_audit", options).run()


def present(result: dict[str, Any]) -> dict[str, list[str]]:
    """The subjects of the findings by their ids."""
    subjects: dict[str, list[str]] = {}
    for finding in result["findings"]:
        if finding["state"] == "present":
            subjects.setdefault(finding["id"], []).append(finding["subject"])
    return subjects


def test_a_snapshot_of_a_later_format_is_refused(lab: Lab) -> None:
    error = Steps(lab.node("node1"), "datapath_audit", {"snapshot": {"format": 99, "unread": []}}).refused()
    assert "snapshot must be a snapshot of format 1. Read the node again, with this version" in error and "format 99" in error


@pytest.mark.parametrize("checks", ["error, rules-by-the-hundred", [" error", "rules-by-the-hundred "]])
def test_blanks_around_a_check_do_not_matter(lab: Lab, checks: str | list[str]) -> None:
    passed = Steps(lab.node("node1"), "datapath_audit", {"checks": checks, "prove": False}).run()["passed"]
    assert {"forwarding-off", "rules-by-the-hundred"} <= {*passed}


def test_a_strict_filter_of_the_primary_interface_is_found_and_its_remedy_mends_it() -> None:
    with scenes.shared_enis(scenes.STRICT) as (lab, node):
        node.service(scenes.NODE_PORT, [lab.pod("pod1").address], "Local", backend="iptables")

        def arrives() -> bool:
            return lab.client.fetch(scenes.PRIMARY.address, scenes.NODE_PORT, 0.3) is not None

        before = node.snapshot()
        result = audit(node)
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
        clean = audit(node)
        assert present(clean) == {} and clean["profile"]["name"] is None
