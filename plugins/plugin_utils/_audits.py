# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""Audits of a node before a role's profile is applied and after a change."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._answer import findings, mended_text
from ansible_collections.kubenode.datapath.plugins.module_utils._report import fleet

MODULE = "kubenode.datapath.datapath_audit"
Result = dict[str, t.Any]


class Audits:
    """audit: runs the module datapath_audit on the node with these arguments."""

    def __init__(self, profile: str, audit: t.Callable[[Result], Result]) -> None:
        self._profile, self._audit = profile, audit

    def around(self, apply: t.Callable[[], Result], is_check_mode: bool) -> Result:
        """Apply the profile. Return its result with what the audits say. An audit that fails is a warning."""
        before = self._audit({"checks": mended_text.CHECKS})
        result = apply()
        if result.get("failed"):
            return result
        after = self._after(before, bool(result.get("changed")), is_check_mode)
        failed = next((audit for audit in (before, after) if audit and audit.get("failed")), None)
        if failed:
            return _warned(result, [f"The audit around {self._profile} failed: {failed.get('msg')}"])
        texts = findings.read(before), findings.read(after) if after else None
        report = mended_text.report(self._profile, *texts, bool(result.get("changed")))
        audits = {"before": _plain(before), "after": _plain(after)}
        return _warned({**result, "audit": report.lines, "audits": audits}, report.warnings)

    def _after(self, before: Result, is_changed: bool, is_check_mode: bool) -> Result | None:
        """Audit again by the checks whose findings the profile mends. Without a change, the first audit holds."""
        if not is_changed or before.get("failed"):
            return before
        present = mended_text.mended(self._profile, findings.read(before).present)
        if is_check_mode or not present:
            return None
        return self._audit({"checks": sorted({finding.id for finding in present})})


def _plain(audit: Result | None) -> Result | None:
    return {key: audit[key] for key in fleet.KEYS if key in audit} if audit else None


def _warned(result: Result, warnings: list[str]) -> Result:
    return {**result, "warnings": [*result.get("warnings", ()), *warnings]} if warnings else result
