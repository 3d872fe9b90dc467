# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer of a trace, and the findings of an audit, as text for a terminal. Only sentences are wrapped, so that a rule, a task
and variables can be copied."""

from __future__ import annotations

import itertools
import textwrap
import typing as t

from .._audit.suspicion import ERROR, NOTE, RISK
from .._core import form
from .._core.form import LINE
from .._core.printable import counted
from .._trace.answer import Answer, Branch, Cure, Dependency, Step, Way
from . import findings, passage, trace_result
from .findings import Finding, Findings, Profile
from .passage import quality
from .stylesheet import BAD, GOOD, OPEN

GREEN, RED, YELLOW, BOLD, FAINT = "32", "31", "33", "1", "2"  # of ECMA-48, Select Graphic Rendition
TONES = {GOOD: GREEN, BAD: RED, OPEN: YELLOW}
SEVERITIES = {ERROR: RED, RISK: YELLOW, NOTE: FAINT}
MOST_LINES = 25  # before the steps, which a terminal shows at once
FRAME = 2  # lines of a section besides its entries: an empty one and the title
BELOW = ("", "Below the steps: {}")
EXPLANATION = form.record(
    {
        "packet": LINE,
        "guilty": form.many(form.record({"text": LINE, "undo": LINE})),
        "verdict": form.record({"before": LINE, "after": LINE}),
        "certain": form.FLAG,
        "reason": LINE,
        "is_undone": form.perhaps(form.FLAG),
    }
)
UNDONE = ("With these alone it does not arrive.", "With these the packet arrives: they were tried in a copy of the node.")
Paint = t.Callable[[str, str], str]  # gives words a colour


class Section(t.NamedTuple):
    """entries: lines that belong together."""

    title: str
    entries: list[list[str]]


def trace(answer: trace_result.Data, *, colours: bool = False, columns: int = 0) -> str:
    """Return an answer as text. columns: as for wrapped(). Raises Refused."""
    paint = painter(colours)
    lines = _Writer(paint).lines(trace_result.read(answer))
    explained = form.inside("result.explanation", form.perhaps(EXPLANATION), answer.get("explanation"))
    return wrapped([*_explained(explained, paint), "", *lines] if explained else lines, columns)


def audit(result: findings.Data, *, colours: bool = False, columns: int = 0, is_wide: bool = False) -> str:
    """Return findings as text. columns: as for wrapped(). is_wide: whether to say what else the audit knows. Raises Refused."""
    return wrapped(_lines(findings.read(result), painter(colours), is_wide), columns)


def explanation(result: t.Mapping[str, t.Any], *, colours: bool = False, columns: int = 0) -> str:
    """Return an explanation of what changed, or those of several paths, as text. columns: as for wrapped(). Raises Refused."""
    paint = painter(colours)
    paths = [form.inside("result", EXPLANATION, path) for path in result.get("paths") or [result]]
    lines = [line for number, path in enumerate(paths) for line in (*([""] if number else []), *_explained(path, paint))]
    notes = [Section("Ignored", [[Prose(line)] for line in result.get("ignored") or ()])]
    return wrapped([*lines, *sections(notes, paint)], columns)


def _explained(path: t.Mapping[str, t.Any], paint: Paint) -> t.Iterator[str]:
    doubt = "" if path["certain"] or not path["guilty"] else " (not certain)"
    colour = RED if path["guilty"] else YELLOW
    yield Prose(paint(f"{path['reason'][:1].upper()}{path['reason'][1:]}{doubt}", colour))
    if path["packet"]:
        yield from ("", f"{'Packet':<9}{path['packet']}")
        yield from (f"{label:<9}{path['verdict'][label.lower()]}" for label in ("Before", "After"))
    undo = [change["undo"] for change in path["guilty"] if change["undo"]]
    yield from labelled("Undo", undo)
    if undo and path["is_undone"] is not None:
        yield f"{'':<9}{paint(UNDONE[path['is_undone']], FAINT)}"


class Prose(str):
    """A line of sentences, which may be wrapped."""

    __slots__ = ()


def wrapped(lines: t.Iterable[str], columns: int) -> str:
    """Return lines as text. columns: of the terminal, by which sentences are wrapped; 0 for no terminal."""
    return "".join(f"{_filled(line, columns) if columns and isinstance(line, Prose) else line}\n" for line in lines)


def _filled(line: str, columns: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def painter(colours: bool) -> Paint:
    return (lambda words, colour: f"\x1b[{colour}m{words}\x1b[0m" if words else "") if colours else (lambda words, _colour: words)


def sections(parts: t.Iterable[Section], paint: Paint) -> t.Iterator[str]:
    """Yield the lines of each section that has entries: an empty line, its title, and its entries."""
    for section in parts:
        if section.entries:
            yield from ("", paint(section.title, BOLD))
            yield from (type(line)(f"  {line}") for entry in section.entries for line in entry)


def labelled(label: str, lines: t.Iterable[str]) -> t.Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else label:<9}{line}"


class _Writer:
    """Writes an answer. paint: gives a colour to words."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint

    def lines(self, answer: Answer) -> list[str]:
        head = self._head(answer)
        above, below = _fit(self._sections(answer), MOST_LINES - len(head) - len(BELOW))
        rest = ", ".join(f"{section.title} ({_count(section)})" for section in below)
        note = [self._paint(line.format(rest), FAINT) for line in BELOW if rest]
        steps = [line for title, way in zip(("Packet", "Reply"), answer.way.both) for line in self._path(title, way)]
        remarks = [Section(title, [[Prose(line)] for line in lines]) for title, lines in passage.remarks(answer).items()]
        return [*head, *sections(above, self._paint), *note, *steps, *sections([*below, *remarks], self._paint)]

    def _head(self, answer: Answer) -> list[str]:
        way = answer.way
        outcome = self._paint(f"{answer.summary}:", _colour(answer.worst))
        first, *others = way.reasons or [""]
        lines = [*map(Prose, (f"{outcome} {first}".rstrip(), *others))]
        labels = {"Packet": [passage.sent(answer)], "Culprit": self._decider(way), "Node": [str(answer.origin)]}
        return [*lines, *(line for label, words in labels.items() for line in labelled(label, filter(None, words)))]

    def _decider(self, way: Way) -> list[str]:
        return [self._paint(f"{way.decider.kind}: {way.decider.text}", RED)] if way.decider else []

    def _sections(self, answer: Answer) -> list[Section]:
        return [
            Section(passage.DECISIVE, [self._fact(fact) for fact in passage.questions(answer)]),
            Section(passage.DOUBTFUL, [self._fact(fact) for fact in passage.doubts(answer)]),
            Section("Ask for, to be certain", [_output(*output) for output in passage.missing(answer).items()]),
            Section(passage.CURES, [self._cure(cure) for cure in answer.cures]),
            Section(passage.FAILED, [[line] for line in passage.failed(answer)]),
            Section(passage.BEFORE, [self._way(answer.before)] if answer.before else []),
            Section(passage.CHANCE, [self._branch(branch) for branch in answer.main_branches]),
        ]

    def _fact(self, fact: Dependency) -> list[str]:
        lines = [f"{fact.ask}  # {fact.fact}" if fact.ask else fact.what]
        for outcome in fact.outcomes:
            lines.append(f"  if {outcome.clause}: {self._verdicts(outcome.verdicts)}")
            lines += [f"    {clue}" for clue in passage.clues(outcome)]
        return lines

    def _cure(self, cure: Cure) -> list[str]:
        details = filter(None, [cure.takes_along, *passage.task(cure)])
        return [f"{cure.change} -> {self._verdicts(cure.verdicts)}{cure.doubt}", *(f"  {line}" for line in details)]

    def _branch(self, branch: Branch) -> list[str]:
        first, *others = self._way(branch.way)
        return [f"{passage.share(branch)} {first}", *(f"  {line}" for line in others)]

    def _way(self, way: Way) -> list[str]:
        summary = self._paint(way.summary, _colour(way.worst))
        return [summary, *map(Prose, way.reasons), *labelled("Culprit", self._decider(way))]

    def _verdicts(self, verdicts: t.Sequence[str]) -> str:
        return self._paint(", reply ".join(verdicts), _colour(verdicts[-1])) if verdicts else ""

    def _path(self, title: str, way: Way) -> t.Iterator[str]:
        yield ""
        yield f"{self._paint(title, BOLD)}: {self._paint(way.outcome, _colour(way.verdict))}"
        for step in way.steps:
            yield from self._step(step)
        if way.missed_culprit:
            yield " ".join([self._paint("!", RED), *self._decider(way)])
        if way.packet:
            yield f"  Left as {passage.packet(way.packet)}"

    def _step(self, step: Step) -> t.Iterator[str]:
        words = "  ".join(filter(None, [step.text, f"-> {step.verdict}" if step.verdict else ""]))
        mark = self._paint("!", RED) if step.is_culprit else " "
        yield f"{mark} {step.kind:<8} {step.where:<28} {self._paint(words, RED) if step.is_culprit else words}"
        for change in step.changes:
            yield " " * 11 + self._paint(f"{change.end} {change.before} -> {change.after}", YELLOW)


