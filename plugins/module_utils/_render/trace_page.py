# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer as one page of HTML, which runs and loads nothing. The path of a packet is boxes: the node is a box, its links
stand on the box's edges, and pods outside of it."""

from __future__ import annotations

import typing as t

from .._core import form
from .._core.form import Form, said
from .._core.printable import in_one_line
from .._trace.answer import ARRIVED, Answer, Branch, Change, Culprit, Cure, Dependency, Outcome, Step, Way
from . import passage, trace_result
from .markup import Markup, document, element, filled, folded, headline, joined, section, tag
from .passage import End, Passage, Place, Stage, quality

STYLE = "@media print { details::details-content { content-visibility: visible; } }\n"  # paper cannot be unfolded
ABOUT = {"node": "Node", "time": "Time", "versions": "Versions", "source": "Source"}


def html(answer: trace_result.Data, about: t.Mapping[str, t.Any] | None = None) -> str:
    """Return the answer as a page. about: versions and source of the evidence, and node and time in place of the snapshot's.

    Raises Refused.
    """
    value = trace_result.read(answer)
    given = form.inside("about", form.record(dict.fromkeys(ABOUT, Form(_fact))), about or {})
    facts = {**given, "node": given["node"] or value.origin.name, "time": given["time"] or value.origin.time}
    title = ": ".join(filter(None, (value.summary, passage.sent(value))))
    return document(title, [_head(value), _about(facts)], _sections(value, facts["node"]), STYLE)


def _fact(value: t.Any) -> str:
    """Return a fact about the evidence as text. value: may be a dictionary of versions, as a snapshot has it."""
    if isinstance(value, t.Mapping):
        # A program prints its name itself.
        versions = {said(name): said(version) for name, version in value.items() if version}
        value = ", ".join(f"{name} {version}" if version[0].isdigit() else version for name, version in versions.items())
    return in_one_line(said(value))


def _head(answer: Answer) -> Markup:
    way, tone = answer.way, quality(answer.worst)
    packet = filled("p", filled("code", passage.sent(answer)), classes="packet")
    reasons = (element("p", reason, classes="reason") for reason in way.reasons)
    return headline(answer.summary, tone, packet, *reasons, _culprit(way.decider))


def _culprit(culprit: Culprit | None) -> Markup:
    if culprit is None:
        return Markup()
    return element("p", element("b", culprit.kind), element("code", culprit.text), classes="culprit")


def _about(facts: t.Mapping[str, str]) -> Markup:
    pairs = [element("div", element("dt", ABOUT[key]), element("dd", value)) for key, value in facts.items() if value]
    return filled("dl", *pairs, classes="about")


def _sections(answer: Answer, node: str) -> t.Iterator[Markup]:
    yield section(passage.DECISIVE, *map(_dependency, passage.questions(answer)))
    yield section(passage.DOUBTFUL, *map(_dependency, passage.doubts(answer)))
    yield section(passage.CURES, *(_cure(cure, number == 0) for number, cure in enumerate(answer.cures)))
    yield section(passage.FAILED, *(element("p", line) for line in passage.failed(answer)))
    yield section("The path", ways(answer.way, node)) if answer.way.steps else Markup()
    if answer.before:
        outcome = element("p", _tag(answer.before.summary, answer.before.worst))
        yield section(passage.BEFORE, element("div", outcome, *_way(answer.before, node), classes="card"))
    yield section(passage.CHANCE, *(_branch(branch, node) for branch in answer.main_branches))
    yield section("What the evidence lacks", *_lacks(answer))


def _dependency(fact: Dependency) -> Markup:
    outcomes = filled("ul", *map(_outcome, fact.outcomes), classes="outcomes")
    return element("div", element("p", fact.what), filled("pre", fact.ask), outcomes, classes="card")


def _outcome(outcome: Outcome) -> Markup:
    lines = [element("p", clue[:1].upper() + clue[1:], classes="evidence") for clue in passage.clues(outcome)]
    return element("li", _verdicts(outcome.verdicts), f" if {outcome.clause}", *lines)


def _verdicts(verdicts: t.Sequence[str]) -> Markup:
    return _tag(", reply ".join(verdicts), verdicts[-1]) if verdicts else Markup()


