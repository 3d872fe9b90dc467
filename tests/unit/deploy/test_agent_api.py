# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of the agent to an API that works, is down, is slow, or lies, against a server with TLS."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
sys.path.append(str(Path(__file__).resolve().parents[3] / "deploy/image"))

from kubenode_agent import api as requests  # noqa: E402
from kubenode_agent import node as subject  # noqa: E402
from kubenode_agent.node import Node  # noqa: E402

PROFILE, LABEL = "aks_dual_stack", "kubenode.datapath/aks-dual-stack"
TAINT, OTHER = "kubenode.datapath/not-ready", "example.com/other"
CERTIFICATE = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
EXTENSIONS = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
[server]
subjectAltName = IP:127.0.0.1, IP:::1
"""
"""The authority, as that of EKS, does not say what its key may be used for, which Python 3.13 refuses by default."""

SOON = 0.05  # seconds


def certify(folder: Path, name: str, section: str, *signer: str) -> None:
    """Writes a key and a certificate with the extensions of this section; signed by itself if there is no signer."""
    (folder / "extensions").write_text(EXTENSIONS)
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
        certify(folder, "api", "server", "-CA", "ca.crt", "-CAkey", "ca.key")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "api.crt", folder / "api.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.set_token("first")
        self.taints, self.labels, self.events = [{"key": TAINT, "effect": "NoSchedule"}], dict[str, str](), list[dict[str, Any]]()
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
        status = {"images": [{"names": None}], "conditions": None}
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


@pytest.fixture
def address() -> str:
    return "127.0.0.1"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> Iterator[Api]:
    monkeypatch.setattr(subject, "FIRST", SOON)
    with Api(tmp_path, address) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        monkeypatch.setattr(requests, "ACCOUNT", tmp_path)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def until(taken: Callable[[], bool]) -> bool:
    """Whether the API accepts the request, tried as often as the agent does."""
    for _number in range(100):
        if taken():
            return True
        time.sleep(SOON)
    return False


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_label_taint_and_event_are_the_apis(api: Api) -> None:
    api.taints = [{"key": OTHER}, {"key": TAINT, "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoExecute"}]
    own = Node("node1")
    assert own.label(PROFILE, "1.0") and own.remove_taint(TAINT)
    own.event("Warning", "Failed", "no")
    assert (api.labels, api.taints) == ({LABEL: "1.0"}, [{"key": OTHER}])
    (event,) = api.events
    assert (event["involvedObject"]["name"], event["type"], event["reason"], event["message"]) == (
        *("node1", "Warning", "Failed"),
        "no",
    )
    assert own.label(PROFILE, None) and own.remove_taint(TAINT) and api.labels == {}


def test_a_server_with_a_certificate_of_another_authority_gets_no_token(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certify(tmp_path, "ca", "authority")
    assert not Node("node1").label(PROFILE, "1.0")
    assert "certificate verify failed" in caplog.text and api.asked == []


def silent(request: Handler) -> bool:
    time.sleep(1)
    return True


def by_bytes(request: Handler) -> bool:
    """Each byte of the answer comes before the timeout, but the whole answer does not."""
    with contextlib.suppress(OSError):
        for _number in range(100):
            request.wfile.write(b"H")
            time.sleep(0.01)
    return True


def endless(request: Handler) -> bool:
    with contextlib.suppress(OSError):
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            request.wfile.write(b"{" * (1 << 20))
    return True


def cut(request: Handler) -> bool:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{")
    request.close_connection = True
    return True


def says(status: int, content: Any) -> Callable[[Handler], bool]:
    def behaves(request: Handler) -> bool:
        request.answer(status, content)
        return True

    return behaves


SOUND = {"kind": "Node", "metadata": {"name": "node1", "labels": {LABEL: "0.9"}}, "spec": {"taints": [{"key": TAINT}]}}
TROUBLES = {
    "silent": silent,
    "by bytes": by_bytes,
    "cut": cut,
    "endless": endless,
    "a page": says(200, "<html>Welcome</html>"),
    "nothing": says(200, ""),
    "a list": says(200, []),
    "an empty object": says(200, {}),
    "unchanged": says(200, SOUND),
    "strange": says(200, {"metadata": 1, "spec": {"taints": {"a": 1}}}),
    "gone": says(404, {"message": "nodes node1 not found"}),
    "forbidden": says(403, {"message": "no"}),
    "too many": says(429, {"message": "later"}),
    "expired": says(410, {"message": "too old resource version"}),
    "overloaded": says(503, "upstream"),
    "elsewhere": says(307, ""),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_answer_holds_the_agent_up_or_ends_it_and_what_was_to_be_told_is_told_later(
    api: Api, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subject, "LIMIT", 0.3)
    own = Node("node1")
    api.behaves = TROUBLES[trouble]
    began = time.monotonic()
    assert not own.label(PROFILE, "1.0") and not own.remove_taint(TAINT)
    assert time.monotonic() - began < 0.9 and "The API did not take the taint of node node1" in caplog.text
    assert api.taints == [{"key": TAINT, "effect": "NoSchedule"}]
    api.behaves = lambda _request: False
    assert until(lambda: own.label(PROFILE, "1.0")) and until(lambda: own.remove_taint(TAINT))
    assert (api.labels, api.taints) == ({LABEL: "1.0"}, [])


def test_a_list_of_taints_that_changes_between_look_and_patch_loses_no_other_taint(api: Api) -> None:
    def behaves(request: Handler) -> bool:
        if request.command == "PATCH":
            api.taints.insert(0, {"key": OTHER})
            api.behaves = lambda _request: False
        return False

    api.behaves = behaves
    own = Node("node1")
    assert not own.remove_taint(TAINT) and len(api.taints) == 2
    assert until(lambda: own.remove_taint(TAINT)) and api.taints == [{"key": OTHER}]


def test_a_token_that_has_ended_is_read_again(api: Api) -> None:
    """The client itself reads it a minute after the last time, by a clock that may be set back."""
    own = Node("node1")
    assert own.label(PROFILE, "1.0")
    api.set_token("second")
    assert until(lambda: own.label(PROFILE, "1.1")) and api.labels == {LABEL: "1.1"}


def test_an_api_that_is_down_is_asked_less_and_less_often(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(subject, "FIRST", 4.0)
    monkeypatch.setattr(subject.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(subject.random, "uniform", lambda low, high: (low + high) / 2)
    api.behaves = says(503, "")
    own, asked = Node("node1"), list[float]()
    while now[0] < 300:
        if not own.label(PROFILE, "1.0") and len(api.asked) > len(asked):
            asked.append(now[0])
        now[0] += 5
    assert asked == [0, 5, 15, 35, 70, 130, 190, 250]


def test_an_event_that_the_api_never_takes_does_not_hold_up_the_others(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.behaves = lambda request: request.body["message"] == "bad" and says(422, {"message": "Invalid value"})(request)
    own = Node("node1")
    own.event("Warning", "Failed", "bad")
    own.event("Warning", "Failed", "good")
    assert [event["message"] for event in api.events] == ["good"]
    assert "refused an event of node node1: (422)" in caplog.text


def test_an_event_has_the_time_at_which_it_happened(api: Api) -> None:
    own = Node("node1")
    api.behaves = says(503, "")
    own.event("Normal", "Applied", "a")
    before = time.time()
    time.sleep(0.2)
    api.behaves = lambda _request: False

    def is_sent() -> bool:
        own.flush()
        return bool(api.events)

    assert until(is_sent)
    text = api.events[0]["firstTimestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00", text)
    assert subject.datetime.datetime.fromisoformat(text).timestamp() < before + 0.1


def test_the_same_event_is_sent_again_before_the_api_has_forgotten_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    own, now = Node("node1"), [0.0]
    monkeypatch.setattr(subject.time, "monotonic", lambda: now[0])
    for now[0] in range(0, 4000, 600):
        own.event("Warning", "Failed", "no")
    assert len(api.events) == 2
