# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The way of a packet as a diagram shows it: where it comes from, the stages on the node, and where it goes."""

from __future__ import annotations

import itertools
import typing as t

from .._trace.verdict import DELIVERED, FORWARDED
from .answer import LOST, NODE, Change, Step, Way, ends

TITLES = {"rule": "netfilter", "policy": "netfilter", "route": "routing", "neighbor": "neighbour"}
SOURCE, DESTINATION = 0, -1  # of the ends of a packet
BEHIND = {DELIVERED: "pod", FORWARDED: "other machine"}  # a link by which a packet left


class Stage(t.NamedTuple):
    """Steps of one kind that follow each other. kind: netfilter, routing or neighbour."""

    kind: str
    steps: list[Step]

    @property
    def is_culprit(self) -> bool:
        return any(step.is_culprit for step in self.steps)


class Place(t.NamedTuple):
    """An end of the way, outside of the node. title: such as pod. link: of the node, behind which the place is."""

    title: str
    address: str
    link: str


class Passage(t.NamedTuple):
    """A way in stages. start: None if the node itself sends. target: None if the packet does not leave.

    changes: that no rule made, but connection tracking. counters: of the kernel that show where the packet ended.
    """

    start: Place | None
    stages: list[Stage]
    changes: tuple[Change, ...]
    target: Place | None
    counters: list[Step]


def passage(way: Way, opposite: Way | None) -> Passage:
    """Return the passage of a packet. opposite: its reply, or the packet if the way is that of the reply."""
    entrance = next((step for step in way.steps if step.kind == "in" and step.where != NODE), None)
    departure = next((step for step in way.steps if step.kind == "out"), None)
    stages = [
        Stage(kind, list(steps))
        for kind, steps in itertools.groupby(way.steps, key=lambda step: TITLES.get(step.kind) or step.kind)
        if kind not in ("in", "out", "counter")
    ]
    target = _behind(way) or ("not reached" if way.verdict in LOST else "receiver")
    return Passage(
        _place(_behind(opposite) or "sender", entrance, SOURCE),
        stages,
        departure.changes if departure else (),
        _place(target, departure, DESTINATION),
        [step for step in way.steps if step.kind == "counter"],
    )


def _place(title: str, step: Step | None, end: int) -> Place | None:
    return Place(title, ends(step.text)[end], step.where) if step else None


def _behind(way: Way | None) -> str:
    return BEHIND.get(way.verdict, "") if way and way.interface else ""
