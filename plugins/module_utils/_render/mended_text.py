# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What audits find before a profile is applied and after it, as lines of the role's report."""

from __future__ import annotations

import typing as t

from .._audit import need
from .findings import Finding, Findings

CHECKS = sorted({*sum(need.MENDED.values(), ())})  # by which need.of() tells whether a node needs a profile


class Report(t.NamedTuple):
    """lines: for the role's report. warnings: about findings that are still there."""

    lines: list[str]
    warnings: list[str]


def mended(profile: str, findings: t.Iterable[Finding]) -> list[Finding]:
    """Return the findings of the checks whose findings the profile mends."""
    return [finding for finding in findings if finding.id in need.MENDED[profile]]


def report(profile: str, before: Findings, after: Findings | None, is_changed: bool) -> Report:
    """Return what to say about a profile that was applied, or would be.

    after: the audit after the profile was applied; None if there is none, as in check mode.
    """
    present, unclear = (mended(profile, findings) for findings in (before.present, before.unclear))
    lines = [f"Before: {finding.severity} {finding.title}: {finding.what}" for finding in present]
    lines += [f"Before: {finding.title} cannot be told: {finding.what}{_question(finding)}" for finding in unclear]
    if not lines:
        lines = [_needless(profile, before, is_changed)]
    if after is None:
        return Report(lines, [])
    names = [(finding.id, finding.subject) for finding in after.present]
    remaining = [finding for finding in present if (finding.id, finding.subject) in names]
    lines += [f"After: {finding.title} {_outcome(finding, finding in remaining, after)}" for finding in present]
    return Report(lines, [_warning(profile, finding) for finding in remaining])


def _outcome(finding: Finding, is_there: bool, after: Findings) -> str:
    if is_there:
        return "is still there."
    unclear = [other for other in after.unclear if other.id == finding.id and other.subject in ("", finding.subject)]
    return f"cannot be told: {unclear[0].what}{_question(unclear[0])}" if unclear else "is gone."


def _question(finding: Finding) -> str:
    return f" The output of this would tell: {finding.ask}." if finding.ask else ""


def _warning(profile: str, finding: Finding) -> str:
    packet = f" The packet that is lost: {finding.packet}." if finding.packet else ""
    return f"With {profile} applied, {finding.title} is still there: {finding.what}{packet}"


def _needless(profile: str, audit: Findings, is_changed: bool) -> str:
    """Return the line about a node on which the audit finds nothing that the profile mends."""
    needed, reasons = audit.profile.name, " ".join(audit.profile.reasons)
    if not is_changed:
        return f"The audit finds nothing that {profile} mends, and the run changes nothing."
    if needed:
        return f"Before: the node needs {needed}. The audit finds no need of {profile}, which is applied as asked. {reasons}"
    # With open checks of other profiles, the reasons are about those.
    reasons = f" {reasons}" if reasons and not audit.unclear else ""
    return f"Before: the audit finds no need of {profile}, which is applied as asked.{reasons}"
