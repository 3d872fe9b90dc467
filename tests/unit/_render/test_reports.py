# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audits of nodes as JSON, JUnit, Markdown and metrics: each format says the same, and no text of a node leaves its place."""

from __future__ import annotations

import html
import json
import re
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import (
    audit_page,
    findings,
    fleet_text,
    junit,
    markdown,
    prometheus,
)
from unit.audits import OPERATOR, PROFILE, TRACE, audit, present, unclear
from unit.schemas import errors

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs/schema/audit.json").read_text())
RISK = present("risk", id="reply-by-other-interface", subject="eth1")
NODES = {
    "node1": audit(present(), RISK, unclear(), passed=["both-backends"]),
    "node2": audit(RISK, present("note", id="waste"), unclear("reply-by-other-interface")),
    "node3": {"failed": True, "msg": "datapath_audit: root is needed"},
    "node4": {"unreachable": True, "msg": "datapath_audit: root is needed"},
}
HOSTILE = "]]></failure><x y='\"{}'>|`*_[a](b)\\\n\x1b[2J\u202e\ud800@all<!-- {{ x }}"


def metrics(nodes: dict[str, t.Any], time: int = 1_700_000_000) -> list[str]:
    return [line for line in prometheus.text(nodes, time).splitlines() if not line.startswith("#")]


def cases(nodes: dict[str, t.Any]) -> dict[tuple[str, str], str]:
    """The outcome of each test case: an element's name, or "passed"."""
    suites = ElementTree.fromstring(junit.text(nodes))
    return {
        (suite.attrib["name"], case.attrib["name"]): next((each.tag for each in case), "passed")
        for suite in suites
        for case in suite
    }


def test_a_check_is_a_test_case_of_the_nodes_suite() -> None:
    assert cases(NODES) == {
        ("node1", "rp-strict-asymmetric"): "failure",
        ("node1", "reply-by-other-interface"): "failure",
        ("node1", "base-rule-missing"): "skipped",
        ("node1", "both-backends"): "passed",
        ("node2", "reply-by-other-interface"): "failure",
        ("node2", "waste"): "failure",
        ("node2", "both-backends"): "passed",
        ("node3", "audit"): "error",
        ("node4", "audit"): "error",
    }
    first, _second, third, _fourth = ElementTree.fromstring(junit.text(NODES))
    counts = ("tests", "failures", "skipped", "errors")
    assert [first.attrib[name] for name in counts] == ["4", "2", "1", "0"]
    assert [third.attrib[name] for name in counts] == ["1", "0", "0", "1"]


def test_a_failure_has_the_evidence_and_the_remedy() -> None:
    (case,) = ElementTree.fromstring(junit.text({"node1": audit(present(), present(subject="eth9"), passed=[])}))[0]
    (failure,) = case
    assert failure.attrib == {"message": "Strict filtering drops replies.", "type": "error"}
    assert failure.text and failure.text.startswith("eth0: Strict filtering drops replies.\nnet.ipv4.conf.eth0.rp_filter = 1\n")
    assert "\nRemedy: kubenode.datapath.rp_filter\n- name: " in failure.text and "\neth9: " in failure.text


def test_metrics_have_findings_open_checks_and_the_time_of_each_node_that_was_audited() -> None:
    assert metrics(NODES) == [
        'kubenode_datapath_finding{id="rp-strict-asymmetric",severity="error",subject="eth0",node="node1"} 1',
        'kubenode_datapath_finding{id="reply-by-other-interface",severity="risk",subject="eth1",node="node1"} 1',
        'kubenode_datapath_finding{id="reply-by-other-interface",severity="risk",subject="eth1",node="node2"} 1',
        'kubenode_datapath_finding{id="waste",severity="note",subject="eth0",node="node2"} 1',
        'kubenode_datapath_cannot_tell{id="base-rule-missing",node="node1"} 1',
        'kubenode_datapath_cannot_tell{id="reply-by-other-interface",node="node2"} 1',
        'kubenode_datapath_audit_timestamp_seconds{node="node1"} 1700000000',
        'kubenode_datapath_audit_timestamp_seconds{node="node2"} 1700000000',
        'kubenode_datapath_not_audited{node="node3"} 1',
        'kubenode_datapath_not_audited{node="node4"} 1',
    ]
    assert len(metrics({"node1": audit(RISK, RISK)})) == 2, "a sample is there once"


