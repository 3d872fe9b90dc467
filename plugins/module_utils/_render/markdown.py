# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The audits of nodes as Markdown, for the summary of a job of CI: which nodes have which errors and risks."""

from __future__ import annotations

import re
import typing as t

from .._core.printable import counted
from . import findings
from .findings import LOSSES, grouped

MOST_NODES = 10  # that a row names
# May have a meaning in Markdown, HTML or on GitHub, which makes a link of each address of the web.
_SPECIAL = re.compile(r"[^A-Za-z0-9 .,:/()=-]|:(?=//)|(?<=www)\.", re.IGNORECASE)
Row = t.Sequence[str]


def text(results: object) -> str:
    """Return the summary. Raises Refused."""
    fleet = findings.fleet(results)
    losses = [
        ((severity, _linked(finding.id, finding.source), code(finding.subject)), node)
        for severity in LOSSES
        for node, finding in fleet.present
        if finding.severity == severity
    ]
    unclear = (((escaped(finding.id), code(finding.ask)), node) for node, finding in fleet.unclear)
    failed = (((escaped(error),), node) for node, error in fleet.failed.items())
    lines = [f"# {_title(losses)}", "", f"{counted(len(fleet.audited), 'node was', 'nodes were')} audited."]
    lines += table(("severity", "check", "subject"), losses)
    lines += table(("cannot tell", "ask for"), unclear)
    return "\n".join([*lines, *table(("could not be audited because",), failed), ""])


def _title(losses: t.Sequence[tuple[Row, str]]) -> str:
    if not losses:
        return "No errors and no risks"
    rows, nodes = (len({*column}) for column in zip(*losses))
    return f"{counted(rows, 'error or risk', 'errors and risks')} on {counted(nodes, 'node')}"


def table(titles: Row, entries: t.Iterable[tuple[Row, str]]) -> list[str]:
    """Return a table with the nodes of each row; nothing without rows. entries: a row and one of its nodes."""
    rows = [(*row, _names([*dict.fromkeys(nodes)])) for row, nodes in grouped(entries).items()]
    cells = [(*titles, "nodes"), ("---",) * (len(titles) + 1), *rows] if rows else []
    return [*[""] * bool(cells), *(f"| {' | '.join(row)} |" for row in cells)]


def _names(nodes: t.Sequence[str]) -> str:
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