def _output(command: str, facts: t.Iterable[str]) -> list[str]:
    return [f"{command}  # {', '.join(facts)}"]


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
    return counted(sum(map(len, section.entries)), "line")


def _colour(verdict: str) -> str:
    return TONES[quality(verdict)]


def _lines(audit: Findings, paint: Paint, is_wide: bool) -> t.Iterator[str]:
    worst = next((finding.severity for finding in audit.present), "")
    yield paint(audit.counts, SEVERITIES[worst] if worst else YELLOW if audit.unclear or audit.guesses else GREEN)
    yield from labelled("Node", filter(None, [str(audit.origin)]))
    details = _Details(audit.profile, is_wide)
    for finding in audit.present:
        yield ""
        yield f"{paint(finding.severity, SEVERITIES[finding.severity])} {paint(finding.title, BOLD)}"
        yield from (type(line)(f"  {line}") for line in details.lines(finding))
    suspected = Section("Suspected", [_question([finding.title], finding) for finding in audit.suspected])
    alike = findings.grouped(((finding.what, finding.ask), finding) for finding in audit.open)
    questions = Section("Cannot tell", [_question([each.title for each in group], group[0]) for group in alike.values()])
    guesses = findings.grouped(((guess.unless, guess.ask), guess.id) for guess in audit.guesses)
    entries = [[Prose(f"{', '.join(ids)}: {' '.join(unless)}"), f"  ask for: {ask}"] for (unless, ask), ids in guesses.items()]
    passing = Section("Passed, unless what is open counts", entries)
    remarks = {"Passed": [", ".join(audit.passed)] * is_wide, "Assumed": audit.assumed, "Not understood": audit.ignored}
    of_remarks = [Section(title, [[Prose(line)] for line in lines]) for title, lines in remarks.items()]
    yield from sections([suspected, questions, passing, *of_remarks], paint)
    yield from _profile(audit, paint)


