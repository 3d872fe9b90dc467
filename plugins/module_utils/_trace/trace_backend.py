# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends a packet and its reply through the twin of a snapshot, and returns what became of them."""

from __future__ import annotations

import typing as t
from functools import partial

from .._core import codec, fields
from .._core.errors import DatapathError, Failure, MissingLibrary
from .._platform import process
from .._probe_snat.probe_table import AZURE_TRANSLATED
from .._routing.rule import protocol_name
from .._snapshot.evidence import SYN, SYN_ACK, TELLING, UNREPLIED, Evidence
from .._snapshot.open_facts import CUT, NFT, ROUTES, TABLE
from .._snapshot.values import Entry, Snapshot
from .._twin import assumptions, build_backend, full_table, snapshot_form, worlds
from .._twin.assumptions import Ends
from .._twin.blueprint import LOOPBACK_ADDRESSES
from .._twin.isolation_backend import Hang, Isolated
from .._twin.work_backend import Work
from . import certainty, changes_backend, entrance, exchange_backend, likelihood, likely_world
from .answer import DELIVERED, LOST, UNKNOWN, VALUES, Answer, Attempt, Cure, Way
from .entrance import Carrier
from .packet import OUTSIDE, Packet
from .removals import Loss

if t.TYPE_CHECKING:
    from .cures import Candidate

MOST_WORK = 60_000  # units of work_backend, for an answer with all of its twins
MOST_WORLDS_OF_CURES = 16
_FURTHER = ((NFT, "nft list ruleset"), (TABLE, "iptables-save"), (CUT, "iptables-save"))  # what shows the rules that are open
VOCABULARY = codec.vocabulary(*VALUES)  # in which a twin answers


class Question(t.NamedTuple):
    """A question about a snapshot. snapshot: as datapath_info returns it. assume, changes: from the options assume, changes and
    commands.

    is_own: whether the snapshot is of the node on which this runs. is_compared: whether it is sent before the changes, too.
    explores: whether other worlds that fit the snapshot are asked.
    """

    snapshot: Entry
    packet: Packet
    assume: t.Mapping[str, t.Any]
    changes: tuple[changes_backend.Change, ...] = ()
    wants_reply: bool = True
    is_own: bool = False
    is_compared: bool = True
    explores: bool = True


def about(snapshot: Entry, changes: t.Sequence[changes_backend.Change], *named: object) -> Entry:
    """Return a snapshot without routes that neither a packet nor a remedy can meet. named: whatever names further addresses.

    Raises Invalid.
    """
    if changes_backend.may_lead_elsewhere(changes):
        return snapshot
    constants = (*OUTSIDE.values(), *assumptions.BENCHMARK.values(), *LOOPBACK_ADDRESSES, *exchange_backend.HOP_LIMITED)
    return full_table.part(snapshot, map(repr, (constants, AZURE_TRANSLATED, changes, *named)))


def answer(question: Question, run: process.Runner) -> Answer:
    """Return the answer, with remedies if there are no changes. Raises DatapathError."""
    judgement = judge(question, run).with_likelihood()
    return judgement.answer if question.changes else judgement.with_cures()


