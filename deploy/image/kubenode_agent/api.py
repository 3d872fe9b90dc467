# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to the API of Kubernetes, with the service account of the pod.

The agent sends four kinds of requests. The official client loads a class for each kind of object in Kubernetes: 70 MiB.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECT, PART = 3.0, 10.0  # seconds to connect, and between two parts of an answer
LARGEST = 1 << 22  # bytes of an answer; etcd holds no object of more than 1.5 MiB
NODES = "/api/v1/nodes"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/strategic-merge-patch+json"


class Refusal(Exception):
    """The API answered with an error. ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"({status}) {text}")
        self.status = status


def request(method: str, path: str, content: Any = None, kind: str = "application/json") -> dict[str, Any]:
    """Send a request and return the object in the answer.

    Raises Refusal; OSError or HTTPException if there is no complete answer; ValueError if the answer contains no object.
    The token is read for each request, because kubelet replaces it before it expires.
    """
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}", "Accept": "application/json"}
    body = None if content is None else json.dumps(content)
    if body is not None:
        headers["Content-Type"] = kind
    connection = _connection()
    try:
        connection.connect()
        connection.sock.settimeout(PART)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read(LARGEST + 1)
    finally:
        connection.close()
    if len(text) > LARGEST:
        raise ValueError(f"it answered with more than {LARGEST} bytes")
    if answer.status not in (200, 201):
        raise Refusal(answer.status, text.decode(errors="replace") or answer.reason)
    reply = json.loads(text)
    if not isinstance(reply, dict):
        raise ValueError("it answered with something that is no object")
    return reply


def _connection() -> http.client.HTTPSConnection:
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    except KeyError as error:
        raise OSError(f"the pod has no variable {error.args[0]}, which kubelet sets") from error
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    # Authorities of EKS and of older clusters lack extensions that RFC 5280 demands, and Python 3.13 refuses such certificates.
    # https://github.com/kubernetes-client/python/issues/2394
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return http.client.HTTPSConnection(host, int(port), timeout=CONNECT, context=context)
