# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The audits of nodes as Markdown, for the summary of a job of CI: which nodes have which errors and risks."""

from __future__ import annotations

import re
import typing as t

from .._answer.findings import LOSSES, Findings
from . import fleet

MOST_NODES = 10  # that a row names
# May have a meaning in Markdown, HTML or on GitHub, which makes a link of each address of the web.
_SPECIAL = re.compile(r"[^A-Za-z0-9 .,:/()=-]|:(?=//)|(?<=www)\.", re.IGNORECASE)
Row = t.Sequence[str]
Nodes = dict[Row, list[str]]  # nodes by the row that they share


def text(results: object) -> str:
    """Return the summary. Raises Refused."""
    audits = fleet.read(results)
    losses = grouped(_losses(audits.audited))
    lines = [f"# {_title(losses)}", "", f"{fleet.count(len(audits.audited), 'node was', 'nodes were')} audited."]
    lines += table(("severity", "check", "subject"), losses)
    lines += table(("cannot tell", "ask for"), grouped(_unclear(audits.audited)))
    lines += table(("could not be audited because",), grouped(((escaped(error),), node) for node, error in audits.failed.items()))
    return "\n".join([*lines, ""])


def _losses(audited: t.Mapping[str, Findings]) -> t.Iterator[tuple[Row, str]]:
    for severity in LOSSES:
        for node, audit in audited.items():
            for finding in audit.losses:
                if finding.severity == severity:
                    yield (severity, _linked(finding.id, finding.source), code(finding.subject)), node


def _unclear(audited: t.Mapping[str, Findings]) -> t.Iterator[tuple[Row, str]]:
    for node, audit in audited.items():
        yield from (((escaped(finding.id), code(finding.ask)), node) for finding in audit.unclear)


def grouped(entries: t.Iterable[tuple[Row, str]]) -> Nodes:
    """Return the nodes of each row, each once. entries: a row and one of its nodes."""
    groups: dict[Row, dict[str, None]] = {}
    for row, node in entries:
        groups.setdefault(row, {})[node] = None
    return {row: [*nodes] for row, nodes in groups.items()}


def _title(losses: Nodes) -> str:
    if not losses:
        return "No errors and no risks"
    nodes = {node for nodes in losses.values() for node in nodes}
    return f"{fleet.count(len(losses), 'error or risk', 'errors and risks')} on {fleet.count(len(nodes), 'node', 'nodes')}"


def table(titles: Row, rows: Nodes) -> list[str]:
    """Return a table with the nodes of each row; nothing without rows."""
    if not rows:
        return []
    cells = [(*titles, "nodes"), ("---",) * (len(titles) + 1), *((*row, _named(nodes)) for row, nodes in rows.items())]
    return ["", *(f"| {' | '.join(row)} |" for row in cells)]


def _named(nodes: t.Sequence[str]) -> str:
    rest = len(nodes) - MOST_NODES
    return ", ".join([*map(code, nodes[:MOST_NODES]), *[f"and {rest} more"] * (rest > 0)])


def code(text: str) -> str:
    """Return the text in a fixed-width font."""
    return f"<code>{escaped(text)}</code>" if text else ""


def escaped(text: str) -> str:
    """Return the text with character references, which CommonMark takes for text wherever they are."""
    return _SPECIAL.sub(lambda sign: f"&#{ord(sign[0])};", text)


def _linked(text: str, url: str) -> str:
    """Return the text, as a link if the URL is one of the web."""
    safe = re.sub(r"[^A-Za-z0-9:/.?&=#%~-]", lambda sign: "".join(f"%{byte:02X}" for byte in sign[0].encode()), url)
    return f"[{escaped(text)}]({safe})" if url.startswith("https://") else escaped(text)