class Judgement(t.NamedTuple):
    """answer: without remedies. last: the units of work after which no further twin may begin. explored, evidence: from which the
    answer is concluded.
    """

    answer: Answer
    tracer: _Tracer
    last: float
    explored: certainty.Exploration
    evidence: t.Sequence[Evidence]

    def with_likelihood(self) -> Judgement:
        """Return it with what is likely first in an answer that depends on open facts, and the next output to ask for."""
        leaving = [entry for entry in self.evidence if entry.kind == SYN and entry.link]
        answer = _with_unanswered(self.answer, self.explored, leaving)
        if answer is not self.answer:
            return self._replace(answer=answer)
        is_told = not answer.certain and any(entry.kind in TELLING for entry in self.evidence)
        is_open = certainty.disagree(self.explored) and answer.way.verdict == UNKNOWN
        if is_open or is_told or certainty.differ_in_culprit(self.explored):
            work = self.tracer.work
            may_ask = work.until(work.done + likely_world.MOST_WORK)
            likely = likely_world.find(self.explored, self.tracer.opened, self.tracer.asked, self.evidence, may_ask)
            if likely:
                return self._replace(answer=likely.told(answer))
        for add in (_with_tracked_loss, _with_unanswered, _with_further_output, _with_command):
            added = add(answer, self.explored, self.evidence)
            if added is not answer:
                break
        return self._replace(answer=added)

    def with_cures(self, first: t.Container[str] = (), accepts: t.Callable[[Candidate], str] | None = None) -> Answer:
        """Return the answer with the remedies that work. Raises DatapathError.

        accepts: says of one that works why it is none, or nothing, and then is the only one. first: the changes to try first.
        """
        answer = self.answer
        is_known = answer.way.verdict != UNKNOWN
        cures, tried, sentences = _cures(self.tracer, answer, self.last, first, accepts) if is_known else ([], [], [])
        return answer._replace(cures=(*cures,), tried=(*tried,), unknown=(*answer.unknown, *sentences))


def judge(question: Question, run: process.Runner, work: Work | None = None) -> Judgement:
    """Ask in all worlds that fit the snapshot, and conclude from the answers. Raises DatapathError.

    What leaves by a tunnel arrives only if the packet does in which the tunnel carries it. work: of the twins before.
    """
    work = work or Work()
    judgement = _judged(question, run, work)
    if not judgement.answer.way.is_well(question.wants_reply):
        return judgement
    for carrier in entrance.carriers(question.snapshot, judgement.answer.way):
        of_carrier = question._replace(packet=carrier.packet, wants_reply=carrier.wants_reply, is_compared=False)
        judgement = _carried(judgement, carrier, _judged(of_carrier, run, work))
        if not judgement.answer.way.has_arrived or carrier.wants_reply:
            break
    return judgement


def _carried(judgement: Judgement, carrier: Carrier, below: Judgement) -> Judgement:
    """Return the answer for a packet with that for what carries it, and with the remedies for the latter if that is lost."""
    answer, outer = judgement.answer, below.answer
    depends_on = (*answer.depends_on, *(each for each in outer.depends_on if each not in answer.depends_on))
    answer = answer._replace(certain=answer.certain and outer.certain, depends_on=depends_on)
    directions = [*map(entrance.received, outer.way.both)]
    lost = next((each for each in directions if each.verdict in LOST), None)
    if lost is None:
        return judgement._replace(answer=answer)
    is_reply = answer.way.reply is not None and (carrier.is_reply or lost is not directions[0])
    reason = f"{carrier.link} carries {'its reply' if is_reply else 'the packet'} as {carrier.packet}. {lost.reason}"
    comes_in = bool(lost.came_in_by)
    reply = _lost_as(answer.way.reply, lost, reason, comes_in) if is_reply and answer.way.reply else None
    way = answer.way if reply else _lost_as(answer.way, lost, reason, comes_in)
    if reply or not comes_in:
        reason = f"{answer.way.reason} {reason}"
    way = way._replace(reply=reply, culprit=(reply or way).culprit, reason=reason, tells_reply=True)
    return judgement._replace(answer=answer._replace(way=way), tracer=below.tracer, last=below.last)


def _lost_as(way: Way, carrier: Way, reason: str, comes_in: bool) -> Way:
    """Return the way of a packet that is lost with what carries it. comes_in: whether that is before it comes in."""
    before, culprit = way.steps[:1] if comes_in else way.steps, carrier.culprit
    if culprit and culprit.step is not None:
        culprit = culprit._replace(step=culprit.step + len(before))
    steps = (*before, *carrier.steps)
    return way._replace(verdict=carrier.verdict, interface="", culprit=culprit, reason=reason, steps=steps, met=carrier.met)


def in_one_world(question: Question, run: process.Runner) -> Answer:
    """Return the answer in the world that a plain trace asks first, for comparisons. Raises DatapathError."""
    return judge(question._replace(explores=False), run).answer