@pytest.mark.parametrize("reader", ["prometheus_client.parser", "prometheus_client.openmetrics.parser"])
@pytest.mark.parametrize("nodes", [NODES, {}, {HOSTILE: audit(present(subject=HOSTILE))}], ids=["usual", "none", "hostile"])
def test_the_metrics_are_read_by_both_formats_to_the_same_samples(reader: str, nodes: dict[str, t.Any]) -> None:
    read = pytest.importorskip(reader).text_string_to_metric_families
    time = 1_700_000_000
    families = [*read(prometheus.text(nodes, time))]
    assert [(family.name, family.type) for family in families] == [(name, "gauge") for name in prometheus.METRICS]
    expected = [(family.name, labels, family.value) for family in prometheus.metrics(nodes, time) for labels in family.samples]
    assert [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples] == expected


def test_each_report_counts_alike() -> None:
    """The number of findings is that of the samples, and the groups are those of the page and the rows of the table."""
    of_one_node = present("risk", "pod-rule-missing", "10.0.0.1"), present("risk", "pod-rule-missing", "10.0.0.2")
    nodes = {**NODES, "node5": audit(*of_one_node), "node6": audit(of_one_node[0])}
    title = "7 findings (1 error, 5 risks, 1 note) in 4 groups on 4 of 4 audited nodes"
    assert len([line for line in metrics(nodes) if line.startswith("kubenode_datapath_finding")]) == 7
    rows = [line for line in markdown.text(nodes).splitlines() if re.match(r"\| (error|risk|note) ", line)]
    page = audit_page.text(nodes)
    assert len(rows) == page.count('class="card group"') == 4
    texts = [page, markdown.text(nodes), fleet_text.text(findings.fleet(nodes))]
    assert all(title in text for text in texts)


def test_the_summary_has_findings_with_their_nodes() -> None:
    lines = markdown.text(NODES).splitlines()
    source = "https://github.com/aws/amazon-vpc-cni-k8s/issues/231"
    assert lines[:8] == [
        "# 4 findings (1 error, 2 risks, 1 note) in 3 groups on 2 of 2 audited nodes",
        "",
        "On 2 nodes some checks cannot tell; 2 nodes were not audited.",
        "",
        "| severity | check | subject | nodes |",
        "| --- | --- | --- | --- |",
        f"| error | [rp-strict-asymmetric]({source}) | <code>eth0</code> | <code>node1</code> |",
        f"| risk | [reply-by-other-interface]({source}) | <code>eth1</code> | <code>node1</code>, <code>node2</code> |",
    ]
    assert "| base-rule-missing | <code>ip rule</code> | <code>node1</code> |" in lines
    assert lines[-1] == "| datapath&#95;audit: root is needed | <code>node3</code>, <code>node4</code> |"


def test_the_summary_names_ten_nodes_of_a_row() -> None:
    text = markdown.text({f"node{number}": audit(RISK) for number in range(1000)})
    assert "<code>node9</code>, and 990 more |" in text and len(text) < 1000
    assert markdown.text({"node1": audit()}) == (
        "# No findings on 1 audited node\n\nOn 0 nodes some checks cannot tell; 0 nodes were not audited.\n"
    )


