# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits the node: findings become metrics and events, and the node is not changed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._answer import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._answer.findings import LOSSES, Finding

from .loop import Loop
from .metrics import AuditMetrics
from .node import Node
from .playbook import Audit
from .settings import Settings

ANNOUNCED = "announced"  # a file with the findings that have their event; it outlives a container of the pod

log = logging.getLogger(__name__)


class Auditor(Loop):
    """audit: playbook.audit()."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        metrics: AuditMetrics,
        audit: Callable[[], Audit],
        version: str,
        ended: threading.Event,
    ) -> None:
        super().__init__(settings, node, version, ended)
        self._metrics, self._audit = metrics, audit

    def _turn(self) -> None:
        audit = self._audit()
        self._metrics.audited(audit)
        if audit.sentence:
            self._fail("AuditFailed", audit.sentence)
            return
        present = findings.read(audit.result).present
        log.info("%d findings in %.1f s", len(present), audit.seconds)
        self._be_ready()
        self._announce(present)

    def _announce(self, present: Sequence[Finding]) -> None:
        """Send an event for each finding that is new, errors first. What exceeds the queue of events waits for the next turn."""
        path = Path(self._settings.state, ANNOUNCED)
        former = _read(path)
        lasting = [finding for finding in present if _key(finding) in former]
        new = [finding for finding in present if _key(finding) not in former][: self._node.room]
        path.write_text(json.dumps([_key(finding) for finding in (*lasting, *new)]))
        for finding in new:
            kind = "Warning" if finding.severity in LOSSES else "Normal"
            self._node.event(kind, reason(finding.id), f"{finding.severity} {finding.title}: {finding.what}")


def reason(check: str) -> str:
    """Return the id of a check as Kubernetes writes the reasons of events, such as ProbeUntranslated."""
    return "".join(word.capitalize() for word in check.split("-"))


def _key(finding: Finding) -> list[str]:
    return [finding.id, finding.subject]


def _read(path: Path) -> list[list[str]]:
    with suppress(OSError, ValueError):  # it is not there yet, or a write was cut short
        keys: list[list[str]] = json.loads(path.read_text())
        return keys
    return []
