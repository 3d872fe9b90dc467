# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A result of the module datapath_trace, read into an answer."""

from __future__ import annotations

import typing as t

from .._core import form
from .._core.form import LINE, LINES
from .._snapshot.assumption import Assumption
from .._snapshot.snapshot import Origin
from .._trace.answer import IN, OUT, VERDICTS, Answer, Attempt, Branch, Change, Culprit, Cure, Dependency, Outcome, Step, Way
from .passage import NODE, ends

Data = t.Mapping[str, t.Any]

_BOTH = {"verdict": LINE, "reply_verdict": LINE}
_CULPRIT = form.perhaps(form.record({"kind": LINE, "text": LINE}))
_REPLY = {
    "verdict": form.word(*VERDICTS),
    "interface": LINE,
    "packet": form.perhaps(form.FIELDS),
    "reason": LINE,
    "culprit": _CULPRIT,
    "culprit_step": form.perhaps(form.NUMBER),
    "steps": form.many(form.record(dict.fromkeys(("kind", "where", "text", "verdict", "packet"), LINE))),
}
WAY = {**_REPLY, "tells_reply": form.FLAG, "reply": form.perhaps(form.record(_REPLY))}
_OPEN = {"if": LINE, **_BOTH, "evidence": LINES, "contradicted_by": LINES}
_CERTAIN = {"certain": form.FLAG._replace(default=True)}
ORIGIN = form.record(dict.fromkeys(Origin._fields, LINE._replace(default="")))
RESULT = form.record(
    {
        **WAY,
        **_CERTAIN,
        "before": form.perhaps(form.record(WAY)),
        "branches": form.many(form.record({**WAY, "share": form.NUMBER, "count": form.NUMBER._replace(default=1)})),
        "cures": form.many(
            form.record({**_BOTH, **_CERTAIN, "kind": LINE, "change": LINE, "takes_along": LINE, "task": form.TEXT})
        ),
        "tried": form.many(form.record({"change": LINE, "reason": LINE})),
        "depends_on": form.many(
            form.record({"fact": LINE, "what": LINE, "ask": LINE, "outcomes": form.many(form.record(_OPEN))})
        ),
        **dict.fromkeys(("unknown", "assumed", "ignored"), LINES),
        "node": ORIGIN,
    }
)


def read(result: object) -> Answer:
    """Return the answer. Raises Refused."""
    data = form.result(RESULT, result, "verdict", "datapath_trace")
    return Answer(
        way(data),
        way(data["before"]) if data["before"] else None,
        tuple(Branch(entry["share"], way(entry), entry["count"]) for entry in data["branches"]),
        data["certain"],
        tuple(map(_dependency, data["depends_on"])),
        tuple(Cure(**entry) for entry in data["cures"]),
        (*data["unknown"],),
        tuple(map(Assumption, data["assumed"])),
        (*data["ignored"],),
        tried=tuple(Attempt(**entry) for entry in data["tried"]),
        origin=Origin(**data["node"]),
    )


def _dependency(data: Data) -> Dependency:
    outcomes = (
        Outcome(entry["if"], entry["verdict"], entry["reply_verdict"], None, (*entry["evidence"],), (*entry["contradicted_by"],))
        for entry in data["outcomes"]
    )
    return Dependency(data["fact"], data["what"], data["ask"], tuple(outcomes))


def way(data: Data) -> Way:
    """Return what became of a packet. data: has the form WAY."""
    culprit = Culprit(**data["culprit"], step=data["culprit_step"]) if data["culprit"] else None
    reply = way(data["reply"]) if data.get("reply") else None
    result = Way(data["verdict"], data["interface"], data["packet"], data["reason"], culprit, (), "", reply)
    # The culprit of a packet that arrived is that of its reply.
    guilty = culprit.step if culprit and not result.has_arrived else None
    return result._replace(steps=tuple(_steps(data["steps"], guilty)), tells_reply=bool(data.get("tells_reply")))


def _steps(entries: t.Iterable[Data], guilty: int | None) -> t.Iterator[Step]:
    packet = ""
    for number, entry in enumerate(entries):
        after = entry["text"] if entry["kind"] in (IN, OUT) else entry["packet"] or packet
        yield Step(**entry, changes=tuple(_changes(packet, after)), is_culprit=number == guilty)
        packet = after


def _changes(before: str, after: str) -> t.Iterator[Change]:
    """Yield the ends that differ between two packets, which are texts such as "tcp 10.0.0.1:40000 > 10.96.0.1:443"."""
    for end, old, new in zip(("source", "destination"), ends(before), ends(after)):
        if before and old not in (new, NODE):  # which chooses its address itself
            yield Change(end, old, new)