class _Details:
    """Writes findings, and says a thing once: a sentence about the twin, and a remedy that another finding has, or the profile.

    is_wide: whether to say it each time.
    """

    def __init__(self, profile: Profile, is_wide: bool) -> None:
        self._profile, self._is_wide = profile, is_wide
        self._said: dict[object, str] = {}  # titles of the first findings by what they say

    def lines(self, finding: Finding) -> t.Iterator[str]:
        yield Prose(finding.what)
        yield from (Prose(line) for line in finding.added if self._is_first(line, finding))
        yield from labelled("Unless", [*finding.unless, *[f"ask for: {finding.ask}"] * bool(finding.unless)])
        yield from labelled("Evidence", finding.evidence)
        yield from labelled("Packet", [finding.packet] * bool(finding.packet))
        yield from self._remedy(finding)
        yield from labelled("Source", [finding.source])

    def _is_first(self, said: object, finding: Finding) -> bool:
        return self._said.setdefault(said, finding.title) == finding.title or self._is_wide

    def _remedy(self, finding: Finding) -> t.Iterator[str]:
        remedy, profile = finding.remedy, self._profile
        if remedy is None:
            yield from labelled("Remedy", ["none of those that were tried helps"])
        elif remedy.profile and remedy.profile == profile.name and profile.variables and not self._is_wide:
            yield from labelled("Remedy", [f"the profile {profile.name}, below"])
        elif not self._is_first(key := (remedy.change, *remedy.lines), finding):
            yield from labelled("Remedy", [f"that of {self._said[key]}"])
        else:
            yield from labelled("Remedy", [remedy.change])
            yield from (f"  {line}" for line in remedy.lines)


def _question(titles: t.Sequence[str], finding: Finding) -> list[str]:
    evidence = [f"  {line}" for line in finding.evidence]
    return [Prose(f"{', '.join(titles)}: {finding.what}"), *evidence, *[f"  ask for: {finding.ask}"] * bool(finding.ask)]


def _profile(audit: Findings, paint: Paint) -> t.Iterator[str]:
    """Yield the profile. Its variables are not indented, so that they are YAML. Reasons that are findings stand above."""
    profile = audit.profile
    said = {finding.what for finding in audit.present}
    yield ""
    yield f"{paint('Profile', BOLD)}: {profile.name or ('cannot tell' if profile.is_open else 'none')}"
    yield from (f"# {reason}" for reason in profile.reasons if reason not in said)
    yield from profile.variables
