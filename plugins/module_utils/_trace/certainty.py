# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an answer holds in every world that fits the snapshot, and on which open facts it depends if it does not."""

from __future__ import annotations

import itertools
import typing as t

from .._snapshot.assumption import Assumption, Concern
from .._snapshot.evidence import Evidence
from .._snapshot.open_facts import (
    ADDRESSES,
    CHAIN,
    CUT,
    FORWARDING,
    HAIRPIN,
    IPVS,
    JUMP,
    LOCAL,
    NEIGHBORS,
    NFT,
    POD_SIDE,
    POLICY,
    RECENT,
    ROUTES,
    RP_FILTER,
    RULES,
    SET,
    TABLE,
    Fact,
    of_id,
)
from .._snapshot.settings import ALL, BRIDGED
from .._twin.substitutions import LINE, UNNAMED
from .._twin.worlds import SETTINGS, Open
from . import culprit, likelihood, path
from .answer import ARRIVED, ROUTE, UNKNOWN, Answer, Dependency, Outcome, Way
from .culprit import Setting

World = tuple[tuple[str, int], ...]  # ids of facts, each with the place of a value other than the first
MOST_WORLDS, MOST_WORK = 64, 10_000  # units of work_backend
RULESETS = (TABLE, CUT, NFT)  # facts with values only for a packet that may be for a Service
ROUTING = (ROUTES, RULES, ADDRESSES)
STOPS, TRANSLATES = "an output has what stops it", "an output has what translates it"
MOST_LINES = 3  # that the twin lacks, in the answer


class Exploration(t.NamedTuple):
    """first: the answer of the snapshot as it is. answers: by the values that differ, the first one among them; None where no
    twin can be built.

    is_whole: whether all worlds were asked. met: the ids of facts that decide in some world, or may do so.
    """

    first: Answer
    answers: dict[World, Answer | None]
    is_whole: bool
    met: t.Collection[str]


def explore(
    first: Answer,
    opened: t.Mapping[str, Open],
    ask: t.Callable[[World], Answer | None],
    may_ask: t.Callable[[], bool],
    most: int = MOST_WORLDS,
) -> Exploration:
    """Ask in the worlds that differ from the first in one value of a fact that the packet met, then in two, and so on.

    Where one value makes a difference, worlds that differ in more are left out: the answer is unknown already. may_ask: whether
    another question may begin.
    """
    answers: dict[World, Answer | None] = {(): first}
    met = {name: None for name in on_path(first, opened)}
    number = 0
    while True:
        number += 1
        waiting = [world for world in _worlds(met, opened, number) if world not in answers]
        while waiting:
            if len(answers) >= most or not may_ask():
                return Exploration(first, answers, False, met)
            world = waiting.pop(0)
            answer = answers[world] = ask(world)
            if answer is not None:
                new = [name for name in on_path(answer, opened) if name not in met]
                met.update(dict.fromkeys(new))
                if number == 1:
                    waiting += [world for world in _worlds(dict.fromkeys(new), opened, 1) if world not in answers]
        if len({fate(answer) for answer in answers.values()}) > 1 or number >= len(met):
            return Exploration(first, answers, True, met)


def fitting(explored: Exploration, contradicts: t.Callable[[Answer], t.Any]) -> Exploration:
    """Return the worlds without those that evidence contradicts; all of them if it contradicts all."""
    answers = {world: answer for world, answer in explored.answers.items() if answer is None or not contradicts(answer)}
    first = next(filter(None, answers.values()), None)
    return explored._replace(first=first, answers=answers) if first else explored


def _worlds(met: t.Mapping[str, None], opened: t.Mapping[str, Open], number: int) -> t.Iterator[World]:
    for names in itertools.combinations([name for name in met if len(opened[name].values) > 1], number):
        for places in itertools.product(*(range(1, len(opened[name].values)) for name in names)):
            yield tuple(zip(names, places))


