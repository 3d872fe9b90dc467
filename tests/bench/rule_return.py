# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time from a program's deletion of a rule until the listener has returned it, on an idle node and on a busy one."""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from integration._listener.test_route_listener import listening, messages

from ansible_collections.kubenode.datapath.plugins.module_utils._listener.listener_backend import Notifications
from bench.measure import judge
from bench.policy_routes import pods
from lab import Lab, Node
from lab.node import NamespaceNode

RULES = {"a few rules": 0, "20,000 rules": 10_000}
LISTENERS, DELETIONS = 3, 4  # of a listener, which then makes pauses
MOST_MILLISECONDS = 10


def main() -> None:
    for name, count in RULES.items():
        with Lab("bench", nodes=[Node("node1")]) as lab:
            node: NamespaceNode = lab.node("node1")
            node.module(
                "policy_routes", {"rules": [{"priority": 700, "to": "10.255.1.5", "table": "main"}, *pods(count)]}, timeout=600
            )
            for hogs in (0, 2 * (os.cpu_count() or 1)):
                seconds = [one for _listener in range(LISTENERS) for one in measure(node, hogs)]
                middle, slowest = statistics.median(seconds) * 1000, max(seconds) * 1000
                title = f"return of a deleted rule, {name}, {hogs} busy programs"
                print(f"{title}: median {middle:.1f} ms, slowest {slowest:.1f} ms (target: at most {MOST_MILLISECONDS})")
                judge(title, middle <= MOST_MILLISECONDS)


def measure(node: NamespaceNode, hogs: int) -> list[float]:
    """Seconds until the rule is back, for each deletion."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(node, Path(folder)))
        for _hog in range(hogs):
            stack.callback(subprocess.Popen(["sh", "-c", "while :; do :; done"]).kill)
        time.sleep(1)
        seconds = []
        for number in range(1, DELETIONS + 1):
            seconds.append(deleted_and_back(node))
            while listener.log_count("Restored after") < number:
                time.sleep(0.05)
        return seconds


def deleted_and_back(node: NamespaceNode) -> float:
    events = node.in_network(Notifications)
    times: list[float] = []

    def watch() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # this thread reads each message when it comes
        while len(times) < 2 and select.select([events], [], [], 30)[0]:
            times.extend(when for _kind, _port, when in messages(events))

    watcher = threading.Thread(target=watch)
    watcher.start()
    node.ip(["rule delete priority 700"])
    watcher.join()
    return times[1] - times[0]
