# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Traces on a node as an operator has them: the controller reads what is pasted, and the node the rest."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes
from lab.node import NamespaceNode
from lab.steps import Steps


def call(node: NamespaceNode, /, packet: dict[str, Any] | str, **options: Any) -> dict[str, Any]:
    """The result or the error of the module and of the controller's side."""
    return _pastes.trace({"packet": packet, **options}, lambda given: Steps(node, "datapath_trace", given).call())


def trace(node: NamespaceNode, packet: dict[str, Any] | str, **options: Any) -> dict[str, Any]:
    result = call(node, packet, **options)
    assert not result["failed"], result
    return result
