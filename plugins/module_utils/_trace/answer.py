# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer to a question about a packet as values. They travel from the twin to what prints them, and have one plain form."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._routing.route import Hop, Route
from .._routing.rule import Rule
from .._snapshot.assumption import Assumption, Concern
from .._snapshot.snapshot import Origin
from . import culprit as objects
from .culprit import Object
from .frame import Frame
from .lookup import Query
from .packet import Packet

if t.TYPE_CHECKING:
    from .changes_backend import Change as Changed

DELIVERED, FORWARDED, DROPPED, REJECTED, UNKNOWN = "delivered", "forwarded", "dropped", "rejected", "unknown"
ARRIVED, LOST = (DELIVERED, FORWARDED), (DROPPED, REJECTED)
VERDICTS = (*ARRIVED, *LOST, UNKNOWN)
IN, RULE, POLICY, ROUTE, NEIGHBOR, COUNTER, OUT = "in", "rule", "policy", "route", "neighbor", "counter", "out"  # kinds of steps


class Culprit(t.NamedTuple):
    """The object that decided. kind: rule, route, sysctl, neighbor, link, address, bpf or missing. text: as its tool shows it.

    step: the number of the step that shows it; None if none does. object: None in a result that was read.
    """

    kind: str
    text: str
    step: int | None = None
    object: Object | None = None

    @classmethod
    def of(cls, decider: Object) -> Culprit:
        return cls(objects.KINDS[type(decider)], str(decider), None, decider)

    def plain(self) -> dict[str, t.Any]:
        return {"kind": self.kind, "text": self.text}


class Change(t.NamedTuple):
    """An end of a packet that was translated. end: source or destination. before, after: addresses, with ports if any."""

    end: str
    before: str
    after: str


class Step(t.NamedTuple):
    """kind: in, rule, policy, route, neighbor, counter or out. where: chain, link or routing. text: as its tool prints it.

    packet: what a rule that translates made of the packet; empty if the rule changed nothing. object: None in a result that was
    read. changes, is_culprit: for who prints the step.
    """

    kind: str
    where: str
    text: str
    verdict: str = ""
    packet: str = ""
    object: Object | None = None
    changes: tuple[Change, ...] = ()
    is_culprit: bool = False

    def plain(self) -> dict[str, str]:
        return {key: getattr(self, key) for key in self._fields[:5]}


class Caveat(t.NamedTuple):
    """Why a packet may be lost after it left the node. link: by which a cloud would have it leave."""

    link: str
    sentence: str


class Met(t.NamedTuple):
    """What a packet met. Certainty and remedies follow from it.

    frame, query, route: with which it left, and by which it was routed. rules: the policy rule that decided about it and that
    about the way back; None for one of the kernel. bridge: of which the link is a port by which it came in.
    links: that it used, or that its routes name. searched: numbers of routing tables, and the names that facts have for them.
    chains, ended: families, tables and chains that were entered, and those of which the end was reached. jumps: each with the
    chain that was left, and the one that was entered. sets, records: names of the sets of ipset, and of the records of the match
    recent, that rules of these chains match. is_unanswered: whether a neighbour did not answer. is_unresolved: whether the pod
    got no answer for its gateway, or a rule dropped a request for a neighbour or its answer. origin: the uplink to which the
    source of a packet that left belongs; empty if that is not known.
    """

    frame: Frame | None = None
    query: Query | None = None
    route: Route | None = None
    rules: tuple[Rule | None, ...] = ()
    caveat: Caveat | None = None
    bridge: str = ""
    links: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    jumps: tuple[tuple[str, str], ...] = ()
    sets: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    is_unanswered: bool = False
    is_unresolved: bool = False
    may_be_for_service: bool = False
    origin: str = ""

    @property
    def has_default_route(self) -> bool:
        return self.route is not None and not self.route.dst[1]

    @property
    def has_gateway(self) -> bool:
        return self.route is not None and any(hop.via for hop in self.route.hops)


MOST_BRANCHES = 20  # that are told one by one


