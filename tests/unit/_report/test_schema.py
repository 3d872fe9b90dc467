# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of audit.json: results fit it, and it has what the module documents."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._report import fleet
from unit.audits import OPERATOR, PROFILE, TRACE, audit, present, unclear
from unit.schemas import errors

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs/schema/audit.json").read_text())
NODES = {
    "node1": {**audit(present(), present(remedy=OPERATOR), unclear(), profile=PROFILE), "changed": False},
    "node2": audit(),
    "node3": {"failed": True, "msg": "no root"},
}


def test_results_fit_the_schema_without_what_ansible_adds() -> None:
    written = json.loads(fleet.text(NODES))
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
def test_what_is_wrong_does_not_fit(wrong: dict[str, t.Any]) -> None:
    assert [*errors(wrong, SCHEMA)]


def test_the_schema_has_what_the_module_documents() -> None:
    module = pytest.importorskip("ansible_collections.kubenode.datapath.plugins.modules.datapath_audit")
    documented = pytest.importorskip("yaml").safe_load(module.RETURN)
    assert {*SCHEMA["$defs"]["result"]["properties"]} == {*documented}
    assert {*SCHEMA["$defs"]["finding"]["properties"]} == {*documented["findings"]["contains"]}
