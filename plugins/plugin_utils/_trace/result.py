# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""A result of the module datapath_trace, as its renderers read it. Pure: knows no class of Ansible.

Names of links, comments of rules and the like come from a node or from a report, so each text is made printable first.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.verdict import (
    ARRIVED,
    DROPPED,
    REJECTED,
    UNKNOWN,
    Culprit,
)

Data = t.Mapping[str, t.Any]

LOST = (DROPPED, REJECTED)
VERDICTS = (*ARRIVED, *LOST, UNKNOWN)


class NoTrace(Exception):
    """The given value is not a result of datapath_trace. The text is a sentence."""


class Step(t.NamedTuple):
    """kind: in, rule, policy, route, counter, neighbor or out. is_culprit: whether it is the object that stopped the packet."""

    kind: str
    where: str
    text: str
    verdict: str
    is_culprit: bool = False


class Way(t.NamedTuple):
    """What became of one packet, and of its reply. left: the packet as it left, empty if it did not.

    lost_to: the culprit, unless a step is marked as such or the packet arrived.
    """

    verdict: str
    interface: str
    left: str
    reason: str
    culprit: Culprit | None
    lost_to: Culprit | None
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
    def blamed(self) -> Culprit | None:
        """The object that stopped the packet, or its reply."""
        return self.culprit or (self.reply.culprit if self.reply else None)

    @property
    def told(self) -> list[str]:
        """The reasons. That of the packet may contain the one of its reply."""
        others = self.reply.reason if self.reply else ""
        return [one for one in (self.reason, "" if others in self.reason else f"Reply: {others}") if one]

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
    """An open fact on which the answer depends. fact: its id. ask: the command whose output would tell; empty if none would.

    outcomes: empty if no twin can be built with a value of the fact.
    """

    fact: str
    what: str
    ask: str
    outcomes: list[Outcome]


class Output(t.NamedTuple):
    """A command whose output is lacking, with the ids of the facts that it shows."""

    command: str
    facts: list[str]


class Trace(t.NamedTuple):
    """asked: the packet that was sent, and where it came in. before: how it was without the changes.

    depends_on: facts with outcomes, and lines that a twin lacks. lacking: the outputs that would show further facts.
    """

    asked: str
    way: Way
    branches: list[Branch]
    before: Way | None
    depends_on: list[Dependency]
    lacking: list[Output]
    cures: list[Cure]
    unknown: list[str]
    assumed: list[str]
    ignored: list[str]


def from_result(result: object) -> Trace:
    """Raises NoTrace."""
    found = _dictionary(result, "result")
    if found.get("verdict") not in VERDICTS:
        raise NoTrace(
            f"{printable(found.get('msg') or found.get('verdict') or 'nothing')!r} was given in place of a verdict; a result of"
            f" kubenode.datapath.datapath_trace was expected, whose verdict is one of {', '.join(VERDICTS)}"
        )
    way = _way(found, "result")
    facts = [
        _dependency(entry, f"result.depends_on[{number}]")
        for number, entry in enumerate(_dictionaries(found, "depends_on", "result"))
    ]
    return Trace(
        _asked(way),
        way,
        [
            Branch(_share(one.get("share")), _way(one, f"result.branches[{number}]"))
            for number, one in enumerate(_dictionaries(found, "branches", "result"))
        ],
        _way(found["before"], "result.before") if found.get("before") else None,
        [fact for fact in facts if fact.outcomes or not fact.ask],
        _lacking(facts),
        [_cure(entry) for entry in _dictionaries(found, "cures", "result")],
        *(_sentences(found, key) for key in ("unknown", "assumed", "ignored")),
    )


def _cure(found: Data) -> Cure:
    task = [printable(line) for line in str(found.get("task") or "").split("\n") if line]
    return Cure(printable(found.get("change")), _verdicts(found), task, printable(found.get("takes_along")))


def _dependency(found: t.Mapping[str, t.Any], place: str) -> Dependency:
    outcomes = [
        Outcome(printable(entry.get("if")), _verdicts(entry), _sentences(entry, "evidence"), _sentences(entry, "contradicted_by"))
        for entry in _dictionaries(found, "outcomes", place)
    ]
    fact, what, ask = (printable(found.get(key)) for key in ("fact", "what", "ask"))
    return Dependency(fact, what, ask, outcomes)


