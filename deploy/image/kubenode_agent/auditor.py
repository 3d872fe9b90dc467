# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits the node: findings become metrics and events, and the node is not changed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import LOSSES, Findings

from . import condition as conditions
from .child import Audit
from .condition import UNKNOWN, Condition, Key, is_certain, key, reason
from .loop import AGAIN, Loop, printable
from .metrics import AuditMetrics
from .node import Node
from .settings import Settings

RECORD = "findings"  # a file with the findings of the last audit and those that have their event; it outlives a container

log = logging.getLogger(__name__)


class Auditor(Loop):
    """audit: child.audit()."""

    _metrics: AuditMetrics

    def __init__(
        self,
        settings: Settings,
        node: Node,
        metrics: AuditMetrics,
        audit: Callable[[], Audit],
        version: str,
        ended: threading.Event,
    ) -> None:
        super().__init__(settings, node, metrics, version, ended)
        self._audit = audit
        self._is_open = False  # whether the next audit decides about a finding

    def _turn(self) -> None:
        audit = self._audit()
        self._metrics.audited(audit.result, audit.sentence, audit.seconds)
        if audit.sentence:
            self._fail("AuditFailed", audit.sentence)
            self._tell(Condition(UNKNOWN, "AuditFailed", printable(audit.sentence)))
            return
        result = findings.read(audit.result)
        log.info("%d findings in %.1f s", len(result.present), audit.seconds)
        self._be_ready()
        self._announce(result)

    def _pause(self) -> float:
        return min(super()._pause(), AGAIN) if self._is_open else super()._pause()

    def _announce(self, audit: Findings) -> None:
        """Set the condition, and send an event for each finding that is new, errors first. What exceeds the queue of events waits
        for the next turn.

        A finding is certain if a packet proves it, or with the second audit that has it. One of a check that cannot tell now is
        not new when it is there again.
        """
        path = Path(self._settings.state, RECORD)
        record, unclear = _read(path), {finding.id for finding in audit.unclear}
        certain = [finding for finding in audit.present if is_certain(finding, record.audited)]
        self._is_open = len(certain) < len(audit.present)
        self._tell(conditions.of(audit, record.audited, self._node.has_condition))
        new = [finding for finding in certain if key(finding) not in record.announced][: self._node.room]
        present = [*map(key, audit.present)]
        lasting = [former for former in record.announced if former in present or former[0] in unclear]
        hidden = [former for former in record.audited if former not in present and former[0] in unclear]
        path.write_text(json.dumps(Record([*present, *hidden], [*lasting, *map(key, new)])))
        for finding in new:
            kind = "Warning" if finding.severity in LOSSES else "Normal"
            self._node.queue(kind, reason(finding.id), f"{finding.severity} {finding.title}: {finding.what}")

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
