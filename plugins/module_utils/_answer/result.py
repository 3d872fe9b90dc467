# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A result of the module datapath_trace, read into an answer."""

from __future__ import annotations

import typing as t

from .._core import form
from .._core.form import LINE, LINES, said
from .._core.printable import in_one_line
from .._trace.verdict import ARRIVED, Culprit
from .answer import NODE, VERDICTS, Answer, Branch, Change, Cure, Dependency, Outcome, Output, Step, Way, ends

Data = t.Mapping[str, t.Any]

_OUTCOME = {"verdict": LINE, "reply_verdict": LINE}
_REPLY = {
    "verdict": form.word(*VERDICTS),
    "interface": LINE,
    "packet": form.perhaps(form.FIELDS),
    "reason": LINE,
    "culprit": form.perhaps(form.record({"kind": LINE, "text": LINE})),
    "steps": form.many(form.record(dict.fromkeys(("kind", "where", "text", "verdict", "packet"), LINE))),
}
WAY = {**_REPLY, "reply": form.perhaps(form.record(_REPLY))}
_OPEN = {"if": LINE, **_OUTCOME, "evidence": LINES, "contradicted_by": LINES}
_CERTAIN = {"certain": form.FLAG._replace(default=True)}
RESULT = form.record(
    {
        **WAY,
        **_CERTAIN,
        "before": form.perhaps(form.record(WAY)),
        "branches": form.many(form.record({**WAY, "share": form.NUMBER})),
        "cures": form.many(form.record({**_OUTCOME, **_CERTAIN, "change": LINE, "takes_along": LINE, "task": form.TEXT})),
        "depends_on": form.many(
            form.record({"fact": LINE, "what": LINE, "ask": LINE, "outcomes": form.many(form.record(_OPEN))})
        ),
        **dict.fromkeys(("unknown", "assumed", "ignored"), LINES),
    }
)


def read(result: object) -> Answer:
    """Return the answer. Raises Refused."""
    data = form.result(RESULT, result, "verdict", "datapath_trace")
    sent = way(data)
    facts = [_dependency(entry) for entry in data["depends_on"]]
    return Answer(
        _sent(sent),
        sent,
        data["certain"],
        [Branch(f"{entry['share'] * 100:.3g} %", way(entry)) for entry in data["branches"]],
        way(data["before"]) if data["before"] else None,
        [fact for fact in facts if fact.outcomes or not fact.ask],
        _missing(facts),
        [_cure(entry) for entry in data["cures"]],
        *(data[key] for key in ("unknown", "assumed", "ignored")),
    )


def _cure(data: Data) -> Cure:
    task = [in_one_line(line) for line in data["task"].split("\n") if line]
    return Cure(data["change"], _verdicts(data), task, data["takes_along"], data["certain"])


def _dependency(data: Data) -> Dependency:
    outcomes = [Outcome(entry["if"], _verdicts(entry), entry["evidence"], entry["contradicted_by"]) for entry in data["outcomes"]]
    return Dependency(data["fact"], data["what"], data["ask"], outcomes)


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
    return [data[key] for key in ("verdict", "reply_verdict") if data[key]]


def way(data: Data) -> Way:
    """Return what became of a packet. data: has the form WAY."""
    verdict, culprit = data["verdict"], Culprit(**data["culprit"]) if data["culprit"] else None
    steps = _steps(data["steps"])
    # The culprit of a packet that arrived is that of its reply.
    stopper = culprit if verdict not in ARRIVED else None
    guilty = next((at for at in reversed(range(len(steps))) if stopper and _is_same(steps[at], stopper)), None)
    if guilty is not None:
        steps[guilty] = steps[guilty]._replace(is_culprit=True)
    return Way(
        verdict,
        data["interface"],
        _packet(data["packet"] or {}),
        data["reason"],
        culprit,
        stopper if guilty is None else None,
        steps,
        way(data["reply"]) if data.get("reply") else None,
    )


def _steps(entries: t.Iterable[Data]) -> list[Step]:
    steps, packet = [], ""
    for entry in entries:
        after = entry["text"] if entry["kind"] in ("in", "out") else entry["packet"] or packet
        changes = tuple(_changes(packet, after))
        steps.append(Step(entry["kind"], entry["where"], entry["text"], entry["verdict"], changes))
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
    address, port = fields.get(end, ""), fields.get(f"{end}_port", "")
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
