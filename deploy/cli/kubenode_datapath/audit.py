# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command audit: evidence about a node becomes findings, a text and an exit status."""

from __future__ import annotations

import argparse
import json
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, terminal
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import snapshot_form

from . import installation, output, sources
from .arguments import ARRIVES, CANNOT_TELL, LOST


def run(options: argparse.Namespace, assume: t.Mapping[str, str], is_plugin: bool) -> int:
    """Print the findings. Returns the exit status. Raises DatapathError, OSError."""
    checks = catalogue.chosen(options.checks)
    installation.prepare_twins()
    evidence = sources.evidence(options, is_plugin, SUBSETS)
    snapshot_form.check(evidence.snapshot)
    context = sources.context_of(options)
    audit = audit_backend.Audit(evidence.snapshot, checks, context, options.prove, evidence.is_own, assume=assume)
    result = audit_backend.result(audit, process.run)
    printed = all_printable({**result, "ignored": evidence.ignored})
    output.show(_shown(printed, options))
    return status(printed, options.line)


def _shown(result: t.Mapping[str, t.Any], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(result, indent=2) + "\n"
    if options.line:
        return findings.read(result).line(options.line) + "\n"
    return terminal.audit(result, colours=output.has_colours())


def status(result: t.Mapping[str, t.Any], severity: str | None = None) -> int:
    """Return the exit status that tells whether a check found a loss of packets, now or later, or cannot tell.

    severity: of the findings that count; errors and risks if it is left out.
    """
    audit = findings.read(result)
    if severity:
        is_lost = any(finding.severity == severity for finding in audit.present)
        is_open = bool(audit.open_checks(severity))
    else:
        is_lost, is_open = bool(audit.losses), bool(audit.unclear)
    return LOST if is_lost else CANNOT_TELL if is_open else ARRIVES