def _judged(question: Question, run: process.Runner, work: Work) -> Judgement:
    given = snapshot_form.read(question.snapshot)
    if question.is_own:
        build_backend.refuse_to_load_modules(given)
    worlds.check(given)
    settings, facts = worlds.divided(question.assume)
    ports = {question.packet.source_port, question.packet.destination_port}
    opened = worlds.open_for(assumptions.with_settings(given, settings), _ends(question.packet), ports)
    snapshot, opened = worlds.applied(given, opened, facts)
    plain = question.snapshot if snapshot is given else snapshot.world()
    question = question._replace(snapshot=plain, assume=settings)
    tracer = _Tracer(question, snapshot, run, opened, facts.keys(), work)
    started = work.done
    first = tracer.of_snapshot(snapshot)
    last = started + MOST_WORK - (work.done - started)  # a further twin takes as much
    may_ask = work.until(min(last, work.done + certainty.MOST_WORK))
    explored = certainty.explore(first, tracer.opened if question.explores else {}, tracer.asked, may_ask)
    ends = _ends(question.packet)
    evidence = _evidence_about(snapshot.evidence, question.packet, explored)
    result = _by_connections(explored, tracer, ends, evidence)
    unknown = [*result.unknown]
    if result.way.verdict != UNKNOWN and not result.branches:
        against = likelihood.weighed(certainty.outcome("", result), evidence).contradicted_by
        unknown += [f"The answer does not fit what an output shows: {sentence}." for sentence in against]
    if not explored.is_whole:
        unknown.append(f"{len(explored.answers)} worlds that fit the snapshot were tried, and there are more.")
    unknown += dict.fromkeys(tracer.failures)
    return Judgement(result._replace(unknown=(*unknown,)), tracer, last, explored, evidence)


def _with_command(result: Answer, _explored: certainty.Exploration, _evidence: t.Collection[Evidence]) -> Answer:
    """Return an answer that is not certain, with the one command that decides most."""
    ask = certainty.next_command(result)
    words = "which" if result.way.verdict == UNKNOWN else "whether it is so"
    return result._replace(way=result.way._replace(reason=f"{result.way.reason} `{ask}` shows {words}.")) if ask else result


def _with_further_output(result: Answer, explored: certainty.Exploration, _evidence: t.Collection[Evidence]) -> Answer:
    """Return an answer that is not certain and in no world a loss, with the one output that shows more rules than those known."""
    answers = [result, *filter(None, explored.answers.values())]
    is_lost = any({way.verdict, way.reply_verdict} & {*LOST} for each in answers for way in each.ways)
    kinds = {fact.fact.partition(":")[0] for fact in result.depends_on}
    command = next((command for kind, command in _FURTHER if kind in kinds), "")
    if is_lost or not command or result.certain or result.caveats or result.way.culprit:
        return result
    nothing = f"Nothing in the outputs stops the packet or its reply: `{command}` shows whether other rules do."
    parts = [nothing, result.way.reason] if result.way.verdict == UNKNOWN else [result.way.reason, nothing]
    way, route = result.way, result.way.met.route
    is_named = route is not None and way.interface and (way.interface not in route.links or way.interface == way.came_in_by)
    parts[1:1] = [f"{rule} translates it." for rule in way.translators[:1]]
    if route and (ROUTES not in kinds or 0 < route.dst[1] < 8 * len(route.dst[0])) and not is_named:  # none that is assumed
        parts.insert(1, f"It takes {route}.")
    return result._replace(way=result.way._replace(reason=" ".join(parts)))


