# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of the API of Kubernetes with TLS, as the agent of the DaemonSet uses it: one Node object and its events."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.delivered import TAINT

CERTIFICATE = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
EXTENSIONS = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
[server]
subjectAltName = IP:ADDRESS
"""
"""The authority, as that of EKS, does not say what its key may be used for, which Python 3.13 refuses by default."""


def certify(folder: Path, name: str, section: str, *signer: str, address: str = "::1") -> None:
    """Writes a key and a certificate with the extensions of this section; signed by itself if there is no signer."""
    (folder / "extensions").write_text(EXTENSIONS.replace("ADDRESS", address))
    files = ("-config", "extensions", "-extensions", section, "-keyout", f"{name}.key", "-out", f"{name}.crt")
    subprocess.run([*CERTIFICATE, "-subj", f"/CN={name}", *files, *signer], cwd=folder, check=True, capture_output=True)


class Api(http.server.ThreadingHTTPServer):
    """One Node object and its events. ``folder`` gets the files that a pod's service account has.

    ``behaves`` may answer a request in place of the API. ``asked`` are the requests.
    """

    daemon_threads = True

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Handler)
        self.token_file = folder / "token"
        certify(folder, "ca", "authority")
        certify(folder, "api", "server", "-CA", "ca.crt", "-CAkey", "ca.key", address=address)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "api.crt", folder / "api.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.set_token("first")
        self.taints, self.labels, self.events = [{"key": TAINT, "effect": "NoSchedule"}], dict[str, str](), list[dict[str, Any]]()
        self.conditions: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.behaves: Callable[[Handler], bool] = lambda _request: False

    def set_token(self, token: str) -> None:
        self.token = token
        self.token_file.write_text(token)

    def server_bind(self) -> None:  # without a look-up of the host's name, which may take long
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "api", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not wait for its answer is no error here."""

    def found(self) -> dict[str, Any]:
        # Kubelet may list an image without names, which the client's own classes refuse.
        status = {"images": [{"names": None}], "conditions": self.conditions or None}
        return {
            "kind": "Node",
            "metadata": {"name": "node1", "labels": self.labels},
            "spec": {"taints": self.taints},
            "status": status,
        }

    def patch(self, patch: Any) -> int:
        if isinstance(patch, dict):
            for name, value in patch["metadata"]["labels"].items():
                self.labels.pop(name, None)
                self.labels |= {} if value is None else {name: value}
            return 200
        test, removal = patch
        number = int(removal["path"].rpartition("/")[2])
        if test["path"] != f"/spec/taints/{number}/key" or self.taints[number]["key"] != test["value"]:
            return 422
        del self.taints[number]
        return 200


class Handler(http.server.BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.body: Any = None
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.body = json.loads(self.rfile.read(length))
        self.server.asked.append(f"{self.command} {self.path}")
        if not self.server.behaves(self):
            self.answer(*self.regular())

    do_PATCH = do_POST = do_GET

    def regular(self) -> tuple[int, Any]:
        api = self.server
        if self.headers["Authorization"].lower() != f"bearer {api.token}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if self.path == "/api/v1/namespaces/default/events":
            api.events.append(self.body)
            return 201, self.body
        if self.path == "/api/v1/nodes/node1/status" and self.command == "PATCH":
            assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
            for changed in self.body.get("status", {}).get("conditions", ()):  # merged by their types
                others = [former for former in api.conditions if former["type"] != changed["type"]]
                api.conditions = [*others, changed]
            return 200, api.found()
        assert self.path == "/api/v1/nodes/node1"
        kind = "json-patch" if isinstance(self.body, list) else "strategic-merge-patch"
        if self.command == "PATCH" and self.headers["Content-Type"] != f"application/{kind}+json":
            return 415, {"kind": "Status", "message": "Unsupported Media Type"}
        status = api.patch(self.body) if self.command == "PATCH" else 200
        return status, api.found()

    def answer(self, status: int, content: Any) -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
