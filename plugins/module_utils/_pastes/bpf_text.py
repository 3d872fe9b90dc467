# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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


_HEAD = re.compile(r"\s*filter\b(?: parent (\S+))? protocol (\S+) pref \d+ (\w+)\b(.*)")
_MIRRED, _GACT = re.compile(r"mirred \(Egress (Redirect|Mirror) to device ([^)\s]+)\)"), re.compile(r"gact action (drop|pass)\b")
_PARENTS = {"ffff:": "ingress", "ffff:fff1": "ingress", "ffff:fff2": "ingress", "ffff:fff3": "egress"}


def filters(part: Part, links: t.Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the filters of an output of tc that are no programs, as the snapshot has them. Arguments: as of programs()."""
    heads = list[tuple[re.Match[str], list[str]]]()
    for line in part.lines:
        head = _HEAD.match(line)
        if head:
            heads.append((head, []))
        elif heads:
            heads[-1][1].append(line.strip())
    entries = []
    for head, lines in heads:
        parent, protocol, kind, rest = head.groups()
        is_head_alone = kind == "u32" and "::" not in rest or (kind in ("matchall", "flower") and " handle " not in rest)
        if kind == "bpf" or is_head_alone:  # of a priority, or of a table
            continue
        directions = [part.chain] if part.chain else [_PARENTS[parent]] if parent in _PARENTS else _DIRECTIONS
        is_all = kind == "matchall" or (
            kind == "u32" and all(line == "match 00000000/00000000 at 0" for line in lines if line.startswith("match "))
        )
        action = _action(lines)
        for link, direction in itertools.product([part.table] if part.table else links, directions):
            entry = {"link": link, "direction": direction, "kind": kind, "protocol": protocol}
            entries.append({**entry, "match": "all" if is_all else "", "action": action})
    return entries


def _action(lines: t.Iterable[str]) -> str:
    """Return the action of a filter if it has one that is understood."""
    actions = [line for line in lines if line.startswith("action order ")]
    mirred, gact = (pattern.search(actions[0]) if len(actions) == 1 else None for pattern in (_MIRRED, _GACT))
    return f"{mirred[1].lower()} {mirred[2]}" if mirred else gact[1] if gact else ""


def _entry(link: str, hook: str, direction: str, name: str) -> dict[str, str]:
    return {"link": link, "hook": hook, "direction": direction, "name": name}
