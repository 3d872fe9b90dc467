# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""When the metadata service is asked for the node's ENIs.

It is asked when a network interface was added or removed, and again while something is missing. An idle node asks nothing.
The cloud's metadata may lack a network interface for some seconds after it was attached.
"""

from __future__ import annotations

import typing as t

from .._interfaces.eni_link import EniLink

# Seconds that a network interface must be present, or gone, before it counts: a CNI creates a pod's link in the node's network
# namespace, and under a temporary name.
SETTLING = 0.5
FIRST = 1.0  # seconds from the first question to the second; doubled with each further one
LAST = 64.0  # the longest pause while an interface is missing in the metadata; after that, it is not the cloud's
LONGEST = 300.0  # the longest pause while the metadata service does not answer

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
        pause = FIRST * 2 ** min(tries - 1, 10)
        if not is_answered:
            return MetadataPoll(eni_links, now + min(pause, LONGEST), tries)
        return MetadataPoll(eni_links, now + pause if not is_complete and pause <= LAST else None, tries)
