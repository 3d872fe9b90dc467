# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubectl does with a cluster, whichever it is."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.entering import LabError
from lab.machine import Machine
from lab.waiting import report, until

PATIENCE = 300.0  # seconds; nodes are ready and pods run in ten, and on a busy machine in minutes


class Client(abc.ABC):
    """A cluster by its kubectl.

    ``minor``: of the API's version. ``kustomizer``: a kubectl that builds the kustomize files of deploy/, None for Debian's.
    """

    minor: int
    kustomizer: Path | None = None

    @abc.abstractmethod
    def kubectl(self, *words: str, input: str | None = None, timeout: float = PATIENCE) -> str:
        """Run kubectl; return its stdout. Raises LabError with its output if it fails."""

    @abc.abstractmethod
    def load_image(self, name: str, folder: Path) -> None:
        """Put an image that was built here on all nodes, as there is no registry. folder: for an archive of it."""

    @abc.abstractmethod
    def last_lines(self) -> str:
        """What happened last, for the message of a wait that failed (lab.waiting.Witness)."""

    @property
    @abc.abstractmethod
    def workers(self) -> Sequence[Machine]:
        """The nodes with a kubelet."""

    def apply(self, *manifests: dict[str, Any]) -> None:
        """``kubectl apply`` of objects. No objects are fine."""
        if manifests:
            self.kubectl("apply", "--filename=-", input=_list(manifests))

    def delete(self, *manifests: dict[str, Any]) -> None:
        """Delete objects, and wait until they are gone; a missing one is fine."""
        self.kubectl("delete", "--ignore-not-found", "--filename=-", input=_list(manifests))

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """An object as the API has it."""
        item: dict[str, Any] = json.loads(self.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json"))
        return item

    def node_port(self, service: str, namespace: str = "default") -> int:
        """The first node port of a service."""
        port: int = self.get("service", service, namespace)["spec"]["ports"][0]["nodePort"]
        return port

    def until(self, what: str, look: Callable[[], Any], expected: Any = None, pause: float = 0.1) -> None:
        """lab.waiting.until(), with the cluster's patience; the message of a failure shows the cluster."""
        until(what, look, self, expected=expected, limit=PATIENCE, pause=pause)

    def wait_for(self, condition: str, *objects: str, timeout: float = PATIENCE) -> None:
        """``kubectl wait``: for example ``wait_for("condition=Ready", "pod", "--selector=app=web")``."""
        self._wait("wait", f"--for={condition}", *objects, timeout=timeout)

    def wait_for_rollout(self, workload: str, namespace: str = "default", timeout: float = PATIENCE) -> None:
        """Wait until all pods of ``daemonset/NAME`` or ``deployment/NAME`` are ready."""
        self._wait("rollout", "status", workload, f"--namespace={namespace}", timeout=timeout)

    def _wait(self, *words: str, timeout: float) -> None:
        """Run a command of kubectl that waits. If it fails, the message shows the cluster too."""
        try:
            self.kubectl(*words, f"--timeout={timeout:g}s", timeout=timeout + 60)
        except LabError as error:
            raise LabError(f"{error}\n{report(self)}") from error


def _list(manifests: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