class Way(t.NamedTuple):
    """What became of a packet, and of its reply. packet: as it left, in a result that was read; None if it did not leave.

    tells_reply: whether the reason says what became of the reply as well.
    """

    verdict: str
    interface: str
    packet: t.Mapping[str, t.Any] | None
    reason: str
    culprit: Culprit | None
    steps: tuple[Step, ...] = ()
    came_in_by: str = ""
    reply: Way | None = None
    tells_reply: bool = False
    met: Met = Met()

    def plain(self) -> dict[str, t.Any]:
        """Return what became of the packet and of its reply as the module returns it."""
        plain = self.both_alone()
        return {**plain, "reply": {**plain["reply"], "came_in_by": self.reply.came_in_by}} if self.reply else plain

    def both_alone(self) -> dict[str, t.Any]:
        """Return the same without the link by which the reply came in."""
        return {**self.alone(), "tells_reply": self.tells_reply, "reply": self.reply.alone() if self.reply else None}

    def alone(self) -> dict[str, t.Any]:
        """Return what became of the packet, without its reply."""
        packet = self.met.frame.report() if self.met.frame else self.packet
        return {**self._brief(), "packet": packet, "steps": [step.plain() for step in self.steps]}

    def brief(self) -> dict[str, t.Any]:
        """Return what became of the packet and of its reply, without their steps."""
        return {**self._brief(), "tells_reply": self.tells_reply, "reply": self.reply._brief() if self.reply else None}

    def _brief(self) -> dict[str, t.Any]:
        values = {key: getattr(self, key) for key in ("verdict", "interface", "reason")}
        if self.culprit is None:
            return {**values, "culprit": None, "culprit_step": None}
        return {**values, "culprit": self.culprit.plain(), "culprit_step": self.culprit.step}

    @property
    def reply_verdict(self) -> str:
        return self.reply.verdict if self.reply else ""

    @property
    def both(self) -> tuple[Way, ...]:
        """Return the way of the packet, and that of its reply if there is one."""
        return (self, self.reply) if self.reply else (self,)

    @property
    def has_arrived(self) -> bool:
        return self.verdict in ARRIVED

    @property
    def is_untranslated_here(self) -> bool:
        """Return whether the node itself receives the packet, and no rule has given it other ends."""
        return self.verdict == DELIVERED and not self.interface and not any(step.packet for step in self.steps)

    @property
    def translators(self) -> list[Object]:
        """Return the rules that gave the packet other ends."""
        return [step.object for step in self.steps if step.kind == RULE and step.packet and step.object]

    @property
    def meets_translation_alone(self) -> bool:
        """Return whether rules translate the packet, and it meets no other rules."""
        rules = (step.object for step in self.steps if step.kind == RULE)
        return bool(self.translators) and all(isinstance(rule, objects.ChainRule) and rule.table == "nat" for rule in rules)

    def is_well(self, wants_reply: bool = True) -> bool:
        """Return whether the packet arrives, and its reply if one is wanted."""
        return self.has_arrived and (not wants_reply or self.reply_verdict in ARRIVED)

    @property
    def caveats(self) -> list[Caveat]:
        return [way.met.caveat for way in self.both if way.met.caveat]

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
    def missed_culprit(self) -> Culprit | None:
        """The culprit, if no step shows it and the packet is lost. The culprit of a packet that arrived is that of its reply."""
        return self.culprit if not self.has_arrived and not any(step.is_culprit for step in self.steps) else None

    @property
    def reasons(self) -> list[str]:
        """The reasons of the packet and of its reply."""
        of_reply = f"Reply: {self.reply.reason}" if self.reply and not self.tells_reply else ""
        return [text for text in (self.reason, of_reply) if text]

    @property
    def worst(self) -> str:
        """The verdict that decides whether the connection works: that of the reply if the packet arrived."""
        return self.reply.verdict if self.reply and self.has_arrived else self.verdict


class Branch(t.NamedTuple):
    """A way that a part of the packets takes. share: from 0 to 1. ways: how many have its outcome, of which it is one."""

    share: float
    way: Way
    ways: int = 1

    def plain(self) -> dict[str, t.Any]:
        return {"share": round(self.share, 4), "count": self.ways, **self.way.plain()}


class Outcome(t.NamedTuple):
    """clause: behind "if". evidence: sentences that fit the outcome. contradicted_by: sentences that do not.

    left: the source, destination and its port with which the packet may leave.
    """

    clause: str
    verdict: str
    reply_verdict: str = ""
    culprit: Culprit | None = None
    evidence: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    left: frozenset[tuple[str, str, int]] = frozenset()

    @property
    def verdicts(self) -> list[str]:
        """Return the verdict on the packet, and that on its reply if there is one."""
        return [verdict for verdict in (self.verdict, self.reply_verdict) if verdict]

    def plain(self) -> dict[str, t.Any]:
        return {
            "if": self.clause,
            "verdict": self.verdict,
            "reply_verdict": self.reply_verdict,
            "culprit": self.culprit.plain() if self.culprit else None,
            "evidence": [*self.evidence],
            "contradicted_by": [*self.contradicted_by],
        }


class Dependency(t.NamedTuple):
    """An open fact on which the answer depends. fact: its id. ask: the command that shows it; empty if no command does.

    outcomes: empty if no twin can be built with a value of the fact.
    """

    fact: str
    what: str
    ask: str
    outcomes: tuple[Outcome, ...] = ()

    def plain(self) -> dict[str, t.Any]:
        return {**self._asdict(), "outcomes": [outcome.plain() for outcome in self.outcomes]}


