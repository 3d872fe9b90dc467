# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answers of three clouds' metadata services about a node's interfaces. Pure: a request in, a reply out."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

TOKEN = "bGFiLXRva2Vu"
"""The one session token that the lab hands out."""


@dataclass(frozen=True)
class Nic:
    """An interface as the cloud knows it. ``ipv6`` None: the answer does not name IPv6 (Azure: no such key)."""

    mac: str = "02:00:00:00:00:01"
    ipv4: tuple[str, ...] = ("10.0.0.4",)
    ipv6: tuple[str, ...] | None = ()
    subnet4: str = "10.0.0.0/24"
    subnet6: str = "fd00:10::/64"
    device_number: int = 0


IPV4_ONLY = Nic()
DUAL_STACK = Nic(ipv6=("fd00:10::4",))
NO_IPV6_KEY = Nic(ipv6=None)


@dataclass(frozen=True)
class Request:
    """``headers`` have lower-case names; ``path`` still has its query."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    status: int
    body: str = ""
    content_type: str = "text/plain"


class Cloud(Protocol):
    """A vendor's service: its address and its answers."""

    address: str

    def reply(self, request: Request, nics: tuple[Nic, ...]) -> Reply: ...


class Azure:
    """https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service"""

    address = "169.254.169.254"
    path = "/metadata/instance/network/interface"

    def reply(self, request: Request, nics: tuple[Nic, ...]) -> Reply:
        url = urlsplit(request.path)
        if request.headers.get("metadata", "").lower() != "true" or "x-forwarded-for" in request.headers:
            return self._error(400, "Bad request. Required metadata header not specified")
        if url.path.rstrip("/") != self.path:
            return self._error(404, "Not found")
        if "api-version" not in parse_qs(url.query):
            return self._error(400, "Bad request. api-version was not specified in the request")
        return Reply(200, json.dumps([self._interface(nic) for nic in nics]), "application/json; charset=utf-8")

    @staticmethod
    def _error(status: int, text: str) -> Reply:
        return Reply(status, json.dumps({"error": text}), "application/json; charset=utf-8")

    @staticmethod
    def _interface(nic: Nic) -> dict[str, object]:
        address, _slash, prefix = nic.subnet4.partition("/")
        interface: dict[str, object] = {
            "ipv4": {
                "ipAddress": [{"privateIpAddress": ip, "publicIpAddress": ""} for ip in nic.ipv4],
                "subnet": [{"address": address, "prefix": prefix}],
            },
            "macAddress": nic.mac.replace(":", "").upper(),
        }
        if nic.ipv6 is not None:
            interface["ipv6"] = {"ipAddress": [{"privateIpAddress": ip} for ip in nic.ipv6]}
        return interface


class _Tree:
    """A service that shows files in folders under /latest/meta-data, and hands out tokens."""

    prefix: str
    """Of the header names: ``<prefix>-token`` and ``<prefix>-token-ttl-seconds``."""
    unauthorized: int
    needs_token: bool

    def reply(self, request: Request, nics: tuple[Nic, ...]) -> Reply:
        path = urlsplit(request.path).path
        if path == "/latest/api/token":
            return self._token(request)
        offered = request.headers.get(f"{self.prefix}-token")
        if offered != TOKEN and (self.needs_token or offered is not None):
            return Reply(self.unauthorized)
        return _look_up(self.files(nics), path)

    def _token(self, request: Request) -> Reply:
        if request.method != "PUT":
            return Reply(405)
        if "x-forwarded-for" in request.headers:
            return Reply(403)
        seconds = request.headers.get(f"{self.prefix}-token-ttl-seconds", "")
        return Reply(200, TOKEN) if seconds.isdigit() and 1 <= int(seconds) <= 21600 else Reply(400)

    def files(self, nics: tuple[Nic, ...]) -> dict[str, str]:
        raise NotImplementedError


class Aws(_Tree):
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html, IMDSv2 required."""

    address = "169.254.169.254"
    prefix = "x-aws-ec2-metadata"
    unauthorized = 401
    needs_token = True

    def files(self, nics: tuple[Nic, ...]) -> dict[str, str]:
        texts = {"mac": nics[0].mac if nics else ""}
        for nic in nics:
            of_nic = {
                "device-number": str(nic.device_number),
                "interface-id": _eni(nic),
                "local-ipv4s": "\n".join(nic.ipv4),
                "mac": nic.mac,
                "subnet-ipv4-cidr-block": nic.subnet4,
            }
            if nic.ipv6:  # without IPv6 these names do not exist: 404
                of_nic |= {"ipv6s": "\n".join(nic.ipv6), "subnet-ipv6-cidr-blocks": nic.subnet6}
            texts |= {f"network/interfaces/macs/{nic.mac}/{name}": value for name, value in of_nic.items()}
        return texts


class Alibaba(_Tree):
    """https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata

    ``needs_token`` is the security hardening mode. Lists are written in two ways: IPv4 as JSON, IPv6 without quotes
    (as AliyunContainerService/terway's metadata tests have them).
    """

    address = "100.100.100.200"
    prefix = "x-aliyun-ecs-metadata"
    unauthorized = 403

    def __init__(self, needs_token: bool = False) -> None:
        self.needs_token = needs_token

    def files(self, nics: tuple[Nic, ...]) -> dict[str, str]:
        texts = {"mac": nics[0].mac if nics else ""}
        for nic in nics:
            subnet = ipaddress.IPv4Network(nic.subnet4)
            of_nic = {
                "gateway": str(subnet[-3]),  # the vSwitch's last address but two: 10.0.0.253 of a /24
                "netmask": str(subnet.netmask),
                "network-interface-id": _eni(nic),
                "primary-ip-address": nic.ipv4[0],
                "private-ipv4s": json.dumps(nic.ipv4),
                "vswitch-cidr-block": nic.subnet4,
            }
            if nic.ipv6:
                of_nic |= {"ipv6s": f"[{','.join(nic.ipv6)}]", "vswitch-ipv6-cidr-block": nic.subnet6}
            texts |= {f"network/interfaces/macs/{nic.mac}/{name}": value for name, value in of_nic.items()}
        return texts


def _eni(nic: Nic) -> str:
    return "eni-" + nic.mac.replace(":", "")


def _look_up(files: Mapping[str, str], path: str) -> Reply:
    """A file's text, or a folder's names: one a line, folders with a slash at the end."""
    root = "/latest/meta-data/"
    inside = f"{path.rstrip('/')}/".removeprefix(root)
    if not f"{path.rstrip('/')}/".startswith(root):
        return Reply(404)
    name = inside.rstrip("/")
    if name in files:
        return Reply(200, files[name])
    below = [file.removeprefix(inside) for file in files if file.startswith(inside)]
    listed = dict.fromkeys(head + slash for head, slash, _rest in (rest.partition("/") for rest in below))
    return Reply(200, "\n".join(listed)) if listed else Reply(404)
