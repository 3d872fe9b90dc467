# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kube-proxy reads of the API of Kubernetes: lists and watches of four kinds as JSON, over HTTP and from memory."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lab.machine import Machine

Manifest = dict[str, Any]

ADDRESS = "127.0.0.1"
PATHS = {
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
    "ServiceCIDR": "/apis/networking.k8s.io/v1/servicecidrs",
}
_KINDS = {path: kind for kind, path in PATHS.items()}
_SYNCED = {"k8s.io/initial-events-end": "true"}


class Store:
    """The objects, and all changes in their order. A resource version is the number of changes up to it."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Manifest] = {}
        self._changes: list[tuple[str, Manifest]] = []
        self._changed = threading.Condition()
        self._is_closed = False

    @property
    def version(self) -> int:
        return len(self._changes)

    def put(self, manifests: Iterable[Manifest]) -> None:
        """Create or replace objects."""
        with self._changed:
            for manifest in manifests:
                self._record("MODIFIED" if _key(manifest) in self._objects else "ADDED", manifest)
            self._changed.notify_all()

    def listed(self, kind: str) -> list[Manifest]:
        return [manifest for key, manifest in list(self._objects.items()) if key[0] == kind]

    def changes(self, kind: str, after: int) -> Iterator[Manifest]:
        """Yield the events of a kind, and wait for more until the store is closed."""
        while not self._is_closed:
            with self._changed:
                while not self._is_closed and self.version <= after:
                    self._changed.wait()
                events = self._changes[after:]
            after += len(events)
            yield from (event for of_kind, event in events if of_kind == kind)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _record(self, change: str, manifest: Manifest) -> None:
        stamped = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version + 1)}}
        self._objects[_key(manifest)] = stamped
        self._changes.append((manifest["kind"], {"type": change, "object": stamped}))


def _key(manifest: Manifest) -> tuple[str, str, str]:
    return manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


class Api:
    """A server of the API in a machine's network, at its loopback address."""

    def __init__(self, machine: Machine) -> None:
        self.store = Store()
        handler = functools.partial(_Handler, self.store)
        self._server = machine.in_network(lambda: ThreadingHTTPServer((ADDRESS, 0), handler))
        threading.Thread(target=self._server.serve_forever, name="API", daemon=True).start()

    @property
    def kubeconfig(self) -> str:
        """Return a kubeconfig as JSON, which is YAML."""
        server = {"server": f"http://{ADDRESS}:{self._server.server_port}"}
        context = {"cluster": "lab", "user": "lab"}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "lab", "cluster": server}],
                "users": [{"name": "lab", "user": {}}],
                "contexts": [{"name": "lab", "context": context}],
                "current-context": "lab",
            }
        )

    def close(self) -> None:
        self.store.close()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: the end of the connection ends an answer, also that of a watch."""

    def __init__(self, store: Store, *arguments: Any) -> None:
        self._store = store
        super().__init__(*arguments)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: texts[-1] for name, texts in parse_qs(url.query).items()}
        path, _slash, name = url.path.rpartition("/")
        if url.path in _KINDS and query.get("watch") in ("true", "1"):
            self._watch(_KINDS[url.path], query)
        elif url.path in _KINDS:
            self._answer(200, self._list(_KINDS[url.path]))
        else:
            matches = [manifest for manifest in self._store.listed(_KINDS.get(path, "")) if manifest["metadata"]["name"] == name]
            self._answer(*((200, matches[0]) if matches else (404, _missing(url.path))))

    def do_POST(self) -> None:
        """Accept an event, and forget it."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201, sent)

    do_PATCH = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each request."""

    def _list(self, kind: str) -> Manifest:
        version = str(self._store.version)
        return {**_of_kind(f"{kind}List", kind), "metadata": {"resourceVersion": version}, "items": self._store.listed(kind)}

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        after = int(query.get("resourceVersion") or 0)
        self._begin(200)
        with contextlib.suppress(OSError):  # the client has ended
            if query.get("sendInitialEvents") == "true":
                after = self._store.version
                for manifest in self._store.listed(kind):
                    self._send({"type": "ADDED", "object": manifest})
                self._send({"type": "BOOKMARK", "object": {**_of_kind(kind, kind), "metadata": _synced(after)}})
            for event in self._store.changes(kind, after):
                self._send(event)

    def _answer(self, status: int, body: Manifest) -> None:
        self._begin(status)
        self._send(body)

    def _begin(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()

    def _send(self, body: Manifest) -> None:
        self.wfile.write(json.dumps(body).encode() + b"\n")


def _of_kind(kind: str, item: str) -> Manifest:
    return {"kind": kind, "apiVersion": PATHS[item].rpartition("/")[0].removeprefix("/apis/").removeprefix("/api/")}


def _synced(version: int) -> Manifest:
    return {"resourceVersion": str(version), "annotations": _SYNCED}


def _missing(path: str) -> Manifest:
    state = {"status": "Failure", "code": 404, "reason": "NotFound"}
    return {"kind": "Status", "apiVersion": "v1", **state, "message": f"{path} is not served"}
