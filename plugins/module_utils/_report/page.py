# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.
"""The audits of many nodes as one page of HTML, which loads nothing: findings by check and subject, with their nodes."""

from __future__ import annotations

import ipaddress
import typing as t

from .._answer import drawing
from .._answer.findings import ERROR, RISK, SEVERITIES, Finding, Findings
from .._answer.markup import Markup, document, element, joined, section
from .._answer.stylesheet import CSS
from .._trace.answer import Way
from . import fleet

MOST = 1_000_000  # characters of the pictures of a page
BAD, OPEN, GOOD = "bad", "open", "good"  # classes of the stylesheet
TONES = {ERROR: BAD, RISK: OPEN}
NEW, GONE, STILL = "new", "gone", "still"  # since an earlier run
MOST_WHOLE = 20  # findings of a group with remedy and picture; those of further nodes are in the JSON
STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.2rem; align-items: center; margin-top: 1.2rem; }
.controls input[type=search] { flex: 1 1 14rem; max-width: 100%; }
.controls input, .controls select, .controls button { padding: .35rem .6rem; font: inherit; color: inherit;
  background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; }
#groups { margin-top: .8rem; }
.group > summary { display: flex; flex-wrap: wrap; gap: .2rem .8rem; align-items: baseline; }
.group > summary::before { content: "\u25b8"; color: var(--dim); }
.group[open] > summary::before { content: "\u25be"; }
.group > summary .count { margin-left: auto; color: var(--dim); }
.group > p, .node-finding, .node-finding > * + * { margin-top: .6rem; }
.node-finding summary { color: var(--dim); }
[hidden]:not(:has(:target)) { display: none !important; }
.group:has(:target) { display: block; }
@media print {
  .controls { display: none; }
  .group { break-inside: auto; }
  .node-finding > p { break-after: avoid; }
}
"""
# Filters and sorts the groups. Without it, all are shown, in the order of their severities.
SCRIPT = """
const groups = [...document.querySelectorAll('.group')], list = document.getElementById('groups');
const text = document.getElementById('text'), order = document.getElementById('order');
const boxes = [...document.querySelectorAll('.controls input[type=checkbox]')];
const severities = boxes.map(box => box.value);
const words = new Map(groups.map(group => [group, group.textContent.toLowerCase()]));
const keys = {
  severity: group => [severities.indexOf(group.dataset.severity), -group.dataset.nodes],
  nodes: group => [-group.dataset.nodes, severities.indexOf(group.dataset.severity)],
  check: group => [group.dataset.check, group.dataset.subject],
};
function show() {
  const wanted = text.value.toLowerCase().split(' ').filter(Boolean);
  const chosen = boxes.filter(box => box.checked).map(box => box.value);
  for (const group of groups) {
    group.hidden = !chosen.includes(group.dataset.severity) || !wanted.every(word => words.get(group).includes(word));
  }
}
function sort() {
  const key = keys[order.value];
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  groups.sort((a, b) => compare(key(a)[0], key(b)[0]) || compare(key(a)[1], key(b)[1]));
  list.append(...groups);
}
document.querySelector('.controls').hidden = false;
text.addEventListener('input', show);
boxes.forEach(box => box.addEventListener('change', show));
order.addEventListener('change', sort);
document.getElementById('unfold').addEventListener('click', () => {
  for (const folded of document.querySelectorAll('.group:not([hidden]), .group:not([hidden]) details')) folded.open = true;
});
"""
Key = tuple[str, str]  # id and subject


class Group(t.NamedTuple):
    """The findings of a check about one kind of subject, each with the name of its node.

    kind: the subject, such as a link, or "addresses". fresh: findings that their nodes did not have before.
    """

    severity: str
    id: str
    kind: str
    findings: list[tuple[str, Finding]]
    fresh: list[tuple[str, Finding]]


def text(results: object, earlier: object = None) -> str:
    """Return the page. earlier: the results of a run before, to compare with; None for none. Raises Refused."""
    now = fleet.read(results)
    before = None if earlier is None else fleet.read(earlier)
    groups = _groups(now.audited, before.audited if before else None)
    title = _title(groups, now)
    head = element("div", element("h1", title), element("p", _counted(now)), classes=f"answer {_tone(groups, now)}")
    parts = [element("header", head), element("main", *_sections(groups, now, before))]
    script = Markup(f"<script>{SCRIPT}</script>")
    return document(title, CSS + STYLE, *parts, script, policy="; script-src 'unsafe-inline'")


def _title(groups: t.Sequence[Group], now: fleet.Fleet) -> str:
    numbers = {severity: sum(group.severity == severity for group in groups) for severity in SEVERITIES}
    counts = [fleet.count(number, severity, f"{severity}s") for severity, number in numbers.items() if number]
    affected = len({node for group in groups for node, _finding in group.findings})
    every = _nodes(len(now.audited))
    return f"{', '.join(counts)} on {affected} of {every}" if counts else f"No findings on {every}"


def _tone(groups: t.Sequence[Group], now: fleet.Fleet) -> str:
    if groups:
        return TONES.get(groups[0].severity, GOOD)
    return OPEN if now.failed or any(audit.unclear for audit in now.audited.values()) else GOOD


def _nodes(number: int) -> str:
    return fleet.count(number, "node", "nodes")


def _counted(now: fleet.Fleet) -> str:
    unclear = sum(bool(audit.unclear) for audit in now.audited.values())
    failed = fleet.count(len(now.failed), "node was", "nodes were")
    return f"On {_nodes(unclear)} some checks cannot tell; {failed} not audited."


def _groups(audited: t.Mapping[str, Findings], before: t.Mapping[str, Findings] | None) -> list[Group]:
    by_kind: dict[Key, list[tuple[str, Finding]]] = {}
    for node, audit in audited.items():
        for finding in audit.present:
            by_kind.setdefault((finding.id, _kind(finding.subject)), []).append((node, finding))
    groups = []
    for (check, kind), findings in by_kind.items():
        severity = min((finding.severity for _node, finding in findings), key=SEVERITIES.index)
        fresh = [] if before is None else [(node, each) for node, each in findings if _key(each) not in _keys(before.get(node))]
        groups.append(Group(severity, check, kind, findings, fresh))
    return sorted(groups, key=lambda group: (SEVERITIES.index(group.severity), -len(group.findings)))


def _kind(subject: str) -> str:
    """Return what nodes have in common: a subject that is an address is of one node."""
    try:
        ipaddress.ip_network(subject, strict=False)
    except ValueError:
        return subject
    return "addresses"


def _key(finding: Finding) -> Key:
    return finding.id, finding.subject


def _keys(audit: Findings | None) -> set[Key]:
    return set(map(_key, audit.present)) if audit else set()


def _sections(groups: t.Sequence[Group], now: fleet.Fleet, before: fleet.Fleet | None) -> t.Iterator[Markup]:
    yield _controls() if groups else Markup()
    pictures = Pictures()
    yield element("div", *(_group(group, before is not None, pictures) for group in groups), attributes={"id": "groups"})
    yield section("Gone since the earlier run", *_gone(now, before)) if before else Markup()
    yield section("What cannot be told", *_unclear(now.audited))
    yield section("Which profile the nodes need", *_profiles(now.audited))
    yield section("Not audited", *_failed(now))
    yield section("Not audited in the earlier run", *_failed(before)) if before else Markup()


def _failed(run: fleet.Fleet) -> t.Iterator[Markup]:
    yield from (element("p", element("b", node), f": {error}") for node, error in run.failed.items())


def _controls() -> Markup:
    boxes = "".join(f'<label><input type="checkbox" value="{severity}" checked> {severity}s</label>' for severity in SEVERITIES)
    orders = "".join(f'<option value="{key}">{key}</option>' for key in ("severity", "nodes", "check"))
    return Markup(
        '<div class="controls" hidden><input type="search" id="text" placeholder="Filter by node, check, address"'
        f' aria-label="Filter">{boxes}<label>Sort by <select id="order">{orders}</select></label>'
        '<button type="button" id="unfold">Unfold all</button></div>'
    )


def _group(group: Group, is_compared: bool, pictures: Pictures) -> Markup:
    nodes = len({node for node, _finding in group.findings})
    change = (NEW if len(group.fresh) == len(group.findings) else STILL) if is_compared else ""
    summary = [
        element("span", group.severity, classes=f"tag {TONES.get(group.severity, GOOD)}"),
        element("code", group.id),
        element("b", group.kind),
        element("span", change, classes="tag open") if change else "",
        element("span", _nodes(nodes), classes="count"),
    ]
    first = group.findings[0][1]
    sentence = first.what if len({finding.what for _node, finding in group.findings}) == 1 else ""
    entries = [
        _finding(finding, names, not sentence, pictures if number < MOST_WHOLE else None)
        for number, (finding, names) in enumerate(_alike(group))
    ]
    body = [element("p", sentence) if sentence else "", *entries, element("p", _source(first.source), classes="dim")]
    data = {"severity": group.severity, "nodes": str(nodes), "check": group.id, "subject": group.kind}
    attributes = {f"data-{name}": value for name, value in data.items()}
    return element("details", element("summary", *summary), *body, classes="card group", attributes=attributes)


def _alike(group: Group) -> t.Collection[tuple[Finding, list[str]]]:
    """Return findings that say the same, each with the names of its nodes."""
    alike: dict[str, tuple[Finding, list[str]]] = {}
    fresh = {(node, *_key(finding)) for node, finding in group.fresh}
    for node, finding in group.findings:
        name = f"{node} ({NEW})" if (node, *_key(finding)) in fresh else node
        alike.setdefault(repr(finding), (finding, []))[1].append(name)
    return alike.values()


def _finding(finding: Finding, nodes: t.Sequence[str], has_sentence: bool, pictures: Pictures | None) -> Markup:
    """Return a finding of nodes. has_sentence: whether it says what is wrong. pictures: None leaves out picture and remedy."""
    names = ", ".join(nodes)
    parts = [element("p", finding.what) if has_sentence else ""]
    parts += [element("pre", "\n".join(finding.evidence))] if finding.evidence else []
    parts += [element("p", "Packet: ", element("code", finding.packet))] if finding.packet else []
    if finding.way and pictures:
        parts += [*(element("p", reason) for reason in finding.way.reasons), pictures.drawn(finding.way, finding.title)]
    if finding.remedy and pictures:
        parts.append(element("p", "Remedy: ", element("b", finding.remedy.change)))
        parts.append(element("pre", "\n".join(finding.remedy.lines)) if finding.remedy.lines else "")
    return element("details", element("summary", names), *parts, classes="node-finding", is_open=len(nodes) > 1)


def _source(url: str) -> Markup:
    """Return a link to a source, which is text if it is none of the web."""
    if not url.startswith("https://"):
        return joined(url)
    return element("a", url, attributes={"href": url, "rel": "noreferrer"})


def _gone(now: fleet.Fleet, before: fleet.Fleet) -> t.Iterator[Markup]:
    """Yield the findings that nodes had in the earlier run, and have no more, although they were audited."""
    nodes_by: dict[Key, list[str]] = {}
    for node, audit in before.audited.items():
        if node in now.audited:
            unclear = {finding.id for finding in now.audited[node].unclear}
            for check, subject in _keys(audit) - _keys(now.audited[node]):
                if check not in unclear:
                    nodes_by.setdefault((check, subject), []).append(node)
    for (check, subject), nodes in nodes_by.items():
        tag = element("span", GONE, classes="tag good")
        yield element("p", tag, " ", element("code", check), f" {subject}: ", ", ".join(nodes))


def _unclear(audited: t.Mapping[str, Findings]) -> t.Iterator[Markup]:
    nodes_by: dict[tuple[str, str], dict[str, list[str]]] = {}
    for node, audit in audited.items():
        for finding in audit.unclear:
            nodes_by.setdefault((finding.ask, finding.what), {}).setdefault(finding.id, []).append(node)
    for (ask, what), nodes_of in nodes_by.items():
        nodes = sorted({node for nodes in nodes_of.values() for node in nodes})
        summary = element("summary", what, element("span", f" {_nodes(len(nodes))}: {', '.join(nodes_of)}", classes="dim"))
        yield element("details", summary, element("pre", ask), element("p", ", ".join(nodes)), classes="card")


def _profiles(audited: t.Mapping[str, Findings]) -> t.Iterator[Markup]:
    nodes_by: dict[tuple[str, str], list[str]] = {}
    for node, audit in audited.items():
        if audit.profile.name:
            nodes_by.setdefault((audit.profile.name, "\n".join(audit.profile.variables)), []).append(node)
    for (name, variables), nodes in nodes_by.items():
        summary = element("summary", element("code", name), element("span", f" {_nodes(len(nodes))}", classes="dim"))
        yield element("details", summary, element("pre", variables), element("p", ", ".join(nodes)), classes="card")


class Pictures:
    """The ways of packets as pictures, each drawn once."""

    def __init__(self) -> None:
        self._room = MOST
        self._places = dict[str, tuple[str, str]]()  # the ids and the titles of their findings, by the pictures

    def drawn(self, way: Way, title: str) -> Markup:
        """Return the picture of a way, or a link to it if it was drawn before; nothing if the pictures fill the page.

        title: of the finding.
        """
        picture = drawing.ways(way, "")
        if picture in self._places:
            place, first = self._places[picture]
            return element("p", element("a", f"The same way as that of {first}", attributes={"href": f"#{place}"}))
        if len(picture) > self._room:
            return Markup()
        self._room -= len(picture)
        place = f"way{len(self._places)}"
        self._places[picture] = place, title
        return element("div", picture, attributes={"id": place})