def fate(answer: Answer | None) -> tuple[t.Any, ...]:
    """Return what must be the same in every world."""
    if answer is None:
        return UNKNOWN, None
    way = answer.way
    fates = map(frozenset, zip(*((each.verdict, each.reply_verdict) for each in answer.ways)))  # one of which chance decides
    decider = None if answer.branches or not way.culprit else culprit.identity(way.culprit.object)
    ends = (way.met.frame.packet.source, way.met.frame.packet.destination) if way.met.frame else None
    # A record keeps a client at an endpoint that chance chose.
    departure = (
        None if answer.branches or path.of(answer).records else (way.interface, ends, way.reply.interface if way.reply else None)
    )
    return *fates, decider, departure, tuple(caveat.link for caveat in answer.caveats)


def on_path(answer: Answer, opened: t.Mapping[str, Open]) -> t.Iterator[str]:
    """Yield the ids of facts with values that may have decided what became of a packet and its reply."""
    way, met, entrances = answer.way, path.of(answer), path.entrances(answer)
    for name, fact in opened.items():
        kind, subject = fact.fact.kind, fact.fact.subject
        is_met = {
            RP_FILTER: subject in entrances,
            CHAIN: any(subject == target for _chain, target in met.jumps),
            POLICY: subject in met.ended,
            SET: subject in met.sets,
            ROUTES: not subject or subject in met.searched,
            RULES: True,
            ADDRESSES: _may_be_own(way),
            POD_SIDE: name == answer.pod_side,
            RECENT: subject in met.records,
            HAIRPIN: subject in entrances,
            JUMP: True,
            FORWARDING: subject in entrances,
            **dict.fromkeys(SETTINGS, True),
            **dict.fromkeys(BRIDGED.values(), any(each.met.bridge for first in answer.every_way for each in first.both)),
            IPVS: answer.is_virtual,
            **dict.fromkeys(RULESETS, way.met.may_be_for_service),
        }
        if fact.values and is_met.get(kind, False):
            yield name


def _may_be_own(way: Way) -> bool:
    """Return whether the node itself may have the destination: a packet leaves as it came, and no route names a gateway to it."""
    return way.interface == way.came_in_by != "" and (way.met.has_default_route or not way.met.has_gateway)


def _may_decide(fact: Fact, has_values: bool, explored: Exploration) -> bool:
    """Return whether the answer may depend on what no twin can be built of."""
    answers = [answer for answer in explored.answers.values() if answer]
    if fact.kind == FORWARDING:
        ways = [each for answer in answers for way in answer.every_way for each in way.both if each.came_in_by]
        came_in = (way for way in ways if fact.subject in (ALL, way.met.bridge or way.came_in_by))
        return not has_values and any(_was_forwarded(way) or _is_blamed(fact.fact, way) for way in came_in)
    if fact.kind == LOCAL:
        return any(_may_be_own(answer.way) for answer in answers)
    if fact.kind == NEIGHBORS:
        # A neighbour that does not answer may be the culprit, or keep the error of a rule that rejects from coming back.
        return any(each.met.is_unanswered for answer in answers for way in answer.every_way for each in way.both)
    # Rules may have other actions, links be of other kinds, and routes lead elsewhere than the values that were tried.
    is_tried_in_part = fact.kind in (ADDRESSES, RULES, *RULESETS) or (fact.kind == ROUTES and fact.fact in explored.met)
    return not has_values or fact.fact == ROUTES or is_tried_in_part


def _was_forwarded(way: Way) -> bool:
    """Return whether the packet left, or something stopped it behind routing."""
    before = way.steps[: way.culprit.step] if way.culprit and way.culprit.step else ()
    return bool(way.interface) or way.met.is_unanswered or any(step.kind == ROUTE for step in before)


def _is_blamed(key: str, way: Way) -> bool:
    """Return whether a setting stopped the packet, or its reply."""
    return way.culprit is not None and isinstance(way.culprit.object, Setting) and way.culprit.object.key == key


def disagree(explored: Exploration) -> bool:
    """Return whether the verdict on the packet, or on its reply, is not the same in all worlds."""
    return len({fate(answer)[:2] for answer in explored.answers.values()}) > 1


def differ_in_culprit(explored: Exploration) -> bool:
    """Return whether the packet is lost in all worlds alike, and not by the same object."""
    return not disagree(explored) and len({fate(answer)[2] for answer in explored.answers.values() if answer} - {None}) > 1


