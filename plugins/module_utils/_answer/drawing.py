# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The path of a packet as boxes of HTML: the node is a box, its links stand on the box's edges, and pods outside of it."""

from __future__ import annotations

import typing as t

from .._trace.answer import ARRIVED, DELIVERED, Change, Step, Way
from . import stages
from .markup import Markup, element, joined
from .stages import Passage, Place, Stage, quality


def ways(way: Way, node: str) -> Markup:
    """Return the packet's path, and beside it that of its reply if there is one."""
    columns = [_way("The packet", way, way.reply, node)]
    columns += [_way("The reply", way.reply, way, node)] if way.reply and way.reply.steps else []
    return element("div", *columns, classes="ways")


def tag(words: str, verdict: str) -> Markup:
    return element("span", words, classes=f"tag {quality(verdict)}")


def _way(title: str, way: Way, opposite: Way | None, node: str) -> Markup:
    passage = stages.passage(way, opposite)
    heading = element("h3", title, tag(way.outcome, way.verdict))
    name = element("div", f"Node {node}".strip(), classes="name")
    frame = element("div", name, *_connected(_on_node(way, passage)), classes="node")
    target = _place(passage.target, "" if way.verdict in ARRIVED else quality(way.verdict))
    return element("div", heading, *_connected([_place(passage.start), frame, target]), classes="way")


def _connected(boxes: t.Iterable[Markup]) -> t.Iterator[Markup]:
    """Yield the boxes that have content, with arrows between them."""
    for number, box in enumerate(filter(None, boxes)):
        yield element("div", classes="arrow") if number else Markup()
        yield box


def _place(place: Place | None, tone: str = "") -> Markup:
    if place is None:
        return Markup()
    return element("div", element("b", place.title), element("code", place.address), classes=f"place {tone}".strip())


def _on_node(way: Way, passage: Passage) -> t.Iterator[Markup]:
    yield _link(passage.start)
    yield from map(_stage, passage.stages)
    if passage.changes:
        changes = element("div", *map(_change, passage.changes), classes="step")
        yield element("div", element("b", "connection tracking"), changes, classes="stage")
    if way.missed_culprit or not passage.target:
        yield _end(way, passage.counters)
    yield _link(passage.target)


def _link(place: Place | None) -> Markup:
    return element("div", place.link, classes="link") if place else Markup()


def _stage(stage: Stage) -> Markup:
    return element("div", element("b", stage.kind), *map(_step, stage.steps), classes=f"stage{' guilty' * stage.is_culprit}")


def _step(step: Step) -> Markup:
    words = ["" if step.kind == "route" else step.where, step.verdict]  # the stage of a route has its title
    where = element("div", *(element("span", word) for word in words), classes="where") if any(words) else ""
    text = element("code", step.text) if step.text else ""
    return element("div", where, text, *map(_change, step.changes), classes=f"step{' guilty' * step.is_culprit}")


def _change(change: Change) -> Markup:
    return element("div", f"{change.end} {change.before} \u2192 ", element("b", change.after), classes="change")


def _end(way: Way, counters: t.Iterable[Step]) -> Markup:
    words = "the node itself receives the packet" if way.verdict == DELIVERED else way.verdict
    culprit = way.missed_culprit
    by = joined(" by ", culprit.kind, " ", element("code", culprit.text)) if culprit else ""
    counted = [element("p", f"{step.where} {step.text}", classes="counted") for step in counters]
    return element("div", element("b", words), by, *counted, classes=f"end {quality(way.verdict)}")
