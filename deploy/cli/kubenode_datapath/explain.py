# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command explain: two states of a node, and perhaps a packet, become the changes that are guilty of a loss."""

from __future__ import annotations

import argparse
import os
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._explain import (
    explain_backend,
    explanation,
    lost_paths_backend,
    recorded,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.explanation import Explanation
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._render import terminal
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import Origin
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import (
    entrance,
    names,
    packet,
    packet_text,
)

from . import installation, output, sources
from .arguments import ARRIVES, CANNOT_TELL, LIVE, LOST, STDIN, TEXT


def run(options: argparse.Namespace, assume: t.Mapping[str, str]) -> int:
    """Print the guilty changes. Returns the exit status. Raises DatapathError, OSError."""
    installation.prepare_twins()
    if options.after and options.after not in (LIVE, STDIN) and not os.path.exists(options.after):
        options.packet, options.after = [options.after, *options.packet], ""
    described = packet_text.options(" ".join(options.packet)) if options.packet else None
    if described:
        names.check(described)
    with output.Progress() as tell:
        tell("comparing two states of the node")
        before, after, ignored = _states(options, str((described or {}).get("interface") or ""))
        packets = (
            [entrance.packet(described, before)] if described else lost_paths_backend.since(before, after, assume, process.run)
        )
        explained = [explain_backend.explain(before, after, each, assume, process.run) for each in packets]
    result = explanation.plain(explained, is_one=described is not None)
    printed = all_printable({**result, "ignored": ignored})
    text = terminal.explanation(printed, colours=output.has_colours(options.color), columns=output.width())
    output.show(text if options.format == TEXT else output.data(printed, options.format))
    return _status(explained)


def _states(options: argparse.Namespace, interface: str) -> tuple[dict[str, t.Any], dict[str, t.Any], list[str]]:
    """Return the snapshots of both states, and sentences about lines that were not understood. Raises Invalid."""
    interface = "" if interface == packet.AUTO else interface
    if options.after == STDIN == options.before:
        raise Invalid("before", STDIN, f"another state than AFTER: {STDIN} can be read once")
    dumps: t.Sequence[t.Any] | None = (options.before, options.after)
    if not options.after:
        dumps = None if options.before in (LIVE, STDIN) else pastes_backend.states(options.before, options.node)
    if dumps is None:
        return _recorded(sources.of_dump(options.before, options.node, interface))
    pasted = [sources.of_dump(dump, options.node if options.after else "", interface) for dump in dumps]
    ignored = [f"{state}: {line}" for state, each in zip(("BEFORE", "AFTER"), pasted) for line in each.ignored]
    return pasted[0].snapshot, pasted[1].snapshot, [*_doubts(*(Origin.of(each.snapshot) for each in pasted)), *ignored]


def _recorded(pasted: sources.Evidence) -> tuple[dict[str, t.Any], dict[str, t.Any], list[str]]:
    """Return the same as _states() of one state with the changes that led to it. Raises Invalid."""
    if not pasted.snapshot.get(recorded.CHANGES):
        expected = (
            "a folder of outputs with before and after in their names, or a snapshot with changes that the agent has recorded, if"
            " there is no second state"
        )
        raise Invalid("before", pasted.source, expected)
    before, remaining = recorded.earlier(pasted.snapshot)
    return {**before}, pasted.snapshot, [*remaining, *pasted.ignored]


def _doubts(before: Origin, after: Origin) -> t.Iterator[str]:
    """Yield sentences about states that are not of one node, or whose order is another one."""
    if before.name and after.name and before.name != after.name:
        yield f"BEFORE is of the node {before.name}, and AFTER of {after.name}."
    if before.comparable_time > after.comparable_time > "":
        yield f"BEFORE was read at {before.time}, which is later than {after.time}."


def _status(explained: t.Sequence[Explanation]) -> int:
    """Return the exit status."""
    if any(each.guilty and each.is_loss for each in explained):
        return LOST
    return ARRIVES if all(each.is_well for each in explained) else CANNOT_TELL
