# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audits of many nodes as one page of HTML, which loads nothing: findings by check and subject, with their nodes."""

from __future__ import annotations

import typing as t

from .._core.printable import counted
from .._trace.answer import Way
from . import findings, group_page, trace_page
from .findings import ERROR, RISK, SEVERITIES, Finding, Findings, Fleet, Group, grouped
from .markup import Markup, document, element, filled, folded, headline, joined, section, tag
from .stylesheet import BAD, GOOD, OPEN

MOST = 1_000_000  # characters of the pictures of a page
TONES = {ERROR: BAD, RISK: OPEN}
LEVELS = {severity: f"{severity}s" for severity in SEVERITIES}
NEW, GONE, STILL = "new", "gone", "still"  # since an earlier run
MOST_WHOLE = 20  # findings of a group with remedy and picture; those of further nodes are in the JSON
Key = tuple[str, str]  # id and subject


def text(results: object, earlier: object = None) -> str:
    """Return the page. earlier: the results of a run before, to compare with; None for none. Raises Refused."""
    now = findings.fleet(results)
    before = None if earlier is None else findings.fleet(earlier)
    head = headline(now.title, _tone(now), element("p", now.remark))
    return document(now.title, [head], _sections(now, before), group_page.STYLE, group_page.SCRIPT)


def _tone(now: Fleet) -> str:
    if now.groups:
        return TONES.get(now.groups[0].severity, GOOD)
    return OPEN if now.failed or any(audit.unclear for audit in now.audited.values()) else GOOD


def _nodes(number: int) -> str:
    return counted(number, "node")


def _fresh(now: Fleet, before: Fleet | None) -> set[tuple[str, Key]]:
    """Return the nodes and keys of findings that their nodes did not have before."""
    former = before.audited if before else {}
    return {(node, each.key) for node, each in now.present if before and each.key not in _keys(former.get(node))}


def _keys(audit: Findings | None) -> dict[Key, None]:
    return dict.fromkeys(finding.key for finding in audit.present) if audit else {}


def _sections(now: Fleet, before: Fleet | None) -> t.Iterator[Markup]:
    groups, pictures, fresh = now.groups, Pictures(), _fresh(now, before)
    yield group_page.controls(LEVELS, ("severity", "nodes", "check"), "Filter by node, check, address") if groups else Markup()
    yield group_page.listed(_group(group, fresh, before is not None, pictures) for group in groups)
    yield section("Gone since the earlier run", *_gone(now, before)) if before else Markup()
    yield section("What cannot be told", *_unclear(now))
    yield section("Which profile the nodes need", *_profiles(now))
    yield section("Not audited", *_failed(now))
    yield section("Not audited in the earlier run", *_failed(before)) if before else Markup()


def _failed(run: Fleet) -> t.Iterator[Markup]:
    yield from (element("p", element("b", node), f": {error}") for node, error in run.failed.items())


def _group(group: Group, fresh: t.Container[tuple[str, Key]], is_compared: bool, pictures: Pictures) -> Markup:
    is_new = all((node, finding.key) in fresh for node, finding in group.findings)
    change = (NEW if is_new else STILL) if is_compared else ""
    first = group.findings[0][1]
    sentence = first.what if len({finding.what for _node, finding in group.findings}) == 1 else ""
    entries = [
        _finding(finding, _marked(finding, nodes, fresh), not sentence, pictures if number < MOST_WHOLE else None)
        for number, (finding, nodes) in enumerate(group.alike)
    ]
    body = [filled("p", sentence), *entries, element("p", _source(first.source), classes="dim")]
    tones = TONES.get(group.severity, GOOD), OPEN
    return group_page.Group(group.severity, group.id, group.kind, group.nodes, tones, change).shown(*body)


def _marked(finding: Finding, nodes: t.Sequence[str], fresh: t.Container[tuple[str, Key]]) -> list[str]:
    """Return the names of nodes, of which some did not have the finding before."""
    return [f"{node} ({NEW})" if (node, finding.key) in fresh else node for node in nodes]


