# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a check is, and what it says about a node."""

from __future__ import annotations

import typing as t

from .._trace.answer import Way
from .node import Node
from .suspicion import Remedy, Suspicion

Look = t.Callable[[Node], t.Iterator[Suspicion]]


class Check(t.NamedTuple):
    """A check with its documentation.

    id: never changes. trouble: what goes wrong, as a sentence. evidence: what it looks at. remedy: what helps.
    source: a public report, or the source that says so.
    """

    id: str
    severity: str
    trouble: str
    evidence: str
    remedy: str
    source: str
    look: Look


class Finding(t.NamedTuple):
    """A suspicion that holds, or a check that cannot tell, which has ``ask`` and no evidence.

    packet: that is lost, as text. trace: what became of it.
    """

    check: Check
    state: str
    subject: str
    what: str
    severity: str = ""
    evidence: tuple[str, ...] = ()
    proof: str = ""
    packet: str = ""
    trace: Way | None = None
    remedy: Remedy | None = None
    ask: str = ""

    def plain(self) -> dict[str, t.Any]:
        return {
            "id": self.check.id,
            "subject": self.subject,
            "state": self.state,
            "severity": self.severity or self.check.severity,
            "what": self.what,
            "evidence": [*self.evidence],
            "proof": self.proof,
            "packet": self.packet,
            "trace": self.trace.both_alone() if self.trace else None,
            "remedy": self.remedy.plain() if self.remedy else None,
            "ask": self.ask,
            "source": self.check.source,
        }
