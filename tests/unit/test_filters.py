# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters: what they write of traces and audits, and whose texts they mark."""

from __future__ import annotations

import typing as t

import pytest

pytest.importorskip("ansible")

import re
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.trace_html import trace_html
from ansible_collections.kubenode.datapath.plugins.filter.trace_mermaid import trace_mermaid
from ansible_collections.kubenode.datapath.plugins.filter.trace_text import trace_text
from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid, terminal, trace_page
from unit.answers import ROUTE, arrived

pytest.importorskip("ansible")
from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.datapath.plugins.filter.audit_report import audit_report
from ansible_collections.kubenode.datapath.plugins.filter.audit_text import audit_text
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, junit, markdown
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _stdout
from unit.audits import audit, present


def test_a_filter_writes_the_text_of_a_trace() -> None:
    result = arrived(ROUTE)
    assert trace_text(result) == terminal.trace(result) and trace_text(result, True) == terminal.trace(result, colours=True)
    assert trace_html(result, {"node": "node7"}) == trace_page.html(result, {"node": "node7"})
    assert trace_mermaid(result) == mermaid.diagram(result)


@pytest.mark.parametrize("write", [trace_text, trace_html, trace_mermaid])
def test_what_is_no_trace_is_an_error_of_the_filter(write: t.Callable[[t.Any], str]) -> None:
    with pytest.raises(AnsibleFilterError, match=f"{write.__name__}: result is 'delivered'; expected is a dictionary"):
        write("delivered")


# Each filter either marks what it returns, or is for values of the operator alone


FILTERS = sorted((Path(__file__).resolve().parents[2] / "plugins/filter").glob("*.py"))
OF_THE_OPERATOR = {"batches", "checks"}


@pytest.mark.parametrize("path", FILTERS, ids=lambda path: path.stem)
def test_a_filter_of_what_nodes_say_returns_marked_texts(path: Path) -> None:
    """tests/integration/roles/test_untrusted_texts.py shows why, on each ansible-core."""
    assert ("return untrusted(" in path.read_text()) is (path.stem not in OF_THE_OPERATOR)


# The filters that write audits


RESULT = audit(present())


def test_a_filter_writes_the_text_of_an_audit() -> None:
    nodes = {"node1": RESULT}
    assert audit_text(RESULT) == terminal.audit(RESULT)
    assert audit_text(RESULT, True) == terminal.audit(RESULT, colours=True)
    for format, write in (("json", findings.as_json), ("junit", junit.text), ("markdown", markdown.text)):
        assert audit_report(nodes, format) == write(nodes)
    assert re.search(r'timestamp_seconds{node="node1"} \d{10}\n', audit_report(nodes, "prometheus"))


def test_an_answer_that_is_refused_is_an_error_of_its_task_and_not_printed() -> None:
    with pytest.raises(AnsibleActionFail, match=r"The answer of the node is refused: result.findings\[0\] is null; expected is"):
        _stdout.written(terminal.audit, {"findings": [None]})


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: audit_text("clean"), "audit_text: result is 'clean'; expected is a dictionary"),
        (lambda: audit_report(RESULT["findings"], "json"), "audit_report: the value is list; expected is"),
        (
            lambda: audit_report({}, "pdf"),
            "audit_report: format must be one of html, json, junit, markdown, prometheus; 'pdf' was given",
        ),
    ],
)
def test_wrong_input_is_an_error_of_the_filter(write: t.Callable[[], str], sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=sentence):
        write()
