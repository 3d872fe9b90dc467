# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""BPF programs of links, as ``tc filter show`` and ``bpftool net`` print them."""

from __future__ import annotations

import itertools
import re
import typing as t

from .commands import Part

_DIRECTIONS = ("ingress", "egress")
_FILTER, _NAME = re.compile(r"\s*filter\b.*\bbpf\b.*\b(?:direct-action|id \d+)\b"), re.compile(r" handle \S+ (\S+)")
_ATTACHED = re.compile(
    r"\s*(?P<link>[\w.@-]+)\(\d+\)\s+(?:(?P<hook>clsact|tcx)/(?P<direction>ingress|egress)|(?P<xdp>driver|generic|offload))\b"
    r"(?:\s+(?!id\b)(?P<name>\S+))?"
)


def programs(part: Part, links: t.Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the programs of an output, as the snapshot has them. The part's table is the link, and its chain the direction.

    links: of the node, which may each have a program of which the output does not name the link.
    """
    entries = []
    for line in part.lines:
        attached = _ATTACHED.match(line)
        if _FILTER.match(line):
            name = _NAME.search(line)
            places = itertools.product([part.table] if part.table else links, [part.chain] if part.chain else _DIRECTIONS)
            entries += [_entry(link, "tc", direction, name[1] if name else "unnamed") for link, direction in places]
        elif attached:
            hook = "XDP" if attached["xdp"] else "tcx" if attached["hook"] == "tcx" else "tc"
            entries.append(_entry(attached["link"], hook, attached["direction"] or "ingress", attached["name"] or hook))
    return entries


def _entry(link: str, hook: str, direction: str, name: str) -> dict[str, str]:
    return {"link": link, "hook": hook, "direction": direction, "name": name}