def _by_connections(explored: certainty.Exploration, tracer: _Tracer, ends: Ends, evidence: t.Collection[Evidence]) -> Answer:
    """Return what the worlds conclude in which the node translates the packet as it translated those of a tracked connection.

    The rules may have changed since, so no such answer is certain.
    """
    given: dict[str, t.Any] = {"opened": tracer.opened, "family": ends.family, "evidence": evidence, "accepted": tracer.accepted}
    result = certainty.conclusion(explored, **given)
    by_connection = likelihood.translated_otherwise(explored.first.left, evidence)
    others = certainty.fitting(explored, lambda answer: likelihood.translated_otherwise(answer.left, evidence))
    if others.answers.keys() != explored.answers.keys():
        lefts = (answer.left for answer in explored.answers.values() if answer)
        by_connection = next(filter(None, (likelihood.translated_otherwise(left, evidence) for left in lefts)))
        result = certainty.conclusion(others, **given)._replace(certain=False, depends_on=result.depends_on)
    elif result.certain or by_connection is None:
        return result
    is_open = "" if others.first is not explored.first else ". What translates it is open"
    shown = likelihood.sentence(by_connection)
    return result._replace(way=result.way._replace(reason=f"{result.way.reason} {shown[:1].upper()}{shown[1:]}{is_open}."))


def _with_tracked_loss(result: Answer, explored: certainty.Exploration, evidence: t.Collection[Evidence]) -> Answer:
    """Return an answer, with what is likely of a packet that connection tracking sends in no world, and that has no answer."""
    unanswered = [entry for entry in evidence if entry.kind == UNREPLIED and entry.new_destination[0]]
    entry = likelihood.translated_otherwise(explored.first.left, unanswered)
    if entry is None or any(
        not likelihood.translated_otherwise(each.left, [entry]) for each in explored.answers.values() if each
    ):
        return result
    address, port = entry.new_destination
    to = f"{address}{f' port {port}' if port else ''}"
    likely = f"It is likely that the packet is lost: the node sends it to {to}, which does not answer."
    ask = f"`{'ip6tables-save' if ':' in address else 'iptables-save'} -t nat` shows what translates it."
    way = result.way._replace(verdict=UNKNOWN, culprit=None, reason=f"{likely} {ask} {result.way.reason}")
    return result._replace(way=way)


def _with_unanswered(result: Answer, explored: certainty.Exploration, evidence: t.Collection[Evidence]) -> Answer:
    """Return an open answer, with what is likely of a packet without an answer in an output, and with one in each world."""
    entry = next((entry for entry in evidence if entry.kind in (UNREPLIED, SYN, SYN_ACK)), None)
    outcomes = [certainty.outcome("", each) for each in explored.answers.values() if each]
    if entry is None or result.way.verdict != UNKNOWN:
        return result
    if any(likelihood.fit(entry, each) == likelihood.FITS for each in outcomes):
        return result
    leaves = f"the packet leaves by {entry.link} and that " if entry.link else ""
    likely = f"It is likely that {leaves}no answer comes back: {likelihood.sentence(entry)}."
    ask = f"ip {'-6 ' if ':' in entry.destination else ''}route get" if entry.link else "tcpdump -ni any host"
    reason = f"{likely} `{ask} {entry.destination}` shows which way it takes. {result.way.reason}"
    return result._replace(way=result.way._replace(reason=reason))


def _evidence_about(evidence: t.Iterable[Evidence], packet: Packet, explored: certainty.Exploration) -> list[Evidence]:
    ends = _ends(packet)
    sent = likelihood.Flow(protocol_name(packet.protocol), ends.source, ends.destination, packet.destination_port)
    return likelihood.about(evidence, likelihood.flows(sent, explored.answers.values()))


