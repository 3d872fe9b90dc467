# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The report of a rollout as JUnit's XML, as Markdown, and as a page of HTML that loads nothing.

data: the report, in the form of docs/schema/rollout.json.
"""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .._answer.markup import Markup, document, element, section
from .._answer.stylesheet import CSS
from .._core.printable import all_printable, in_one_line
from . import junit, markdown

Data = t.Mapping[str, t.Any]
LOST = ("failed", "unreachable", "no result", "stopped")
OPEN = ("not reached", "no task ran", "running")
GOOD_TONE, OPEN_TONE, BAD_TONE = "good", "open", "bad"  # classes of the stylesheet


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
    if node["state"] in LOST:
        junit.add(case, junit.FAILURE, node["trouble"] or node["state"], node["warnings"], node["state"])
    elif node["state"] in OPEN:
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
    lines = [f"# {markdown.escaped(title(data))}", *markdown.table(("state", "what"), markdown.grouped(rows))]
    return "\n".join([*lines, *markdown.table(("warning",), markdown.grouped(warnings)), ""])


def as_page(data: Data) -> str:
    """Return the page."""
    states = {node["state"] for _name, node in _nodes(data)}
    tone = BAD_TONE if states.intersection(LOST) else OPEN_TONE if states.intersection(OPEN) else GOOD_TONE
    versions = (
        f"kubenode.datapath {data['collection']}, ansible-core {data['ansible']}, from {data['started']} to {data['ended']}"
    )
    head = element("div", element("h1", title(data)), element("p", versions), classes=f"answer {tone}")
    nodes = section("Nodes", *(_node(name, node) for name, node in _nodes(data)))
    return document(title(data), CSS, element("header", head), element("main", nodes))


def _node(name: str, node: Data) -> Markup:
    tone = BAD_TONE if node["state"] in LOST else OPEN_TONE if node["state"] in OPEN else GOOD_TONE
    facts = [f"{key} {node[key]}" for key in ("kernel", "nft", "profile") if node[key]]
    variables = "\n".join(f"{key}: {value}" for key, value in (node["variables"] or {}).items())
    parts = [
        element("p", _sentence(node)),
        element("p", ", ".join(facts), classes="dim") if facts else "",
        *(element("p", f"Proved: {text}") for text in node["proof"]),
        *(element("p", f"Warning: {text}") for text in node["warnings"]),
        element("pre", variables) if variables else "",
    ]
    summary = element("summary", element("span", node["state"], classes=f"tag {tone}"), " ", element("b", name))
    return element("details", summary, *parts, classes="card", is_open=node["state"] in LOST)


def _sentence(node: Data) -> str:
    """Return the error of a node, or the tasks that changed it."""
    return str(node["trouble"]) or ", ".join(dict.fromkeys(change["task"] for change in node["changes"]))


def _nodes(data: Data) -> t.Iterable[tuple[str, Data]]:
    return [(in_one_line(name), all_printable(node)) for name, node in data["nodes"].items()]
