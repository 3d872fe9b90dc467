# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Audits of a node before a role's profile is applied and after a change."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, mended_text

MODULE = "kubenode.datapath.datapath_audit"
Result = dict[str, t.Any]
Answer = t.Union[findings.Data, str]  # of an audit; a text says why there is none


class Audits:
    """audit: runs the module datapath_audit on the node with these arguments."""

    def __init__(self, profile: str, audit: t.Callable[[Result], Result]) -> None:
        self._profile, self._audit = profile, audit

    def around(self, apply: t.Callable[[], Result], is_check_mode: bool) -> Result:
        """Apply the profile. Return its result with what the audits say. An audit that fails is a warning."""
        before = findings.answer(self._audit({"checks": mended_text.CHECKS}))
        result = apply()
        if result.get("failed"):
            return result
        after = self._after(before, bool(result.get("changed")), is_check_mode)
        if isinstance(before, str) or isinstance(after, str):
            failed = before if isinstance(before, str) else after
            return _warned(result, [f"The audit around {self._profile} failed: {failed}"])
        texts = findings.of(before), findings.of(after) if after else None
        report = mended_text.report(self._profile, *texts, bool(result.get("changed")))
        audits = {"before": before, "after": after}
        return _warned({**result, "audit": report.lines, "audits": audits}, report.warnings)

    def _after(self, before: Answer, is_changed: bool, is_check_mode: bool) -> Answer | None:
        """Audit again by the checks whose findings the profile mends. Without a change, the first audit holds."""
        if not is_changed or isinstance(before, str):
            return before
        present = mended_text.mended(self._profile, findings.of(before).present)
        if is_check_mode or not present:
            return None
        return findings.answer(self._audit({"checks": sorted({finding.id for finding in present})}))


def _warned(result: Result, warnings: list[str]) -> Result:
    former = result.get("warnings")
    return {**result, "warnings": [*(former if isinstance(former, list) else ()), *warnings]} if warnings else result
