# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The findings of an audit as text for a terminal. Lines are not wrapped, so that a task and variables can be copied."""

from __future__ import annotations

import typing as t

from .._audit.suspicion import ERROR, NOTE, RISK, SEVERITIES
from . import findings
from .findings import Finding, Findings, Profile
from .sections import BOLD, FAINT, GREEN, RED, YELLOW, Paint, Section, painter, shown

LINE = 80  # characters; node-problem-detector's max_output_length is 80 by default
COLOURS = {ERROR: RED, RISK: YELLOW, NOTE: FAINT}


def text(result: findings.Data, *, colours: bool = False) -> str:
    """Return the findings as text. Raises Refused."""
    lines = _lines(findings.read(result), painter(colours))
    return "".join(f"{line}\n" for line in lines)


def line(audit: Findings, severity: str) -> str:
    """Return the findings of a severity in one line of at most LINE characters, for a monitor."""
    titles = [finding.title for finding in audit.present if finding.severity == severity]
    unclear = len(open_checks(audit, severity))
    words = "; ".join(titles) or (f"{_count(unclear, 'check')} cannot tell" if unclear else f"no {severity} found")
    return words if len(words) <= LINE else f"{_count(len(titles), severity)}: {words}"[: LINE - 3] + "..."


def open_checks(audit: Findings, severity: str) -> set[str]:
    """Return the ids of the checks of a severity that cannot tell."""
    return {finding.id for finding in audit.unclear if finding.severity == severity}


def counts(audit: Findings) -> str:
    """Return how many findings there are of each severity, and what became of the other checks."""
    by_severity = {name: sum(finding.severity == name for finding in audit.present) for name in SEVERITIES}
    words = [_count(number, name) for name, number in by_severity.items() if number] or ["no findings"]
    unclear = len({finding.id for finding in audit.unclear})
    words += [f"{_count(unclear, 'check')} cannot tell"] * bool(unclear)
    return ", ".join([*words, f"{_count(len(audit.passed), 'check')} passed"])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _lines(audit: Findings, paint: Paint) -> t.Iterator[str]:
    worst = next((finding.severity for finding in audit.present), "")
    yield paint(counts(audit), COLOURS[worst] if worst else YELLOW if audit.unclear else GREEN)
    for finding in audit.present:
        yield ""
        yield f"{paint(finding.severity, COLOURS[finding.severity])} {paint(finding.title, BOLD)}"
        yield from (f"  {line}" for line in _details(finding))
    questions = Section("Cannot tell", [_question(finding) for finding in audit.unclear])
    remarks = Section("Not understood", [[sentence] for sentence in audit.ignored])
    yield from shown([section for section in (questions, remarks) if section.entries], paint)
    yield from _profile(audit.profile, paint)


def _details(finding: Finding) -> t.Iterator[str]:
    yield finding.what
    yield from _labelled("Evidence", finding.evidence)
    yield from _labelled("Packet", [finding.packet] * bool(finding.packet))
    remedy = finding.remedy
    yield f"{'Remedy':<9}{remedy.change if remedy else 'none of those that were tried helps'}"
    if remedy:
        yield from (f"  {line}" for line in remedy.lines)
    yield from _labelled("Source", [finding.source])


def _labelled(label: str, lines: t.Sequence[str]) -> t.Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else label:<9}{line}"


def _question(finding: Finding) -> list[str]:
    return [f"{finding.title}: {finding.what}", *[f"  ask for: {finding.ask}"] * bool(finding.ask)]


def _profile(profile: Profile, paint: Paint) -> t.Iterator[str]:
    """Yield the profile. Its variables are not indented, so that they are YAML."""
    yield ""
    yield f"{paint('Profile', BOLD)}: {profile.name or 'none'}"
    yield from (f"# {reason}" for reason in profile.reasons)
    yield from profile.variables
