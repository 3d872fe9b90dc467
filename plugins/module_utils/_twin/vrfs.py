# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""VRFs as rules, for a kernel that lacks VRFs, or has not loaded their module: every kernel can look up a table by the interface.

On a node, all VRFs share one rule, which looks up the table of the VRF that the packet's interface is a port of. In the twin,
a rule of the same priority for each port names its table. A port's own address is local in the VRF's table alone.
"""

from __future__ import annotations

import typing as t

from .._snapshot import assumption
from .._snapshot.assumption import Assumption

Entry = t.Mapping[str, t.Any]
VRF = "vrf"
DIRECTIONS = ("iif", "oif")


class Vrf(t.NamedTuple):
    """links: the VRF itself, and its ports."""

    name: str
    table: int
    links: tuple[str, ...]


def found(links: t.Iterable[Entry], notes: list[Assumption]) -> list[Vrf]:
    """The VRFs of a snapshot, without those whose table is not known, for which a note is added."""
    links = list(links)
    vrfs = []
    for one in links:
        if one.get("kind") != VRF:
            continue
        name, table = str(one["name"]), (one.get("settings") or {}).get("table")
        ports = tuple(str(other["name"]) for other in links if other.get("master") == name)
        if isinstance(table, int) and table:
            vrfs.append(Vrf(name, table, (name, *ports)))
            sentence = (
                f"{name} is a VRF. In the twin, rules for its ports look up table {table} in place of the rule that VRFs share"
                f" (lookup [l3mdev-table]): {', '.join(ports) or 'it has no ports'}."
            )
            notes.append(assumption.about(sentence, assumption.LINK, name, *ports))
        else:
            sentence = f"{name} is a VRF whose table is not known, so that the twin does not look it up. `ip -d link` shows it."
            notes.append(assumption.gap(sentence, *(assumption.Concern(assumption.LINK, link) for link in (name, *ports))))
    return vrfs


def rules(vrfs: t.Sequence[Vrf], one: Entry) -> list[Entry]:
    """The rules that replace a rule about VRFs; the rule itself if it is about none."""
    if one.get("unread"):
        return [one]
    if one.get("l3mdev"):
        plain = {name: value for name, value in one.items() if name not in ("l3mdev", *DIRECTIONS)}
        named = {one[way] for way in DIRECTIONS if one.get(way)}
        return [
            {**plain, way: link, **({} if "action" in one else {"table": str(vrf.table)})}
            for vrf in vrfs
            for link in vrf.links
            if not named or named & {link, vrf.name}
            for way in DIRECTIONS
        ]
    # A packet that comes in by a port comes in by its VRF.
    return next(([{**one, "iif": link} for link in vrf.links] for vrf in vrfs if vrf.name == one.get("iif")), [one])


def ports(vrfs: t.Iterable[Vrf]) -> set[str]:
    """The links whose addresses are local in the table of a VRF alone."""
    return {link for vrf in vrfs for link in vrf.links}