def test_no_text_of_a_node_leaves_its_place() -> None:
    finding = present(**dict.fromkeys(("id", "subject", "what", "packet", "source"), HOSTILE), evidence=[HOSTILE])
    nodes = {HOSTILE: audit(finding, unclear(HOSTILE, what=HOSTILE, ask=HOSTILE), passed=["x"]), "node2": {"msg": HOSTILE}}
    escaped = HOSTILE.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\ud800", "\\ud800")
    assert cases(nodes) == {(escaped, escaped): "failure", (escaped, "x"): "passed", ("node2", "audit"): "error"}
    for line in metrics(nodes):
        labels = re.fullmatch(r"\w+\{((?:\w+=\"(?:[^\"\\]|\\[\"\\])*\",?)+)\} \d+", line)
        assert labels and (escaped in labels[1].replace(r"\"", '"').replace("\\\\", "\\") or labels[1] == 'node="node2"')
    for line in markdown.text(nodes).splitlines():
        assert not re.search(r"[`*_{}@]|<(?!/?code>)|\\", line)
        assert line.count("|") in (0, 3, 4, 5) and (escaped in html.unescape(line) or not line.startswith("| <code>"))
    assert findings.as_json(nodes).replace("\n", "").isprintable()


def test_an_address_of_the_web_in_a_text_of_a_node_is_no_link() -> None:
    text = "https://a.example HTTP://b.example ftp://c.example www.d.example WWW.e.example x@f.example"
    finding = present(subject=text)
    summary = markdown.text({text: audit(finding, unclear(text, ask=text)), "node2": {"msg": text}})
    without_sources = summary.replace(f"]({finding['source']})", "]")
    assert not re.search(r"://|www\.|@", without_sources, re.IGNORECASE) and f"]({finding['source']})" in summary
    assert html.unescape(without_sources).count(text) == 6


@pytest.mark.parametrize("source", ["javascript:alert(1)", "https://example.com/)|_<x>"])
def test_a_source_is_a_link_of_the_web_or_none(source: str) -> None:
    line = markdown.text({"node1": audit(present(source=source))}).splitlines()[6]
    link = "[rp-strict-asymmetric](https://example.com/%29%7C%5F%3Cx%3E)" if "example" in source else "rp-strict-asymmetric"
    assert line == f"| error | {link} | <code>eth0</code> | <code>node1</code> |"


@pytest.mark.parametrize("write", [findings.as_json, junit.text, markdown.text, lambda results: prometheus.text(results, 0)])
def test_what_is_no_dictionary_of_nodes_is_an_error(write: t.Callable[[t.Any], str]) -> None:
    with pytest.raises(Refused, match="the value is list; expected is a dictionary of results by node"):
        write([])


OF_ALL_FORMS = {
    "node1": {**audit(present(), present(remedy=OPERATOR), unclear(), profile=PROFILE), "changed": False},
    "node2": audit(),
    "node3": {"failed": True, "msg": "no root"},
}


def test_results_fit_the_schema_without_what_ansible_adds() -> None:
    written = json.loads(findings.as_json(OF_ALL_FORMS))
    assert [*errors(written, SCHEMA)] == []
    assert written["nodes"]["node1"]["findings"][0].pop("trace") == TRACE
    assert [*errors(written, SCHEMA)] == [], "as an earlier run wrote it"
    assert written["nodes"]["node2"] == audit() and written["nodes"]["node3"] == {"error": "no root"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2, "nodes": {}},
        {"format": 1},
        {"format": 1, "nodes": {"node1": {}}},
        {"format": 1, "nodes": {"node1": audit(present("fatal"))}},
        {"format": 1, "nodes": {"node1": audit(present(remedy={"operator": "x"}))}},
        {"format": 1, "nodes": {"node1": audit(present(evidence=[1]))}},
        {"format": 1, "nodes": {"node1": audit(present(trace={**TRACE, "verdict": "lost"}))}},
        {"format": 1, "nodes": {"node1": audit(present(trace={**TRACE, "reply": TRACE}))}},
    ],
)
def test_another_form_does_not_fit_the_schema(wrong: dict[str, t.Any]) -> None:
    assert [*errors(wrong, SCHEMA)]


def test_the_schema_has_what_the_module_documents() -> None:
    module = pytest.importorskip("ansible_collections.kubenode.datapath.plugins.modules.datapath_audit")
    documented = pytest.importorskip("yaml").safe_load(module.RETURN)
    assert {*SCHEMA["$defs"]["result"]["properties"]} == {*documented}
    assert {*SCHEMA["$defs"]["finding"]["properties"]} == {*documented["findings"]["contains"]}
