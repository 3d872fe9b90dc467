# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""When the metadata service is asked for the node's ENIs: when a card comes or goes, and again while something is missing.

An idle node asks nothing. The cloud's metadata may be some seconds behind a card that was plugged in.
"""

from __future__ import annotations

import typing as t

from .._interfaces.card import Card

# Seconds that a card has to be there, or to be gone, before it counts: a CNI makes a pod's link among the node's, and under
# another name than it has in the end.
SETTLING = 0.5
FIRST = 1.0  # seconds until the next question, doubled with each one
LAST = 64.0  # the longest pause for a card that the metadata does not name: it is none of the cloud's then
LONGEST = 300.0  # the longest pause while there is no answer at all

Cards = frozenset[Card]


class MetadataPoll(t.NamedTuple):
    """cards: those of the node when it was asked last.

    again: when it is to be asked again as something was missing, in seconds of a clock that only goes on; None for not.
    tries: how often it was asked for the same cards. changed: since when the node has other ones; None for not.
    """

    cards: Cards = frozenset()
    again: float | None = None
    tries: int = 0
    changed: float | None = None

    @property
    def due(self) -> float | None:
        """When to ask; None for not before a card comes or goes."""
        times = (self.again, None if self.changed is None else self.changed + SETTLING)
        return min((one for one in times if one is not None), default=None)

    def seen(self, cards: Cards, now: float) -> MetadataPoll:
        """What follows when the node has these cards. One that came and has gone again is not asked for."""
        if cards == self.cards:
            return self._replace(changed=None)
        return self._replace(changed=now if self.changed is None else self.changed)

    def asked(self, cards: Cards, now: float, is_answered: bool, is_complete: bool) -> MetadataPoll:
        """What follows a question for these cards."""
        tries = self.tries + 1 if cards == self.cards else 1
        pause = FIRST * 2 ** min(tries - 1, 10)
        if not is_answered:
            return MetadataPoll(cards, now + min(pause, LONGEST), tries)
        return MetadataPoll(cards, now + pause if not is_complete and pause <= LAST else None, tries)
