# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audits of many nodes as text for a terminal: findings by check with their nodes, the worst first."""

from __future__ import annotations

import typing as t
from functools import partial

from .._core.printable import counted, first_of
from . import findings, terminal
from .findings import Fleet, Group, grouped
from .terminal import BOLD, SEVERITIES, Paint, Section

MOST = 8  # nodes that a line names
Named = t.Callable[[t.Sequence[str]], str]  # nodes in a line


def text(fleet: Fleet, *, colours: bool = False, columns: int = 0, is_wide: bool = False) -> str:
    """Return the text. columns: of the terminal, 0 for lines that are not wrapped. is_wide: whether to name each node."""
    every = len(fleet.audited)
    named = partial(_named, every=every, most=every + len(fleet.failed) if is_wide else MOST)
    return terminal.wrapped(_lines(fleet, terminal.painter(colours), named), columns)


def of_results(results: object, *, colours: bool = False) -> str:
    """Return the text of results by nodes. Raises Refused."""
    return text(findings.fleet(results), colours=colours)


def place(page: str) -> str:
    """Return the line that ends a run: where its report is."""
    return f"Report: {page}"


def _lines(fleet: Fleet, paint: Paint, named: Named) -> t.Iterator[str]:
    """Yield what is open first and what counts last, where a terminal shows it at the end of a run."""
    groups = fleet.groups
    unclear = grouped(((each.ask, each.id), node) for node, each in fleet.unclear)
    asks = grouped((ask, (check, nodes)) for (ask, check), nodes in unclear.items())
    open_checks = [[f"{', '.join(dict(checks))}: {named(_union(checks))}", f"  ask for: {ask}"] for ask, checks in asks.items()]
    needs = grouped((audit.profile.name, node) for node, audit in fleet.audited.items())
    profiles = [[f"{name}: {named(nodes)}"] for name, nodes in needs.items() if name]
    failed = grouped((error, node) for node, error in fleet.failed.items())
    not_audited = [[f"{named(nodes)}: {error}"] for error, nodes in failed.items()]
    sections = {
        "Cannot tell": open_checks,
        "Not audited": not_audited,
        "Profiles": profiles,
        "What was found": [[*_finding(group, paint)] for group in groups],
        "On which nodes": [[f"{_title(group, paint)}: {named(group.nodes)}"] for group in groups],
    }
    yield from [*terminal.sections([Section(title, entries) for title, entries in sections.items()], paint), ""][1:]
    yield paint(fleet.title, SEVERITIES[groups[0].severity] if groups else terminal.GREEN)
    yield terminal.Prose(fleet.remark)


def _title(group: Group, paint: Paint) -> str:
    title = " ".join(filter(None, (group.id, group.kind)))
    return f"{paint(group.severity, SEVERITIES[group.severity])} {paint(title, BOLD)}"


def _finding(group: Group, paint: Paint) -> t.Iterator[str]:
    """Yield a finding of several nodes; the sentence and the remedy are those of the first node where they differ."""
    alike = group.alike
    first, _nodes = alike[0]
    yield _title(group, paint)
    yield terminal.Prose(f"  {first.what}")
    if len(alike) > 1:
        yield f"  That is the text of {group.nodes[0]}; further nodes have {counted(len(alike) - 1, 'more text')}."
    yield from (f"  {line}" for line in terminal.labelled("Remedy", [first.remedy.change] if first.remedy else []))


def _union(checks: t.Iterable[tuple[str, t.Sequence[str]]]) -> list[str]:
    return [*dict.fromkeys(node for _check, nodes in checks for node in nodes)]


def _named(nodes: t.Sequence[str], every: int, most: int) -> str:
    """Return the names of nodes, behind their number if there are several. every: of how many nodes they are."""
    if len(nodes) == every > 1:
        return f"all {every} nodes"
    names = first_of(nodes, most)
    return names if len(nodes) == 1 else f"{len(nodes)} nodes: {names}"
