# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Filters of traffic control that are no BPF programs. A twin has none: what they do to a packet follows from the snapshot.

Those that take all packets are understood, such as the one by which the bandwidth plugin of CNI leads them through an ifb.
"""

from __future__ import annotations

import typing as t

from .._snapshot.values import Entry, entries

DROP, PASS, REDIRECT, MIRROR = "drop", "pass", "redirect", "mirror"  # first words of actions
ENDLESS = "ifb"  # the kind of link that gives packets back to the link from which they were redirected
ALL = "all"


class Filter(t.NamedTuple):
    """link, direction: ingress or egress. protocol: all, ip, ipv6 or a number. match: "all", empty if it was not read.

    action: drop, pass, or ``redirect LINK`` and ``mirror LINK``; empty if it was not read.
    """

    link: str
    direction: str
    kind: str
    protocol: str
    match: str
    action: str

    @property
    def target(self) -> str:
        return self.action.partition(" ")[2]

    def __str__(self) -> str:
        return f"tc filter dev {self.link} {self.direction}: {self.kind} {self.match or '?'} {self.action or '?'}"


def of(snapshot: Entry) -> dict[tuple[str, str], list[Filter]]:
    """Return the filters of a snapshot by link and direction, in the kernel's order."""
    found: dict[tuple[str, str], list[Filter]] = {}
    for entry in entries(snapshot, "filters"):
        each = Filter(*(str(entry.get(name) or "") for name in Filter._fields))
        found.setdefault((each.link, each.direction), []).append(each)
    return found


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
