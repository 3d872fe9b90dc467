# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes have in common, as groups of a page that can be filtered and sorted: findings of audits, outcomes of a rollout."""

from __future__ import annotations

import typing as t

from .._core.printable import counted
from .markup import Markup, element, folded, tag

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
.group > p, .group > details, .group > details > * + * { margin-top: .6rem; }
.group > details summary { color: var(--dim); }
[hidden]:not(:has(:target)) { display: none !important; }
.group:has(:target) { display: block; }
@media print {
  .controls { display: none; }
  .group { break-inside: auto; }
  .group > details > p { break-after: avoid; }
}
"""
# Filters and sorts the groups. Without it, all are shown, in the order of their levels.
SCRIPT = """
const groups = [...document.querySelectorAll('.group')], list = document.getElementById('groups');
const text = document.getElementById('text'), order = document.getElementById('order');
const boxes = [...document.querySelectorAll('.controls input[type=checkbox]')];
const levels = boxes.map(box => box.value);
const words = new Map(groups.map(group => [group, group.textContent.toLowerCase()]));
const keys = {
  level: group => [levels.indexOf(group.dataset.level), -group.dataset.nodes],
  nodes: group => [-group.dataset.nodes, levels.indexOf(group.dataset.level)],
  name: group => [group.dataset.name, group.dataset.subject],
};
function show() {
  const wanted = text.value.toLowerCase().split(' ').filter(Boolean);
  const chosen = boxes.filter(box => box.checked).map(box => box.value);
  for (const group of groups) {
    group.hidden = !chosen.includes(group.dataset.level) || !wanted.every(word => words.get(group).includes(word));
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


class Group(t.NamedTuple):
    """A group as its line on the page. level: by which groups are filtered and sorted. name, subject: what its nodes have in
    common. change: since an earlier run; empty for nothing to say. tones: of the level and of the change.
    """

    level: str
    name: str
    subject: str
    nodes: t.Sequence[str]
    tones: tuple[str, str]
    change: str = ""

    def shown(self, *content: str) -> Markup:
        """Return the group with its content, which a click shows."""
        summary = [
            tag(self.level, self.tones[0]),
            element("code", self.name) if self.name else "",
            element("b", self.subject),
            tag(self.change, self.tones[1]) if self.change else "",
            element("span", counted(len(self.nodes), "node"), classes="count"),
        ]
        data = {"level": self.level, "nodes": str(len(self.nodes)), "name": self.name, "subject": self.subject}
        attributes = {f"data-{name}": value for name, value in data.items()}
        return folded(summary, *content, classes="card group", attributes=attributes)


def controls(levels: t.Mapping[str, str], orders: t.Sequence[str], filters: str) -> Markup:
    """Return the filters. levels: with the words for their boxes. orders: words for level, number of nodes and name.

    filters: what the words of the filter are.
    """
    boxes = "".join(
        element("label", Markup(f'<input type="checkbox" value="{level}" checked> '), word) for level, word in levels.items()
    )
    options = "".join(element("option", word, attributes={"value": key}) for key, word in zip(("level", "nodes", "name"), orders))
    return Markup(
        f'<div class="controls" hidden><input type="search" id="text" placeholder="{filters}" aria-label="Filter">{boxes}'
        f'<label>Sort by <select id="order">{options}</select></label><button type="button" id="unfold">Unfold all</button></div>'
    )


def listed(groups: t.Iterable[Markup]) -> Markup:
    return element("div", *groups, attributes={"id": "groups"})
