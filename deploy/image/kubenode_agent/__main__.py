# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the agent. SIGTERM ends it after the run in progress."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from . import settings
from .loop import Loop
from .metrics import AuditMetrics, Metrics, ProfileMetrics
from .node import Node

MANIFEST = Path("/usr/share/ansible/collections/ansible_collections/kubenode/datapath/MANIFEST.json")


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = settings.from_environment(os.environ)
    except settings.Refused as refused:
        logging.error("%s", refused)
        return 2
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    node, version = Node(options.node, options.state / "events"), _collection()
    metrics: Metrics
    worker: Loop
    if options.profile == settings.AUDIT:
        metrics = AuditMetrics()
        # Imported where needed: each agent has the code of what it does in memory, and not that of the other.
        from . import child
        from .auditor import Auditor
        from .watch import watching

        child.preload()
        worker = Auditor(options, node, metrics, child.audit, version, ended, watching(options.state))
    else:
        from . import playbook, reachability
        from .agent import Agent

        metrics = ProfileMetrics()
        worker = Agent(options, node, metrics, playbook.run, reachability.trouble, version, ended)
    metrics.identify(version, _ansible_core(), options.profile, options.interval)
    try:
        if options.port:
            metrics.serve(options.address, options.port)
    except OSError as error:  # the agent works all the same
        sentence = (
            f"{options.profile}: no metrics are served: port {options.port}: {error.strerror}."
            " Set KUBENODE_METRICS_PORT to another"
        )
        logging.error("%s", sentence)
        node.event("Warning", "NoMetrics", sentence)
    worker.work()
    return 0


def _collection() -> str:
    return str(json.loads(MANIFEST.read_text())["collection_info"]["version"])


def _ansible_core() -> str:
    from ansible.release import __version__

    return str(__version__)


if __name__ == "__main__":
    sys.exit(main())
