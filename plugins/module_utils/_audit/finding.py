# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a check is, and the decorator that makes one of a function."""

from __future__ import annotations

import functools
import typing as t

from .node import Node
from .suspicion import Finding, Suspicion

Look = t.Callable[[Node], t.Iterator[Suspicion]]


class Check(t.NamedTuple):
    """A check with its documentation.

    id: never changes. trouble: what goes wrong, as a sentence. evidence: what it looks at. remedy: what helps.
    source: a public report, or the source that says so. symptoms: what a user sees, as docs/symptoms.md lists it.
    settings: of the whole node, that it reads and that no snapshot has otherwise. worst: the severity of its gravest findings.
    """

    id: str
    severity: str
    trouble: str
    evidence: str
    remedy: str
    source: str
    symptoms: tuple[str, ...]
    settings: tuple[str, ...]
    worst: str
    look: Look

    def finding(self, state: str, subject: str, what: str, **fields: t.Any) -> Finding:
        """Return a finding of the check. fields: that it has besides those of the check."""
        return Finding(self.id, subject, state, fields.pop("severity", "") or self.severity, what, source=self.source, **fields)


def check(
    check_id: str,
    severity: str,
    trouble: str,
    evidence: str,
    remedy: str,
    source: str,
    *symptoms: str,
    settings: tuple[str, ...] = (),
    worst: str = "",
) -> t.Callable[[Look], Check]:
    """Make a check of the function below. The catalogue, the pages and the example playbook follow from it."""
    return functools.partial(Check, check_id, severity, trouble, evidence, remedy, source, symptoms, settings, worst or severity)
