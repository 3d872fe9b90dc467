# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The path of a packet and of its reply as boxes and arrows with coordinates. Pure.

The packet goes down the left column and the reply up the right one. Lengths are in units of SVG, which a browser shows as pixels.
"""

from __future__ import annotations

import itertools
import typing as t

from .result import Step, Way

COLUMN, GAP = 400, 56  # width of a column; between columns
CHARACTER = 7.3  # width of one at the size of the template's font, with reserve
HEAD, LINE, PADDING, ARROW = 30, 17, 10, 26  # heights
MOST_LINES = 10  # of a box, without the culprit
LONGEST_VERDICT = 28  # characters; the name of a chain may be longer

TITLES = {"rule": "netfilter", "policy": "netfilter", "route": "routing", "neighbor": "neighbor", "counter": "counter"}


class Line(t.NamedTuple):
    """text: shortened to the width of the box. full: not shortened. verdict: at the right end."""

    text: str
    verdict: str
    full: str
    is_culprit: bool
    y: float


class Box(t.NamedTuple):
    """kind: link, netfilter, routing, neighbor, counter, culprit or verdict. y: of the upper edge."""

    kind: str
    title: str
    lines: list[Line]
    is_culprit: bool
    verdict: str
    x: float
    y: float
    height: float


class Drawing(t.NamedTuple):
    """arrows: pairs of points. turn: the line from the end of the packet's path to the start of the reply's, if there is one."""

    width: float
    height: float
    boxes: list[Box]
    arrows: list[tuple[float, float, float, float]]
    turn: tuple[float, float, float, float] | None


def draw(way: Way) -> Drawing:
    down, up = _boxes(way), _boxes(way.reply) if way.reply else []
    # The reply starts at the bottom, where the packet's path ends.
    height = max(_height(down), _height(up))
    boxes = _placed(down, 0, height - _height(down))
    arrows = [_arrow(above, below) for above, below in itertools.pairwise(boxes)]
    if not up:
        return Drawing(COLUMN, height, boxes, arrows, None)
    back = _placed(up[::-1], COLUMN + GAP, height - _height(up))
    arrows += [_arrow(below, above) for above, below in itertools.pairwise(back)]
    end, start = boxes[-1], back[-1]
    middle = height - min(end.height, start.height) / 2
    return Drawing(2 * COLUMN + GAP, height, [*boxes, *back], arrows, (COLUMN, middle, COLUMN + GAP, middle))


def _boxes(way: Way) -> list[Box]:
    """In the order of the path, not yet placed."""
    found = []
    for title, group in itertools.groupby(way.steps, key=_title):
        steps = list(group)
        kind = "link" if steps[0].kind in ("in", "out") else title
        found.append(_box(kind, title, [_line(step) for step in _few(steps)]))
    if way.lost_to:
        line = Line(_fit(way.lost_to.text), "", way.lost_to.text, True, 0)
        found.append(_box("culprit", way.lost_to.kind, [line]))
    return [*found, _box("verdict", way.outcome, [], way.verdict)]


def _title(step: Step) -> str:
    if step.kind in ("in", "out"):
        return f"{step.kind}: {step.where}"
    return TITLES.get(step.kind, step.kind)


def _few(steps: list[Step]) -> list[Step]:
    """The first ones, the culprit and the last ones, with one that stands for those left out."""
    if len(steps) <= MOST_LINES:
        return steps
    first, last = MOST_LINES // 2, len(steps) - MOST_LINES // 2 + 1  # one line stands for those left out
    guilty = [step for step in steps[first:last] if step.is_culprit]
    count = last - first - len(guilty)
    return [*steps[:first], Step("", f"… {count} more", "", ""), *guilty, *steps[last:]]


def _line(step: Step) -> Line:
    """A chain stands for its rule, which is too long for a box, unless it is the culprit."""
    is_chain = step.kind in ("rule", "policy", "")
    text = step.text if step.kind in ("in", "out", "route") or (step.is_culprit and step.text) else step.where
    if not is_chain and text == step.where:
        text = f"{step.where} {step.text}".strip()
    verdict = step.verdict if len(step.verdict) <= LONGEST_VERDICT else f"{step.verdict[: LONGEST_VERDICT - 1]}…"
    full = " ".join(filter(None, (step.where, step.text, f"({step.verdict})" if step.verdict else "")))
    return Line(_fit(text, verdict), verdict, full, step.is_culprit, 0)


def _fit(text: str, verdict: str = "") -> str:
    room = int((COLUMN - 2 * PADDING) / CHARACTER) - (len(verdict) + 2 if verdict else 0)
    return text if len(text) <= room else f"{text[: max(room, 8) - 1]}…"


def _box(kind: str, title: str, lines: list[Line], verdict: str = "") -> Box:
    height = HEAD + (len(lines) * LINE + PADDING / 2 if lines else 0)
    is_culprit = kind == "culprit" or any(line.is_culprit for line in lines)
    return Box(kind, _fit(title), lines, is_culprit, verdict, 0, 0, height)


def _height(boxes: list[Box]) -> float:
    return sum(box.height for box in boxes) + ARROW * (len(boxes) - 1)


def _placed(boxes: list[Box], x: float, y: float) -> list[Box]:
    """One below the other, from ``y``."""
    found = []
    for box in boxes:
        lines = [line._replace(y=y + HEAD + LINE * number + PADDING) for number, line in enumerate(box.lines)]
        found.append(box._replace(x=x, y=y, lines=lines))
        y += box.height + ARROW
    return found


def _arrow(start: Box, end: Box) -> tuple[float, float, float, float]:
    middle = start.x + COLUMN / 2
    if start.y < end.y:
        return middle, start.y + start.height, middle, end.y
    return middle, start.y, middle, end.y + end.height