def assumed(explored: Exploration, family: str) -> list[Assumption]:
    """Return what is assumed about objects that the packet or its reply met in some world. family: of the packet."""
    met = frozenset[Concern]().union(*(path.met(answer, family) for answer in explored.answers.values() if answer))
    return [assumption for assumption in explored.first.assumed if assumption.matters(met)]


def conclusion(
    explored: Exploration,
    opened: t.Mapping[str, Open],
    family: str,
    evidence: t.Collection[Evidence] = (),
    accepted: t.Collection[str] = (),
) -> Answer:
    """Return the answer of the first world with what the others make of it: whether it is certain, and on what it depends.

    evidence: about the packet. accepted: ids of substitutions that the operator knows to be as on the node.
    """
    first = explored.first
    keys = {fate(answer) for answer in explored.answers.values()}
    deciding = [name for name in explored.met if _decides(name, explored)]
    undecided = ((name, fact) for name, fact in opened.items() if name not in deciding)
    untried = explored.met if not explored.is_whole else ()  # some of their values, or these together
    without = [fact.fact for name, fact in undecided if name in untried or _may_decide(fact.fact, bool(fact.values), explored)]
    entries = {name: _entry(opened[name], explored, evidence) for name in deciding}
    depends_on = [entries[name] for name in sorted(entries, key=lambda name: _weight(entries[name], explored, opened))]
    assumptions = assumed(explored, family)
    replaced = [each for each in assumptions if each.fact and {each.fact, each.fact.partition(":")[0]}.isdisjoint(accepted)]
    lines = [each.sentence for each in replaced if each.fact in UNNAMED][:MOST_LINES]
    depends_on += [Dependency(each.fact, each.sentence, each.ask) for each in replaced if each.fact not in UNNAMED]
    depends_on += [Dependency(f"{LINE}:{number}", line, "") for number, line in enumerate(lines, 1)]
    depends_on += [Dependency(*fact) for fact in _by_command(without)]
    result = first._replace(
        certain=len(keys) == 1 and not (without or replaced) and explored.is_whole and first.way.verdict != UNKNOWN,
        depends_on=_asked_together(depends_on),
        assumed=tuple(assumptions),
    )
    if not disagree(explored):
        return result
    way = first.way._replace(verdict=UNKNOWN, culprit=None, reason=_reason(depends_on[0]), tells_reply=True)
    if way.reply and len({key[1] for key in keys}) > 1:
        way = way._replace(reply=way.reply._replace(verdict=UNKNOWN, culprit=None))
    return result._replace(way=way)


def next_command(result: Answer) -> str:
    """Return the one command that decides most about an answer that is not certain; empty if none does."""
    decider = result.way.culprit.object if result.way.culprit else None
    near = [*(RULESETS if isinstance(decider, culprit.ChainRule) else ROUTING)]
    if isinstance(decider, culprit.ChainRule) and not decider.is_of_iptables:
        near.reverse()
    facts = [fact for fact in result.depends_on if fact.ask and not result.certain]
    order = {fact.fact: near.index(kind) if (kind := fact.fact.partition(":")[0]) in near else len(near) for fact in facts}
    first = min(facts, key=lambda fact: (not fact.outcomes, order[fact.fact]), default=None)
    query = result.way.met.query
    return lead(of_id(first.fact).ask or first.ask, query is not None and len(query.destination) == 16) if first else ""


def lead(ask: str, is_ipv6: bool) -> str:
    """Return the one of several commands that shows most. is_ipv6: of the packet."""
    commands = ask.split("; ")
    return next((command for command in commands if is_ipv6 and command.startswith("ip -6 ")), commands[0])


def _asked_together(entries: t.Sequence[Dependency]) -> tuple[Dependency, ...]:
    """Return the entries of ``depends_on``, with the same commands for all that are about rules, and about routing."""
    for group in (ROUTING, RULESETS):
        names = [entry.fact for entry in entries if entry.fact.partition(":")[0] in group]
        commands = dict.fromkeys(command for entry in entries if entry.fact in names for command in entry.ask.split("; "))
        ask = "; ".join(command for command in commands if not _is_part(command, commands))
        entries = [entry._replace(ask=ask) if entry.fact in names else entry for entry in entries]
    return tuple(entries)