class _Tracer:
    """The same question in several worlds. snapshot: that of the question, with what is assumed of its open facts.

    failures: sentences about worlds whose twin failed, which are open.
    """

    def __init__(
        self,
        question: Question,
        snapshot: Snapshot,
        run: process.Runner,
        opened: t.Mapping[str, worlds.Open],
        accepted: t.Collection[str],
        work: Work,
    ) -> None:
        self.question, self.opened, self.accepted, self.work = question, opened, accepted, work
        self.failures: list[str] = []
        self._snapshot, self._run = snapshot, run

    def asked(self, world: certainty.World) -> Answer | None:
        """Return the answer in a world besides that of the snapshot; None if there is none, whatever the reason."""
        try:
            return self.in_world(world)
        except Failure as error:  # the other worlds have their twins
            self.failures.append(f"The twin of a world failed: {error}.")
            return None

    def in_world(self, world: certainty.World, trial: Question | None = None) -> Answer | None:
        """Return the answer in a world; None if no twin of it can be built. trial: the same question with changes."""
        snapshot = self._snapshot
        for name, place in world:
            change = self.opened[name].values[place].change
            if change is None:
                return None
            snapshot = change(snapshot)
        return self.of_snapshot(snapshot, trial)

    def of_snapshot(self, snapshot: Snapshot, trial: Question | None = None) -> Answer:
        """Return the answer for a snapshot of one world. trial: as for `in_world`."""
        question = trial or self.question
        snapshot, assumed = assumptions.complete(snapshot, question.assume, _ends(question.packet))
        result = _in_a_twin(snapshot, question, self._run, self.work)
        return result._replace(assumed=tuple(dict.fromkeys([*assumed, *result.assumed])))


def _ends(packet: Packet) -> Ends:
    return Ends(fields.show(packet.destination), packet.interface, fields.show(packet.source) if packet.source else "")


def _cures(
    tracer: _Tracer,
    result: Answer,
    last: float,
    first: t.Container[str],
    accepts: t.Callable[[Candidate], str] | None,
) -> tuple[list[Cure], list[Attempt], list[str]]:
    """Return the remedies that work, those that do not, and sentences about those that were not tried in every world.

    Each remedy is tried in a separate twin. An operator's command is tried only if no remedy of the collection works and nothing
    that is unknown decides about the answer. last: as of Judgement. first, accepts: as of Judgement.with_cures.
    """
    loss = _loss(result)
    if loss is None:
        return [], [], []
    from . import cures  # only a packet that is lost needs the profiles

    offers: list[tuple[Candidate, certainty.Exploration]] = []
    failed: list[Attempt] = []
    untried = 0
    question = tracer.question
    candidates = cures.candidates(question.packet, loss, question.snapshot, question.is_own)
    for cure in sorted(candidates, key=lambda cure: repr(cure.changes) not in first):
        is_needless = any(other.kind != cures.OPERATOR for other, _explored in offers) or not result.certain
        if (cure.kind == cures.OPERATOR and is_needless) or any(other.group == cure.group for other, _explored in offers):
            continue
        if tracer.work.done > last:
            untried += 1
            continue
        try:
            explored = cure.refusal or _outcome(tracer, cure, loss, last)
        except Hang:
            untried += 1
            continue
        harm = accepts(cure) if accepts and not isinstance(explored, str) else ""
        if isinstance(explored, str) or harm:
            failed.append(Attempt(cure.change, harm or str(explored)))
            continue
        offers.append((cure, explored))
        if accepts:
            break
    reason = "a twin hung" if tracer.work.has_hung else f"the twins of an answer do at most {MOST_WORK} units of work"
    sentences = [f"{untried} remedies were not tried: {reason}."] if untried else []
    partly = [cure.change for cure, explored in offers if not explored.is_whole]
    sentences += [f"{change} was tried in {MOST_WORLDS_OF_CURES} worlds at most, and there are more." for change in partly]
    concluded = partial(
        certainty.conclusion, opened=tracer.opened, family=_ends(question.packet).family, accepted=tracer.accepted
    )
    certain = [concluded(explored).certain for _cure, explored in offers]
    return [_offered(cure, explored.first, each) for (cure, explored), each in zip(offers, certain)], failed, sentences


def _offered(cure: Candidate, after: Answer, is_certain: bool) -> Cure:
    """Return the remedy. It is not certain if a cloud may drop the packet with the remedy as without it."""
    takes_along = " ".join(filter(None, [cure.takes_along, *(caveat.sentence for caveat in after.caveats)]))
    verdicts = after.way.verdict, after.way.reply_verdict
    offered = Cure(cure.kind, cure.change, cure.task, takes_along, is_certain, *verdicts, cure.changes)
    return offered._replace(profile=cure.profile, options=cure.options)