def _cure(cure: Cure, is_open: bool) -> Markup:
    summary = element("code", cure.change), " ", _verdicts(cure.verdicts), cure.doubt
    task = filled("pre", "\n".join(passage.task(cure)))
    return folded(summary, filled("p", cure.takes_along), task, is_open=is_open)


def _branch(branch: Branch, node: str) -> Markup:
    return folded([f"{passage.share(branch)} ", _tag(branch.way.summary, branch.way.worst)], *_way(branch.way, node))


def _way(way: Way, node: str) -> t.Iterator[Markup]:
    """Yield what became of the packet in another case than that of the answer."""
    yield from (element("p", reason) for reason in way.reasons)
    yield _culprit(way.decider)
    yield ways(way, node) if way.steps else Markup()


def _lacks(answer: Answer) -> t.Iterator[Markup]:
    outputs = [
        joined(element("code", command), " ", element("span", ", ".join(facts), classes="dim"))
        for command, facts in passage.missing(answer).items()
    ]
    lists: dict[str, t.Sequence[str]] = {"Certain only with the output of": outputs, **passage.remarks(answer)}
    for title, entries in lists.items():
        if entries:
            items = element("ul", *(element("li", entry) for entry in entries))
            yield element("div", element("h3", title), items, classes="card")


def _tag(words: str, verdict: str) -> Markup:
    return tag(words, quality(verdict))


def ways(way: Way, node: str) -> Markup:
    """Return the packet's path, and beside it that of its reply if there is one."""
    columns = [_column("The packet", way, way.reply, node)]
    columns += [_column("The reply", way.reply, way, node)] if way.reply and way.reply.steps else []
    return element("div", *columns, classes="ways")


def _column(title: str, way: Way, opposite: Way | None, node: str) -> Markup:
    parts = passage.passage(way, opposite)
    heading = element("h3", title, _tag(way.outcome, way.verdict))
    name = element("div", f"Node {node}".strip(), classes="name")
    frame = element("div", name, *_connected(_on_node(parts, quality(way.verdict))), classes="node")
    target = _place(parts.target, "" if way.verdict in ARRIVED else quality(way.verdict))
    return element("div", heading, *_connected([_place(parts.start), frame, target]), classes="way")


def _connected(boxes: t.Iterable[Markup]) -> t.Iterator[Markup]:
    """Yield the boxes that have content, with arrows between them."""
    for number, box in enumerate(filter(None, boxes)):
        yield element("div", classes="arrow") if number else Markup()
        yield box


def _place(place: Place | None, tone: str = "") -> Markup:
    if place is None:
        return Markup()
    return element("div", element("b", place.title), element("code", place.address), classes=f"place {tone}".strip())


def _on_node(parts: Passage, tone: str) -> t.Iterator[Markup]:
    yield _link(parts.start)
    yield from map(_stage, parts.stages)
    yield _end(parts.end, tone) if parts.end else Markup()
    yield _link(parts.target)


def _link(place: Place | None) -> Markup:
    return element("div", place.link, classes="link") if place else Markup()


def _stage(stage: Stage) -> Markup:
    return element("div", element("b", stage.kind), *map(_step, stage.steps), classes=f"stage{' guilty' * stage.is_culprit}")


def _step(step: Step) -> Markup:
    words = ["" if step.kind == "route" else step.where, step.verdict]  # the stage of a route has its title
    where = element("div", *(element("span", word) for word in words), classes="where") if any(words) else ""
    text = filled("code", step.text)
    return element("div", where, text, *map(_change, step.changes), classes=f"step{' guilty' * step.is_culprit}")


def _change(change: Change) -> Markup:
    return element("div", f"{change.end} {change.before} \u2192 ", element("b", change.after), classes="change")


def _end(end: End, tone: str) -> Markup:
    by = joined(" by ", end.culprit.kind, " ", element("code", end.culprit.text)) if end.culprit else ""
    counted = [element("p", f"{step.where} {step.text}", classes="counted") for step in end.counters]
    return element("div", element("b", end.words), by, *counted, classes=f"end {tone}")
