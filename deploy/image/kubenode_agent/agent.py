# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop: converge the node, report to Kubernetes, wait for a changed ConfigMap or for the next run."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import variables
from .metrics import Metrics
from .node import Node
from .playbook import Outcome
from .settings import Refused, Settings

JITTER = 0.1  # of the interval, so that a thousand nodes do not run at the same time
TICK = 5.0  # seconds between two reads of the ConfigMap, which kubelet writes some seconds after it has changed
AGAIN = 60.0  # seconds after which a failed run is repeated; doubled each time, up to the interval
TROUBLE, READY = "trouble", "ready"  # files that the readiness probe reads

log = logging.getLogger(__name__)
Run = Callable[[str, Mapping[str, Any]], Outcome]


class Agent:
    """run: playbook.run(). ended: is set when the pod is told to end."""

    def __init__(self, settings: Settings, node: Node, metrics: Metrics, run: Run, version: str, ended: threading.Event) -> None:
        self._settings, self._node, self._metrics, self._run, self._version = settings, node, metrics, run, version
        self._ended = ended
        self._converged: str | None = None  # the text by which the node was last converged
        self._failures = 0
        self._is_undone = False  # whether the last run removed the profile, by the overlay or by a variable
        self._is_reported = False  # whether the API has taken the label and the removal of the taint

    def work(self) -> None:
        """Work until the pod is asked to end. A run is completed first."""
        while not self._ended.is_set():
            text = self._converge()
            self._wait(text)

    def _converge(self) -> str | None:
        """Return the text of the ConfigMap by which it ran; None if that could not be read."""
        text = None
        state = f"{self._settings.profile}_state"
        try:
            text = variables.text_in(self._settings.folder)
            values = variables.parse(text, self._settings.profile)
            if self._settings.undoes:  # before the check, which requires less of a run that undoes the profile
                values[state] = self._settings.desired_state
            values = variables.accepted(values, self._settings.profile)
        except Refused as refused:
            self._metrics.refused()
            self._failed("VariablesRefused", str(refused))
            return text
        self._is_undone = values.get(state) == self._settings.desired_state
        outcome = self._run(self._settings.profile, values)
        self._metrics.ran(outcome, text != self._converged)
        if outcome.is_well:
            self._succeeded(outcome, text)
        else:
            self._failed("Failed", outcome.sentence)
        return text

    def _succeeded(self, outcome: Outcome, text: str) -> None:
        is_new, self._converged, self._failures = text != self._converged, text, 0
        log.info("%s in %.1f s: %s", outcome.state, outcome.seconds, ", ".join(outcome.modules) or "as desired")
        self._say(READY, "")
        self._say(TROUBLE, None)
        if outcome.state == "changed":
            what = "Applied" if is_new else "Corrected"
            self._node.event("Normal", what, f"{self._settings.profile} {self._version}: changed {', '.join(outcome.modules)}")
        self._tell()

    def _failed(self, reason: str, sentence: str) -> None:
        sentence = _printable(sentence)
        self._failures += 1
        log.error("%s", sentence)
        self._say(TROUBLE, f"{self._settings.profile}: {sentence}\n")
        self._say(READY, None)
        self._node.event("Warning", reason, f"{self._settings.profile} {self._version}: {sentence}")

    def _tell(self) -> None:
        self._is_reported = self._node.label(self._settings.profile, None if self._is_undone else self._version)
        if self._settings.taint:
            self._is_reported = self._node.remove_taint(self._settings.taint) and self._is_reported

    def _wait(self, text: str | None) -> None:
        """Wait until the ConfigMap changes, the next run is due, or the pod is asked to end."""
        due = time.monotonic() + self._pause()
        while time.monotonic() < due and not self._ended.wait(TICK):
            try:
                if variables.text_in(self._settings.folder) != text:
                    return
            except Refused:
                if text is not None:
                    return
            if not self._failures and not self._is_reported:
                self._tell()
            self._node.flush()

    def _pause(self) -> float:
        interval = self._settings.interval * 60
        if self._failures:
            interval = min(interval, AGAIN * 2 ** (self._failures - 1))
        return interval * random.uniform(1 - JITTER, 1 + JITTER)

    def _say(self, name: str, text: str | None) -> None:
        path = Path(self._settings.state, name)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)


def _printable(text: str) -> str:
    """Return the text as logs and events show it: what a program printed cannot change the terminal of a reader."""
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape", "backslashreplace").decode()
        for sign in text
    )
