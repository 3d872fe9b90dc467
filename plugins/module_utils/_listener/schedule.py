# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the listener restores rules and routes that are lost again and again, and when it queries the metadata service for ENIs.

The metadata service is queried when a network interface was added or removed, and again while something is missing. An idle node
queries nothing. The cloud's metadata may lack a network interface for some seconds after it was attached.
"""

from __future__ import annotations

import typing as t

from .._interfaces.eni_link import EniLink

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


# Seconds that a network interface must be present, or gone, before it counts: a CNI creates a pod's link in the node's network
# namespace, and under a temporary name.
SETTLING = 0.5
FIRST_QUERY = 1.0  # seconds from the first question to the second; doubled with each further one
LAST_QUERY = 64.0  # the longest pause while an interface is missing in the metadata; after that, it is not the cloud's
LONGEST_QUERY = 300.0  # the longest pause while the metadata service does not answer

EniLinks = frozenset[EniLink]


class MetadataPoll(t.NamedTuple):
    """The questions so far, and when the next is due. Times are seconds of a monotonic clock.

    eni_links: the node's network interfaces at the newest question.
    again: when to ask again because something was missing; None if nothing was.
    tries: the number of questions about these network interfaces.
    changed: since when the node's network interfaces differ from ``eni_links``; None if they are the same.
    """

    eni_links: EniLinks = frozenset()
    again: float | None = None
    tries: int = 0
    changed: float | None = None

    @property
    def due(self) -> float | None:
        """Return when to ask; None to ask only after a network interface is added or removed."""
        times = (self.again, None if self.changed is None else self.changed + SETTLING)
        return min((time for time in times if time is not None), default=None)

    def with_links(self, eni_links: EniLinks, now: float) -> MetadataPoll:
        """Return the poll after the node was seen with these network interfaces.

        One that was added and is gone again is ignored.
        """
        if eni_links == self.eni_links:
            return self._replace(changed=None)
        return self._replace(changed=now if self.changed is None else self.changed)

    def after_query(self, eni_links: EniLinks, now: float, is_answered: bool, is_complete: bool) -> MetadataPoll:
        """Return the poll after a question about these network interfaces.

        is_complete: whether nothing was missing in the answer.
        """
        tries = self.tries + 1 if eni_links == self.eni_links else 1
        pause = FIRST_QUERY * 2 ** min(tries - 1, 10)
        if not is_answered:
            return MetadataPoll(eni_links, now + min(pause, LONGEST_QUERY), tries)
        return MetadataPoll(eni_links, now + pause if not is_complete and pause <= LAST_QUERY else None, tries)
