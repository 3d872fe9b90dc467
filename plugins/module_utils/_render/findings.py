# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of the module datapath_audit, read into values whose texts are printable: names of links come from a node."""

from __future__ import annotations

import ipaddress
import json
import typing as t

from .._audit.suspicion import (
    CANNOT_TELL,
    COLLECTION,
    CONFIGURATION,
    COUNTER,
    ERROR,
    PRESENT,
    RISK,
    SEVERITIES,
    STATES,
    TWIN,
    Finding,
    Remedy,
)
from .._core import form, playbook_task
from .._core.errors import Invalid
from .._core.form import LINE, LINES, Refused, said
from .._core.printable import counted, in_one_line
from .._snapshot.snapshot import Origin
from . import trace_result

LOSSES = (ERROR, RISK)  # severities of findings with which packets are lost, now or later
FORMAT = 1  # of the JSON; docs/schema/audit.json
MOST_OF_LINE = 80  # characters; node-problem-detector's max_output_length is 80 by default
Data = t.Mapping[str, t.Any]
Key = t.TypeVar("Key")
Value = t.TypeVar("Value")

# docs/schema/audit.json describes them.
_MODULE = form.record({"module": LINE, "options": form.FIELDS, "task": form.TEXT})
_OPERATOR = form.record({"operator": LINE, "commands": LINES, "task": form.TEXT, "profile": LINE._replace(default="")})
FINDING = {
    **dict.fromkeys(("id", "subject", "what", "packet", "ask", "source"), LINE),
    "state": form.word(*STATES),
    "severity": form.word(*SEVERITIES),
    **dict.fromkeys(("evidence", "unless"), LINES),
    "added": LINES._replace(default=()),
    "proof": form.word(TWIN, COUNTER, CONFIGURATION, "")._replace(default=""),
    "trace": form.perhaps(form.record(trace_result.WAY)),
    "remedy": form.perhaps(form.either("module", _MODULE, _OPERATOR)),
}
RESULT = form.record(
    {
        "findings": form.many(form.record(FINDING)),
        "passed": LINES,
        "passed_unless": form.many(form.record({"id": LINE, "unless": LINES, "ask": LINE}))._replace(default=()),
        "profile": form.record({"name": form.perhaps(LINE), "variables": form.FIELDS, "reasons": LINES, "open": form.FLAG}),
        "assumed": LINES._replace(default=()),
        "node": trace_result.ORIGIN,
        "ignored": LINES,
    }
)


class Profile(t.NamedTuple):
    """variables: of its role, as YAML. is_open: whether the node may need one, although it has no name."""

    name: str
    variables: list[str]
    reasons: list[str]
    is_open: bool


class Guess(t.NamedTuple):
    """A check that passes unless facts that outputs leave open have unlikely values. unless: sentences about these."""

    id: str
    unless: tuple[str, ...]
    ask: str


class Findings(t.NamedTuple):
    """present: errors first. unclear: those that are not certain. passed: ids of checks. assumed: by the operator. origin: the
    node and the time of the snapshot.
    """

    present: list[Finding]
    unclear: list[Finding]
    passed: list[str]
    profile: Profile
    ignored: list[str]
    assumed: t.Sequence[str] = ()
    origin: Origin = Origin()
    guesses: t.Sequence[Guess] = ()

    @property
    def losses(self) -> list[Finding]:
        return [finding for finding in self.present if finding.severity in LOSSES]

    @property
    def open(self) -> list[Finding]:
        """Those that cannot be told, and of which the node shows nothing."""
        return [finding for finding in self.unclear if not finding.evidence]

    @property
    def suspected(self) -> list[Finding]:
        """Those that cannot be told, of which the node shows more than what it lacks."""
        return [finding for finding in self.unclear if finding.evidence]

    @property
    def counts(self) -> str:
        """How many findings there are of each severity, and what became of the other checks."""
        numbers = {name: sum(finding.severity == name for finding in self.present) for name in SEVERITIES}
        suspected = len({finding.id for finding in self.suspected})
        words = [counted(number, name) for name, number in numbers.items() if number]
        words += [f"{suspected} suspected"] * bool(suspected)
        words = words or ["no findings"]
        unclear = len({finding.id for finding in self.open} - {finding.id for finding in self.suspected})
        words += [_cannot_tell(unclear)] * bool(unclear)
        words += [f"{counted(len(self.passed), 'check')} passed"]
        return ", ".join([*words, *[f"{len(self.guesses)} passed unless what is open counts"] * bool(self.guesses)])

    def open_checks(self, severity: str) -> set[str]:
        """Return the ids of the checks of a severity that cannot tell."""
        return {finding.id for finding in self.unclear if finding.severity == severity}

    def line(self, severity: str) -> str:
        """Return the findings of a severity in one line of at most MOST_OF_LINE characters, for a monitor."""
        titles = [finding.title for finding in self.present if finding.severity == severity]
        unclear = len(self.open_checks(severity))
        words = "; ".join(titles) or (_cannot_tell(unclear) if unclear else f"no {severity} found")
        if len(words) <= MOST_OF_LINE:
            return words
        return f"{counted(len(titles), severity)}: {words}"[: MOST_OF_LINE - 3] + "..."


