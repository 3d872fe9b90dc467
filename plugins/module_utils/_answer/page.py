# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""An answer as one page of HTML, which runs and loads nothing."""

from __future__ import annotations

import typing as t

from .._core import form
from .._core.form import Form, said
from .._core.printable import in_one_line
from .._trace.answer import Answer, Branch, Culprit, Cure, Dependency, Outcome, Way
from . import drawing, result, stages
from .markup import Markup, document, element, joined, section
from .stages import quality
from .stylesheet import CSS

STYLE = "@media print { details::details-content { content-visibility: visible; } }\n"  # paper cannot be unfolded
ABOUT = {"node": "Node", "time": "Time", "versions": "Versions", "source": "Source"}


def html(answer: result.Data, about: t.Mapping[str, t.Any] | None = None) -> str:
    """Return the answer as a page. about: node, time, versions and source of the evidence. Raises Refused."""
    value = result.read(answer)
    facts = form.inside("about", form.record(dict.fromkeys(ABOUT, Form(_fact))), about or {})
    title = ": ".join(filter(None, (value.summary, stages.sent(value))))
    header = element("header", _head(value), _about(facts))
    return document(title, CSS + STYLE, header, element("main", *_sections(value, facts["node"])))


def _fact(value: t.Any) -> str:
    """Return a fact about the evidence as text. value: may be a dictionary of versions, as a snapshot has it."""
    if isinstance(value, t.Mapping):
        # A program prints its name itself.
        versions = {said(name): said(version) for name, version in value.items() if version}
        value = ", ".join(f"{name} {version}" if version[0].isdigit() else version for name, version in versions.items())
    return in_one_line(said(value))


def _head(answer: Answer) -> Markup:
    way, sent = answer.way, stages.sent(answer)
    return element(
        "div",
        element("h1", answer.summary),
        element("p", element("code", sent), classes="packet") if sent else "",
        *(element("p", reason, classes="reason") for reason in way.reasons),
        _culprit(way.decider),
        classes=f"answer {quality(answer.worst)}",
    )


def _culprit(culprit: Culprit | None) -> Markup:
    if culprit is None:
        return Markup()
    return element("p", element("b", culprit.kind), element("code", culprit.text), classes="culprit")


def _about(facts: t.Mapping[str, str]) -> Markup:
    pairs = [element("div", element("dt", ABOUT[key]), element("dd", value)) for key, value in facts.items() if value]
    return element("dl", *pairs, classes="about") if pairs else Markup()


def _sections(answer: Answer, node: str) -> t.Iterator[Markup]:
    yield section("Ask for, because it decides", *map(_dependency, stages.questions(answer)))
    yield section("Not certain, because", *map(_dependency, stages.doubts(answer)))
    yield section("What helps", *(_cure(cure, number == 0) for number, cure in enumerate(answer.cures)))
    yield section("The path", drawing.ways(answer.way, node)) if answer.way.steps else Markup()
    if answer.before:
        outcome = element("p", drawing.tag(answer.before.summary, answer.before.worst))
        yield section("Before the changes", element("div", outcome, *_way(answer.before, node), classes="card"))
    yield section("Chance decides", *(_branch(branch, node) for branch in answer.branches))
    yield section("What the evidence lacks", *_lacks(answer))


def _dependency(fact: Dependency) -> Markup:
    outcomes = element("ul", *map(_outcome, fact.outcomes), classes="outcomes") if fact.outcomes else ""
    command = element("pre", fact.ask) if fact.ask else ""
    return element("div", element("p", fact.what), command, outcomes, classes="card")


def _outcome(outcome: Outcome) -> Markup:
    evidence = [f"Fits: {sentence}" for sentence in outcome.evidence]
    evidence += [f"Does not fit: {sentence}" for sentence in outcome.contradicted_by]
    lines = [element("p", sentence, classes="evidence") for sentence in evidence]
    return element("li", _verdicts(outcome.verdicts), f" if {outcome.clause}", *lines)


def _verdicts(verdicts: t.Sequence[str]) -> Markup:
    return drawing.tag(", reply ".join(verdicts), verdicts[-1]) if verdicts else Markup()


def _cure(cure: Cure, is_open: bool) -> Markup:
    side_effect = element("p", cure.takes_along) if cure.takes_along else ""
    lines = [in_one_line(line) for line in cure.task.split("\n") if line]
    task = element("pre", "\n".join(lines)) if lines else ""
    summary = joined(element("code", cure.change), " ", _verdicts(cure.verdicts), cure.doubt)
    return _folded(summary, side_effect, task, is_open=is_open)


def _branch(branch: Branch, node: str) -> Markup:
    summary = joined(f"{stages.share(branch)} ", drawing.tag(branch.way.summary, branch.way.worst))
    return _folded(summary, *_way(branch.way, node))


def _folded(summary: str, *content: str, is_open: bool = False) -> Markup:
    return element("details", element("summary", summary), *content, classes="card", is_open=is_open)


def _way(way: Way, node: str) -> t.Iterator[Markup]:
    """Yield what became of the packet in another case than that of the answer."""
    yield from (element("p", reason) for reason in way.reasons)
    yield _culprit(way.decider)
    yield drawing.ways(way, node) if way.steps else Markup()


def _lacks(answer: Answer) -> t.Iterator[Markup]:
    outputs = [
        joined(element("code", command), " ", element("span", ", ".join(facts), classes="dim"))
        for command, facts in stages.missing(answer).items()
    ]
    lists: dict[str, t.Sequence[str]] = {
        "Certain only with the output of": outputs,
        "Unknown": answer.unknown,
        "Assumed": [assumption.sentence for assumption in answer.assumed],
        "Not understood": answer.ignored,
    }
    for title, entries in lists.items():
        if entries:
            items = element("ul", *(element("li", entry) for entry in entries))
            yield element("div", element("h3", title), items, classes="card")