def _is_part(command: str, commands: t.Iterable[str]) -> bool:
    """Return whether another command prints all of it, as ``iptables-save`` prints what ``iptables-save -t nat`` does."""
    return any(command.startswith(f"{other} -t ") for other in commands)


def _by_command(facts: t.Iterable[Fact]) -> list[Fact]:
    """Return the facts that a command shows one behind the other, the command of the first fact first."""
    of_command: dict[str, list[Fact]] = {}
    for fact in facts:
        of_command.setdefault(fact.ask, []).append(fact)
    return [fact for of_ask in of_command.values() for fact in of_ask]


def _decides(name: str, explored: Exploration) -> bool:
    """Return whether the answer changes with a value of the fact alone."""
    for world, answer in explored.answers.items():
        without = tuple(part for part in world if part[0] != name)
        if without != world and without in explored.answers and fate(explored.answers[without]) != fate(answer):
            return True
    return False


def _weight(entry: Dependency, explored: Exploration, opened: t.Mapping[str, Open]) -> tuple[bool, int, int]:
    """Return the sort key of a fact: one of whose values some evidence is comes first, and one that changes the verdict before
    one that changes the culprit alone.
    """
    name = entry.fact
    verdicts = {fate(answer)[:2] for world, answer in explored.answers.items() if {part[0] for part in world} <= {name}}
    return not likelihood.likeliest(entry.outcomes), -len(verdicts), list(opened).index(name)


def _entry(fact: Open, explored: Exploration, evidence: t.Collection[Evidence]) -> Dependency:
    outcomes = []
    for place in range(len(fact.values)):
        world: World = ((fact.fact.fact, place),) if place else ()
        if world in explored.answers:
            outcomes.append(weighed(fact, place, explored.answers[world], evidence))
    return Dependency(*fact.fact, tuple(outcomes))


def weighed(fact: Open, place: int, answer: Answer | None, evidence: t.Collection[Evidence]) -> Outcome:
    """Return what becomes of the packet with a value of a fact, with what makes it likelier: what outputs have is seldom there
    for nothing.
    """
    value = fact.values[place]
    result = likelihood.weighed(outcome(value.words, answer), evidence)
    decider = result.culprit.object if result.culprit else None
    is_invented = place > 0 and fact.fact.kind in (CHAIN, POLICY) and isinstance(decider, culprit.ChainRule)
    # Who asks why a packet is translated pastes the rules of translation.
    is_translated = answer is not None and fact.fact.kind in (ROUTES, JUMP) and answer.way.meets_translation_alone
    grounds = [value.ground] * bool(value.ground and (decider or is_translated or not value.needs_culprit))
    grounds += [STOPS] * (culprit.is_shown_in_outputs(decider) and not is_invented)
    grounds += [TRANSLATES] * (is_translated and decider is None)
    return result._replace(evidence=(*result.evidence, *grounds))


def outcome(clause: str, answer: Answer | None) -> Outcome:
    """Return what becomes of the packet in a world. answer: None if no twin of the world can be built."""
    if answer is None:
        return Outcome(clause, UNKNOWN)
    return Outcome(clause, answer.way.verdict, answer.way.reply_verdict, answer.way.culprit, left=answer.left)


def _reason(entry: Dependency) -> str:
    """Return a sentence about a fact, and one for each outcome, the likeliest one first."""
    likely = likelihood.likeliest(entry.outcomes)
    alike: dict[str, list[str]] = {}
    for each in (*likely, *(each for each in entry.outcomes if each not in likely)):
        alike.setdefault(became(each), []).append(each.clause)
    sentences = [f"If {' or '.join(clauses)}, {became}." for became, clauses in alike.items()]
    return " ".join([entry.what, *sentences])


def became(result: Outcome) -> str:
    """Return what becomes of a packet, as words to follow "that"."""
    by = f" ({result.culprit.text})" if result.culprit else ""
    if result.verdict == UNKNOWN:
        return "a twin cannot tell what becomes of the packet"
    if result.verdict not in ARRIVED:
        return f"the packet is {result.verdict}{by}"
    if result.reply_verdict in ("", *ARRIVED):
        return f"the packet is {result.verdict}{' and its reply arrives' if result.reply_verdict else ''}"
    return f"the packet is {result.verdict}, and its reply is {result.reply_verdict}{by}"