class Fleet(t.NamedTuple):
    """The audits of many nodes, both by the names of nodes. failed: why a node has no audit, or its answer is refused."""

    audited: dict[str, Findings]
    failed: dict[str, str]

    @property
    def present(self) -> list[tuple[str, Finding]]:
        """The findings, each with its node."""
        return [(node, finding) for node, audit in self.audited.items() for finding in audit.present]

    @property
    def unclear(self) -> list[tuple[str, Finding]]:
        """The findings that cannot be told, each with its node."""
        return [(node, finding) for node, audit in self.audited.items() for finding in audit.unclear]

    @property
    def title(self) -> str:
        """How many findings and groups of them there are, on how many nodes: each report counts like this."""
        findings = {(node, *finding.key): finding.severity for node, finding in self.present}
        every = f"{len(self.audited)} audited nodes" if len(self.audited) != 1 else "1 audited node"
        if not findings:
            return f"No findings on {every}"
        numbers = {severity: [*findings.values()].count(severity) for severity in SEVERITIES}
        counts = ", ".join(counted(number, severity) for severity, number in numbers.items() if number)
        groups = counted(len(self.groups), "group")
        return f"{counted(len(findings), 'finding')} ({counts}) in {groups} on {len({key[0] for key in findings})} of {every}"

    @property
    def remark(self) -> str:
        """On how many nodes the findings are not all that there may be."""
        unclear = sum(bool(audit.unclear) for audit in self.audited.values())
        failed = counted(len(self.failed), "node was", "nodes were")
        return f"On {counted(unclear, 'node')} some checks cannot tell; {failed} not audited."

    @property
    def groups(self) -> list[Group]:
        """The findings of all nodes, the worst first, and of a severity those of most nodes."""
        groups = grouped(((each.id, _kind(each.subject)), (node, each)) for node, each in self.present)
        every = [
            Group(min((each.severity for _node, each in entries), key=SEVERITIES.index), check, kind, entries)
            for (check, kind), entries in groups.items()
        ]
        return sorted(every, key=lambda group: (SEVERITIES.index(group.severity), -len(group.nodes)))


class Group(t.NamedTuple):
    """The findings of a check about one kind of subject, each with the name of its node.

    kind: the subject, such as a link, or "addresses".
    """

    severity: str
    id: str
    kind: str
    findings: list[tuple[str, Finding]]

    @property
    def nodes(self) -> list[str]:
        return [*dict.fromkeys(node for node, _finding in self.findings)]

    @property
    def alike(self) -> list[tuple[Finding, list[str]]]:
        """Findings that say the same, each with the names of its nodes."""
        of_text = grouped((repr(finding), (finding, node)) for node, finding in self.findings)
        return [(entries[0][0], [node for _finding, node in entries]) for entries in of_text.values()]


def _kind(subject: str) -> str:
    """Return what nodes have in common: a subject that is an address is of one node."""
    try:
        ipaddress.ip_network(subject, strict=False)
    except ValueError:
        return subject
    return "addresses"


def fleet(results: object) -> Fleet:
    """Return the audits of nodes. results: of datapath_audit by node, or errors of the module. Raises Refused."""
    audits = Fleet({}, {})
    for name, result in _answers(results).items():
        if isinstance(result, str):
            audits.failed[name] = in_one_line(result)
        else:
            audits.audited[name] = of(result)
    return audits


def document(results: object) -> Data:
    """Return the results of nodes as the schema has them. Raises Refused."""
    nodes = {name: {"error": entry} if isinstance(entry, str) else entry for name, entry in _answers(results).items()}
    return {"format": FORMAT, "nodes": nodes}


def as_json(results: object) -> str:
    """Return the results of nodes as JSON, in the format of the schema. Raises Refused."""
    return json.dumps(document(results), indent=1) + "\n"


def _answers(results: object) -> dict[str, Data | str]:
    """Return the answer of each node, which is checked for itself."""
    if not isinstance(results, t.Mapping):
        raise Refused(type(results).__name__, "a dictionary of results by node", "the value")
    return {in_one_line(str(node)): answer(result) for node, result in results.items()}


def answer(result: object) -> Data | str:
    """Return a result of datapath_audit as JSON has it; or why there is none, as printable text."""
    if isinstance(result, t.Mapping) and "findings" not in result:
        return said(result.get("msg") or result.get("error")) or "The module returned no findings."
    try:
        return _checked(result)
    except Refused as error:
        return f"The answer is refused: {error}."


def _checked(result: object) -> Data:
    """Return a result as JSON has it: permitted keys with printable texts. Raises Refused."""
    return form.result(RESULT, result, "findings", "datapath_audit")


def read(result: object) -> Findings:
    """Return the findings of a node. Raises Refused."""
    return of(_checked(result))


def of(data: Data) -> Findings:
    """Return the findings of a node. data: as answer() returns it."""
    entries = [_finding(entry) for entry in data["findings"]]
    return Findings(
        [finding for finding in entries if finding.state == PRESENT],
        [finding for finding in entries if finding.state == CANNOT_TELL],
        data["passed"],
        _profile(data["profile"]),
        data["ignored"],
        data["assumed"],
        Origin(**data["node"]),
        [Guess(each["id"], (*each["unless"],), each["ask"]) for each in data["passed_unless"]],
    )


def grouped(entries: t.Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, both in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in entries:
        groups.setdefault(key, []).append(value)
    return groups


def _finding(data: Data) -> Finding:
    sequences = {name: (*data[name],) for name in ("evidence", "unless", "added")}
    values = {**data, **sequences, "remedy": _remedy(data["remedy"]) if data["remedy"] else None}
    trace = values.pop("trace")
    return Finding(**values, way=trace_result.way(trace) if trace else None)


def _remedy(data: Data) -> Remedy:
    values = {**data, "module": data.get("module", "").removeprefix(COLLECTION), "commands": (*data.get("commands", ()),)}
    return Remedy(**values)


def _profile(data: Data) -> Profile:
    return Profile(data["name"] or "", _yaml(data["variables"]), data["reasons"], data["open"])


def _yaml(variables: Data) -> list[str]:
    try:
        return playbook_task.block(variables)
    except Invalid as error:
        return [f"# The variables cannot be written as YAML: {error}"]


def _cannot_tell(number: int) -> str:
    return f"{counted(number, 'check')} cannot tell"
