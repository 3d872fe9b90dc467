# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's API: kubectl for a user's commands, and plain HTTP for frequent queries."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import entering
from lab.entering import LabError
from lab.machine import Machine

PORT = 6443
MERGE_PATCH = "application/merge-patch+json"

_WRAPPER = """\
#!/bin/sh
# kubectl of a lab's cluster, in the network of its control plane.
if [ "$(readlink /proc/{pid}/ns/net)" != "{namespace}" ]; then
  echo "kubectl: the cluster has ended; bring up another one" >&2
  exit 1
fi
exec nsenter --target {pid} --net -- {program} --kubeconfig {configuration} "$@"
"""


class ApiError(LabError):
    """The API refused a request; ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """The API as the control plane's machine reaches it, with the rights of an administrator.

    ``folder`` takes the client's configuration, and kubectl's cache. ``token`` is the administrator's.
    """

    def __init__(self, machine: Machine, address: str, token: str, program: Path, folder: Path) -> None:
        self._machine = machine
        self._address = address
        self._token = token
        self._program = program
        self._folder = folder
        self._trust = ssl.create_default_context()

    @property
    def configuration(self) -> Path:
        """The kubeconfig file; valid where the control plane's network is reached."""
        return self._folder / "kubeconfig.json"

    def trust(self, authority: str) -> None:
        """Take the certificate of the API's authority, in PEM; until then no request is possible."""
        self._trust.load_verify_locations(cadata=authority)
        self.configuration.write_text(_kubeconfig(self._address, self._token, authority))

    def kubectl(self, *words: str, input: str | None = None, timeout: float = 60) -> str:
        """Run kubectl; returns its stdout. Raises LabError with its output if it fails."""
        result = subprocess.run(
            self._machine.command([str(self._program), "--kubeconfig", str(self.configuration), *words]),
            input=input or "", capture_output=True, text=True, check=False, timeout=timeout,
            env={**entering.ENVIRONMENT, "HOME": str(self._folder)},
        )  # fmt: skip
        if result.returncode != 0:
            raise LabError(f"kubectl {' '.join(words)} answered {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def write_wrapper(self, path: Path) -> None:
        """Write a program that a person runs as kubectl, from anywhere on this machine, for as long as the cluster lives."""
        namespace = entering.network_namespace(self._machine.pid)
        path.write_text(
            _WRAPPER.format(pid=self._machine.pid, namespace=namespace, program=self._program, configuration=self.configuration)
        )
        path.chmod(0o755)

    def request(
        self, path: str, method: str = "GET", body: dict[str, Any] | None = None, content: str = "application/json"
    ) -> dict[str, Any]:
        """One request, in a few milliseconds; returns the object. A PATCH wants ``content`` MERGE_PATCH, for example.

        Raises ApiError if the API refuses, and OSError if it cannot be reached.
        """
        plain = self._machine.in_network(lambda: socket.create_connection((self._address, PORT), timeout=10))
        connection = http.client.HTTPConnection(self._address, PORT)
        with self._trust.wrap_socket(plain, server_hostname=self._address) as connection.sock:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            text = reply.read().decode()
        if reply.status >= 400:
            raise ApiError(f"{method} {path} was answered with {reply.status}: {text}", reply.status)
        answer: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
        return answer

    def items(self, path: str) -> Sequence[dict[str, Any]]:
        """The objects of a list, for example ``/api/v1/nodes``."""
        items: Sequence[dict[str, Any]] = self.request(path)["items"]
        return items


def _kubeconfig(address: str, token: str, authority: str) -> str:
    """A client's configuration file as JSON, which is YAML. ``authority`` is a certificate in PEM."""
    encoded = base64.b64encode(authority.encode()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {"name": "lab", "cluster": {"server": f"https://{address}:{PORT}", "certificate-authority-data": encoded}}
            ],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        },
        indent=2,
    )
