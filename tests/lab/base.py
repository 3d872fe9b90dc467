# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The common parts of all clouds: machines that are found by name and end with the lab, and an inventory of the nodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lab import inventory
from lab.entering import LabError
from lab.namespace import Namespace
from lab.node import ClusterNode, Pod
from lab.server import Servers

_C = TypeVar("_C", bound="Cloud")


class Cloud:
    """A running cloud; ``with`` or ``close()`` ends it. It ends with the process in any case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[ClusterNode] = []
        self._endings = contextlib.ExitStack()
        self._namespaces: list[Namespace] = []
        self._servers = Servers()
        self._endings.callback(self._end_namespaces)
        self._endings.callback(self._servers.close)

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all machines; the kernel frees their objects."""
        self._endings.close()

    def _start_namespace(self, make: Callable[[str], Namespace], name: str) -> Namespace:
        """Starts a namespace without waiting, so that many start at once."""
        self._namespaces.append(make(name))
        return self._namespaces[-1]

    def _end_namespaces(self) -> None:
        for namespace in self._namespaces:
            namespace.end()
        for namespace in self._namespaces:
            namespace.close()

    # Machines by name

    def node(self, name: str) -> Any:
        """The node of that name, of any kind."""
        return _named(self.nodes, name)

    def pod(self, name: str) -> Pod:
        named: Pod = _named(self.pods, name)
        return named

    @property
    def pods(self) -> list[Pod]:
        return [pod for node in self.nodes for pod in node.pods]

    # For ansible-playbook

    def inventory(self) -> dict[str, Any]:
        """An inventory of all nodes, in group ``nodes``; needs ansible_environment()."""
        return inventory.inventory(self.nodes)

    def write_inventory(self, path: str | Path) -> Path:
        """Write the inventory as JSON, which is YAML; ``path`` should end in .json or .yml."""
        target = Path(path)
        target.write_text(json.dumps(self.inventory(), indent=2) + "\n")
        return target

    def ansible_environment(self) -> dict[str, str]:
        """Variables by which ansible-playbook finds the collection and the connection plugin."""
        return inventory.environment()


def _named(machines: Sequence[Any], name: str) -> Any:
    for machine in machines:
        if machine.name == name:
            return machine
    raise LabError(f"no machine is named {name}; there are: {', '.join(machine.name for machine in machines)}")
