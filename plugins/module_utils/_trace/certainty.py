# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Whether an answer holds in every world that fits the snapshot, and on which open facts it depends if it does not."""

from __future__ import annotations

import itertools
import time
import typing as t

from .._snapshot.assumption import Assumption, Concern
from .._snapshot.evidence import Evidence
from .._snapshot.open_facts import (
    ADDRESSES,
    CHAIN,
    CUT,
    HAIRPIN,
    IPVS,
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
)
from .._twin.worlds import FORWARDS, SETTINGS, Open
from . import likelihood, path
from .verdict import ARRIVED, UNKNOWN

Answer = dict[str, t.Any]
World = tuple[tuple[str, int], ...]  # ids of facts, each with the place of a value other than the first
MOST_WORLDS, SECONDS = 64, 10.0
RULESETS = (TABLE, CUT, NFT)  # facts with values only for a packet that may be for a Service
ROUTING = (ROUTES, RULES, ADDRESSES)
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
    end: float,
    most: int = MOST_WORLDS,
) -> Exploration:
    """Ask in the worlds that differ from the first in one value of a fact that the packet met, then in two, and so on.

    Where one value makes a difference, worlds that differ in more are left out: the answer is unknown already. end: when the last
    question may begin, by time.monotonic().
    """
    answers: dict[World, Answer | None] = {(): first}
    met = {name: None for name in _on_path(first, opened)}
    number = 0
    while True:
        number += 1
        waiting = [world for world in _worlds(met, opened, number) if world not in answers]
        while waiting:
            if len(answers) >= most or time.monotonic() > end:
                return Exploration(first, answers, False, met)
            world = waiting.pop(0)
            answer = answers[world] = ask(world)
            if answer is not None:
                new = [name for name in _on_path(answer, opened) if name not in met]
                met.update(dict.fromkeys(new))
                if number == 1:
                    waiting += [world for world in _worlds(dict.fromkeys(new), opened, 1) if world not in answers]
        if len({_key(answer) for answer in answers.values()}) > 1 or number >= len(met):
            return Exploration(first, answers, True, met)


def _worlds(met: t.Mapping[str, None], opened: t.Mapping[str, Open], number: int) -> t.Iterator[World]:
    for names in itertools.combinations([name for name in met if len(opened[name].values) > 1], number):
        for places in itertools.product(*(range(1, len(opened[name].values)) for name in names)):
            yield tuple(zip(names, places))


def _key(answer: Answer | None) -> tuple[t.Any, ...]:
    """Return what must be the same in every world."""
    if answer is None:
        return UNKNOWN, None
    ways = answer["branches"] or [answer]  # of which a packet takes one by chance
    fates = map(frozenset, zip(*((way["verdict"], (way["reply"] or {}).get("verdict")) for way in ways)))
    reply, packet = answer["reply"] or {}, answer["packet"] or {}
    culprit = "" if answer["branches"] or not answer["culprit"] else answer["culprit"]["text"]
    way = answer["interface"], packet.get("source"), packet.get("destination"), reply.get("interface")
    # A record keeps a client at an endpoint that chance chose.
    is_by_chance = bool(answer["branches"] or _recent(answer, path.of(answer)))
    return *fates, culprit, None if is_by_chance else way, tuple(answer["caveats"])


def _on_path(answer: Answer, opened: t.Mapping[str, Open]) -> t.Iterator[str]:
    """Yield the ids of facts with values that may have decided what became of a packet and its reply."""
    packet_path = path.of(answer)
    records = _recent(answer, packet_path)
    is_back = answer["interface"] == answer["came_in_by"] != "" and _is_near(answer["steps"])
    for name, fact in opened.items():
        kind, subject = fact.fact.kind, fact.fact.subject
        is_met = {
            RP_FILTER: subject in packet_path.entrances,
            CHAIN: any(subject == target for _chain, target in packet_path.jumps),
            POLICY: subject in packet_path.ended,
            SET: any(subject in answer["matching"].get(chain, ()) for chain in packet_path.chains),
            ROUTES: not subject or subject in packet_path.searched,
            RULES: True,
            ADDRESSES: is_back,
            POD_SIDE: name == answer["pod_side"],
            RECENT: subject in records,
            HAIRPIN: subject in packet_path.entrances,
            **dict.fromkeys(SETTINGS, True),
            IPVS: bool(answer["is_virtual"]),
            **dict.fromkeys(RULESETS, answer["may_be_for_service"]),
        }
        if fact.values and is_met.get(kind, False):
            yield name


