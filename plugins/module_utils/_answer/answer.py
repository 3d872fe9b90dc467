# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A result of the module datapath_trace as values.

Names of links, comments of rules and the like come from a node or from a report, so each text is made printable first.
"""

from __future__ import annotations

import typing as t

from .._core.printable import in_one_line
from .._trace.verdict import ARRIVED, DROPPED, REJECTED, UNKNOWN, Culprit

Data = t.Mapping[str, t.Any]

LOST = (DROPPED, REJECTED)
VERDICTS = (*ARRIVED, *LOST, UNKNOWN)


class NoTrace(Exception):
    """The value is not a result of datapath_trace. The text is a sentence without its full stop."""


class Step(t.NamedTuple):
    """kind: in, rule, policy, route, counter, neighbor or out. packet: what a rule made of it; empty if it changed nothing.

    is_culprit: whether it is the object that stopped the packet.
    """

    kind: str
    where: str
    text: str
    verdict: str
    packet: str = ""
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
    def decider(self) -> Culprit | None:
        """The object that stopped the packet, or its reply."""
        return self.culprit or (self.reply.culprit if self.reply else None)

    @property
    def reasons(self) -> list[str]:
        """The reasons of the packet and of its reply. The former may contain the latter."""
        of_reply = self.reply.reason if self.reply else ""
        return [text for text in (self.reason, "" if of_reply in self.reason else f"Reply: {of_reply}") if text]

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


def from_result(result: object) -> Answer:
    """Return the answer that a module's result contains. Raises NoTrace."""
    data = _dictionary(result, "result")
    if data.get("verdict") not in VERDICTS:
        raise NoTrace(
            f"the result has {printable(data.get('msg') or data.get('verdict') or 'nothing')!r} in place of a verdict; expected"
            f" is a result of kubenode.datapath.datapath_trace, whose verdict is one of {', '.join(VERDICTS)}"
        )
    way = _way(data, "result")
    facts = [
        _dependency(entry, f"result.depends_on[{number}]")
        for number, entry in enumerate(_dictionaries(data, "depends_on", "result"))
    ]
    return Answer(
        _sent(way),
        way,
        bool(data.get("certain", True)),
        [
            Branch(_share(entry.get("share")), _way(entry, f"result.branches[{number}]"))
            for number, entry in enumerate(_dictionaries(data, "branches", "result"))
        ],
        _way(data["before"], "result.before") if data.get("before") else None,
        [fact for fact in facts if fact.outcomes or not fact.ask],
        _missing(facts),
        [_cure(entry) for entry in _dictionaries(data, "cures", "result")],
        *(_sentences(data, key) for key in ("unknown", "assumed", "ignored")),
    )


def printable(value: object) -> str:
    """Return the value as text in one line, which cannot change the terminal."""
    return "" if value is None else in_one_line(str(value))


def _cure(data: Data) -> Cure:
    task = [printable(line) for line in str(data.get("task") or "").split("\n") if line]
    return Cure(printable(data.get("change")), _verdicts(data), task, printable(data.get("takes_along")))


def _dependency(data: Data, place: str) -> Dependency:
    outcomes = [
        Outcome(printable(entry.get("if")), _verdicts(entry), _sentences(entry, "evidence"), _sentences(entry, "contradicted_by"))
        for entry in _dictionaries(data, "outcomes", place)
    ]
    fact, what, ask = (printable(data.get(key)) for key in ("fact", "what", "ask"))
    return Dependency(fact, what, ask, outcomes)


def _missing(facts: t.Iterable[Dependency]) -> list[Output]:
    """Return the outputs that would show the facts without outcomes, each once."""
    outputs: dict[str, list[str]] = {}
    without = [fact for fact in facts if fact.ask and not fact.outcomes]
    commands = {fact.ask for fact in without}
    for fact in without:
        whole = fact.ask.partition(" -t ")[0]  # prints all tables
        outputs.setdefault(whole if whole in commands else fact.ask, []).append(fact.fact)
    return [Output(command, ids) for command, ids in outputs.items()]


def _verdicts(data: Data) -> list[str]:
    """Return the verdict on the packet, and that on its reply if there is one."""
    return [printable(data[key]) for key in ("verdict", "reply_verdict") if data.get(key)]


def _way(value: object, place: str) -> Way:
    data = _dictionary(value, place)
    verdict = printable(data.get("verdict"))
    named = _dictionary(data["culprit"], f"{place}.culprit") if data.get("culprit") else None
    culprit = Culprit(printable(named.get("kind")), printable(named.get("text"))) if named else None
    steps = [_step(entry) for entry in _dictionaries(data, "steps", place)]
    # The culprit of a packet that arrived is that of its reply.
    stopper = culprit if verdict not in ARRIVED else None
    guilty = next((at for at in reversed(range(len(steps))) if stopper and _is_same(steps[at], stopper)), None)
    if guilty is not None:
        steps[guilty] = steps[guilty]._replace(is_culprit=True)
    return Way(
        verdict,
        printable(data.get("interface")),
        _packet(_dictionary(data.get("packet") or {}, f"{place}.packet")),
        printable(data.get("reason")),
        culprit,
        stopper if guilty is None else None,
        steps,
        _way(data["reply"], f"{place}.reply") if data.get("reply") else None,
    )


def _step(data: Data) -> Step:
    kind, where, text, verdict, packet = (printable(data.get(key)) for key in ("kind", "where", "text", "verdict", "packet"))
    return Step(kind, where, text, verdict, packet)


def _is_same(step: Step, culprit: Culprit) -> bool:
    """Whether a step shows the culprit, whose text may also name the table, or the state of a neighbour."""
    if step.kind == "policy":
        is_named = "policy" in culprit.text or culprit.text.endswith(f"-P {step.where.rpartition(' ')[2]} DROP")
        return culprit.kind == "rule" and step.verdict == "policy drop" and is_named
    return bool(step.text) and step.kind == culprit.kind and (step.text in culprit.text or culprit.text in step.text)


def _sent(way: Way) -> str:
    start = next((step for step in way.steps if step.kind == "in"), None)
    return f"{start.text}, from {start.where}" if start else ""


def _packet(data: Data) -> str:
    """Return a packet as tcpdump shows it, with the MAC addresses and the mark."""
    if not data:
        return ""
    ends = (_end(data, "source"), _end(data, "destination"))
    words = [f"{printable(data.get('protocol'))} {' > '.join(ends)}"]
    macs = [printable(data.get(key)) for key in ("source_mac", "destination_mac")]
    if all(macs):
        words.append(f"MAC {' > '.join(macs)}")
    mark = data.get("mark")
    if mark:
        words.append(f"mark {mark:#x}" if isinstance(mark, int) else f"mark {printable(mark)}")
    return ", ".join(words)


def _end(packet: Data, end: str) -> str:
    address, port = printable(packet.get(end)), printable(packet.get(f"{end}_port"))
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _share(value: object) -> str:
    return f"{value * 100:.3g} %" if isinstance(value, (int, float)) else printable(value)


def _sentences(data: Data, key: str) -> list[str]:
    return [printable(sentence) for sentence in data.get(key) or ()]


def _dictionaries(data: Data, key: str, place: str) -> list[Data]:
    return [_dictionary(entry, f"{place}.{key}[{number}]") for number, entry in enumerate(data.get(key) or ())]


def _dictionary(value: object, place: str) -> Data:
    if not isinstance(value, t.Mapping):
        raise NoTrace(
            f"{place} is {type(value).__name__}; expected is a dictionary, as kubenode.datapath.datapath_trace returns it"
        )
    return value
