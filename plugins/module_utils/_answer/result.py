# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A result of the module datapath_trace, read into an answer.

Names of links, comments of rules and the like come from a node or from a report, so each text is made printable first.
"""

from __future__ import annotations

import typing as t

from .._core.printable import in_one_line
from .._trace.verdict import ARRIVED, Culprit
from .answer import NODE, VERDICTS, Answer, Branch, Change, Cure, Dependency, Outcome, Output, Step, Way, ends

Data = t.Mapping[str, t.Any]


class NoTrace(Exception):
    """The value is not a result of datapath_trace. The text is a sentence without its full stop."""


def read(result: object) -> Answer:
    """Return the answer. Raises NoTrace."""
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
    change, takes_along = printable(data.get("change")), printable(data.get("takes_along"))
    return Cure(change, _verdicts(data), task, takes_along, bool(data.get("certain", True)))


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
    steps = _steps(_dictionaries(data, "steps", place))
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


def _steps(entries: t.Iterable[Data]) -> list[Step]:
    steps, packet = [], ""
    for entry in entries:
        kind, where, text, verdict, after = (printable(entry.get(key)) for key in ("kind", "where", "text", "verdict", "packet"))
        after = text if kind in ("in", "out") else after or packet
        steps.append(Step(kind, where, text, verdict, tuple(_changes(packet, after))))
        packet = after
    return steps


def _changes(before: str, after: str) -> t.Iterator[Change]:
    """Yield the ends that differ between two packets, which are texts such as "tcp 10.0.0.1:40000 > 10.96.0.1:443"."""
    for end, old, new in zip(("source", "destination"), ends(before), ends(after)):
        if before and old not in (new, NODE):  # which chooses its address itself
            yield Change(end, old, new)


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
