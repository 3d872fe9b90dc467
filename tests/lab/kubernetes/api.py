# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to kube-apiserver, without a process for each."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any

from lab.entering import LabError
from lab.machine import Machine

_TIMEOUT = 5.0  # seconds


class ApiError(LabError):
    """The API refused a request."""


class Api:
    """The API server at an address, as seen from a machine, by a bearer token. Its certificate is not verified.

    Raises OSError where it is not reached, and ApiError where it refuses.
    """

    def __init__(self, machine: Machine, address: str, port: int, token: str) -> None:
        self._machine = machine
        self._at = (address, port)
        self._token = token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def get(self, path: str) -> Any:
        return self._request("GET", path)

    def merge(self, path: str, change: Any) -> Any:
        """PATCH by RFC 7396; answers the object as it is then."""
        return self._request("PATCH", path, json.dumps(change), {"Content-Type": "application/merge-patch+json"})

    def _request(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Any:
        family = socket.AF_INET6 if ":" in self._at[0] else socket.AF_INET
        connection = http.client.HTTPSConnection(*self._at)
        plain = self._machine.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(_TIMEOUT)
            plain.connect(self._at)
            connection.sock = plain = self._tls.wrap_socket(plain)
            connection.request(method, path, body, {"Authorization": f"Bearer {self._token}", **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            plain.close()
            connection.close()
        if response.status >= 300:
            raise ApiError(f"{method} {path} was answered with {response.status}: {text}")
        return json.loads(text)