def _loss(result: Answer) -> Loss | None:
    """Return what needs a remedy: a packet or a reply that is lost, or that a cloud may drop; None if nothing does."""
    lost = next((way for way in result.way.both if way.verdict in LOST), None)
    if lost:
        decider, met, is_reply = lost.culprit.object if lost.culprit else None, lost.met, lost is not result.way
        leaves_by = next(iter(sorted(met.route.links)), "") if met.route else ""
        # That a reply is lost on the node supposes that the cloud has let the packet pass.
        caveats = {way.met.caveat for way in result.every_way if way.met.caveat} if is_reply else set()
        return Loss(decider, lost.came_in_by, met.rules, is_reply, met.bridge, leaves_by, frozenset(caveats))
    return Loss(None, result.way.came_in_by) if result.caveats else None


def _outcome(tracer: _Tracer, cure: Candidate, loss: Loss, last: float) -> certainty.Exploration | str:
    """Return the answers with a cure in all worlds; the reason if in one of them it does not cure.

    Nor is a route removed for a packet that then leaves by a default route, which does not tell that the packet is to go there.
    """
    try:
        trial = tracer.question._replace(changes=cure.changes, is_compared=False)
        after = tracer.in_world((), trial)
        failure = _failure(after, loss, trial.wants_reply)
        if failure or after is None:
            return failure
        opened = {} if after.caveats else tracer.opened  # a remedy with a caveat is not certain in any world
        may_ask = tracer.work.until(last)
        explored = certainty.explore(after, opened, partial(tracer.in_world, trial=trial), may_ask, MOST_WORLDS_OF_CURES)
    except (MissingLibrary, Hang):  # the controller lends the library, and runs the module again; a hang tells nothing
        raise
    except DatapathError as error:  # a remedy that cannot be applied does not work
        return f"{error}."
    failures = (_failure(answer, loss, trial.wants_reply) for answer in explored.answers.values())
    ways = (way for answer in explored.answers.values() if answer for way in answer.every_way)
    lost = (way.reply if loss.is_reply else way for way in ways)
    if cure.opens_route and not all(way and _has_route(way) for way in lost):
        return "A default route would decide, which does not tell that the packet is to go there."
    return next(filter(None, failures), explored)


def _failure(answer: Answer | None, loss: Loss, wants_reply: bool) -> str:
    """Return why a remedy does not cure; empty if packet and reply arrive, and no cloud may drop them for another reason."""
    if answer is None:
        return "No twin can be built with it."
    if not answer.way.is_well(wants_reply):
        return " ".join(answer.way.reasons)
    return " ".join(caveat.sentence for caveat in answer.caveats if caveat not in loss.caveats)


def _has_route(way: Way) -> bool:
    """Return whether a packet is delivered, or leaves by a route to its destination that is no default route."""
    return way.verdict == DELIVERED or (way.met.route is not None and not way.met.has_default_route)


def _in_a_twin(snapshot: Snapshot, question: Question, run: process.Runner, work: Work) -> Answer:
    with changes_backend.prepared(question.changes, question.is_own) as root:
        planned = exchange_backend.plan(snapshot, [question.packet], question.changes)
        result = work.run(planned.drawn, 1, lambda isolated: _exchanged(isolated, question, planned, run), root)
    return t.cast("Answer", codec.decode(result["answer"], VOCABULARY))


def _exchanged(isolated: Isolated, question: Question, planned: exchange_backend.Plan, run: process.Runner) -> dict[str, t.Any]:
    try:
        exchange = exchange_backend.Exchange(isolated, run, planned)
        answer = exchange.answer(question.packet, question.wants_reply, question.is_compared)
        return {"answer": codec.encode(answer, VOCABULARY)}
    finally:
        build_backend.remove_links(isolated, len(planned.snapshot.links))
