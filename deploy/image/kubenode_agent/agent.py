# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of a profile: converges the node, reports to Kubernetes, and runs again if the ConfigMap changes."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import variables
from .loop import Loop, printable
from .metrics import ProfileMetrics
from .node import Node
from .playbook import Outcome
from .settings import Refused, Settings

log = logging.getLogger(__name__)
Run = Callable[[str, Mapping[str, Any]], Outcome]
UNPROTECTED = (
    "the node was changed without a checkpoint, because the API did not answer before the change either, so that its silence"
    " afterwards would prove nothing: {trouble}. The variables are those by which the node converged before"
)


class Agent(Loop):
    """run: playbook.run(). reach: reachability.trouble()."""

    _metrics: ProfileMetrics

    def __init__(
        self,
        settings: Settings,
        node: Node,
        metrics: ProfileMetrics,
        run: Run,
        reach: Callable[[], str],
        version: str,
        ended: threading.Event,
    ) -> None:
        super().__init__(settings, node, metrics, version, ended)
        self._run, self._reach = run, reach
        self._text: str | None = None  # of the ConfigMap in the last turn; None if that could not be read
        self._converged: str | None = None  # the text by which the node was last converged
        self._is_undone = False  # whether the last run removed the profile, by the overlay or by a variable
        self._is_reported = False  # whether the API has taken the label and the removal of the taint

    def _turn(self) -> None:
        self._text = None
        state = f"{self._settings.profile}_state"
        try:
            self._text = variables.text_in(self._settings.folder)
            values = variables.parse(self._text, self._settings.profile)
            if self._settings.undoes:  # before the check, which requires less of a run that undoes the profile
                values[state] = self._settings.desired_state
            values = variables.accepted(values, self._settings.profile)
            self._is_undone = values.get(state) == self._settings.desired_state
            values = variables.with_checkpoints(values, self._settings.profile, self._settings.checkpoint, self._is_undone)
        except Refused as refused:
            self._metrics.refused()
            self._fail("VariablesRefused", str(refused))
            return
        outcome = self._protected(values)
        self._metrics.converged(outcome, self._text != self._converged)
        self._warn(outcome.warnings)
        if outcome.is_well:
            self._succeed(outcome)
        else:
            self._fail("Failed", outcome.sentence)

    def _protected(self, values: dict[str, Any]) -> Outcome:
        """Apply the profile. The API that answers before a change must answer after it, or the node rolls the change back.

        If it does not answer before, its silence proves nothing. Variables by which the node converged before are then applied
        without a checkpoint, so that the node heals while the API is down. Other variables stay only if the API answers after
        the change: the node is cut off now and they heal it, or they are tried again when the API is back.
        """
        profile = self._settings.profile
        names = [name for name in variables.checkpoints(profile) if values.get(name)]
        trouble = self._reach() if names else ""
        if not trouble:
            return self._run(profile, values)
        if self._text != self._converged:
            outcome = self._run(profile, values)
            before = f"{outcome.sentence.rstrip('.')}. Before the run, the API did not answer either: {trouble}"
            return outcome if outcome.is_well else dataclasses.replace(outcome, sentence=before)
        outcome = self._run(profile, {**values, **dict.fromkeys(names, 0)})
        if outcome.state != "changed":
            return outcome
        return dataclasses.replace(outcome, warnings=(*outcome.warnings, UNPROTECTED.format(trouble=trouble)))

    def _succeed(self, outcome: Outcome) -> None:
        is_new, self._converged = self._text != self._converged, self._text
        log.info("%s in %.1f s: %s", outcome.state, outcome.seconds, ", ".join(outcome.modules) or "as desired")
        for line in outcome.audit:
            log.info("%s", printable(line))
        self._be_ready()
        if outcome.state == "changed":
            what = "Applied" if is_new else "Corrected"
            self._node.event("Normal", what, f"{self._settings.profile} {self._version}: changed {', '.join(outcome.modules)}")
        self._tell()

    def _tell(self) -> None:
        self._is_reported = self._node.label(self._settings.profile, None if self._is_undone else self._version)
        if self._settings.taint:
            self._is_reported = self._node.remove_taint(self._settings.taint) and self._is_reported

    def _is_due(self) -> bool:
        """Return whether the ConfigMap has changed. Otherwise tell the API what it has not taken yet."""
        try:
            is_changed = variables.text_in(self._settings.folder) != self._text
        except Refused:
            is_changed = self._text is not None
        if not is_changed and not self._failures and not self._is_reported:
            self._tell()
        return is_changed
