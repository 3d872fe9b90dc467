# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a rollout as JUnit's XML, as Markdown, and as a page of HTML that loads nothing.

data: the report, in the form of docs/schema/rollout.json.
"""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .._core.printable import all_printable, in_one_line
from . import group_page, junit, markdown
from .findings import grouped
from .markup import Markup, document, element, filled, folded, headline
from .stylesheet import BAD, GOOD, OPEN

Data = t.Mapping[str, t.Any]
FAILED = ("failed", "unreachable", "no result", "stopped")
UNDONE = ("not reached", "no task ran", "running")


def title(data: Data) -> str:
    """Summarize the run: "aks_dual_stack: 3 nodes: 1 failed, 2 changed"."""
    totals = ", ".join(f"{number} {state}" for state, number in data["totals"].items())
    mode = ", in check mode" if data["check_mode"] else ""
    return f"{data['playbook']} on {len(data['nodes'])} nodes{mode}: {totals or 'none'}"


def as_junit(data: Data) -> str:
    """Return a test suite for each node: its profile, and each connection that was checked."""
    root = Element("testsuites", name=f"kubenode.datapath {data['playbook']}")
    for name, node in all_printable(data["nodes"]).items():
        suite = junit.suite(root, in_one_line(name))
        _add_state(junit.case(suite, data["playbook"]), node)
        for moment, checks in (node["stats"].get("checks") or {}).items():
            _add_checks(suite, moment, checks)
    return junit.document(root)


def _add_state(case: Element, node: Data) -> None:
    if node["state"] in FAILED:
        junit.add(case, junit.FAILURE, node["trouble"] or node["state"], node["warnings"], node["state"])
    elif node["state"] in UNDONE:
        junit.add(case, junit.SKIPPED, node["state"])


def _add_checks(suite: Element, moment: str, checks: Data) -> None:
    for check in checks["answered"]:
        junit.case(suite, f"{check['address']} port {check['port']} {moment} the change")
    for check in checks["silent"]:
        case = junit.case(suite, f"{check['address']} port {check['port']} {moment} the change")
        junit.add(case, junit.FAILURE if moment == "after" else junit.SKIPPED, "accepts no connection")


def as_markdown(data: Data) -> str:
    """Return the summary, and a table of states with their nodes."""
    rows = (((markdown.escaped(node["state"]), markdown.escaped(_sentence(node))), name) for name, node in _nodes(data))
    warnings = (((markdown.escaped(text),), name) for name, node in _nodes(data) for text in node["warnings"])
    lines = [f"# {markdown.escaped(title(data))}", *markdown.table(("state", "what"), rows)]
    return "\n".join([*lines, *markdown.table(("warning",), warnings), ""])


def as_page(data: Data) -> str:
    """Write a page of HTML: a headline in the colour of the worst node, and equal nodes as groups, those that failed first."""
    versions = (
        f"kubenode.datapath {data['collection']}, ansible-core {data['ansible']}, from {data['started']} to {data['ended']}"
    )
    states = sorted({node["state"] for _name, node in _nodes(data)}, key=_rank)
    alike = grouped(((node["state"], _sentence(node)), (name, node)) for name, node in _nodes(data))
    groups = sorted(alike.items(), key=lambda group: (_rank(group[0][0]), -len(group[1])))
    head = headline(title(data), _tone(*states), element("p", versions))
    controls = group_page.controls({state: state for state in states}, ("state", "nodes", "task"), "Filter by node, task, error")
    listed = group_page.listed(_group(state, what, nodes) for (state, what), nodes in groups)
    return document(title(data), [head], [controls, listed], group_page.STYLE, group_page.SCRIPT)


def _rank(state: str) -> int:
    """Return the place of a state: failures first, then what was not done."""
    order = (*FAILED, *UNDONE)
    return order.index(state) if state in order else len(order)


def _tone(*states: str) -> str:
    return BAD if {*states}.intersection(FAILED) else OPEN if {*states}.intersection(UNDONE) else GOOD


def _group(state: str, what: str, nodes: t.Sequence[tuple[str, Data]]) -> Markup:
    """Return nodes with one state and one sentence, and below it what each of them says besides."""
    alike = grouped(("".join(_parts(node)), (name, node)) for name, node in nodes)
    parts = [
        folded([", ".join(name for name, _node in of_text)], *_parts(of_text[0][1]), classes="", is_open=state in FAILED)
        for of_text in alike.values()
    ]
    names = [name for name, _node in nodes]
    return group_page.Group(state, "", what, names, (_tone(state), OPEN)).shown(*parts)


def _parts(node: Data) -> list[Markup]:
    facts = [f"{key} {node[key]}" for key in ("kernel", "nft", "profile") if node[key]]
    variables = "\n".join(f"{key}: {value}" for key, value in (node["variables"] or {}).items())
    return [
        filled("p", ", ".join(facts), classes="dim"),
        *(element("p", f"Proved: {text}") for text in node["proof"]),
        *(element("p", f"Warning: {text}") for text in node["warnings"]),
        filled("pre", variables),
    ]


def _sentence(node: Data) -> str:
    """Return the error of a node, or the tasks that changed it."""
    return str(node["trouble"]) or ", ".join(dict.fromkeys(change["task"] for change in node["changes"]))


def _nodes(data: Data) -> t.Iterable[tuple[str, Data]]:
    return [(in_one_line(name), all_printable(node)) for name, node in data["nodes"].items()]
