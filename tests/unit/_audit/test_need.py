# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile that an audit offers has the variables that were tried."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, need
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import (
    ERROR,
    NOTE,
    PRESENT,
    Finding,
    Remedy,
    Trial,
)

NODE: Any = None  # is not looked at, where a remedy was tried
CHECKS = [*sum(need.MENDED.values(), ())]


def finding(check: str, **options: Any) -> Finding:
    remedy = Remedy(operator=f"eni_policy_routing: {options}", profile="eni_policy_routing", options=options)
    return Finding(check, "eth0", PRESENT, ERROR, f"{check} is lost.", remedy=remedy, trial=Trial({"destination": check}))


FEW, MANY = finding("rp-strict-asymmetric", manage=["filters"]), finding("mark-without-rule", manage=["filters", "connmark"])


def test_the_variables_are_those_of_the_remedy() -> None:
    needed = need.of(NODE, [FEW, FEW._replace(subject="eth1")], CHECKS)
    assert needed.plain()["variables"] == {"eni_policy_routing_manage": ["filters"]}


def test_variables_that_were_not_tried_together_are_open() -> None:
    needed = need.of(NODE, [FEW, MANY], CHECKS)
    assert needed.name == "eni_policy_routing" and needed.variables == {} and "as its task says" in needed.reasons[-1]


@pytest.mark.parametrize(("mending", "offered"), [([FEW, MANY], MANY), ([FEW], FEW), ([], None)])
def test_findings_of_one_profile_get_a_remedy_that_mends_all(
    mending: list[Finding], offered: Finding | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover = object.__new__(audit_backend._Prover)
    mends = [each.remedy for each in mending]
    monkeypatch.setattr(audit_backend._Prover, "_mends", lambda _self, remedy, trials: remedy in mends and len(trials) == 2)
    other = Finding("path-lost", "x", PRESENT, ERROR, "It is lost.")
    remedies = [each.remedy for each in prover.agreed([FEW, other, MANY])]
    assert remedies == ([FEW.remedy, None, MANY.remedy] if offered is None else [offered.remedy, None, offered.remedy])


def test_a_note_in_doubt_leaves_open_whether_the_node_needs_a_profile() -> None:
    note = Finding("probe-untranslated", "eth0", PRESENT, NOTE, "It is lost.", unless=("What a program does is open.",))
    needed = need.of(NODE, [note], CHECKS)
    assert needed.is_open and "probe-untranslated" in needed.reasons[0]
