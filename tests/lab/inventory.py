# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes as hosts of Ansible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lab import collection

if TYPE_CHECKING:
    from lab.node import ClusterNode


def variables(node: ClusterNode) -> dict[str, Any]:
    """The Ansible variables of a node."""
    return {
        "ansible_become": False,  # the connection enters as root, and a node need not have sudo
        "ansible_pipelining": True,
        "ansible_python_interpreter": "/usr/bin/python3",
        **node.connection,
    }


def inventory(nodes: Iterable[ClusterNode]) -> dict[str, Any]:
    """All nodes, in group ``nodes``; needs environment()."""
    return {"all": {"children": {"nodes": {"hosts": {node.name: variables(node) for node in nodes}}}}}


def environment() -> dict[str, str]:
    """Variables by which Ansible finds the collection and the lab's plugins."""
    plugins = collection.CHECKOUT / "tests/lab"
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(plugins / "callback"),
        "ANSIBLE_COLLECTIONS_PATH": str(collection.link()),
        "ANSIBLE_CONNECTION_PLUGINS": str(plugins / "connection"),
    }
