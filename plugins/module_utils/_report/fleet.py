# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The audits of many nodes, by the names of the nodes."""

from __future__ import annotations

import json
import typing as t

from .._answer import findings
from .._answer.findings import Findings
from .._core.form import Refused, said
from .._core.printable import in_one_line

FORMAT = 1  # of the JSON; docs/schema/audit.json


class Fleet(t.NamedTuple):
    """Both by the names of nodes. failed: why a node could not be audited, or its answer is refused."""

    audited: dict[str, Findings]
    failed: dict[str, str]


def read(results: object) -> Fleet:
    """Return the audits of nodes. results: of datapath_audit by node, or errors of the module. Raises Refused."""
    fleet = Fleet({}, {})
    for name, answer in _answers(results).items():
        if isinstance(answer, str):
            fleet.failed[name] = in_one_line(answer)
        else:
            fleet.audited[name] = findings.of(answer)
    return fleet


def count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def text(results: object) -> str:
    """Return the results as JSON, in the format of the schema. Raises Refused."""
    nodes = {name: {"error": entry} if isinstance(entry, str) else entry for name, entry in _answers(results).items()}
    return json.dumps({"format": FORMAT, "nodes": nodes}, indent=1) + "\n"


def answer(result: object) -> findings.Data | str:
    """Return a result of datapath_audit as JSON has it; or why there is none, as printable text."""
    if isinstance(result, t.Mapping) and "findings" not in result:
        return said(result.get("msg") or result.get("error")) or "The module returned no findings."
    try:
        return findings.checked(result)
    except Refused as error:
        return f"The answer is refused: {error}."


def _answers(results: object) -> dict[str, findings.Data | str]:
    """Return the answer of each node, which is checked for itself."""
    if not isinstance(results, t.Mapping):
        raise Refused(type(results).__name__, "a dictionary of results by node", "the value")
    return {in_one_line(str(node)): answer(result) for node, result in results.items()}
