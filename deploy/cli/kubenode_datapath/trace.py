# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command trace: a packet and evidence about a node become an answer, a text and an exit status."""

from __future__ import annotations

import argparse
import os
import typing as t
from pathlib import Path

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid, terminal, trace_page
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import PACKET_PATH, Origin
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import (
    changes_backend,
    entrance,
    names,
    packet,
    packet_text,
    trace_backend,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer

from . import installation, output, sources
from .arguments import ARRIVES, CANNOT_TELL, JSON, LOST, MERMAID, STDIN, YAML
from .sources import Evidence, context_of


def run(options: argparse.Namespace, assume: t.Mapping[str, str], is_plugin: bool) -> int:
    """Print the answer. Returns the exit status. Raises DatapathError, OSError."""
    installation.prepare_twins()
    while not is_plugin and _has_evidence(options):
        options.evidence.append(options.packet.pop(0))
    audit_backend.refuse_both(" ".join(options.packet), options.finding)
    with output.Progress() as tell:
        tell("sending the packet through a copy of the node")
        traced, evidence = (_repeated if options.finding else _traced)(options, assume, is_plugin)
    node = Origin.of(evidence.snapshot)._asdict()
    answer = all_printable({**traced.plain(), "node": node, "ignored": evidence.ignored})
    if options.html:
        Path(options.html).write_text(trace_page.html(answer, _about(options, evidence)), encoding="utf-8")
    output.show(_shown(answer, options))
    return status(traced)


def _has_evidence(options: argparse.Namespace) -> bool:
    """Return whether further evidence stands before the packet."""
    first = options.packet[0] if options.packet[(0 if options.finding else 1) :] else ""
    return first == STDIN or os.path.exists(first)


def _traced(options: argparse.Namespace, assume: t.Mapping[str, str], is_plugin: bool) -> tuple[Answer, Evidence]:
    described = packet_text.options(" ".join(options.packet))
    names.check(described)
    changes = changes_backend.read([], options.changes)
    interface = str(described["interface"] or "")
    evidence = sources.evidence(options, is_plugin, PACKET_PATH, "" if interface == packet.AUTO else interface)
    snapshot = trace_backend.about(evidence.snapshot, changes, described)
    sent = entrance.packet(described, snapshot)
    question = trace_backend.Question(snapshot, sent, assume, changes, is_own=evidence.is_own)
    return trace_backend.answer(question, process.run), evidence


def _repeated(options: argparse.Namespace, assume: t.Mapping[str, str], is_plugin: bool) -> tuple[Answer, Evidence]:
    """Trace the packet of a finding."""
    changes = changes_backend.read([], options.changes)
    evidence = sources.evidence(options, is_plugin, SUBSETS)
    audit = audit_backend.Audit(evidence.snapshot, (), context_of(options), is_own=evidence.is_own, assume=assume)
    return audit_backend.repeated(audit, options.finding, changes, True, process.run), evidence


def _about(options: argparse.Namespace, evidence: Evidence) -> dict[str, t.Any]:
    """Return what the page says about the evidence, beside the node and the time of the snapshot."""
    return {"node": options.node, "versions": evidence.snapshot.get("versions"), "source": evidence.source}


def _shown(answer: t.Mapping[str, t.Any], options: argparse.Namespace) -> str:
    if options.format == MERMAID:
        return mermaid.diagram(answer)
    if options.format in (JSON, YAML):
        return output.data(answer, options.format)
    return terminal.trace(answer, colours=output.has_colours(options.color), columns=output.width())


def status(answer: Answer) -> int:
    """Return the exit status that tells whether the packet and its reply arrive.

    An answer that other values of open facts would change is no answer, nor is one that chance decides.
    """
    wants_reply = answer.way.reply is not None
    fates = {way.is_well(wants_reply) for way in answer.every_way}
    if answer.is_unknown or len(fates) > 1 or not answer.certain:
        return CANNOT_TELL
    return ARRIVES if fates == {True} else LOST
