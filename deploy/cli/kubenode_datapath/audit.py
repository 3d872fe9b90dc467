# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command audit: evidence about one node or many becomes findings, a text and an exit status."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
import typing as t
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._render import audit_page, findings, fleet_text, terminal
from ansible_collections.kubenode.datapath.plugins.module_utils._render.findings import Findings, Fleet
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import build_backend

from . import installation, output, sources
from .arguments import ARRIVES, CANNOT_TELL, ERROR, LIVE, LOST, SEVERITIES, STDIN, TEXT, WIDE, sentence
from .sources import Evidence

SECONDS, BYTES = 3600, 8 << 30  # of computation and of memory, to audit one of many nodes
TEXTS = ("id", "severity", "worst", "trouble", "evidence", "remedy", "source")  # of a check, as its catalogue has them
COLUMNS = 100  # of a text that is not for a terminal
Data = t.Mapping[str, t.Any]


def run(options: argparse.Namespace, assume: t.Mapping[str, str], is_plugin: bool) -> int:
    """Print the findings. Returns the exit status. Raises DatapathError, OSError."""
    if options.lists or options.about:
        checks = [catalogue.of_id("--explain", options.about)] if options.about else _by_severity()
        as_text = _explained(checks[0]) if options.about else _listed(checks)
        output.show(as_text if options.format in (TEXT, WIDE) else output.data([*map(_plain, checks)], options.format))
        return ARRIVES
    catalogue.chosen(options.checks)
    installation.prepare_twins()
    if options.prove:
        build_backend.require_programs()
    with output.Progress() as tell:
        tell(f"reading {options.node}" if is_plugin else "reading the evidence")
        is_of_one = is_plugin or options.node or len(options.evidence) > 1 or options.evidence[0] in (LIVE, STDIN)
        place = "" if is_of_one else options.evidence[0]
        evidence, nodes = _divided(place, lambda: sources.evidence(options, is_plugin, SUBSETS))
        if evidence:
            results = {evidence.source: all_printable(_result(evidence, options, assume, tell))}
        else:
            results = _of_many(nodes, options, assume, tell)
    if options.html:
        Path(options.html).write_text(audit_page.text(results), encoding="utf-8")
    if nodes:
        output.show(_shown_together(results, options))
        return _status_together(findings.fleet(results), options.line)
    (result,) = results.values()
    output.show(_shown(result, options))
    return status(findings.read(result), options.line)


def _result(
    evidence: Evidence, options: argparse.Namespace, assume: t.Mapping[str, str], tell: t.Callable[[str], None]
) -> dict[str, t.Any]:
    """Raises DatapathError."""
    context, checks = sources.context_of(options), catalogue.chosen(options.checks)
    audit = audit_backend.Audit(evidence.snapshot, checks, context, options.prove, evidence.is_own, assume=assume, tell=tell)
    result = audit_backend.result(audit._replace(again=audit_backend.OF_COMMAND), process.run)
    return {**result, "ignored": evidence.ignored}


def _shown(result: Data, options: argparse.Namespace) -> str:
    if options.line:
        return findings.read(result).line(options.line) + "\n"
    if options.format not in (TEXT, WIDE):
        return output.data(result, options.format)
    colours, columns = output.has_colours(options.color), output.width()
    return terminal.audit(result, colours=colours, columns=columns, is_wide=options.format == WIDE)


def _divided(place: t.Any, read: t.Callable[[], Evidence]) -> tuple[Evidence | None, dict[str, t.Any]]:
    """Return the evidence of one node, or what to read of each of many by its name. place: empty if it is of one. Raises Invalid.

    An archive is not read twice unless it has several nodes.
    """
    nodes = pastes_backend.nodes(place) if isinstance(place, str) and os.path.isdir(place) else {}
    if nodes:
        return None, nodes
    try:
        return read(), {}
    except Invalid as error:
        nodes = pastes_backend.nodes(place) if isinstance(place, str) and error.option == "node" else {}
        if not nodes:
            raise
        return None, nodes


