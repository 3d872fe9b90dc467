# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The audits of many nodes, by the names of the nodes."""

from __future__ import annotations

import json
import typing as t

from .._answer import findings
from .._answer.findings import Findings, NoAudit
from .._core.printable import all_printable, in_one_line

FORMAT = 1  # of the JSON; docs/schema/audit.json
KEYS = ("findings", "passed", "profile", "ignored")  # of a result, without what Ansible adds
Results = t.Mapping[str, t.Any]


class Fleet(t.NamedTuple):
    """Both by the names of nodes. failed: why a node could not be audited."""

    audited: dict[str, Findings]
    failed: dict[str, str]


def read(results: object) -> Fleet:
    """Return the audits of nodes. results: of datapath_audit by node, or errors of the module. Raises NoAudit."""
    fleet = Fleet({}, {})
    for node, result in _nodes(results).items():
        name = in_one_line(str(node))
        if "findings" in result:
            fleet.audited[name] = _findings(name, result)
        else:
            fleet.failed[name] = in_one_line(_error(result))
    return fleet


def count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def text(results: object) -> str:
    """Return the results as JSON, in the format of the schema. Raises NoAudit."""
    read(results)
    nodes = {node: _plain(result) for node, result in _nodes(results).items()}
    return json.dumps({"format": FORMAT, "nodes": all_printable(nodes)}, indent=1) + "\n"


def _plain(result: Results) -> dict[str, t.Any]:
    if "findings" not in result:
        return {"error": _error(result)}
    return {key: result[key] for key in KEYS if key in result}


def _error(result: Results) -> str:
    return str(result.get("msg") or "The module returned no findings.")


def _findings(node: str, result: Results) -> Findings:
    try:
        return findings.read(result)
    except NoAudit as error:
        raise NoAudit(f"{node}: {error}") from None


def _nodes(results: object) -> t.Mapping[str, Results]:
    if not isinstance(results, t.Mapping):
        raise NoAudit(f"the value is {type(results).__name__}; expected is a dictionary of results by node")
    for node, result in results.items():
        if not isinstance(result, t.Mapping):
            raise NoAudit(f"{in_one_line(str(node))} has {type(result).__name__}; expected is a result of datapath_audit")
    return results
