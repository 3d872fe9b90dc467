# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of three nodes lies: whatever its answer is, the reports are written, and say the same of the others."""

from __future__ import annotations

import html
import json
import re
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import form
from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import (
    audit_page,
    findings,
    junit,
    markdown,
    mermaid,
    prometheus,
    terminal,
    trace_page,
)
from unit._render.test_reports import SCHEMA
from unit.answers import everywhere
from unit.audits import OPERATOR, PROFILE, TRACE, Result, audit, present, unclear
from unit.lies import lies
from unit.schemas import errors

HONEST = {"node1": audit(present(), present("risk", id="waste")), "node2": audit(present("risk"), unclear())}
OWN = {"severity": "note", "id": "own", "subject": "eth9"}
LAST = audit(
    present(**OWN, evidence=["a line"], trace={**TRACE, "reply": {**TRACE, "steps": []}, "packet": {"mark": 1}}),
    present(**{**OWN, "id": "other"}, remedy=OPERATOR, trace=None),
    profile=PROFILE,
    ignored=["a line"],
)
WRITERS: tuple[t.Callable[[t.Any], str], ...] = (
    *(findings.as_json, junit.text, markdown.text, audit_page.text),
    lambda results: prometheus.text(results, 0),
)


def no_number(word: str) -> t.NoReturn:
    raise AssertionError(f"{word} is no JSON")


def about(text: str, nodes: t.Collection[str]) -> list[str]:
    """The parts of a report that are about nodes: entries, suites, rows, groups, or samples."""
    if text.startswith("{"):
        return [json.dumps(entry) for name, entry in json.loads(text)["nodes"].items() if name in nodes]
    if text.startswith("<?xml"):
        suites = ElementTree.fromstring(text.partition("\n")[2])
        return [ElementTree.tostring(suite, "unicode").strip() for suite in suites if suite.attrib["name"] in nodes]
    parts = re.findall(r'<details class="card group".*?(?=<details class="card group"|</div><section>)', text, re.S)
    return [part for part in parts or text.splitlines() if any(f"{node}" in part for node in nodes)]


def test_whatever_a_node_answers_the_reports_say_the_same_of_the_others() -> None:
    expected = [about(write(HONEST), HONEST) for write in WRITERS]
    assert all(expected)
    for path, lie in lies(LAST):
        texts = [write({**HONEST, "node3": lie}) for write in WRITERS]
        for text, parts in zip(texts, expected):
            assert [part for part in parts if part not in about(text, HONEST)] == [], path
        written = json.loads(texts[0], parse_constant=no_number)
        assert [*errors(written, SCHEMA)] == [], path
        sentence = written["nodes"]["node3"].get("error")
        if sentence:
            assert [write({**HONEST, "node3": {"msg": sentence}}) for write in WRITERS] == texts, path
            assert all(sentence in html.unescape(text) for text in texts[1:4]), path
            assert '\nkubenode_datapath_not_audited{node="node3"} 1\n' in texts[4], path


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (audit(present("fatal")), "result.findings[0].severity is 'fatal'; expected is one of error, risk, note"),
        ({"findings": [None]}, "result.findings[0] is null; expected is a dictionary"),
        ({**audit(), "passed": 7}, "result.passed is int; expected is a list"),
        ({**audit(), "findings": "none"}, "result.findings is 'none'; expected is a list"),
        (audit(present(what="x" * (form.LONGEST + 1))), "result.findings[0].what is a text of 1000001 characters"),
        (audit(profile={**PROFILE, "variables": {"x": 1e999}}), "result.profile.variables is float; expected is a number"),
        ("clean", "result is 'clean'; expected is a dictionary"),
    ],
)
def test_an_answer_that_is_refused_is_named_with_its_key_and_what_was_expected(lie: t.Any, sentence: str) -> None:
    text = findings.as_json({"node1": audit(), "node2": lie})
    error = json.loads(text)["nodes"]["node2"]["error"]
    assert error.startswith(f"The answer is refused: {sentence}") and error.endswith(
        "as kubenode.datapath.datapath_audit returns it."
    )


def test_an_answer_has_a_bound_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "MOST", 1000)
    failed = findings.fleet({"node1": audit(), "node2": audit(*[present()] * 9)}).failed
    assert [*failed] == ["node2"] and "result is too large; expected is a result of at most 1000 characters" in failed["node2"]


def test_an_earlier_answer_that_is_refused_is_named() -> None:
    text = audit_page.text(HONEST, {**HONEST, "node1": {"findings": [None]}})
    assert "<h2>Not audited in the earlier run</h2><p><b>node1</b>: The answer is refused: result.findings[0] is null" in text


@pytest.mark.parametrize(
    ("result", "write"),
    [
        *((everywhere("eth0"), write) for write in (terminal.trace, trace_page.html, mermaid.diagram)),
        (LAST, terminal.audit),
    ],
)
def test_whatever_an_answer_is_it_is_text_or_refused_by_its_place(result: Result, write: t.Callable[[t.Any], str]) -> None:
    for _path, lie in lies(result):
        try:
            text = write(lie)
        except Refused as error:
            assert re.match(r"result[\w.\[\]]* is ", str(error)) and str(error).isprintable()
        else:
            assert text.replace("\n", "").isprintable()


def test_what_is_said_of_the_evidence_is_text_or_refused() -> None:
    facts = {"node": "node1", "versions": {"kernel": "6.1"}, "time": "now", "source": "x"}
    for _path, lie in lies(facts):
        try:
            assert "\x1b" not in trace_page.html(everywhere("eth0"), lie)
        except Refused as error:
            assert str(error).startswith("about is ")