def _of_many(
    nodes: t.Mapping[str, t.Any], options: argparse.Namespace, assume: t.Mapping[str, str], tell: t.Callable[[str], None]
) -> dict[str, t.Any]:
    """Audit each node in a process of its own, as many at once as there are processors. Returns the results by nodes."""

    def of_place(dump: t.Any) -> dict[str, t.Any]:
        """Return results by nodes, or by an empty name for evidence of one; or why there are none."""
        try:
            evidence, within = _divided(dump, lambda: sources.of_dump(dump, "", ""))
            if evidence:
                return {"": _result(evidence, options, assume, lambda _step: None)}
        except DatapathError as error:
            return {"": {"msg": sentence(error)}}
        except OSError as error:
            return {"": {"msg": f"{error.filename or dump}: {error.strerror or error}"}}
        return {name: result for name, each in within.items() for result in of_place(each).values()}

    def bounded(dump: t.Any) -> dict[str, t.Any]:
        try:
            return t.cast("dict[str, t.Any]", pastes_backend.within_bounds(lambda: of_place(dump), SECONDS, BYTES))
        except pastes_backend.Exceeded as bound:
            return {"": {"msg": f"its audit needed more than {bound}, or was killed"}}
        except (RuntimeError, ValueError) as error:
            return {"": {"msg": f"its audit failed, which is an error of the program: {error}"}}

    results: dict[str, t.Any] = {}
    workers = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        futures = {workers.submit(bounded, dump): name for name, dump in nodes.items()}
        tell(f"0 of {len(nodes)} audited")
        for number, future in enumerate(as_completed(futures), 1):
            tell(f"{number} of {len(nodes)} audited")
            for node, result in future.result().items():
                name = node if node and node not in results else "/".join(filter(None, (futures[future], node)))
                results[name] = all_printable(result)
    finally:
        workers.shutdown(cancel_futures=True)  # an interrupt ends the processes that run, and must begin no other
    return {name: results[name] for name in sorted(results, key=_by_number)}


def _by_number(name: str) -> list[t.Any]:
    """Return a key by which node2 is before node10."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"([0-9]+)", name))]


def _shown_together(results: Data, options: argparse.Namespace) -> str:
    fleet = findings.fleet(results)
    if options.line:
        lines = {node: audit.line(options.line) for node, audit in fleet.audited.items()} | fleet.failed
        return "".join(f"{node}: {line}\n" for node, line in lines.items())
    if options.format not in (TEXT, WIDE):
        return output.data(findings.document(results), options.format)
    colours, columns = output.has_colours(options.color), output.width()
    return fleet_text.text(fleet, colours=colours, columns=columns, is_wide=options.format == WIDE)


def _status_together(fleet: Fleet, severity: str | None) -> int:
    """Return the worst status of the nodes; that of an error if none was audited."""
    statuses = {status(audit, severity) for audit in fleet.audited.values()}
    unclear = {CANNOT_TELL} if fleet.failed else set[int]()
    order = (LOST, CANNOT_TELL, ARRIVES)
    return next((each for each in order if each in statuses | unclear), ERROR) if statuses else ERROR


def _by_severity() -> list[Check]:
    return sorted(catalogue.CHECKS, key=lambda check: SEVERITIES.index(check.severity))


def _plain(check: Check) -> dict[str, t.Any]:
    values = check._asdict()
    return {**{name: values[name] for name in TEXTS}, "symptoms": [*check.symptoms]}


def _listed(checks: t.Sequence[Check]) -> str:
    widest = max(len(check.id) for check in checks)
    return "".join(_filled(f"{check.severity:<6} {check.id:<{widest}}  ", check.trouble, " " * 9) for check in checks)


def _explained(check: Check) -> str:
    """Return what the catalogue says of a check."""
    severity = check.severity if check.worst == check.severity else f"{check.severity}, at worst {check.worst}"
    symptoms = [("Seen as", symptom) for symptom in check.symptoms]
    rows = [("Looks at", check.evidence), *symptoms, ("Remedy", check.remedy), ("Source", check.source)]
    lines = (_filled(f"{title:<9}", text, " " * 9) for title, text in rows)
    return f"{severity} {check.id}\n{_filled('', check.trouble, '')}\n{''.join(lines)}"


def _filled(start: str, text: str, indent: str) -> str:
    columns = output.width() or COLUMNS
    return textwrap.fill(text, columns, initial_indent=start, subsequent_indent=indent, break_long_words=False) + "\n"


def status(audit: Findings, severity: str | None = None) -> int:
    """Return the exit status that tells whether a check found a loss of packets, now or later, or cannot tell.

    severity: of the findings that count; errors and risks if it is left out.
    """
    if severity:
        is_lost = any(finding.severity == severity for finding in audit.present)
        is_open = bool(audit.open_checks(severity))
    else:
        is_lost, is_open = bool(audit.losses), bool(audit.unclear)
    return LOST if is_lost else CANNOT_TELL if is_open else ARRIVES
