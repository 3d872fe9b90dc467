# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The answer of datapath_trace as values."""

from __future__ import annotations

import typing as t

from .._trace.verdict import ARRIVED, DROPPED, REJECTED, UNKNOWN, Culprit

NODE = "the node"  # in place of a source address that the node has yet to choose
LOST = (DROPPED, REJECTED)
VERDICTS = (*ARRIVED, *LOST, UNKNOWN)


class Change(t.NamedTuple):
    """An end of a packet that was translated. end: source or destination. before, after: addresses, with ports if any."""

    end: str
    before: str
    after: str


class Step(t.NamedTuple):
    """kind: in, rule, policy, route, counter, neighbor or out. changes: what the step translated.

    is_culprit: whether it is the object that stopped the packet.
    """

    kind: str
    where: str
    text: str
    verdict: str
    changes: tuple[Change, ...] = ()
    is_culprit: bool = False


class Way(t.NamedTuple):
    """What became of one packet, and of its reply. packet: as it left, empty if it did not.

    missed_culprit: the culprit, if no step shows it and the packet is lost.
    """

    verdict: str
    interface: str
    packet: str
    reason: str
    culprit: Culprit | None
    missed_culprit: Culprit | None
    steps: list[Step]
    reply: Way | None

    @property
    def has_arrived(self) -> bool:
        return self.verdict in ARRIVED

    @property
    def outcome(self) -> str:
        """The verdict, with the link by which the packet left."""
        return f"{self.verdict} by {self.interface}" if self.interface and self.has_arrived else self.verdict

    @property
    def summary(self) -> str:
        """The outcome of the packet and of its reply."""
        return f"{self.outcome}, reply {self.reply.outcome}" if self.reply else self.outcome

    @property
    def verdicts(self) -> str:
        """The summary without links."""
        return f"{self.verdict}, reply {self.reply.verdict}" if self.reply else self.verdict

    @property
    def decider(self) -> Culprit | None:
        """The object that stopped the packet, or its reply."""
        return self.culprit or (self.reply.culprit if self.reply else None)

    @property
    def reasons(self) -> list[str]:
        """The reasons of the packet and of its reply. The former may say what became of the reply."""
        of_reply = f"Reply: {self.reply.reason}" if self.reply and "reply" not in self.reason else ""
        return [text for text in (self.reason, of_reply) if text]

    @property
    def worst(self) -> str:
        """The verdict that decides whether the connection works: that of the reply if the packet arrived."""
        return self.reply.verdict if self.reply and self.has_arrived else self.verdict


class Branch(t.NamedTuple):
    """A way that a part of the packets takes. share: such as "33 %"."""

    share: str
    way: Way


class Cure(t.NamedTuple):
    """task: the lines of a task to paste. takes_along: what else is affected, as a sentence; empty if nothing is."""

    change: str
    verdicts: list[str]
    task: list[str]
    takes_along: str
    is_certain: bool

    @property
    def doubt(self) -> str:
        """What to say behind the verdicts."""
        return "" if self.is_certain else ", not certain"


class Outcome(t.NamedTuple):
    """clause: behind "if". evidence: sentences that fit the outcome. contradicted_by: sentences that do not."""

    clause: str
    verdicts: list[str]
    evidence: list[str]
    contradicted_by: list[str]


class Dependency(t.NamedTuple):
    """An open fact on which the answer depends. fact: its id. ask: the command that shows it; empty if no command does.

    outcomes: empty if no twin can be built with a value of the fact.
    """

    fact: str
    what: str
    ask: str
    outcomes: list[Outcome]


class Output(t.NamedTuple):
    """A command whose output is missing, with the ids of the facts that it shows."""

    command: str
    facts: list[str]


class Answer(t.NamedTuple):
    """packet: that was sent, and where it came in. before: how it was without the changes.

    depends_on: facts with outcomes, and lines that a twin lacks. missing: the outputs that would show further facts.
    """

    packet: str
    way: Way
    is_certain: bool
    branches: list[Branch]
    before: Way | None
    depends_on: list[Dependency]
    missing: list[Output]
    cures: list[Cure]
    unknown: list[str]
    assumed: list[str]
    ignored: list[str]

    @property
    def questions(self) -> list[Dependency]:
        """Return the facts that decide and that a command shows."""
        return [fact for fact in self.depends_on if fact.ask]

    @property
    def doubts(self) -> list[Dependency]:
        """Return what no command shows: lines that a twin lacks, and rules that earlier packets or the clock decide."""
        return [fact for fact in self.depends_on if not fact.ask]

    @property
    def ways(self) -> list[Way]:
        """Return the ways that the packet may take by chance, the most frequent first."""
        return [branch.way for branch in self.branches] or [self.way]

    @property
    def worst(self) -> str:
        """The worst verdict of all ways."""
        return next((way.worst for way in self.ways if way.worst in LOST), self.way.worst)

    @property
    def summary(self) -> str:
        """The outcome of the packet and of its reply, and whether chance or missing outputs may change it."""
        outcomes = [*dict.fromkeys(way.verdicts for way in self.ways)]
        outcome = f"{' or '.join(outcomes)}, by chance" if len(outcomes) > 1 else self.way.summary
        is_doubtful = not self.is_certain and self.way.verdict != UNKNOWN
        return f"{outcome}, not certain" if is_doubtful else outcome


def quality(verdict: str) -> str:
    """Return good, bad or open."""
    return "good" if verdict in ARRIVED else "bad" if verdict in LOST else "open"


def ends(packet: str) -> list[str]:
    """Return source and destination of a packet that is a text, such as "tcp 10.0.0.1:40000 > 10.96.0.1:443"."""
    return packet.partition(" ")[2].split(" > ")
