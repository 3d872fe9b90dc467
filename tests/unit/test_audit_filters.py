# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters that write audits."""

from __future__ import annotations

import re
import typing as t

import pytest

pytest.importorskip("ansible")

from ansible.errors import AnsibleActionFail, AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.audit_report import audit_report
from ansible_collections.kubenode.datapath.plugins.filter.audit_text import audit_text
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, junit, markdown, terminal
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _stdout
from unit.audits import audit, present

RESULT = audit(present())


def test_a_filter_writes_what_its_room_writes() -> None:
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
