# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Audits: by the module on a node, and of a snapshot in this process; and the remedies of what they find."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import random_nodes


def audited(node: NamespaceNode, *checks: str, **options: Any) -> dict[str, Any]:
    """The result of the module. checks: ids; without any, all."""
    return Steps(node, "datapath_audit", {"checks": [*checks], **options} if checks else options).run()


def findings(node: NamespaceNode, *checks: str, **options: Any) -> list[dict[str, Any]]:
    """What the module finds, or cannot tell; nothing only if each check has passed."""
    result = audited(node, *checks, **options)
    assert result["findings"] or {*result["passed"]} == {*checks}
    return list(result["findings"])


def concluded(snapshot: Mapping[str, Any], *checks: str, **options: Any) -> dict[str, Any]:
    """The result for a snapshot. checks: as for audited()."""
    chosen = catalogue.chosen([*checks]) if checks else catalogue.CHECKS
    return audit_backend.result(audit_backend.Audit(snapshot, chosen, **options), random_nodes.run)


def apply(node: NamespaceNode, remedy: Mapping[str, Any]) -> None:
    for command in remedy.get("commands", ()):
        node.run(shlex.split(command))
    if "module" in remedy:
        Steps(node, remedy["module"].rpartition(".")[2], remedy["options"]).run()
