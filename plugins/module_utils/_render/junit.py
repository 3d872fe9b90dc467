# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The audits of nodes as JUnit's XML: a test suite for each node, and a test case for each check."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from . import findings
from .findings import Finding, Findings, grouped

FAILURE, SKIPPED, ERROR = "failure", "skipped", "error"  # elements of a test case
COUNTS = {"failures": FAILURE, "skipped": SKIPPED, "errors": ERROR}  # attributes of a test suite


def text(results: object) -> str:
    """Return the document. Raises Refused."""
    audits = findings.fleet(results)
    root = Element("testsuites", name="kubenode.datapath audit")
    for node, audit in audits.audited.items():
        _add_audit(suite(root, node), audit)
    for node, error in audits.failed.items():
        add(case(suite(root, node), "audit"), ERROR, error)
    return document(root)


def document(root: Element) -> str:
    """Return the document of test suites, with the numbers of their cases."""
    for child in root:
        child.set("tests", str(len(child)))
        for attribute, element in COUNTS.items():
            child.set(attribute, str(len(child.findall(f"*/{element}"))))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def suite(root: Element, node: str) -> Element:
    """Add the test suite of a node."""
    return SubElement(root, "testsuite", name=node)


def case(suite: Element, check: str) -> Element:
    """Add a test case, which has passed unless an element is added to it."""
    return SubElement(suite, "testcase", classname=suite.get("name", ""), name=check)


def _add_audit(suite: Element, audit: Findings) -> None:
    present, unclear = (grouped((each.id, each) for each in entries) for entries in (audit.present, audit.unclear))
    for check, entries in present.items():
        details = [line for finding in (*entries, *unclear.get(check, ())) for line in _lines(finding)]
        add(case(suite, check), FAILURE, entries[0].what, details, entries[0].severity)
    for check, entries in unclear.items():
        if check not in present:
            add(case(suite, check), SKIPPED, " ".join(finding.what for finding in entries))
    for check in audit.passed:
        case(suite, check)


def add(case: Element, name: str, message: str, lines: t.Sequence[str] = (), type: str = "") -> None:
    """Add FAILURE, SKIPPED or ERROR to a test case."""
    element = SubElement(case, name, message=message)
    element.text = "\n".join(lines) or None
    if type:
        element.set("type", type)


def _lines(finding: Finding) -> list[str]:
    lines = [
        f"{finding.subject}: {finding.what}".removeprefix(": "),
        *finding.added,
        *finding.unless,
        *finding.evidence,
        finding.packet,
    ]
    if finding.remedy:
        lines += [f"Remedy: {finding.remedy.change}", *finding.remedy.lines]
    return [line for line in (*lines, finding.ask, finding.source) if line]
