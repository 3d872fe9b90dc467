# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout: its JSON fits its schema, and its other formats say the same."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Node, Rollout
from unit.audits import audit
from unit.schemas import errors

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs/schema/rollout.json").read_text())
PROFILE = "kubenode.datapath.profile"
CHECK = {"address": "192.0.2.7", "port": 443}
RESULT = {
    "changed": True,
    "summary": ["nftables_package (present): as desired: nftables"],
    "node": {"kernel": "6.1.0"},
    "nftables_package": {"changed": False, "version": "1.0.6"},
    "nftables_probe_snat": {"changed": True},
    "profile": "aks_dual_stack",
    "variables": {"state": "present"},
    "audits": {"before": audit(), "after": audit()},
    "warnings": ["a <b>warning</b>"],
    "rehearsed": {},
}


def data(is_check: bool = False) -> dict[str, t.Any]:
    """Return the report of three nodes: changed, failed and not reached."""
    changed, failed = Node(is_begun=True, results=1), Node(is_begun=True, results=1, trouble="Apply: <no>", action=PROFILE)
    changed.note(PROFILE, RESULT, is_check)
    changed.note("kubenode.datapath.node_report", {"moment": "after", "connection": CHECK, "answers": True}, is_check)
    changed.change("Apply", PROFILE, RESULT)
    failed.note("kubenode.datapath.node_report", {"moment": "after", "connection": CHECK, "answers": False}, is_check)
    changed.conclude("")
    failed.conclude("failed")
    nodes = {"node1": changed, "node2": failed, "node3": Node()}
    run = Rollout("aks_dual_stack", is_check, "then", "now", nodes, {"collection": "1.0.0", "ansible": "2.17.0"})
    return t.cast("dict[str, t.Any]", json.loads(json.dumps(run.data())))


def test_the_json_fits_its_schema_and_says_what_was_seen() -> None:
    written = data()
    assert [*errors(written, SCHEMA)] == []
    node = written["nodes"]["node1"]
    assert (node["kernel"], node["nft"], node["profile"], node["variables"]) == (
        "6.1.0", "1.0.6", "aks_dual_stack", {"state": "present"},
    )  # fmt: skip
    assert node["audit"] == {"before": audit(), "after": audit()} and node["warnings"] == ["a <b>warning</b>"]
    assert node["proof"] == [
        "rehearsed in the node's twin",
        "observed again after the change: nothing is left to change",
        "audited again after the change",
        "1 of 1 checks were answered after the change",
    ]
    assert written["nodes"]["node3"]["proof"] == [] and written["nodes"]["node3"]["kernel"] is None
    assert "nothing was applied" in data(is_check=True)["nodes"]["node1"]["proof"][1]


def test_the_documentation_has_each_key() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/fleet.md").read_text()
    keys = {*SCHEMA["properties"], *SCHEMA["$defs"]["node"]["properties"]} - {"format", "nodes"}
    assert {key for key in keys if f"`{key}`" not in text and f"nodes.NAME.{key}`" not in text} == set()


@pytest.mark.parametrize("wrong", [{"state": "fine"}, {"kernel": 6}, {"proof": "yes"}, {"audit": {"before": None}}])
def test_a_report_with_a_wrong_field_does_not_fit_the_schema(wrong: dict[str, t.Any]) -> None:
    written = data()
    written["nodes"]["node1"].update(wrong)
    assert [*errors(written, SCHEMA)]


def test_junit_has_a_suite_for_each_node() -> None:
    suites = {suite.attrib["name"]: suite for suite in ElementTree.fromstring(rollout.as_junit(data()))}
    assert [suites[name].attrib["tests"] for name in ("node1", "node2", "node3")] == ["2", "2", "1"]
    assert [suites[name].attrib["failures"] for name in ("node1", "node2", "node3")] == ["0", "2", "0"]
    assert suites["node3"].attrib["skipped"] == "1" and suites["node2"][0][0].attrib["message"] == "Apply: <no>"


def test_markdown_and_the_page_escape_what_a_node_says() -> None:
    markdown, page = rollout.as_markdown(data()), rollout.as_page(data())
    assert "| changed | Apply | <code>node1</code> |" in markdown and "&#60;no&#62;" in markdown
    assert "&lt;no&gt;" in page and "<b>warning</b>" not in page and "kernel 6.1.0, nft 1.0.6" in page
    assert "aks_dual_stack on 3 nodes: 1 failed, 1 not reached, 1 changed" in page


def test_the_page_has_failures_first_and_equal_nodes_as_one_group() -> None:
    """As the page of an audit, with the same filter."""
    written = data()
    nodes = written["nodes"]
    ordered = {"node1": nodes["node1"], "twin": nodes["node1"], "node3": nodes["node3"], "node2": nodes["node2"]}
    page = rollout.as_page({**written, "nodes": ordered})
    groups = re.findall(r'data-level="([^"]*)" data-nodes="([^"]*)" data-name="" data-subject="([^"]*)"', page)
    assert groups == [("failed", "1", "Apply: &lt;no&gt;"), ("not reached", "1", ""), ("changed", "2", "Apply")]
    boxes = re.findall(r'type="checkbox" value="([^"]*)"', page)
    assert boxes == ["failed", "not reached", "changed"] and 'id="text"' in page
    assert page.count("node1, twin") == 1 and page.count("kernel 6.1.0, nft 1.0.6") == 1
