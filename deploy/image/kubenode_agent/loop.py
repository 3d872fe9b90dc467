# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent does again and again: a turn, and a wait until the next one is due."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .metrics import Metrics
from .node import Node
from .settings import Settings

JITTER = 0.1  # of the interval, so that a thousand nodes do not run at the same time
TICK = 5.0  # seconds between two reads of the ConfigMap, which kubelet writes some seconds after it has changed
AGAIN = 60.0  # seconds after which a failed turn is repeated; doubled each time, up to the interval
TROUBLE, READY = "trouble", "ready"  # files that the readiness probe reads
ALIVE = "alive"  # a file whose time the liveness probe reads

MOST_WARNINGS = 20  # of a run, in the log
LONGEST_WARNING = 1000  # characters

log = logging.getLogger(__name__)


class Loop:
    """ended: is set when the pod is asked to end."""

    def __init__(self, settings: Settings, node: Node, metrics: Metrics, version: str, ended: threading.Event) -> None:
        self._settings, self._node, self._version, self._ended = settings, node, version, ended
        self._metrics = metrics
        self._failures = 0

    def work(self) -> None:
        """Work until the pod is asked to end. A turn is completed first."""
        while not self._ended.is_set():
            self._say(ALIVE, "")
            self._turn()
            self._wait()

    def _turn(self) -> None:
        raise NotImplementedError

    def _is_due(self) -> bool:
        """Return whether the next turn is due before its time."""
        return False

    def _wait(self) -> None:
        """Wait until the next turn is due, or the pod is asked to end."""
        end = time.monotonic() + self._pause()
        while time.monotonic() < end and not self._rest(TICK):
            self._say(ALIVE, "")
            if self._is_due():
                return
            self._node.flush()

    def _rest(self, seconds: float) -> bool:
        """Wait so many seconds, or less if the next turn is due. Return whether the pod is asked to end."""
        return self._ended.wait(seconds)

    def _pause(self) -> float:
        interval = self._settings.interval * 60
        if self._failures:
            interval = min(interval, AGAIN * 2 ** (self._failures - 1))
        return interval * random.uniform(1 - JITTER, 1 + JITTER)

    def _be_ready(self) -> None:
        self._failures = 0
        self._say(READY, "")
        self._say(TROUBLE, None)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Report the warnings of a run: each in the log, all of them in one event and in the metric."""
        if not warnings:
            return
        sentences = [printable(text[:LONGEST_WARNING]) for text in warnings[:MOST_WARNINGS]]
        if len(warnings) > MOST_WARNINGS:
            sentences.append(f"{len(warnings) - MOST_WARNINGS} further warnings are not shown")
        for sentence in sentences:
            log.warning("%s", sentence)
        self._metrics.warned(len(warnings))
        self._node.event("Warning", "Warned", f"{self._settings.profile} {self._version}: {' '.join(sentences)}")

    def _fail(self, reason: str, sentence: str) -> None:
        sentence = printable(sentence)
        self._failures += 1
        log.error("%s", sentence)
        self._say(TROUBLE, f"{self._settings.profile}: {sentence}\n")
        self._say(READY, None)
        self._node.event("Warning", reason, f"{self._settings.profile} {self._version}: {sentence}")

    def _say(self, name: str, text: str | None) -> None:
        path = Path(self._settings.state, name)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)


def printable(text: str) -> str:
    """Return the text as logs and events show it: what a program printed cannot change the terminal of a reader."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape", "backslashreplace").decode()
        for sign in text
    )
