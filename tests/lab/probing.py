# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes that are sent repeatedly, and a record of each."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Probe:
    """One probe. ``sent`` is in seconds since 1970, so that it compares with a node's journal."""

    sent: float
    answered: bool


@dataclasses.dataclass(frozen=True)
class ProbeRecord:
    """The probes of one target, oldest first. A probe is in it once it is answered or lost."""

    probes: Sequence[Probe]

    @property
    def sent(self) -> int:
        return len(self.probes)

    @property
    def lost(self) -> list[float]:
        """The times of probes that got no answer, or a wrong one."""
        return [probe.sent for probe in self.probes if not probe.answered]


class Probing:
    """Probes one target, in a thread of its own, until it is stopped.

    ``ask`` sends one probe and returns whether it was answered. ``interval`` is the seconds between two probes; if an answer
    takes longer than that, the next probe follows at once.
    """

    def __init__(self, ask: Callable[[], bool], interval: float) -> None:
        self._ask = ask
        self._interval = interval
        self._probes: list[Probe] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probing", daemon=True)
        self._thread.start()

    @property
    def record(self) -> ProbeRecord:
        return ProbeRecord(tuple(self._probes))

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        following = time.monotonic()
        while not self._stopped.wait(max(0.0, following - time.monotonic())):
            following = max(following, time.monotonic()) + self._interval
            sent = time.time()
            self._probes.append(Probe(sent, self._is_answered()))

    def _is_answered(self) -> bool:
        try:
            return self._ask()
        except ValueError:  # something answered, but not by HTTP
            return False
