# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""How long the listener waits before it restores rules and routes that are lost again and again."""

from __future__ import annotations

import typing as t

FREE = 5  # restorations in a row without a pause: a network daemon's restart and a flapping link take a few
FIRST, LONGEST = 1.0, 300.0  # seconds: the first pause and the longest
DOUBLINGS = 10  # enough to exceed LONGEST, and no overflow
QUIET = 60.0  # seconds without a restoration that end a row; or twice the pause, if that is longer


class Backoff(t.NamedTuple):
    """The restorations so far, and the pause before the next.

    times: restorations in a row. last: when the newest was, in seconds of a monotonic clock. longest: the longest pause, in
    seconds.
    """

    times: int = 0
    last: float = 0.0
    longest: float = LONGEST

    @property
    def pause(self) -> float:
        """Return seconds from the newest restoration to the next: 0 until FREE restorations in a row, then doubled with each
        one."""
        if self.times < FREE:
            return 0.0
        return min(FIRST * 2 ** min(self.times - FREE, DOUBLINGS), self.longest)

    @property
    def until(self) -> float:
        """Return when the pause ends, on the clock of ``last``."""
        return self.last + self.pause

    def restored(self, now: float) -> Backoff:
        """Return the backoff after one more restoration, at the time ``now``."""
        is_in_row = self.times and now - self.last <= max(QUIET, 2 * self.pause)
        return self._replace(times=self.times + 1 if is_in_row else 1, last=now)