def _recent(answer: Answer, packet_path: path.Path) -> set[str]:
    """Return the names of the records of the match recent that rules match in chains that a packet entered."""
    return {name for chain in packet_path.chains for name in answer["recent"].get(chain, ())}


def _is_near(steps: t.Iterable[t.Mapping[str, str]]) -> bool:
    """Return whether no route names a gateway to the destination, so that the node itself may have the address."""
    text = next((step["text"] for step in steps if step["kind"] == "route"), "")
    return " via " not in text or " default " in text


def _may_decide(fact: Fact, has_values: bool, explored: Exploration) -> bool:
    """Return whether the answer may depend on what no twin can be built of."""
    answers = [answer for answer in explored.answers.values() if answer]
    if fact.fact in FORWARDS:
        return any(answer["came_in_by"] and (answer["interface"] or fact.fact in _blamed(answer)) for answer in answers)
    if fact.kind == NEIGHBORS:
        # A neighbour that does not answer may be the culprit, or keep the error of a rule that rejects from coming back.
        ways = (way for answer in answers for way in (answer, *answer["branches"]))
        both = (each for way in ways for each in (way, way["reply"]) if each)
        return any(step["kind"] == "neighbor" and step["verdict"] for each in both for step in each["steps"])
    # Rules may have other actions, links be of other kinds, and routes lead elsewhere than the values that were tried.
    is_tried_in_part = fact.kind in (ADDRESSES, RULES, *RULESETS) or (fact.kind == ROUTES and fact.fact in explored.met)
    return not has_values or fact.fact == ROUTES or is_tried_in_part


def _blamed(answer: Answer) -> str:
    return str((answer["culprit"] or {}).get("text", ""))


def assumed(explored: Exploration, family: str) -> list[Assumption]:
    """Return what is assumed about objects that the packet or its reply met in some world. family: of the packet."""
    met = frozenset[Concern]().union(*(path.met(answer, family) for answer in explored.answers.values() if answer))
    return [assumption for assumption in explored.first["assumed"] if assumption.matters(met)]


def conclusion(
    explored: Exploration, opened: t.Mapping[str, Open], family: str, evidence: t.Collection[Evidence] = ()
) -> dict[str, t.Any]:
    """Return the results that differ from those of the first world: ``assumed``, ``certain``, ``depends_on``, and what is unknown
    then.

    evidence: about the packet.
    """
    first = explored.first
    keys = {_key(answer) for answer in explored.answers.values()}
    deciding = [name for name in explored.met if _decides(name, explored)]
    undecided = (fact for name, fact in opened.items() if name not in deciding)
    without = [fact.fact for fact in undecided if _may_decide(fact.fact, bool(fact.values), explored)]
    depends_on = [
        _entry(opened[name], explored, evidence) for name in sorted(deciding, key=lambda name: _weight(name, explored, opened))
    ]
    assumptions = assumed(explored, family)
    lines = [assumption.sentence for assumption in assumptions if assumption.is_gap][:MOST_LINES]
    depends_on += [{"fact": f"line:{number}", "what": line, "ask": "", "outcomes": []} for number, line in enumerate(lines, 1)]
    depends_on += [{**fact._asdict(), "outcomes": []} for fact in _by_command(without)]
    result: dict[str, t.Any] = {
        "certain": len(keys) == 1 and not (without or lines) and explored.is_whole and first["verdict"] != UNKNOWN,
        "depends_on": _asked_together(depends_on),
        "assumed": [assumption.sentence for assumption in assumptions],
    }
    if len({key[:2] for key in keys}) > 1:
        result.update(verdict=UNKNOWN, culprit=None, reason=_reason(depends_on[0]))
        if first["reply"] and len({key[1] for key in keys}) > 1:
            result["reply"] = {**first["reply"], "verdict": UNKNOWN, "culprit": None}
    return result


