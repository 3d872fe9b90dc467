# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audits of nodes as Markdown, for the summary of a job of CI: which nodes have which findings."""

from __future__ import annotations

import re
import typing as t

from . import findings
from .findings import grouped

MOST_NODES = 10  # that a row names
# May have a meaning in Markdown, HTML or on GitHub, which makes a link of each address of the web.
_SPECIAL = re.compile(r"[^A-Za-z0-9 .,:/()=-]|:(?=//)|(?<=www)\.", re.IGNORECASE)
Row = t.Sequence[str]


def text(results: object) -> str:
    """Return the summary. Raises Refused."""
    fleet = findings.fleet(results)
    groups = [
        ((group.severity, _linked(group.id, group.findings[0][1].source), code(group.kind)), node)
        for group in fleet.groups
        for node in group.nodes
    ]
    unclear = (((escaped(finding.id), code(finding.ask)), node) for node, finding in fleet.unclear)
    failed = (((escaped(error),), node) for node, error in fleet.failed.items())
    lines = [f"# {fleet.title}", "", fleet.remark, *table(("severity", "check", "subject"), groups)]
    lines += table(("cannot tell", "ask for"), unclear)
    return "\n".join([*lines, *table(("could not be audited because",), failed), ""])


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
