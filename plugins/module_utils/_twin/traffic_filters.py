# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of traffic control that are no BPF programs. A twin has none: what they do to a packet follows from the snapshot.

Those that take all packets are understood, such as the one by which the bandwidth plugin of CNI leads them through an ifb.
"""

from __future__ import annotations

import typing as t

from .._snapshot.values import Filter

DROP, PASS, REDIRECT, MIRROR = "drop", "pass", "redirect", "mirror"  # first words of actions
ENDLESS = "ifb"  # the kind of link that gives packets back to the link from which they were redirected
ALL = "all"


class Decision(t.NamedTuple):
    """by: the filter that stops the packet, or whose target must pass it; None if none does. unread: one that may decide."""

    by: Filter | None = None
    unread: Filter | None = None


def decide(filters: t.Iterable[Filter], is_ipv6: bool, kinds: t.Mapping[str, str]) -> Decision:
    """Return what filters of one link and direction do to a packet. kinds: of links, by their names."""
    for each in filters:
        if each.protocol not in (ALL, "ipv6" if is_ipv6 else "ip"):
            continue
        verb = each.action.partition(" ")[0]
        if each.match != ALL or not verb or (verb == REDIRECT and kinds.get(each.target) != ENDLESS):
            return Decision(unread=each)
        if verb in (DROP, REDIRECT):
            return Decision(each)
        if verb == PASS:
            return Decision()
    return Decision()