def _finding(finding: Finding, nodes: t.Sequence[str], has_sentence: bool, pictures: Pictures | None) -> Markup:
    """Return a finding of nodes. has_sentence: whether it says what is wrong. pictures: None leaves out picture and remedy."""
    parts = [element("p", finding.what) if has_sentence else ""]
    parts += [element("p", sentence) for sentence in finding.added]
    parts += [element("p", f"Unless: {' '.join(finding.unless)} Ask for: {finding.ask}")] if finding.unless else []
    parts.append(filled("pre", "\n".join(finding.evidence)))
    parts += [element("p", "Packet: ", element("code", finding.packet))] if finding.packet else []
    if finding.way and pictures:
        parts += [*(element("p", reason) for reason in finding.way.reasons), pictures.drawn(finding.way, finding.title)]
    if finding.remedy and pictures:
        parts.append(element("p", "Remedy: ", element("b", finding.remedy.change)))
        parts.append(filled("pre", "\n".join(finding.remedy.lines)))
    return folded([", ".join(nodes)], *parts, classes="", is_open=len(nodes) > 1)


def _source(url: str) -> Markup:
    """Return a link to a source, which is text if it is none of the web."""
    if not url.startswith("https://"):
        return joined(url)
    return element("a", url, attributes={"href": url, "rel": "noreferrer"})


def _gone(now: Fleet, before: Fleet) -> t.Iterator[Markup]:
    """Yield the findings that nodes had in the earlier run, and have no more, although they were audited."""
    unclear = {(node, finding.id) for node, finding in now.unclear}
    gone = (
        (key, node)
        for node, audit in before.audited.items()
        for key in _keys(audit)
        if node in now.audited and key not in _keys(now.audited[node]) and (node, key[0]) not in unclear
    )
    for (check, subject), nodes in grouped(gone).items():
        yield element("p", tag(GONE, GOOD), " ", element("code", check), f" {subject}: ", ", ".join(nodes))


def _unclear(now: Fleet) -> t.Iterator[Markup]:
    entries = (((finding.ask, finding.what), (finding.id, node)) for node, finding in now.unclear)
    for (ask, what), checks in grouped(entries).items():
        nodes = sorted({node for _check, node in checks})
        names = dict.fromkeys(check for check, _node in checks)
        count = element("span", f" {_nodes(len(nodes))}: {', '.join(names)}", classes="dim")
        yield folded([what, count], element("pre", ask), element("p", ", ".join(nodes)))


def _profiles(now: Fleet) -> t.Iterator[Markup]:
    """Yield each profile with its nodes, and below it the variables, which may have addresses of one node."""
    needs = grouped((audit.profile.name, (node, "\n".join(audit.profile.variables))) for node, audit in now.audited.items())
    for name, of_nodes in needs.items():
        alike = grouped((variables, node) for node, variables in of_nodes)
        summary = element("code", name), element("span", f" {_nodes(len(of_nodes))}", classes="dim")
        listed = (part for text, nodes in alike.items() for part in (element("p", ", ".join(nodes)), filled("pre", text)))
        yield folded(summary, *listed) if name else Markup()


class Pictures:
    """The ways of packets as pictures, each drawn once."""

    def __init__(self) -> None:
        self._room = MOST
        self._places = dict[str, tuple[str, str]]()  # the ids and the titles of their findings, by the pictures

    def drawn(self, way: Way, title: str) -> Markup:
        """Return the picture of a way, or a link to it if it was drawn before; nothing if the pictures fill the page.

        title: of the finding.
        """
        picture = trace_page.ways(way, "")
        if picture in self._places:
            place, first = self._places[picture]
            return element("p", element("a", f"The same way as that of {first}", attributes={"href": f"#{place}"}))
        if len(picture) > self._room:
            return Markup()
        self._room -= len(picture)
        place = f"way{len(self._places)}"
        self._places[picture] = place, title
        return element("div", picture, attributes={"id": place})
