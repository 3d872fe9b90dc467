# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the twins of an answer or an audit, and counts their work: how much is tried does not depend on how busy a machine is.

Work is counted in units. A machine that has nothing else to do takes about a millisecond for one.
"""

from __future__ import annotations

import math
import time
import typing as t

from . import isolation_backend
from .blueprint import Blueprint
from .isolation_backend import Hang, Isolated
from .wall_backend import Root

GUARD = 600.0  # seconds for all twins together: many times what their units take
TWIN, PACKET, LINK = 150, 5, 2  # units of an empty twin, and of what it has
COMMAND, ROUTE, OBJECT, LINE = 0.2, 0.05, 0.3, 0.03  # of a line for ip, a route, an object of nft, a line of iptables


class Work:
    """done: units so far; infinite once a twin hung, so that no other is waited for."""

    def __init__(self) -> None:
        self.done = 0.0
        self._end = time.monotonic() + GUARD

    @property
    def has_hung(self) -> bool:
        return math.isinf(self.done)

    def until(self, end: float) -> t.Callable[[], bool]:
        """Return what tells whether a further twin may begin. end: the units after which none does."""
        return lambda: self.done <= end

    def run(self, drawn: Blueprint, packets: int, work: t.Callable[[Isolated], dict[str, t.Any]], root: Root) -> dict[str, t.Any]:
        """Run what builds a twin and sends packets, and count its units. Raises DatapathError: Hang if it is too late."""
        self.done += units(drawn, packets)
        try:
            return isolation_backend.run(work, max(1.0, self._end - time.monotonic()), root)
        except Hang:
            self.done = math.inf
            raise


def units(drawn: Blueprint, packets: int) -> float:
    """Return the work of a twin in units, as measured with 10,000 of each part."""
    lines = sum(text.count("\n") for _program, text in drawn.restores)
    objects = len(drawn.ruleset) + drawn.ruleset_text.count("\n")
    of_rules = objects * OBJECT + lines * LINE + len(drawn.routes) * ROUTE + len(drawn.commands) * COMMAND
    return TWIN + packets * PACKET + len(drawn.links) * LINK + of_rules