def _asked_together(entries: list[Answer]) -> list[Answer]:
    """Return the entries of ``depends_on``, with the same commands for all that are about rules, and about routing."""
    for group in (ROUTING, RULESETS):
        names = [entry["fact"] for entry in entries if entry["fact"].partition(":")[0] in group]
        commands = dict.fromkeys(command for entry in entries if entry["fact"] in names for command in entry["ask"].split("; "))
        ask = "; ".join(command for command in commands if not _is_part(command, commands))
        entries = [{**entry, "ask": ask} if entry["fact"] in names else entry for entry in entries]
    return entries


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
        if without != world and without in explored.answers and _key(explored.answers[without]) != _key(answer):
            return True
    return False


def _weight(name: str, explored: Exploration, opened: t.Mapping[str, Open]) -> tuple[int, int]:
    """Return the sort key of a fact: one that changes the verdict comes before one that changes the culprit alone."""
    verdicts = {_key(answer)[:2] for world, answer in explored.answers.items() if {part[0] for part in world} <= {name}}
    return -len(verdicts), list(opened).index(name)


def _entry(fact: Open, explored: Exploration, evidence: t.Collection[Evidence]) -> dict[str, t.Any]:
    outcomes = []
    for place, value in enumerate(fact.values):
        world: World = ((fact.fact.fact, place),) if place else ()
        if world in explored.answers:
            answer = explored.answers[world]
            outcome = _outcome(answer)
            ways = (("evidence", likelihood.FITS), ("contradicted_by", likelihood.CONTRADICTS))
            outcome.update((key, likelihood.of_kind(evidence, outcome, fitting)) for key, fitting in ways)
            outcomes.append({"if": value.words, **outcome})
    return {**fact.fact._asdict(), "outcomes": outcomes}


def _outcome(answer: Answer | None) -> dict[str, t.Any]:
    if answer is None:
        return {"verdict": UNKNOWN, "reply_verdict": "", "culprit": None}
    reply = answer["reply"] or {}
    return {"verdict": answer["verdict"], "reply_verdict": reply.get("verdict", ""), "culprit": answer["culprit"]}


def _reason(entry: t.Mapping[str, t.Any]) -> str:
    """Return a sentence for each outcome of a fact."""
    alike: dict[str, list[str]] = {}
    for outcome in entry["outcomes"]:
        alike.setdefault(_became(outcome), []).append(outcome["if"])
    sentences = [f"If {' or '.join(clauses)}, {became}." for became, clauses in alike.items()]
    return " ".join([entry["what"], *sentences, *_likelier(entry["outcomes"])])


def _likelier(outcomes: t.Sequence[Answer]) -> t.Iterator[str]:
    """Yield a sentence about the outcomes that are likelier than others."""
    likeliest = likelihood.likeliest(outcomes)
    if likeliest:
        shown = dict.fromkeys(sentence for outcome in likeliest for sentence in outcome["evidence"])
        shown.update(dict.fromkeys(sentence for outcome in outcomes for sentence in outcome["contradicted_by"]))
        clauses = dict.fromkeys(outcome["if"] for outcome in likeliest)
        yield f"It is likelier that {' or '.join(clauses)}: {'; '.join(shown)}."


def _became(outcome: t.Mapping[str, t.Any]) -> str:
    by = f" ({outcome['culprit']['text']})" if outcome["culprit"] else ""
    if outcome["verdict"] == UNKNOWN:
        return "a twin cannot tell what becomes of the packet"
    if outcome["verdict"] not in ARRIVED:
        return f"the packet is {outcome['verdict']}{by}"
    if outcome["reply_verdict"] in ("", *ARRIVED):
        return f"the packet is {outcome['verdict']}{' and its reply arrives' if outcome['reply_verdict'] else ''}"
    return f"the packet is {outcome['verdict']}, and its reply is {outcome['reply_verdict']}{by}"
