# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An object that a CNI left on a node: what it is, who created it, and how to remove it."""

from __future__ import annotations

import typing as t

CHAIN, RULE, LINK, ADDRESS, NEIGHBOUR = "chain", "rule", "link", "address", "neighbor"
SYSCTL, NAMESPACE, PROGRAM = "sysctl", "namespace", "program"
ROUTE, POLICY_RULE, SET = "route", "policy_rule", "set"


class Leftover(t.NamedTuple):
    """kind: one of the above. place: "ip nat POSTROUTING (nft)", "link eth0", a file. text: as the object's own tool shows it.

    is_certain: whether the object's owner created it and nothing on the node uses it. command: removes it, for a shell.
    effect: what it does to packets, as the end of a sentence; empty if it does nothing, or if that was not looked at.
    """

    kind: str
    place: str
    text: str
    owner: str
    evidence: str
    is_certain: bool
    command: str
    effect: str = ""

    def report(self) -> dict[str, t.Any]:
        """Return the leftover as the module returns it."""
        fields = self._asdict()
        certain = fields.pop("is_certain")
        return {**fields, "certain": certain}


class Findings(t.NamedTuple):
    """removed: those that a run removes. kept: the others."""

    removed: tuple[Leftover, ...] = ()
    kept: tuple[Leftover, ...] = ()

    def report(self) -> dict[str, t.Any]:
        """Return the findings as the module returns them."""
        return {name: [leftover.report() for leftover in leftovers] for name, leftovers in self._asdict().items()}


def findings(leftovers: t.Sequence[Leftover], kinds: t.Collection[str]) -> Findings:
    """Divide leftovers into the certain ones of these kinds, and others."""
    removed = tuple(leftover for leftover in leftovers if leftover.is_certain and leftover.kind in kinds)
    return Findings(removed, tuple(leftover for leftover in leftovers if leftover not in removed))
