# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer as a flowchart of Mermaid, which GitHub draws in issues. Of the rules it has those that translate or decide."""

from __future__ import annotations

import re
import typing as t

from .._core.printable import counted
from .._trace.answer import Change, Step, Way
from . import passage, trace_result
from .passage import Passage, Place, Stage, quality
from .stylesheet import BAD

STYLES = (  # legible on GitHub's light and dark page
    "  classDef good fill:#dcf3e5,stroke:#14693a,color:#0d4727",
    "  classDef bad fill:#fde8e6,stroke:#b3231b,color:#7a1510",
    "  classDef open fill:#fcefcf,stroke:#7a5200,color:#523700",
)
_SPECIAL = re.compile(r"[^\w .,/=()+-]")


class Box(t.NamedTuple):
    """lines: of the label. tone: a class of STYLES; empty for none."""

    lines: list[str]
    tone: str = ""


def diagram(answer: trace_result.Data) -> str:
    """Return the answer as a flowchart. Raises Refused."""
    way = trace_result.read(answer).way
    lines = ["flowchart TB", *_chart("packet", way, way.reply)]
    lines += _chart("reply", way.reply, way) if way.reply and way.reply.steps else []
    return "".join(f"{line}\n" for line in [*lines, *STYLES])


def _chart(name: str, way: Way, opposite: Way | None) -> list[str]:
    parts = passage.passage(way, opposite)
    start, target = _place(parts.start), _place(parts.target, quality(way.verdict))
    on_node = {f"{name}{number}": box for number, box in enumerate(_on_node(parts, quality(way.verdict)))}
    outside = {f"{name}Start": start, f"{name}End": target}
    names = [f"{name}Start"] * bool(start) + [*on_node] + [f"{name}End"] * bool(target)
    return [
        *(_box(key, box) for key, box in outside.items() if box),
        f'  subgraph {name}["{_label([f"Node, {name}: {way.outcome}"])}"]',
        *(f"  {_box(key, box)}" for key, box in on_node.items()),
        "  end",
        f"  {' --> '.join(names)}",
    ]


def _place(place: Place | None, tone: str = "") -> Box | None:
    return Box([place.title, place.address], tone) if place else None


def _on_node(parts: Passage, tone: str) -> t.Iterator[Box]:
    if parts.start:
        yield Box([parts.start.link])
    yield from map(_stage, parts.stages)
    if parts.end:
        culprit = parts.end.culprit
        yield Box([parts.end.words, *([f"{culprit.kind}: {culprit.text}"] if culprit else [])], tone)
    if parts.target:
        yield Box([parts.target.link])


def _stage(stage: Stage) -> Box:
    lines = [line for step in stage.steps for line in _step(step)]
    count = sum(step.kind == "rule" for step in stage.steps)
    title = f"{stage.kind}, {counted(count, 'rule')}" if count else stage.kind
    return Box([title, *lines], BAD if stage.is_culprit else "")


def _step(step: Step) -> list[str]:
    """Return the lines of a step; none of a rule that neither translates nor decides."""
    if step.kind in ("rule", "policy") and not step.changes and not step.is_culprit:
        return []
    text = step.text or step.where
    words = f"{text}, {step.verdict}" if step.verdict and step.kind != "rule" else text
    return [*[words] * bool(words), *map(_change, step.changes)]


def _change(change: Change) -> str:
    return f"{change.end} {change.before} \u2192 {change.after}"


def _box(name: str, box: Box) -> str:
    return f'  {name}["{_label(box.lines)}"]{f":::{box.tone}" if box.tone else ""}'


def _label(lines: t.Iterable[str]) -> str:
    """Return lines as the text of a quoted label. Special characters become entities, so that none ends the label."""
    return "<br/>".join(_SPECIAL.sub(lambda match: f"#{ord(match[0])};", line) for line in lines)
