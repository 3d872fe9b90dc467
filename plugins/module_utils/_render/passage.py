# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer in the parts that its text, page and pictures have. The way of a packet is where it comes from, the stages on the
node, and where it goes or ends."""

from __future__ import annotations

import itertools
import typing as t

from .._core.fields import endpoint
from .._core.form import said
from .._core.printable import in_one_line
from .._trace.answer import (
    ARRIVED,
    COUNTER,
    DELIVERED,
    FORWARDED,
    IN,
    LOST,
    OUT,
    Answer,
    Branch,
    Culprit,
    Cure,
    Dependency,
    Outcome,
    Step,
    Way,
)
from .stylesheet import BAD, GOOD, OPEN

NODE = "the node"  # in place of a source address that the node has yet to choose
TITLES = {"rule": "netfilter", "policy": "netfilter", "route": "routing", "neighbor": "neighbour"}
# Titles of what an answer has.
DECISIVE, DOUBTFUL, CURES, FAILED = "Ask for, because it decides", "Not certain, because", "What helps", "What does not help"
BEFORE, CHANCE = "Before the changes", "Chance decides"
SOURCE, DESTINATION = 0, -1  # of the ends of a packet
BEHIND = {DELIVERED: "pod", FORWARDED: "other machine"}  # a link by which a packet left


def quality(verdict: str) -> str:
    return GOOD if verdict in ARRIVED else BAD if verdict in LOST else OPEN


def ends(packet: str) -> list[str]:
    """Return source and destination of a packet that is a text, such as "tcp 10.0.0.1:40000 > 10.96.0.1:443"."""
    return packet.partition(" ")[2].split(" > ")


def sent(answer: Answer) -> str:
    """Return the packet that was sent, and where it came in."""
    start = next((step for step in answer.way.steps if step.kind == IN), None)
    return f"{start.text}, from {start.where}" if start else ""


def packet(data: t.Mapping[str, t.Any]) -> str:
    """Return a packet as tcpdump shows it, with the MAC addresses and the mark."""
    fields = {key: in_one_line(said(value)) for key, value in data.items()}
    words = [f"{fields.get('protocol', '')} {_end(fields, 'source')} > {_end(fields, 'destination')}"]
    macs = [fields.get(key, "") for key in ("source_mac", "destination_mac")]
    if all(macs):
        words.append(f"MAC {' > '.join(macs)}")
    mark = data.get("mark")
    if mark:
        words.append(f"mark {mark:#x}" if isinstance(mark, int) else f"mark {fields['mark']}")
    return ", ".join(words)


def _end(fields: t.Mapping[str, str], end: str) -> str:
    return endpoint(fields.get(end, ""), fields.get(f"{end}_port", ""))


def share(branch: Branch) -> str:
    ways = f" ({branch.ways} ways, one of them:)" if branch.ways > 1 else ""
    return f"{branch.share * 100:.3g} %{ways}"


def questions(answer: Answer) -> list[Dependency]:
    """Return the facts that decide and that a command shows."""
    return [fact for fact in answer.depends_on if fact.ask and fact.outcomes]


def doubts(answer: Answer) -> list[Dependency]:
    """Return what no command shows: lines that a twin lacks, and rules that earlier packets or the clock decide."""
    return [fact for fact in answer.depends_on if not fact.ask]


def failed(answer: Answer) -> list[str]:
    """Return a sentence for each remedy that was tried and does not work, where none does."""
    return [f"{each.change}: {each.reason}" for each in answer.tried if not answer.cures]


def missing(answer: Answer) -> dict[str, list[str]]:
    """Return the commands that would show the facts without outcomes, each once, with the ids of the facts."""
    outputs: dict[str, list[str]] = {}
    without = [fact for fact in answer.depends_on if fact.ask and not fact.outcomes]
    commands = {fact.ask for fact in without}
    for fact in without:
        whole = fact.ask.partition(" -t ")[0]  # prints all tables
        outputs.setdefault(whole if whole in commands else fact.ask, []).append(fact.fact)
    return outputs


def clues(outcome: Outcome) -> list[str]:
    """Return what is known for and against the outcome of an open fact."""
    return [*(f"fits: {line}" for line in outcome.evidence), *(f"does not fit: {line}" for line in outcome.contradicted_by)]


def task(cure: Cure) -> list[str]:
    """Return the lines to paste into a playbook."""
    return [in_one_line(line) for line in cure.task.split("\n") if line]


def remarks(answer: Answer) -> dict[str, t.Sequence[str]]:
    """Return what the answer lacks, by the titles of the lists."""
    assumed = [assumption.sentence for assumption in answer.assumed]
    return {"Unknown": answer.unknown, "Assumed": assumed, "Not understood": answer.ignored}


class Stage(t.NamedTuple):
    """Steps of one kind that follow each other. kind: netfilter, routing, neighbour or connection tracking."""

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


class End(t.NamedTuple):
    """Where a packet stays on the node. counters: of the kernel that show it."""

    words: str
    culprit: Culprit | None
    counters: list[Step]


class Passage(t.NamedTuple):
    """A way in stages. start: None if the node itself sends. target: None if the packet does not leave. end: None if it does."""

    start: Place | None
    stages: list[Stage]
    target: Place | None
    end: End | None


def passage(way: Way, opposite: Way | None) -> Passage:
    """Return the passage of a packet. opposite: its reply, or the packet if the way is that of the reply."""
    entrance = next((step for step in way.steps if step.kind == IN and step.where != NODE), None)
    departure = next((step for step in way.steps if step.kind == OUT), None)
    stages = [
        Stage(kind, list(steps))
        for kind, steps in itertools.groupby(way.steps, key=lambda step: TITLES.get(step.kind) or step.kind)
        if kind not in (IN, OUT, COUNTER)
    ]
    if departure and departure.changes:  # which no rule made
        stages.append(Stage("connection tracking", [Step("", "", "", changes=departure.changes)]))
    target = _place(_behind(way) or ("not reached" if way.verdict in LOST else "receiver"), departure, DESTINATION)
    is_end = way.missed_culprit or not target
    return Passage(_place(_behind(opposite) or "sender", entrance, SOURCE), stages, target, _stay(way) if is_end else None)


def _stay(way: Way) -> End:
    words = "the node itself receives the packet" if way.verdict == DELIVERED else way.verdict
    return End(words, way.missed_culprit, [step for step in way.steps if step.kind == COUNTER])


def _place(title: str, step: Step | None, end: int) -> Place | None:
    return Place(title, ends(step.text)[end], step.where) if step else None


def _behind(way: Way | None) -> str:
    return BEHIND.get(way.verdict, "") if way and way.interface else ""
