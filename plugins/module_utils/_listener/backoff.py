# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""How long to wait before the next restoration where what was restored is lost again and again."""

from __future__ import annotations

import typing as t

FREE = 5  # restorations in a row that come at once: a network daemon's restart and a link's flap take a few
FIRST, LONGEST = 1.0, 300.0  # seconds
DOUBLINGS = 10  # beyond LONGEST
QUIET = 60.0  # seconds without a restoration after which the next one is the first again


class Backoff(t.NamedTuple):
    """times: restorations in a row; last: when the newest was, in seconds of a monotonic clock; longest: the longest pause."""

    times: int = 0
    last: float = 0.0
    longest: float = LONGEST

    @property
    def pause(self) -> float:
        """Seconds from the newest restoration to the next; doubled with each beyond the free ones."""
        if self.times < FREE:
            return 0.0
        return min(FIRST * 2 ** min(self.times - FREE, DOUBLINGS), self.longest)

    @property
    def until(self) -> float:
        """When the pause ends."""
        return self.last + self.pause

    def restored(self, now: float) -> Backoff:
        """The backoff after one more restoration."""
        is_in_row = self.times and now - self.last <= max(QUIET, 2 * self.pause)
        return self._replace(times=self.times + 1 if is_in_row else 1, last=now)
