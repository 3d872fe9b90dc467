# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits the node: findings become metrics and events, and the node is not changed."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import LOSSES, Findings

from . import condition as conditions
from .child import Audit
from .condition import UNKNOWN, Certainty, Condition, Key, key, reason
from .loop import AGAIN, Loop, printable
from .metrics import AuditMetrics
from .node import Node
from .settings import Settings
from .watch import Before, Budget, Watch

RECORD = "findings"  # a file with the findings of the last audit and those that have their event; it outlives a container

SLICE = 2.0  # seconds after which a signal is seen, and a change that waits for the budget is judged again
# Shares of a processor for audits, and seconds of one that are saved: after changes that come with pods, and after others.
OF_PODS, OF_OTHERS = (0.006, 3.0), (0.05, 20.0)
UNCHANGED = 3  # intervals between two audits, while the agent listens and nothing changes
SOON = 5.0  # seconds to the audit that decides about a finding, while the agent listens

log = logging.getLogger(__name__)


class Auditor(Loop):
    """audit: child.audit. watch: of the node; None to audit by the interval alone."""

    _metrics: AuditMetrics

    def __init__(
        self,
        settings: Settings,
        node: Node,
        metrics: AuditMetrics,
        audit: Callable[[Audit | None], Audit],
        version: str,
        ended: threading.Event,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(settings, node, metrics, version, ended)
        self._audit, self._watch = audit, watch
        self._of_pods, self._of_others = (Budget(*each, time.monotonic()) for each in (OF_PODS, OF_OTHERS))
        self._paying: Budget | None = None  # for the next audit, if a change is its reason
        self._former: Audit | None = None  # the last audit, if it did not fail
        self._judged = 0.0  # when a change is next judged
        self._is_open = False  # whether the next audit decides about a finding
        self._again = 0.0  # when it may be made, if nothing changes

    def _turn(self) -> None:
        before = self._watch.close() if self._watch else Before()
        # By the interval, all is looked at: no digest has counters, and none has what another node does.
        audit = self._audit(self._former if self._paying else None)
        self._former = None if audit.sentence else audit
        if self._paying:
            self._paying.spend(audit.processor, time.monotonic())
            self._paying = None
        self._metrics.audited(audit.result, audit.sentence, audit.seconds)
        if audit.sentence:
            self._fail("AuditFailed", audit.sentence)
            self._tell(Condition(UNKNOWN, "AuditFailed", printable(audit.sentence)))
            return
        result = findings.read(audit.result)
        after = f" after {printable(before.sentence)}" if before.sentence else ""
        log.info("%d findings in %.1f s%s", len(result.present), audit.seconds, after)
        self._be_ready()
        self._announce(result, after, before.is_over and (not self._watch or self._watch.is_quiet()))

    def _rest(self, seconds: float) -> bool:
        watch, end = self._watch, time.monotonic() + seconds
        if watch is None:
            return super()._rest(seconds)
        while not self._ended.is_set() and not self._paying and (now := time.monotonic()) < end:
            due = max(watch.burst.over, self._judged) if watch.burst else end
            watch.receive(min(due, end, now + SLICE) - now)
            self._judge(watch)
        return self._ended.is_set()

    def _is_due(self) -> bool:
        return self._paying is not None

    def _judge(self, watch: Watch) -> None:
        """Let a budget pay for an audit if a change is over, or if a finding waits for a second one."""
        now, budget = time.monotonic(), None
        if watch.burst and now >= max(watch.burst.over, self._judged):
            budget = self._of_others if watch.is_unusual() else self._of_pods
            self._judged = now if budget.permits(now) else now + SLICE
        elif self._is_open and now >= self._again:
            budget = self._of_pods
        self._paying = budget if budget and budget.permits(now) else None

    def _pause(self) -> float:
        pause = super()._pause()
        if self._is_open:
            return min(pause, AGAIN)
        return pause * UNCHANGED if self._watch and not self._failures else pause

    def _announce(self, audit: Findings, after: str, is_quiet: bool) -> None:
        """Set the condition, and send an event for each finding that is new, errors first. What exceeds the queue of events waits
        for the next turn.

        after: what has changed before the audit, which the event of a finding says that the audit before it did not have.
        is_quiet: as in Certainty. A finding of a check that cannot tell now is not new when it is there again.
        """
        path = Path(self._settings.state, RECORD)
        record, unclear = _read(path), {finding.id for finding in audit.unclear}
        certainty = Certainty(record.audited, is_quiet)
        certain = [*filter(certainty.of, audit.present)]
        self._is_open, self._again = len(certain) < len(audit.present), time.monotonic() + SOON
        self._tell(conditions.of(audit, certainty, self._node.has_condition))
        new = [finding for finding in certain if key(finding) not in record.announced][: self._node.room]
        present = [*map(key, audit.present)]
        lasting = [former for former in record.announced if former in present or former[0] in unclear]
        hidden = [former for former in record.audited if former not in present and former[0] in unclear]
        for finding in new:
            kind = "Warning" if finding.severity in LOSSES else "Normal"
            is_new = key(finding) not in record.audited
            found = f"{finding.severity} {finding.title}{after if is_new else ''}: {finding.what}"
            self._node.queue(kind, reason(finding.id), found)
        # At last: an agent that is killed before repeats an event, and loses none.
        path.write_text(json.dumps(Record([*present, *hidden], [*lasting, *map(key, new)])))

    def _tell(self, condition: Condition) -> None:
        if self._settings.condition:
            self._node.set_condition(condition)


class Record(NamedTuple):
    """audited: the findings of the last audit, with those of checks that could not tell then. announced: those with an event."""

    audited: list[Key]
    announced: list[Key]


def _read(path: Path) -> Record:
    with suppress(OSError, ValueError):  # it is not there yet, or a write was cut short
        audited, announced = json.loads(path.read_text())
        return Record([*map(tuple, audited)], [*map(tuple, announced)])
    return Record([], [])
