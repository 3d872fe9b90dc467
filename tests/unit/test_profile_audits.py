# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audits around a profile: how many there are, and what becomes of one that fails."""

from __future__ import annotations

import typing as t

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.module_utils._render import mended_text
from ansible_collections.kubenode.datapath.plugins.plugin_utils._audits import Audits
from unit.audits import audit, present

Result = dict[str, t.Any]
FAILED: Result = {"failed": True, "msg": "datapath_audit: nft is not installed"}
ALL = mended_text.CHECKS


class Stage:
    """A node whose audits have these results, and on which a profile has this one."""

    def __init__(self, applied: Result, *audits: Result) -> None:
        self.calls: list[t.Any] = []
        self._applied, self._audits = applied, [*audits]

    def audit(self, arguments: Result) -> Result:
        self.calls.append(arguments["checks"])
        return self._audits.pop(0)

    def apply(self) -> Result:
        self.calls.append("profile")
        return self._applied

    def around(self, is_check_mode: bool = False) -> Result:
        return Audits("eni_policy_routing", self.audit).around(self.apply, is_check_mode)


@pytest.mark.parametrize(
    ("is_changed", "before", "is_check_mode", "calls"),
    [
        (True, audit(present()), False, [ALL, "profile", ["rp-strict-asymmetric"]]),
        (True, audit(present()), True, [ALL, "profile"]),
        (True, audit(), False, [ALL, "profile"]),
        (False, audit(present()), False, [ALL, "profile"]),
    ],
)
def test_a_node_is_audited_again_only_if_a_change_may_have_mended_a_finding(
    is_changed: bool, before: Result, is_check_mode: bool, calls: list[t.Any]
) -> None:
    stage = Stage({"changed": is_changed}, before, audit())
    assert stage.around(is_check_mode)["audit"] and stage.calls == calls


@pytest.mark.parametrize("audits", [[FAILED], [audit(present()), FAILED]])
def test_an_audit_that_fails_is_a_warning_and_the_profile_is_applied(audits: list[Result]) -> None:
    stage = Stage({"changed": True, "warnings": ["first"]}, *audits)
    warning = "The audit around eni_policy_routing failed: datapath_audit: nft is not installed"
    assert stage.around() == {"changed": True, "warnings": ["first", warning]} and "profile" in stage.calls


def test_a_profile_that_fails_is_not_audited_again() -> None:
    stage = Stage({"failed": True, "msg": "no"}, audit(present()))
    assert stage.around() == {"failed": True, "msg": "no"} and stage.calls == [ALL, "profile"]
