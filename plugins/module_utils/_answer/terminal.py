# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""An answer as text for a terminal. Lines are not wrapped, so that a rule and a task can be copied."""

from __future__ import annotations

import itertools
import typing as t

from .._core.printable import in_one_line
from .._trace.answer import Answer, Branch, Cure, Dependency, Step, Way
from . import result, stages
from .sections import BOLD, FAINT, GREEN, RED, YELLOW, Paint, Section, painter, shown
from .stages import quality

MOST_LINES = 25  # before the steps, which a terminal shows at once
FRAME = 2  # lines of a section besides its entries: an empty one and the title
NOTE = ("", "Below the steps: {}")


def text(answer: result.Data, *, colours: bool = False) -> str:
    """Return the answer as text. Raises Refused."""
    lines = _Writer(painter(colours)).lines(result.read(answer))
    return "".join(f"{line}\n" for line in lines)


class _Writer:
    """Writes an answer. paint: gives a colour to words."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint

    def lines(self, answer: Answer) -> list[str]:
        head = self._head(answer)
        above, below = _fit(self._sections(answer), MOST_LINES - len(head) - len(NOTE))
        rest = ", ".join(f"{section.title} ({_count(section)})" for section in below)
        note = [self._paint(line.format(rest), FAINT) for line in NOTE if rest]
        steps = [line for title, way in _ways(answer) for line in self._path(title, way)]
        return [*head, *shown(above, self._paint), *note, *steps, *shown([*below, *_remarks(answer)], self._paint)]

    def _head(self, answer: Answer) -> list[str]:
        way = answer.way
        outcome = self._paint(f"{answer.summary}:", _colour(answer.worst))
        first, *others = way.reasons or [""]
        lines = [f"{outcome} {first}".rstrip(), *others]
        sent = stages.sent(answer)
        lines += [f"Packet   {sent}"] if sent else []
        return lines + [f"Culprit  {self._culprit(way)}"] * bool(way.decider)

    def _culprit(self, way: Way) -> str:
        return self._paint(f"{way.decider.kind}: {way.decider.text}", RED) if way.decider else ""

    def _sections(self, answer: Answer) -> list[Section]:
        sections = [
            Section("Ask for, because it decides", [self._fact(fact) for fact in stages.questions(answer)]),
            Section("Not certain, because", [self._fact(fact) for fact in stages.doubts(answer)]),
            Section("Ask for, to be certain", [_output(*output) for output in stages.missing(answer).items()]),
            Section("What helps", [self._cure(cure) for cure in answer.cures]),
            Section("Before the changes", [self._way(answer.before)] if answer.before else []),
            Section("Chance decides", [self._branch(branch) for branch in answer.branches]),
        ]
        return [section for section in sections if section.entries]

    def _fact(self, fact: Dependency) -> list[str]:
        lines = [f"{fact.ask}  # {fact.fact}" if fact.ask else fact.what]
        for outcome in fact.outcomes:
            lines.append(f"  if {outcome.clause}: {self._verdicts(outcome.verdicts)}")
            lines += [f"    fits: {sentence}" for sentence in outcome.evidence]
            lines += [f"    does not fit: {sentence}" for sentence in outcome.contradicted_by]
        return lines

    def _cure(self, cure: Cure) -> list[str]:
        details = [cure.takes_along] if cure.takes_along else []
        return [
            f"{cure.change} -> {self._verdicts(cure.verdicts)}{cure.doubt}",
            *(f"  {in_one_line(line)}" for line in [*details, *filter(None, cure.task.split("\n"))]),
        ]

    def _branch(self, branch: Branch) -> list[str]:
        first, *others = self._way(branch.way)
        return [f"{stages.share(branch)} {first}", *(f"  {line}" for line in others)]

    def _way(self, way: Way) -> list[str]:
        lines = [self._paint(way.summary, _colour(way.worst)), *way.reasons]
        return lines + [f"Culprit  {self._culprit(way)}"] * bool(way.decider)

    def _verdicts(self, verdicts: t.Sequence[str]) -> str:
        return self._paint(", reply ".join(verdicts), _colour(verdicts[-1])) if verdicts else ""

    def _path(self, title: str, way: Way) -> t.Iterator[str]:
        yield ""
        yield f"{self._paint(title, BOLD)}: {self._paint(way.outcome, _colour(way.verdict))}"
        for step in way.steps:
            yield from self._step(step)
        if way.missed_culprit:
            yield f"{self._paint('!', RED)} {self._culprit(way)}"
        if way.packet:
            yield f"  Left as {stages.packet(way.packet)}"

    def _step(self, step: Step) -> t.Iterator[str]:
        words = "  ".join(filter(None, [step.text, f"-> {step.verdict}" if step.verdict else ""]))
        mark = self._paint("!", RED) if step.is_culprit else " "
        yield f"{mark} {step.kind:<8} {step.where:<28} {self._paint(words, RED) if step.is_culprit else words}"
        for change in step.changes:
            yield " " * 11 + self._paint(f"{change.end} {change.before} -> {change.after}", YELLOW)


def _ways(answer: Answer) -> t.Iterator[tuple[str, Way]]:
    yield "Packet", answer.way
    if answer.way.reply:
        yield "Reply", answer.way.reply


def _output(command: str, facts: t.Iterable[str]) -> list[str]:
    return [f"{command}  # {', '.join(facts)}"]


def _remarks(answer: Answer) -> list[Section]:
    remarks: dict[str, t.Sequence[str]] = {
        "Unknown": answer.unknown,
        "Assumed": [assumption.sentence for assumption in answer.assumed],
        "Not understood": answer.ignored,
    }
    return [Section(title, [[sentence] for sentence in sentences]) for title, sentences in remarks.items() if sentences]


def _fit(sections: list[Section], room: int) -> tuple[list[Section], list[Section]]:
    """Split the sections into what has room before the steps, and the rest. An entry is not torn apart."""
    above, below = [], []
    for section in sections:
        sizes = itertools.accumulate(map(len, section.entries), initial=FRAME)
        count = max(sum(size <= room for size in sizes) - 1, 0)
        fitting, rest = section.entries[:count], section.entries[count:]
        if fitting:
            above.append(section._replace(entries=fitting))
            room -= FRAME + sum(map(len, fitting))
        if rest:
            below.append(Section(f"{section.title}, continued" if fitting else section.title, rest))
    return above, below


def _count(section: Section) -> str:
    count = sum(map(len, section.entries))
    return f"{count} line{'s' if count != 1 else ''}"


def _colour(verdict: str) -> str:
    return {"good": GREEN, "bad": RED, "open": YELLOW}[quality(verdict)]
