# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role says about audits before and after its profile: certain only what was looked at."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue, need
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, mended_text
from unit.audits import PROFILE, audit, present, unclear

ROLE = "eni_policy_routing"
FINDING = present()  # rp-strict-asymmetric eth0
OTHER = present(id="ebtables-stale", subject="azure0")  # which another profile mends
BEFORE = "Before: error rp-strict-asymmetric eth0: Strict filtering drops replies."
WARNING = (
    "With eni_policy_routing applied, rp-strict-asymmetric eth0 is still there: Strict filtering drops replies."
    " The packet that is lost: tcp 198.51.100.7:40000 > 10.0.0.10:32765."
)


def report(before: t.Any, after: t.Any, is_changed: bool) -> tuple[list[str], list[str]]:
    audits = findings.read(before), findings.read(after) if after else None
    return tuple(mended_text.report(ROLE, *audits, is_changed))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("before", "after", "is_changed", "lines", "warnings"),
    [
        (audit(FINDING, OTHER), audit(), True, [BEFORE, "After: rp-strict-asymmetric eth0 is gone."], []),
        (audit(FINDING), audit(FINDING), True, [BEFORE, "After: rp-strict-asymmetric eth0 is still there."], [WARNING]),
        (audit(FINDING), audit(FINDING), False, [BEFORE, "After: rp-strict-asymmetric eth0 is still there."], [WARNING]),
        (audit(FINDING), audit(present(subject="eth1")), True, [BEFORE, "After: rp-strict-asymmetric eth0 is gone."], []),
        (
            audit(FINDING),
            audit(unclear("rp-strict-asymmetric", ask="ip rule")),
            True,
            [
                BEFORE,
                "After: rp-strict-asymmetric eth0 cannot be told: The subset rules was not read."
                " The output of this would tell: ip rule.",
            ],
            [],
        ),
        (audit(FINDING), None, True, [BEFORE], []),
        (
            audit(unclear("mark-without-rule")),
            None,
            True,
            ["Before: mark-without-rule cannot be told: The subset rules was not read. The output of this would tell: ip rule."],
            [],
        ),
        (
            audit(),
            None,
            True,
            [
                "Before: the audit finds no need of eni_policy_routing, which is applied as asked."
                " No check found what a profile mends."
            ],
            [],
        ),
        (
            audit(unclear("ebtables-stale")),
            None,
            True,
            ["Before: the audit finds no need of eni_policy_routing, which is applied as asked."],
            [],
        ),
        (
            audit(OTHER, profile={**PROFILE, "name": "cilium_migration"}),
            None,
            True,
            [
                "Before: the node needs cilium_migration. The audit finds no need of eni_policy_routing,"
                " which is applied as asked. Replies leave by eth1."
            ],
            [],
        ),
        (
            audit(OTHER),
            audit(OTHER),
            False,
            ["The audit finds nothing that eni_policy_routing mends, and the run changes nothing."],
            [],
        ),
    ],
)
def test_each_finding_is_named_before_and_after(
    before: t.Any, after: t.Any, is_changed: bool, lines: list[str], warnings: list[str]
) -> None:
    assert report(before, after, is_changed) == (lines, warnings)


def test_the_checks_that_decide_the_need_exist() -> None:
    assert {*mended_text.CHECKS} <= {check.id for check in catalogue.CHECKS}
    assert {*need.MENDED} == {"aks_dual_stack", "cilium_migration", "symmetric_routing", ROLE}
