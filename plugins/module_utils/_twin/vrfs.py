# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VRFs as rules, for a kernel that lacks VRFs, or has not loaded their module: every kernel can look up a table by the interface.

On a node, all VRFs share one rule, which looks up the table of the VRF that the packet's interface is a port of. In the twin,
a rule of the same priority for each port names its table. A port's own address is local in the VRF's table alone.
"""

from __future__ import annotations

import typing as t

from .._routing.rule import LOOKUP, Rule
from .._snapshot.assumption import LINK, Assumption, Concern
from .._snapshot.values import Link
from .substitutions import VRF_RULE, VRF_TABLE, replaced

VRF = "vrf"


class Vrf(t.NamedTuple):
    """links: the VRF itself, and its ports."""

    name: str
    table: int
    links: tuple[str, ...]


def from_links(links: t.Sequence[Link], notes: list[Assumption]) -> list[Vrf]:
    """Return the VRFs of a snapshot. A VRF whose table is not known is left out with a note."""
    vrfs = []
    for name, table in ((link.name, link.settings.get("table")) for link in links if link.kind == VRF):
        ports = tuple(port.name for port in links if port.master == name)
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


def rules(vrfs: t.Sequence[Vrf], rule: Rule) -> list[Rule]:
    """Return the rules that replace a rule about VRFs; the rule itself if it is about none."""
    if rule.l3mdev:
        selected = {rule.iif, rule.oif} - {""}
        return [
            rule._replace(l3mdev=False, iif=iif, oif=oif, table=vrf.table if rule.action == LOOKUP else 0)
            for vrf in vrfs
            for link in vrf.links
            if not selected or selected & {link, vrf.name}
            for iif, oif in ((link, ""), ("", link))
        ]
    # A packet that comes in by a port comes in by its VRF.
    return next(([rule._replace(iif=link) for link in vrf.links] for vrf in vrfs if vrf.name == rule.iif), [rule])


def ports(vrfs: t.Iterable[Vrf]) -> set[str]:
    """Return the VRFs and their ports, whose addresses are local in the table of the VRF alone."""
    return {link for vrf in vrfs for link in vrf.links}