def _lacking(facts: t.Iterable[Dependency]) -> list[Output]:
    """Return the outputs that would show the facts without outcomes, each once."""
    found: dict[str, list[str]] = {}
    without = [fact for fact in facts if fact.ask and not fact.outcomes]
    commands = {fact.ask for fact in without}
    for fact in without:
        whole = fact.ask.partition(" -t ")[0]  # prints all tables
        found.setdefault(whole if whole in commands else fact.ask, []).append(fact.fact)
    return [Output(command, of_command) for command, of_command in found.items()]


def _verdicts(entry: t.Mapping[str, t.Any]) -> list[str]:
    """Return the verdict on the packet, and that on its reply if there is one."""
    return [printable(entry[key]) for key in ("verdict", "reply_verdict") if entry.get(key)]


def printable(value: object) -> str:
    """Return the value as text in one line, which cannot change the terminal."""
    return "" if value is None else in_one_line(str(value))


def _way(given: object, place: str) -> Way:
    found = _dictionary(given, place)
    verdict = printable(found.get("verdict"))
    named = _dictionary(found["culprit"], f"{place}.culprit") if found.get("culprit") else None
    culprit = Culprit(printable(named.get("kind")), printable(named.get("text"))) if named else None
    steps = [_step(one) for one in _dictionaries(found, "steps", place)]
    # The culprit of a packet that arrived is that of its reply.
    stopped = culprit if verdict not in ARRIVED else None
    guilty = next((at for at in reversed(range(len(steps))) if stopped and _is_same(steps[at], stopped)), None)
    if guilty is not None:
        steps[guilty] = steps[guilty]._replace(is_culprit=True)
    return Way(
        verdict,
        printable(found.get("interface")),
        _packet(_dictionary(found.get("packet") or {}, f"{place}.packet")),
        printable(found.get("reason")),
        culprit,
        stopped if guilty is None else None,
        steps,
        _way(found["reply"], f"{place}.reply") if found.get("reply") else None,
    )


def _step(given: Data) -> Step:
    kind, where, text, verdict = (printable(given.get(key)) for key in ("kind", "where", "text", "verdict"))
    return Step(kind, where, text, verdict)


def _is_same(step: Step, culprit: Culprit) -> bool:
    """Whether a step shows the culprit, whose text may also name the table, or the state of a neighbour."""
    if step.kind == "policy":
        is_named = "policy" in culprit.text or culprit.text.endswith(f"-P {step.where.rpartition(' ')[2]} DROP")
        return culprit.kind == "rule" and step.verdict == "policy drop" and is_named
    return bool(step.text) and step.kind == culprit.kind and (step.text in culprit.text or culprit.text in step.text)


def _asked(way: Way) -> str:
    start = next((step for step in way.steps if step.kind == "in"), None)
    return f"{start.text}, from {start.where}" if start else ""


def _packet(given: Data) -> str:
    """As tcpdump shows it, with the MAC addresses and the mark."""
    if not given:
        return ""
    ends = (_end(given, "source"), _end(given, "destination"))
    words = [f"{printable(given.get('protocol'))} {' > '.join(ends)}"]
    macs = [printable(given.get(key)) for key in ("source_mac", "destination_mac")]
    if all(macs):
        words.append(f"MAC {' > '.join(macs)}")
    mark = given.get("mark")
    if mark:
        words.append(f"mark {mark:#x}" if isinstance(mark, int) else f"mark {printable(mark)}")
    return ", ".join(words)


def _end(packet: Data, end: str) -> str:
    address, port = printable(packet.get(end)), printable(packet.get(f"{end}_port"))
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _share(given: object) -> str:
    return f"{given * 100:.3g} %" if isinstance(given, (int, float)) else printable(given)


def _sentences(found: Data, key: str) -> list[str]:
    return [printable(one) for one in found.get(key) or ()]


def _dictionaries(found: Data, key: str, place: str) -> list[Data]:
    return [_dictionary(one, f"{place}.{key}[{number}]") for number, one in enumerate(found.get(key) or ())]


def _dictionary(given: object, place: str) -> Data:
    if not isinstance(given, t.Mapping):
        raise NoTrace(
            f"{place} is {type(given).__name__}; a dictionary was expected, as kubenode.datapath.datapath_trace returns it"
        )
    return given
