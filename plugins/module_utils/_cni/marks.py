# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which CNI marks connections that come in by the primary interface, by its rules on the node and not by its name.

From the sources of amazon-vpc-cni-k8s (pkg/networkutils), cilium (pkg/datapath/iptables) and terway (cmd/terway-cli). Their rules
are in the table mangle of iptables, Terway's with nftables in a table of its own.
"""

from __future__ import annotations

import typing as t

from .mangle import ACCEPT, JUMP, RESTORE, SET, Line


class Cni(t.NamedTuple):
    """comment: a part of the comments of the rules that set and restore marks."""

    name: str
    comment: str


# By layout.
CNIS = {
    "aws_vpc_cni": Cni("amazon-vpc-cni", "AWS, primary ENI"),
    "cilium": Cni("Cilium", "cilium: primary ENI"),
    "terway": Cni("Terway", "terway-symmetric"),
}


class Chains(t.NamedTuple):
    """The rules of a table that packets meet before routing. place: in messages. first: the chain of the hook."""

    place: str
    first: str
    lines: t.Sequence[Line]


class Marks(t.NamedTuple):
    """The rules of a CNI that mark connections.

    link: the interface by which these come in; empty for any. trouble: why not all packets get the mark, as a clause, or empty.
    """

    owner: str
    place: str
    link: str
    mark: int
    mask: int
    trouble: str = ""

    @property
    def bits(self) -> tuple[int, int]:
        return self.mark, self.mask

    @property
    def text(self) -> str:
        return f"{self.mark:#x}/{self.mask:#x}"

    def report(self) -> dict[str, t.Any]:
        return {**self._asdict(), "mark": hex(self.mark), "mask": hex(self.mask)}


class MarksVerdict(t.NamedTuple):
    """marks: those of the layout's CNI, None if it has none. is_complete: whether no others are needed. reason: a sentence."""

    marks: Marks | None
    is_complete: bool
    reason: str


def find(tables: t.Iterable[Chains]) -> list[Marks]:
    """Return the marks of all known CNIs."""
    walks = ((table.place, list(_walk(table))) for table in tables)
    return [marks for place, lines in walks for cni in CNIS.values() for marks in _of_cni(cni, place, lines)]


def verdict(
    layout: str, primary: str, all_marks: t.Iterable[Marks], unread: str = "", mark: tuple[int, int] | None = None
) -> MarksVerdict:
    """Judge the marks on the node, for a layout. unread: why not all could be read, as a sentence.

    mark: the mark and the mask that the user demands.
    """
    cni = CNIS.get(layout)
    if not cni:
        return MarksVerdict(None, False, f"The layout {layout} has no CNI that marks connections.")
    candidates = [_on(primary, mark, marks) for marks in all_marks if marks.owner == cni.name]
    if not candidates:
        none = f"No rule of {cni.name} marks connections that come in by {primary}."
        return MarksVerdict(None, False, f"{none} {unread}".rstrip())
    best = min(candidates, key=lambda marks: bool(marks.trouble))
    sentence = f"Rules of {cni.name} in {best.place} mark connections with {best.text}"
    if best.trouble:
        return MarksVerdict(best, False, f"{sentence}, but that does not suffice: {best.trouble}.")
    return MarksVerdict(best, True, f"{sentence}.")


def of_image(layout: str, marks_itself: bool) -> MarksVerdict:
    """Return the verdict for an image, whose nodes have rules only after they boot.

    marks_itself: whether the CNI marks by default.
    """
    if layout not in CNIS:
        return verdict(layout, "", ())
    default = "marks connections" if marks_itself else "does not mark connections"
    return MarksVerdict(None, marks_itself, f"An image has no rules to look at; by default {CNIS[layout].name} {default}.")


def _on(primary: str, mark: tuple[int, int] | None, marks: Marks) -> Marks:
    """Return the marks as they serve this primary interface, and the mark that the user demands."""
    if marks.link and not _meet(marks.link, primary):
        return marks._replace(trouble=f"they do so for {marks.link}, and requests come in by {primary}")
    if mark and mark != marks.bits:
        return marks._replace(trouble=f"{mark[0]:#x}/{mark[1]:#x} was given")
    return marks


def _of_cni(cni: Cni, where: str, lines: t.Sequence[Line]) -> t.Iterator[Marks]:
    ours = [(place, rule) for place, rule in enumerate(lines) if cni.comment in rule.comment and rule.mask]
    setting = next(((place, rule) for place, rule in ours if rule.verb == SET and rule.mark), None)
    if setting is None:
        return
    mark, mask = setting[1].mark, setting[1].mask
    restoring = [(place, rule) for place, rule in ours if rule.verb == RESTORE and not mark & ~rule.mask]
    marks = Marks(cni.name, where, setting[1].link, mark, mask)
    ending = next(
        (blocking for place, rule in (setting, *restoring) for blocking in [_ending(lines[:place], rule)] if blocking), None
    )
    if not restoring:
        marks = marks._replace(trouble="no rule copies the mark to the packets of pods")
    elif ending:
        marks = marks._replace(trouble=f"a rule of chain {ending.chain} accepts packets before they reach them")
    yield marks


def _ending(before: t.Iterable[Line], line: Line) -> Line | None:
    """Return the first rule before ``line`` that may accept its packets."""
    return next((rule for rule in before if rule.verb == ACCEPT and _meet(rule.link, line.link)), None)


def _walk(table: Chains) -> t.Iterator[Line]:
    """Yield the rules in the order in which a packet meets them, each chain once."""
    chains: dict[str, list[Line]] = {}
    for line in table.lines:
        chains.setdefault(line.chain, []).append(line)
    entered, open_chains = {table.first}, [iter(chains.get(table.first, ()))]
    while open_chains:
        rule = next(open_chains[-1], None)
        if rule is None:
            open_chains.pop()
            continue
        yield rule
        if rule.verb == JUMP and rule.target not in entered:
            entered.add(rule.target)
            open_chains.append(iter(chains.get(rule.target, ())))


def _meet(pattern: str, other: str) -> bool:
    """Return whether an interface may match both patterns of iptables."""
    if not pattern or not other:
        return True
    ends = [pattern.rstrip("+") for pattern in (pattern, other) if pattern.endswith("+")]
    if len(ends) == 2:
        return ends[0].startswith(ends[1]) or ends[1].startswith(ends[0])
    return pattern == other if not ends else pattern.startswith(ends[0]) and other.startswith(ends[0])
