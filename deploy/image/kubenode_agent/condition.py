# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's condition KubenodeDatapathHealthy, as it follows from an audit."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import ERROR, TWIN
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import counted
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import Finding, Findings

TYPE = "KubenodeDatapathHealthy"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
Key = tuple[str, str]  # id and subject of a finding


class Condition(NamedTuple):
    """status: TRUE, FALSE or UNKNOWN. reason: as Kubernetes writes it. message: a sentence."""

    status: str
    reason: str
    message: str


def key(finding: Finding) -> Key:
    return finding.id, finding.subject


class Certainty(NamedTuple):
    """What makes a finding certain: a packet, or a second audit.

    former: keys of the findings of the audit before. is_quiet: whether a packet proves something of the node, because that did
    not change meanwhile.
    """

    former: Collection[Key] = ()
    is_quiet: bool = True

    def of(self, finding: Finding) -> bool:
        return key(finding) in self.former or (self.is_quiet and finding.proof == TWIN)


def reason(check: str) -> str:
    """Return the id of a check as Kubernetes writes reasons, such as ProbeUntranslated."""
    return "".join(word.capitalize() for word in check.split("-"))


def of(audit: Findings, certainty: Certainty, last: Condition | None) -> Condition:
    """Return the condition after an audit. last: the condition before it; None for none.

    An error that is not certain leaves the condition as it is until the next audit.
    """
    errors = [finding for finding in audit.present if finding.severity == ERROR]
    certain = [finding for finding in errors if certainty.of(finding)]
    hiding = [finding for finding in audit.unclear if _may_be_error(finding)]
    if certain:
        return Condition(FALSE, reason(certain[0].id), _sentence(certain[0], len(errors) - 1, "error"))
    if errors:
        return last or Condition(UNKNOWN, reason(errors[0].id), _sentence(errors[0], len(errors) - 1, "error"))
    if hiding:
        others = len({finding.id for finding in hiding}) - 1
        return Condition(UNKNOWN, reason(hiding[0].id), f"Cannot tell: {_sentence(hiding[0], others, 'check')}")
    return Condition(TRUE, "NoErrorFound", "No check finds an error.")


_CAN_BE_ERRORS = frozenset(check.id for check in catalogue.CHECKS if check.worst == ERROR)


def _may_be_error(finding: Finding) -> bool:
    """Return whether what cannot be told may be an error. Without a subject, it is about all that its check may find."""
    return finding.severity == ERROR or (not finding.subject and finding.id in _CAN_BE_ERRORS)


def _sentence(finding: Finding, others: int, noun: str) -> str:
    """Return the first sentence of a finding, and how many others there are. noun: for one of these."""
    first = finding.what.partition(". ")[0].rstrip(".")
    return f"{finding.title}: {first}{f', and {counted(others, noun)} more' if others else ''}."
