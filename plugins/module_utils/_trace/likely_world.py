# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The world that evidence makes the likeliest, and what becomes of the packet in it. It makes no answer certain."""

from __future__ import annotations

import typing as t

from .._snapshot.evidence import LOGGED, TELLING, Evidence
from .._snapshot.open_facts import ADDRESSES, CHAIN, FORWARDING, HAIRPIN, JUMP, KINDS, POLICY, ROUTES, RP_FILTER
from .._twin.worlds import SETTINGS, Open
from . import certainty, culprit, likelihood
from .answer import DELIVERED, FORWARDED, LOST, UNKNOWN, Answer, Outcome, Way
from .certainty import Exploration, World

MOST_FACTS = 3  # whose values a sentence supposes
MOST_WORLDS, MOST_WORK = 48, 10_000  # and units of work_backend, besides those that tell whether an answer is certain
_EVERY = (*KINDS, *SETTINGS, FORWARDING)
# Facts of which one value stops packets on many nodes, so that it explains a loss that nothing else explains.
_EXPLAINING = (RP_FILTER, POLICY, HAIRPIN, FORWARDING, *SETTINGS)


class Choice(t.NamedTuple):
    """A value of an open fact. place: of the value. grounds: sentences that make it likelier than the others."""

    fact: Open
    place: int
    grounds: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.fact.fact.fact

    @property
    def clause(self) -> str:
        return self.fact.values[self.place].words


class Likely(t.NamedTuple):
    """answer: in the world of the choices. explains: whether it is chosen because it explains a loss, and not by evidence.

    telling: evidence that tells what stops the packet, if nothing does in the world. chain: to which the packet comes, and whose
    rules no output has.
    """

    choices: tuple[Choice, ...]
    answer: Answer
    explains: bool = False
    telling: Evidence | None = None
    chain: str = ""

    @property
    def ask(self) -> str:
        """Return the command that shows the fact on which the rest depends: the last one."""
        if self.telling:
            return likelihood.stopping(self.telling)[1]
        query = self.answer.way.met.query
        return certainty.lead(self.choices[-1].fact.fact.ask, query is not None and len(query.destination) == 16)

    @property
    def sentences(self) -> list[str]:
        """Return what is likely, on which grounds, and the command that shows whether it is so."""
        clauses = " and ".join(choice.clause for choice in self.choices)
        grounds = "; ".join(dict.fromkeys(ground for choice in self.choices for ground in choice.grounds))
        likely = "If the packet is lost, it is likely" if self.explains else "It is likely"
        sentence = f"{likely} that {became(self.answer)}, because {clauses}: {grounds or ' '.join(self.answer.way.reasons)}"
        if self.telling:
            such = f", such as one of chain {self.chain}" * (bool(self.chain) and self.telling.kind == LOGGED)
            sentence = (
                f"It is likely that {likelihood.stopping(self.telling)[0]}{such}, because {likelihood.sentence(self.telling)}"
            )
        return [f"{sentence.rstrip('.')}.", *[f"`{self.ask}` shows whether it is so."] * bool(self.ask)]

    def told(self, answer: Answer) -> Answer:
        """Return an answer that depends on open facts, with what is likely first, and the facts that it supposes."""
        names = [choice.name for choice in self.choices]
        facts = sorted(answer.depends_on, key=lambda fact: names.index(fact.fact) if fact.fact in names else len(names))
        is_elsewhere = (
            answer.way.verdict in LOST and not self.telling
        )  # the packet is lost in all worlds, and here by another object
        way = self.answer.way if is_elsewhere else answer.way
        way = way._replace(reason=" ".join([*self.sentences, way.reason]))
        if self.telling:
            way = way._replace(verdict=UNKNOWN, culprit=None)
        return answer._replace(way=way, depends_on=tuple(facts))


def find(
    explored: Exploration,
    opened: t.Mapping[str, Open],
    ask: t.Callable[[World], Answer | None],
    evidence: t.Collection[Evidence],
    may_ask: t.Callable[[], bool],
) -> Likely | None:
    """Choose the likeliest value of one fact after the other that the packet meets; None if no value is likelier than others.

    ask, may_ask: as of certainty.explore().
    """
    return _Search(explored, opened, ask, evidence, may_ask).result()


