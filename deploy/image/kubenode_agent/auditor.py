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

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import LOSSES, Finding, Findings

from .loop import Loop
from .metrics import AuditMetrics
from .node import Node
from .playbook import Audit
from .settings import Settings

ANNOUNCED = "announced"  # a file with the findings that have their event; it outlives a container of the pod

log = logging.getLogger(__name__)


class Auditor(Loop):
    """audit: playbook.audit()."""

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

    def _turn(self) -> None:
        audit = self._audit()
        self._metrics.audited(audit)
        self._warn(audit.warnings)
        if audit.sentence:
            self._fail("AuditFailed", audit.sentence)
            return
        result = findings.read(audit.result)
        log.info("%d findings in %.1f s", len(result.present), audit.seconds)
        self._be_ready()
        self._announce(result)

    def _announce(self, audit: Findings) -> None:
        """Send an event for each finding that is new, errors first. What exceeds the queue of events waits for the next turn.

        A finding of a check that cannot tell now is not new when it is there again.
        """
        path = Path(self._settings.state, ANNOUNCED)
        former, unclear = _read(path), {finding.id for finding in audit.unclear}
        new = [finding for finding in audit.present if _key(finding) not in former][: self._node.room]
        present = [_key(finding) for finding in audit.present]
        lasting = [key for key in former if key in present or key[0] in unclear]
        path.write_text(json.dumps([*lasting, *map(_key, new)]))
        for finding in new:
            kind = "Warning" if finding.severity in LOSSES else "Normal"
            self._node.queue(kind, reason(finding.id), f"{finding.severity} {finding.title}: {finding.what}")


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
