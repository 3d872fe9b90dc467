# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API that serves Node objects by HTTP, and the kubeconfig for it."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2026-11-20T10:00:00Z"}


def node(name: str, address: str, provider_id: str = "", **labels: str) -> dict[str, Any]:
    labels_of_node = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return {
        "metadata": {"name": name, "labels": labels_of_node, "creationTimestamp": "2026-11-20T10:00:00Z"},
        "spec": {"providerID": provider_id, "podCIDRs": ["10.244.0.0/24"]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [READY],
            # A kubelet may list an image without names, and nodeInfo may lack fields; both stop some versions of the client.
            "images": [{"names": None, "sizeBytes": 1}],
            "nodeInfo": {
                "operatingSystem": "linux",
                "architecture": "arm64",
                "machineID": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex,
                "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            },
        },
    }


class Api(http.server.ThreadingHTTPServer):
    """Serves Node objects, ``page`` at a time, to requests with the token, and records the requests."""

    def __init__(self, nodes: list[dict[str, Any]], page: int = 100) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.nodes, self.page, self.asked = nodes, page, list[dict[str, list[str]]]()

    def server_bind(self) -> None:  # without a look-up of the host's name, which may take long
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])


class Handler(http.server.BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        self.server.asked.append(query)
        begin = int(query.get("continue", ["0"])[0])
        end = begin + self.server.page
        left = {"continue": str(end)} if end < len(self.server.nodes) else {}
        answer: dict[str, Any] = {"kind": "NodeList", "metadata": left, "items": self.server.nodes[begin:end]}
        status = 200
        if self.headers["Authorization"] != "Bearer secret":
            status, answer = 403, {"kind": "Status", "message": "nodes is forbidden: User cannot list resource"}
        if url.path == "/strange/api/v1/nodes":
            answer = {"metadata": {}, "items": "none"}
        elif url.path != "/api/v1/nodes":
            status, answer = 404, {}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving(nodes: list[dict[str, Any]], page: int = 100) -> Iterator[Api]:
    """Serve these Node objects while the block runs."""
    with Api(nodes, page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def kubeconfig(folder: Path, port: int, token: str = "secret") -> str:
    """A kubeconfig with two clusters; the other one does not exist."""
    path = folder / "config"
    clusters = [{"name": name, "cluster": {"server": f"http://127.0.0.1:{to}"}} for name, to in (("here", port), ("gone", 1))]
    contexts = [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("here", "gone")]
    users = [{"name": "me", "user": {"token": token}}]
    kinds = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
    path.write_text(json.dumps({**kinds, "clusters": clusters, "contexts": contexts, "users": users}))
    return str(path)