class _Search:
    def __init__(
        self,
        explored: Exploration,
        opened: t.Mapping[str, Open],
        ask: t.Callable[[World], Answer | None],
        evidence: t.Collection[Evidence],
        may_ask: t.Callable[[], bool],
    ) -> None:
        self._opened, self._ask, self._evidence, self._may_ask = opened, ask, evidence, may_ask
        self._order = list(opened)
        self._answers = {frozenset(world): answer for world, answer in explored.answers.items()}
        self._most = len(self._answers) + MOST_WORLDS

    def result(self) -> Likely | None:
        choices: tuple[Choice, ...] = ()
        answer = self._answers.get(frozenset())
        while answer is not None and len(choices) < MOST_FACTS and not (choices and _lost(answer)):
            better = self._choice(choices, answer)
            decider = answer.way.culprit.object if answer.way.culprit else None
            is_stopped = _lost(answer) and culprit.is_shown_in_outputs(decider)
            further = (better,) if better else () if is_stopped else self._behind_destination(choices, answer)
            if not further:
                break
            choices = (*choices, *further)
            answer = self._answer(choices)
        if answer is None:
            return None
        told = (entry for entry in self._evidence if entry.kind in TELLING and likelihood.stopping(entry)[0])
        telling = next(told, None)
        if telling and not likelihood.is_explained(telling, answer):
            return Likely(choices, answer, telling=telling, chain=self._lacking_chain(answer))
        invalid = likelihood.invalid_by(answer, self._evidence) if _lost(answer) else None
        if invalid:
            return Likely(choices, answer, telling=invalid)
        is_translated = any(certainty.TRANSLATES in choice.grounds for choice in choices)
        explaining = None if _lost(answer) or is_translated else self._explanation(choices, answer)
        if explaining:
            return Likely((*choices, explaining), t.cast("Answer", self._answer((*choices, explaining))), True)
        # That the node itself takes a packet explains nothing.
        is_taken = all(choice.name in (ROUTES, ADDRESSES) for choice in choices) and answer.way.is_untranslated_here
        return Likely(choices, answer) if choices and (_lost(answer) or not is_taken) else None

    def _lacking_chain(self, answer: Answer) -> str:
        """Return the last chain to which a packet comes and whose rules no output has; empty if there is none."""
        targets = [target for _chain, target in answer.way.met.jumps if f"{CHAIN}:{target}" in self._opened]
        return targets[-1].split(" ", 2)[2] if targets else ""

    def _choice(self, choices: tuple[Choice, ...], answer: Answer) -> Choice | None:
        """Return the value with most evidence, of the facts that the packet meets in the world of the choices."""
        best: tuple[int, Choice] | None = None
        for fact, outcomes in self._facts(choices, answer):
            likeliest = likelihood.likeliest(outcomes)
            if not likeliest:
                continue
            place = outcomes.index(likeliest[0])
            weight = likelihood.weight(outcomes[place]) - min(map(likelihood.weight, outcomes))
            contradicted = (ground for outcome in outcomes for ground in outcome.contradicted_by)
            choice = Choice(fact, place, (*outcomes[place].evidence, *contradicted))
            if best is None or weight > best[0]:
                best = weight, choice
        return best[1] if best else None

    def _behind_destination(self, choices: tuple[Choice, ...], answer: Answer) -> tuple[Choice, ...]:
        """Return where the destination is and a further value, if evidence for that value counts only there."""
        for fact, outcomes in self._facts(choices, answer, (ROUTES, ADDRESSES)):
            for place in range(len(outcomes)):
                there = (*choices, Choice(fact, place, ()))
                answer_there = self._answer(there)
                further = self._choice(there, answer_there) if answer_there else None
                if further:
                    return there[-1], further
        return ()

    def _explanation(self, choices: tuple[Choice, ...], answer: Answer) -> Choice | None:
        """Return a value that stops the packet, or its reply, as it does on many nodes, where another one does not."""
        for fact, outcomes in self._facts(choices, answer):
            stopped = [place for place, outcome in enumerate(outcomes) if {*outcome.verdicts} & {*LOST}]
            explains = fact.fact.kind in _EXPLAINING and (fact.fact.kind != POLICY or " filter " in fact.fact.subject)
            if explains and stopped and len(stopped) < len(outcomes):
                return Choice(fact, stopped[0], ())
        return None

    def _facts(
        self, choices: tuple[Choice, ...], answer: Answer, kinds: t.Container[str] = _EVERY
    ) -> t.Iterator[tuple[Open, list[Outcome]]]:
        """Yield the facts of some kinds that the packet meets, with the outcomes of their values, unless these are the same."""
        chosen = {choice.name for choice in choices}
        for name in certainty.on_path(answer, self._opened):
            fact = self._opened[name]
            if name in chosen or len(fact.values) < 2 or fact.fact.kind not in kinds:
                continue
            answers = [self._answer((*choices, Choice(fact, place, ()))) for place in range(len(fact.values))]
            outcomes = [certainty.weighed(fact, place, answer, self._evidence) for place, answer in enumerate(answers)]
            if len({_fate(fact, outcome) for outcome in outcomes}) > 1:
                yield fact, outcomes

    def _answer(self, choices: tuple[Choice, ...]) -> Answer | None:
        """Return the answer in the world of the choices; None if it cannot be built, or if enough worlds were asked."""
        parts = sorted(((each.name, each.place) for each in choices if each.place), key=lambda part: self._order.index(part[0]))
        world = frozenset(parts)
        if world not in self._answers:
            if len(self._answers) >= self._most or not self._may_ask():
                return None
            self._answers[world] = self._ask(tuple(parts))
        return self._answers[world]


def _fate(fact: Open, outcome: Outcome) -> tuple[t.Any, ...]:
    """Return what must differ between the values of a fact. A chain to which a rule may lead is there to translate, too."""
    fate = outcome.verdict, outcome.reply_verdict, str(outcome.culprit)
    return (*fate, outcome.left) if fact.fact.kind == JUMP else fate


def _lost(answer: Answer) -> bool:
    return bool({answer.way.verdict, answer.way.reply_verdict} & {*LOST})


def became(answer: Answer) -> str:
    """Return what becomes of a packet, with the link and the route by which it leaves, and those of its reply that differ."""
    way = answer.way
    if way.verdict not in (DELIVERED, FORWARDED):
        return certainty.became(certainty.outcome("", answer))
    is_of_another = not way.came_in_by and way.met.origin not in ("", way.interface)
    source = f" with the source of {way.met.origin}" * is_of_another
    words = f"the packet is {way.verdict}{_by(way)}{source}{''.join(f', translated ({rule})' for rule in way.translators)}"
    if not way.reply:
        return words
    if way.reply.verdict in LOST:
        return f"{words}, and its reply is {way.reply.verdict}{f' ({way.reply.culprit.text})' if way.reply.culprit else ''}"
    is_elsewhere = way.came_in_by and way.reply.interface not in ("", way.came_in_by)
    return f"{words}, and its reply {f'leaves{_by(way.reply)}' if is_elsewhere else 'arrives'}"


def _by(way: Way) -> str:
    decided = [str(each) for each in (*way.met.rules[:1], way.met.route) if each]
    return f" by {way.interface} ({', '.join(decided)})" if way.interface else ""
