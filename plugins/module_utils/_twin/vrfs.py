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

from .._snapshot.assumption import LINK, Assumption, Concern
from .substitutions import VRF_RULE, VRF_TABLE, replaced

Entry = t.Mapping[str, t.Any]
VRF = "vrf"
DIRECTIONS = ("iif", "oif")


class Vrf(t.NamedTuple):
    """links: the VRF itself, and its ports."""

    name: str
    table: int
    links: tuple[str, ...]


def from_links(links: t.Iterable[Entry], notes: list[Assumption]) -> list[Vrf]:
    """Return the VRFs of a snapshot. A VRF whose table is not known is left out with a note."""
    links = list(links)
    vrfs = []
    for link in links:
        if link.get("kind") != VRF:
            continue
        name, table = str(link["name"]), (link.get("settings") or {}).get("table")
        ports = tuple(str(other["name"]) for other in links if other.get("master") == name)
        concerns = [Concern(LINK, link) for link in (name, *ports)]
        if isinstance(table, int) and table:
            vrfs.append(Vrf(name, table, (name, *ports)))
            sentence = (
                f"{name} is a VRF. In the twin, rules for its ports look up table {table} in place of the rule that VRFs share"
                f" (lookup [l3mdev-table]): {', '.join(ports) or 'it has no ports'}."
            )
            notes.append(replaced(VRF_RULE, sentence, *concerns))
        else:
            sentence = f"{name} is a VRF whose table is not known, so that the twin does not look it up. `ip -d link` shows it."
            notes.append(replaced(VRF_TABLE, sentence, *concerns, subject=name))
    return vrfs


def rules(vrfs: t.Sequence[Vrf], rule: Entry) -> list[Entry]:
    """Return the rules that replace a rule about VRFs; the rule itself if it is about none."""
    if rule.get("unread"):
        return [rule]
    if rule.get("l3mdev"):
        plain = {name: value for name, value in rule.items() if name not in ("l3mdev", *DIRECTIONS)}
        named = {rule[way] for way in DIRECTIONS if rule.get(way)}
        return [
            {**plain, way: link, **({} if "action" in rule else {"table": str(vrf.table)})}
            for vrf in vrfs
            for link in vrf.links
            if not named or named & {link, vrf.name}
            for way in DIRECTIONS
        ]
    # A packet that comes in by a port comes in by its VRF.
    return next(([{**rule, "iif": link} for link in vrf.links] for vrf in vrfs if vrf.name == rule.get("iif")), [rule])


def ports(vrfs: t.Iterable[Vrf]) -> set[str]:
    """Return the VRFs and their ports, whose addresses are local in the table of the VRF alone."""
    return {link for vrf in vrfs for link in vrf.links}
