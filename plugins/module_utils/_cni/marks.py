# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CNI marks connections that come in by the primary interface, by its rules on the node and not by its name.

From the sources of amazon-vpc-cni-k8s (pkg/networkutils), cilium (pkg/datapath/iptables) and terway (cmd/terway-cli). Their rules
are in the table mangle of iptables, Terway's with nftables in a table of its own.
"""

from __future__ import annotations

import typing as t

from .._ruleset.ruleset import ACCEPT, ALL, CONNECTION_MARK, PACKET_MARK, Bits, Rule, Table


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


# The chains of the hook before routing, in the tables that may have such rules.
TABLES = {"mangle": "PREROUTING", "terway_symmetric": "prerouting"}


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


def find(tables: t.Iterable[Table]) -> list[Marks]:
    """Return the marks of all known CNIs."""
    walks = [
        (_place(table), [*table.walk(TABLES[table.name])]) for table in tables if table.family == "ip" and table.name in TABLES
    ]
    return [marks for place, rules in walks for cni in CNIS.values() for marks in _of_cni(cni, place, rules)]


def _place(table: Table) -> str:
    return f"table {table} ({table.backend})"


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


def _of_cni(cni: Cni, where: str, rules: t.Sequence[Rule]) -> t.Iterator[Marks]:
    of_cni = [(number, rule) for number, rule in enumerate(rules) if cni.comment in rule.comment]
    writes = [(number, rule, bits) for number, rule in of_cni if (bits := _written(rule, CONNECTION_MARK)).constant]
    if not writes:
        return
    first, setting, bits = writes[0]
    mark, mask = bits.constant, ALL & ~bits.connection
    restoring = [(number, rule) for number, rule in of_cni if not mark & ~_written(rule, PACKET_MARK).connection]
    marks = Marks(cni.name, where, setting.link, mark, mask)
    ending = next(
        (rule for number, each in ((first, setting), *restoring) for rule in [_ending(rules[:number], each)] if rule), None
    )
    if not restoring:
        marks = marks._replace(trouble="no rule copies the mark to the packets of pods")
    elif ending:
        marks = marks._replace(trouble=f"a rule of chain {ending.chain} accepts packets before they reach them")
    yield marks


def _written(rule: Rule, field: str) -> Bits:
    """Return what a rule writes into a mark of packets or connections; no bits if it does not write."""
    return next((each.bits for each in rule.statements if each.kind == field and each.bits), Bits())


def _ending(before: t.Iterable[Rule], rule: Rule) -> Rule | None:
    """Return the first rule before ``rule`` that may accept its packets."""
    accepting = (each for each in before if each.verdict and each.verdict.kind == ACCEPT)
    return next((each for each in accepting if _meet(each.link, rule.link)), None)


def _meet(pattern: str, other: str) -> bool:
    """Return whether a link may match both names or patterns."""
    if not pattern or not other:
        return True
    ends = [pattern.rstrip("*") for pattern in (pattern, other) if pattern.endswith("*")]
    if len(ends) == 2:
        return ends[0].startswith(ends[1]) or ends[1].startswith(ends[0])
    return pattern == other if not ends else pattern.startswith(ends[0]) and other.startswith(ends[0])
