# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which changes of a node are the cause of what becomes of a packet: delta debugging (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

import functools
import typing as t

from .._trace.answer import Answer
from .._trace.packet import Packet
from .differences import Change

Changes = frozenset[Change]
NO_PATH: dict[str, t.Any] = {
    "packet": "", "guilty": [], "changes": 0, "verdict": {"before": "", "after": ""}, "certain": False, "is_undone": None,
    "reason": "No path of the node's pods and Services is lost after the changes and was not before.",
}  # fmt: skip
MOST_CAUSES = 16  # of one packet, each of which would stop it alone


class Explanation(t.NamedTuple):
    """guilty: the changes with which the packet is lost, and without which it arrives. changes: how many there are.

    before, after: the answers for the packet. reason: why nothing is guilty; empty if something is. is_undone: whether the
    commands that undo them were tried, and the packet arrives; None if they were not. beyond: what becomes of it after
    the changes where the node does not stop it, as words before "since"; empty if that is as before.
    """

    packet: Packet
    guilty: tuple[Change, ...]
    changes: int
    before: Answer
    after: Answer
    reason: str = ""
    is_undone: bool | None = None
    beyond: str = ""

    @property
    def certain(self) -> bool:
        return self.before.certain and self.after.certain

    @property
    def is_well(self) -> bool:
        """Return whether the packet arrives after the changes as before."""
        return not (self.guilty or self.is_loss or self.beyond) and self.certain

    @property
    def sentence(self) -> str:
        """Say which changes are guilty."""
        if not self.guilty:
            return self.reason
        verb = "lost" if self.is_loss else self.beyond or "elsewhere"
        innocent = self.changes - len(self.guilty)
        without = f"; {innocent} other change{'s are' if innocent > 1 else ' is'} without effect" if innocent else ""
        return f"{verb} since {', and '.join(change.sentence for change in self.guilty)}{without}."

    @property
    def is_loss(self) -> bool:
        return not self.after.way.is_well(self.after.way.reply is not None)

    def plain(self) -> dict[str, t.Any]:
        """Return the explanation as the module returns it."""
        return {
            "packet": str(self.packet),
            "guilty": [change.plain() for change in self.guilty],
            "changes": self.changes,
            "verdict": {"before": self.before.way.verdicts, "after": self.after.way.verdicts},
            "certain": self.certain,
            "reason": self.sentence,
            "is_undone": self.is_undone,
        }


def plain(explained: t.Sequence[Explanation], is_one: bool) -> dict[str, t.Any]:
    """Return explanations as the module returns them. is_one: whether a packet was asked about, and not all paths of the node.

    The first values are those of the first path, and all paths have their own in ``paths``.
    """
    paths = [each.plain() for each in explained]
    first = paths[0] if paths else NO_PATH
    return first if is_one else {**first, "guilty": _each_once(each for path in paths for each in path["guilty"]), "paths": paths}


def _each_once(changes: t.Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return [*{change["text"]: change for change in changes}.values()]


def least(changes: Changes, fails: t.Callable[[Changes], bool]) -> Changes:
    """Return a part of changes with which it fails, and of which no single one can be left out. With all of them it fails."""
    remaining = sorted(changes)
    size = len(remaining)
    while True:
        size, count = max(1, size // 2), len(remaining)
        for start in reversed(range(0, count, size)):
            rest = remaining[:start] + remaining[start + size :]
            if rest and fails(frozenset(rest)):
                remaining = rest
        if size == 1 and len(remaining) == count:
            return frozenset(remaining)


def _ends_as(fate: t.Callable[[Changes], t.Hashable], end: t.Hashable, changes: Changes) -> bool:
    return fate(changes) == end


def _needed(
    cause: Changes, changes: Changes, fate: t.Callable[[Changes], t.Hashable], harm: t.Callable[[Changes], int]
) -> Changes:
    """Return a cause without the changes that only alter what stops the packet, as a route to another place does: the rest does
    as much harm alone, and what becomes of the packet without the rest is the same, or no worse than without the whole cause.
    """
    for change in sorted(cause):
        part = cause - {change}
        if not part or harm(part) < harm(cause):
            continue
        if fate(changes - part) == fate(changes - cause) or harm(changes - part) <= harm(changes - cause):
            cause = part
    return cause


def _required(cause: Changes, innocent: Changes, harm: t.Callable[[Changes], int]) -> Changes:
    """Return a cause without the changes that close a detour which something innocent closes as well.

    Those remain that do harm beside what is innocent, or without which the rest of the cause does less.
    """
    worst = harm(innocent | cause)
    required = frozenset(
        change for change in sorted(cause) if harm(innocent | {change}) or harm(innocent | cause - {change}) < worst
    )
    return cause if harm(innocent | cause - required) else required


def guilty(changes: Changes, fate: t.Callable[[Changes], t.Hashable], harm: t.Callable[[Changes], int]) -> Changes | None:
    """Return the changes that are the cause of a fate: one after the other, as one may stop what another one would stop, too.

    fate: what becomes of the packet with some changes. harm: how bad that is; 0 if it is as it was without any. None if there are
    too many causes.
    """
    causes: list[Changes] = []
    for _cause in range(MOST_CAUSES):
        remaining = changes.difference(*causes)
        if not harm(remaining):
            required = (_required(cause, remaining, harm) if len(cause) > 1 else cause for cause in causes)
            return frozenset[Change]().union(*required)
        if not remaining:
            return None
        cause = least(remaining, functools.partial(_ends_as, fate, fate(remaining)))
        causes.append(_needed(cause, remaining, fate, harm))
    return None