class Cure(t.NamedTuple):
    """A remedy with which packet and reply arrive. task: to paste into a playbook. takes_along: what else is affected, as a
    sentence; empty if nothing is. changes: that were made in the twin. profile, options: as those of a Candidate.
    """

    kind: str
    change: str
    task: str
    takes_along: str
    certain: bool
    verdict: str
    reply_verdict: str = ""
    changes: tuple[Changed, ...] = ()
    profile: str = ""
    options: t.Mapping[str, t.Any] = {}

    def plain(self) -> dict[str, t.Any]:
        return {key: value for key, value in self._asdict().items() if key not in ("changes", "profile", "options")}

    @property
    def verdicts(self) -> list[str]:
        return [verdict for verdict in (self.verdict, self.reply_verdict) if verdict]

    @property
    def doubt(self) -> str:
        """What to say behind the verdicts."""
        return "" if self.certain else ", not certain"


class Attempt(t.NamedTuple):
    """A remedy that was tried and does not work. reason: a sentence."""

    change: str
    reason: str

    def plain(self) -> dict[str, str]:
        return self._asdict()


class Answer(t.NamedTuple):
    """The answer of one twin, or that of all worlds. before: how it was without the changes.

    pod_side: the id of the fact by which of its links the pod answers; empty for no pod. is_virtual: whether the packet is for an
    address of virtual servers. tried: remedies that do not work. origin: of the snapshot, in a result that was read.
    """

    way: Way
    before: Way | None = None
    branches: tuple[Branch, ...] = ()
    certain: bool = False
    depends_on: tuple[Dependency, ...] = ()
    cures: tuple[Cure, ...] = ()
    unknown: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    ignored: tuple[str, ...] = ()
    pod_side: str = ""
    is_virtual: bool = False
    tried: tuple[Attempt, ...] = ()
    origin: Origin = Origin()

    def plain(self) -> dict[str, t.Any]:
        """Return the result of the module."""
        return {
            **self.way.plain(),
            "came_in_by": self.way.came_in_by,
            "before": self.before.brief() if self.before else None,
            "branches": [branch.plain() for branch in self.main_branches],
            "certain": self.certain,
            "depends_on": [dependency.plain() for dependency in self.depends_on],
            "cures": [cure.plain() for cure in self.cures],
            "tried": [attempt.plain() for attempt in self.tried],
            "unknown": [*self.unknown],
            "assumed": [assumption.sentence for assumption in self.assumed],
        }

    @property
    def ways(self) -> list[Way]:
        """Return the ways that the packet may take by chance, the most frequent first."""
        return [branch.way for branch in self.branches] or [self.way]

    @property
    def main_branches(self) -> list[Branch]:
        """Return the most frequent branches, and behind them one for each outcome of the rest."""
        by_outcome: dict[t.Any, Branch] = {}
        for branch in self.branches[MOST_BRANCHES:]:
            key = branch.way.summary, branch.way.decider and branch.way.decider.plain()["text"]
            former = by_outcome.get(key, branch._replace(share=0.0, ways=0))
            by_outcome[key] = former._replace(share=former.share + branch.share, ways=former.ways + branch.ways)
        return [*self.branches[:MOST_BRANCHES], *by_outcome.values()]

    @property
    def every_way(self) -> tuple[Way, ...]:
        """Return the way of the answer, and those that chance decides."""
        return (self.way, *(branch.way for branch in self.branches))

    @property
    def left(self) -> frozenset[tuple[str, str, int]]:
        """Return the source, destination and its port with which the packet may leave, or arrive at the node itself."""
        sent = [way.met.frame.packet for way in self.every_way if way.has_arrived and way.met.frame]
        received = [way.met.query for way in self.every_way if way.is_untranslated_here and way.met.query]
        ends = [(each.source, each.destination, each.destination_port) for each in sent]
        ends += [(each.source, each.destination, each.destination_port) for each in received]
        return frozenset((fields.show(source), fields.show(destination), port) for source, destination, port in ends)

    @property
    def caveats(self) -> list[Caveat]:
        return list(dict.fromkeys(caveat for way in self.every_way for caveat in way.caveats))

    @property
    def is_unknown(self) -> bool:
        return UNKNOWN in (self.way.verdict, self.way.reply_verdict)

    @property
    def worst(self) -> str:
        """The worst verdict of all ways."""
        return next((way.worst for way in self.ways if way.worst in LOST), self.way.worst)

    @property
    def summary(self) -> str:
        """The outcome of the packet and of its reply, and whether chance or missing outputs may change it."""
        outcomes = [*dict.fromkeys(way.verdicts for way in self.ways)]
        outcome = f"{' or '.join(outcomes)}, by chance" if len(outcomes) > 1 else self.way.summary
        is_doubtful = not self.certain and self.way.verdict != UNKNOWN
        return f"{outcome}, not certain" if is_doubtful else outcome


# In which a twin tells what became of its packets.
VALUES = (
    *(Answer, Branch, Caveat, Culprit, Met, Step, Way),
    *(Assumption, Concern, Frame, Hop, Packet, Query),
    *objects.KINDS,
)
