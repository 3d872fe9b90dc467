# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A result of the module datapath_audit, read into values whose texts are printable: names of links come from a node."""

from __future__ import annotations

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
    TWIN,
    Finding,
    Remedy,
)
from .._core import form
from .._core.errors import Invalid
from .._core.form import LINE, LINES
from .._trace import playbook_task
from . import result as traces

LOSSES = (ERROR, RISK)  # severities of findings with which packets are lost, now or later
Data = t.Mapping[str, t.Any]

# docs/schema/audit.json describes them.
_MODULE = form.record({"module": LINE, "options": form.FIELDS, "task": form.TEXT})
_OPERATOR = form.record({"operator": LINE, "commands": LINES, "task": form.TEXT})
FINDING = {
    **dict.fromkeys(("id", "subject", "what", "packet", "ask", "source"), LINE),
    "state": form.word(PRESENT, CANNOT_TELL),
    "severity": form.word(*SEVERITIES),
    "evidence": LINES,
    "proof": form.word(TWIN, COUNTER, CONFIGURATION, "")._replace(default=""),
    "trace": form.perhaps(form.record(traces.WAY)),
    "remedy": form.perhaps(form.either("module", _MODULE, _OPERATOR)),
}
RESULT = form.record(
    {
        "findings": form.many(form.record(FINDING)),
        "passed": LINES,
        "profile": form.record({"name": form.perhaps(LINE), "variables": form.FIELDS, "reasons": LINES}),
        "ignored": LINES,
    }
)


class Profile(t.NamedTuple):
    """variables: of its role, as YAML."""

    name: str
    variables: list[str]
    reasons: list[str]


class Findings(t.NamedTuple):
    """present: errors first. unclear: those that cannot be told. passed: ids of checks."""

    present: list[Finding]
    unclear: list[Finding]
    passed: list[str]
    profile: Profile
    ignored: list[str]

    @property
    def losses(self) -> list[Finding]:
        return [finding for finding in self.present if finding.severity in LOSSES]


def checked(result: object) -> Data:
    """Return a result of datapath_audit as JSON has it: permitted keys with printable texts. Raises Refused."""
    return form.result(RESULT, result, "findings", "datapath_audit")


def read(result: object) -> Findings:
    """Return the findings. Raises Refused."""
    return of(checked(result))


def of(data: Data) -> Findings:
    """Return the findings. data: as checked() returns it."""
    entries = [_finding(entry) for entry in data["findings"]]
    return Findings(
        [finding for finding in entries if finding.state == PRESENT],
        [finding for finding in entries if finding.state == CANNOT_TELL],
        data["passed"],
        _profile(data["profile"]),
        data["ignored"],
    )


def _finding(data: Data) -> Finding:
    values = {**data, "evidence": (*data["evidence"],), "remedy": _remedy(data["remedy"]) if data["remedy"] else None}
    trace = values.pop("trace")
    return Finding(**values, way=traces.way(trace) if trace else None)


def _remedy(data: Data) -> Remedy:
    values = {**data, "module": data.get("module", "").removeprefix(COLLECTION), "commands": (*data.get("commands", ()),)}
    return Remedy(**values)


def _profile(data: Data) -> Profile:
    return Profile(data["name"] or "", _yaml(data["variables"]), data["reasons"])


def _yaml(variables: Data) -> list[str]:
    try:
        return playbook_task.block(variables)
    except Invalid as error:
        return [f"# The variables cannot be written as YAML: {error}"]
