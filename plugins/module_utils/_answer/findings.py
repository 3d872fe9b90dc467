# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A result of the module datapath_audit, read into values whose texts are printable: names of links come from a node."""

from __future__ import annotations

import typing as t

from .._audit.suspicion import CANNOT_TELL, ERROR, PRESENT, RISK, SEVERITIES
from .._core.errors import Invalid
from .._core.printable import all_printable, in_one_line
from .._trace import playbook_task
from . import result as traces
from .answer import Way

STATES = (PRESENT, CANNOT_TELL)
LOSSES = (ERROR, RISK)  # severities of findings with which packets are lost, now or later
Data = t.Mapping[str, t.Any]


class NoAudit(Exception):
    """The value is not a result of datapath_audit. The text is a sentence without its full stop."""


class Remedy(t.NamedTuple):
    """change: a module, or what an operator has to do. lines: a task or commands."""

    change: str
    lines: list[str]


class Finding(t.NamedTuple):
    """The fields are those of the module. way: of the packet, None without one."""

    id: str
    subject: str
    state: str
    severity: str
    what: str
    evidence: list[str]
    packet: str
    way: Way | None
    remedy: Remedy | None
    ask: str
    source: str

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.id, self.subject)))


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


def read(result: object) -> Findings:
    """Return the findings. Raises NoAudit."""
    data = _dictionary(result, "result")
    if not isinstance(data.get("findings"), (list, tuple)):
        raise NoAudit(
            f"the result has {_line(data.get('msg') or 'nothing')!r} in place of findings; expected is a result of"
            " kubenode.datapath.datapath_audit"
        )
    entries = [_finding(entry, f"result.findings[{number}]") for number, entry in enumerate(data["findings"])]
    return Findings(
        [finding for finding in entries if finding.state == PRESENT],
        [finding for finding in entries if finding.state == CANNOT_TELL],
        _texts(data, "passed"),
        _profile(_dictionary(data.get("profile") or {}, "result.profile")),
        _texts(data, "ignored"),
    )


def _finding(value: object, place: str) -> Finding:
    data = _dictionary(value, place)
    for key, choices in (("state", STATES), ("severity", SEVERITIES)):
        if data.get(key) not in choices:
            raise NoAudit(f"{place}.{key} is {_line(data.get(key))!r}; expected is one of {', '.join(choices)}")
    id, subject, state, severity, what, packet, ask, source = (
        _line(data.get(key)) for key in ("id", "subject", "state", "severity", "what", "packet", "ask", "source")
    )
    way = _way(data["trace"], f"{place}.trace") if data.get("trace") else None
    remedy = _remedy(_dictionary(data["remedy"], f"{place}.remedy")) if data.get("remedy") else None
    return Finding(id, subject, state, severity, what, _texts(data, "evidence"), packet, way, remedy, ask, source)


def _way(value: object, place: str) -> Way:
    try:
        return traces.read(value).way
    except traces.NoTrace as error:
        raise NoAudit(f"{place}: {error}") from None


def _remedy(data: Data) -> Remedy:
    lines = _texts(data, "commands") + [_line(line) for line in str(data.get("task") or "").splitlines()]
    return Remedy(_line(data.get("module") or data.get("operator")), lines)


def _profile(data: Data) -> Profile:
    variables = all_printable(_dictionary(data.get("variables") or {}, "result.profile.variables"))
    return Profile(_line(data.get("name")), _yaml(variables), _texts(data, "reasons"))


def _yaml(variables: Data) -> list[str]:
    try:
        return playbook_task.block(variables)
    except Invalid as error:
        return [f"# The variables cannot be written as YAML: {error}"]


def _texts(data: Data, key: str) -> list[str]:
    texts = data.get(key) or ()
    if not isinstance(texts, (list, tuple)):
        raise NoAudit(f"{key} is {_line(texts)!r}; expected is a list of texts")
    return [_line(text) for text in texts]


def _line(value: object) -> str:
    return "" if value is None else in_one_line(str(value))


def _dictionary(value: object, place: str) -> Data:
    if not isinstance(value, t.Mapping):
        raise NoAudit(
            f"{place} is {type(value).__name__}; expected is a dictionary, as kubenode.datapath.datapath_audit returns it"
        )
    return value
