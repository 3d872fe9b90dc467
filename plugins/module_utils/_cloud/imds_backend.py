# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a cloud's instance metadata service by HTTP, without a proxy and within a time limit. Changes nothing.

It speaks HTTP over a plain socket, for three reasons. The time limit applies to the whole request; that of http.client and
urllib starts again with every packet, so a service that sends slowly would delay a boot. urllib would use the environment's
proxies. Both import email and ssl, which adds about 15 ms to a boot program's start; a socket adds 2 ms.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import socket
import time
import typing as t

from . import metadata
from .metadata import (
    ENDPOINTS,
    TREES,
    Garbled,
    Nic,
    NoMetadata,
    Rejected,
    Silent,
    Unidentified,
    Unreachable,
)

AZURE_PATH = "/metadata/instance/network/interface?api-version=2021-02-01"
TREE_PATH = "/latest/meta-data/"
TOKEN_PATH = "/latest/api/token"
TOKEN_LIFETIME = 300  # seconds; reading all interfaces takes much less

TIMEOUT = 5.0  # seconds for one request; a working service answers within milliseconds
RETRIES = 5  # after the first try
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 1.0  # seconds between tries; each pause is twice the previous one
DOUBLINGS = 2  # from FIRST_PAUSE to LONGEST_PAUSE
SEARCH_LIMIT = 1.0  # seconds for one request while the cloud is unknown; a service on the host answers within milliseconds
ANSWER_LIMIT = 2**20  # bytes; an answer has a few hundred for each interface

T = t.TypeVar("T")


def interfaces(cloud: str, endpoint: str, timeout: float) -> tuple[Nic, ...]:
    """Read the node's interfaces from the cloud's service once.

    endpoint: for example ``http://169.254.169.254``.
    timeout: seconds for each request. Azure needs one request. The other clouds need one for a token, two more, and about
    six for each interface.
    Raises Invalid for another form of endpoint, and a subclass of NoMetadata if the service gives no valid answer.
    """
    if cloud == "azure":
        return metadata.azure(_azure(endpoint, timeout))
    tree = _Tree(cloud, endpoint, timeout)
    folders = metadata.macs(tree.get("network/interfaces/macs/"))
    return metadata.tree(cloud, {folder: dict(tree.files(folder)) for folder in folders}, primary=tree.get("mac"))


def primary_ipv6(cloud: str, endpoint: str, timeout: float) -> tuple[str, ...]:
    """Read the IPv6 addresses of the node's primary interface once. Arguments and errors as interfaces().

    Other interfaces, and other values of this one, are not parsed: whether the node has IPv6 does not depend on them.
    """
    if cloud == "azure":
        return metadata.azure_ipv6(_azure(endpoint, timeout))
    tree = _Tree(cloud, endpoint, timeout)
    folder = metadata.node_mac(tree.get("mac"))
    return metadata.tree_ipv6(cloud, folder, tree.file(folder, TREES[cloud].ipv6) or "")


Read = t.Callable[[str, str, float], T]  # interfaces() or primary_ipv6()


def search(read: Read[T], endpoint: str | None, timeout: float) -> tuple[str, T]:
    """Return the first cloud that answers as its vendor documents, and what was read. Raises Unidentified.

    endpoint: replaces each cloud's own endpoint.
    """
    problems: dict[str, NoMetadata] = {}
    for cloud, usual in ENDPOINTS.items():
        try:
            return cloud, read(cloud, endpoint or usual, min(timeout, SEARCH_LIMIT))
        except NoMetadata as problem:
            problems[cloud] = problem
    raise Unidentified(problems)


def asking(read: Read[T], cloud: str = "auto", endpoint: str | None = None) -> t.Callable[[float], tuple[str, T]]:
    """Return a function for with_retries() that asks the service once and returns the cloud that answered and what was read.

    read: interfaces() or primary_ipv6().
    cloud: "auto" for the cloud that the firmware names, or else the first that answers.
    """
    name = cloud_by_firmware() if cloud == "auto" else cloud

    def ask(seconds: float) -> tuple[str, T]:
        if name is None:
            return search(read, endpoint, seconds)
        return name, read(name, endpoint or ENDPOINTS[name], seconds)

    return ask


def cloud_by_firmware(root: str = "/") -> str | None:
    """Return the cloud that the node's firmware names, or None. Only root can read the uuids."""
    names = ("sys_vendor", "product_name", "chassis_asset_tag", "product_uuid")
    facts = {name: _text(os.path.join(root, "sys/class/dmi/id", name)) for name in names}
    facts["hypervisor_uuid"] = _text(os.path.join(root, "sys/hypervisor/uuid"))
    return metadata.cloud_by_firmware(facts)


def with_retries(
    read: t.Callable[[float], T],
    timeout: float,
    *,
    retries: float = math.inf,
    deadline: float = math.inf,
    sleep: t.Callable[[float], t.Any] = time.sleep,
    clock: t.Callable[[], float] = time.monotonic,
) -> T:
    """Call ``read``, and call it again after a pause as long as its error may pass.

    read: gets the time limit of each of its requests in seconds: ``timeout``, or the time that is left until the deadline.
    retries: the number of tries after the first.
    deadline: on ``clock``. No try starts after it.
    Raises the last NoMetadata, with the number of tries.
    """
    for tries in itertools.count(1):
        try:
            return read(min(timeout, deadline - clock()))
        except NoMetadata as problem:
            problem.tries = tries
            pause = min(FIRST_PAUSE * 2 ** min(tries - 1, DOUBLINGS), LONGEST_PAUSE)
            if not problem.is_passing or tries > retries or clock() + pause >= deadline:
                raise
        sleep(pause)
    raise AssertionError("count() has no end")


def _azure(endpoint: str, timeout: float) -> str:
    return _request("GET", endpoint, AZURE_PATH, {"Metadata": "true"}, timeout)


class _Tree:
    """The files of a service that has a folder for each interface. Asks for a token first, if the cloud has one."""

    def __init__(self, cloud: str, endpoint: str, timeout: float) -> None:
        self._names = TREES[cloud]
        self._endpoint = endpoint
        self._timeout = timeout
        self._token = _token(self._names, endpoint, timeout)

    def get(self, path: str) -> str:
        return _request("GET", self._endpoint, TREE_PATH + path, self._token, self._timeout)

    def file(self, folder: str, name: str) -> str | None:
        """Return a file of an interface; None if it is missing."""
        try:
            return self.get(f"network/interfaces/macs/{folder}/{name}")
        except Rejected as problem:
            if problem.status != 404:  # on both clouds 404 means that the interface has no such value
                raise
        return None

    def files(self, folder: str) -> t.Iterator[tuple[str, str]]:
        for name in self._names.files():
            text = self.file(folder, name)
            if text is not None:
                yield name, text


def _token(names: metadata.Tree, endpoint: str, timeout: float) -> dict[str, str]:
    """Return the header with a token; empty if the cloud refuses to give a token and does not require one."""
    lifetime = {f"{names.token_header}-ttl-seconds": str(TOKEN_LIFETIME)}
    try:
        token = _request("PUT", endpoint, TOKEN_PATH, lifetime, timeout).strip()
    except Rejected as problem:
        if names.needs_token or problem.status == 429 or problem.status >= 500:
            raise
        return {}
    if not re.fullmatch(r"[!-~]+", token):  # the token becomes part of a header
        raise Garbled("the token", "one word of ASCII", token)
    return {names.token_header: token}


def _request(method: str, endpoint: str, path: str, headers: t.Mapping[str, str], timeout: float) -> str:
    """Return the text of an answer with status 200. Raises a subclass of NoMetadata otherwise."""
    request = f"{method} {endpoint.rstrip('/')}{path}"
    host, port = metadata.address_of(endpoint)
    standard = {"Host": endpoint.rstrip("/")[len("http://") :], "Connection": "close", "User-Agent": "kubenode.datapath"}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**standard, **headers}.items())]
    if method == "PUT":
        lines.append("Content-Length: 0")
    stream = _Stream(request, timeout)
    try:
        stream.open(host, port, "\r\n".join((*lines, "", "")).encode())
        return _body(request, stream).decode(errors="replace")
    except (socket.timeout, TimeoutError):  # different classes before Python 3.10
        raise Silent(request, timeout, stream.received) from None
    except OSError as error:
        raise Unreachable(request, error.strerror or str(error)) from None
    finally:
        stream.close()


class _Stream:
    """The bytes of one answer. ``timeout``, in seconds, applies to the whole answer."""

    def __init__(self, request: str, timeout: float) -> None:
        self.received = 0
        self._request = request
        self._deadline = time.monotonic() + timeout
        self._current = b""
        self._connection = socket.socket()

    def open(self, host: str, port: int, message: bytes) -> None:
        self._connection.close()
        self._connection = socket.create_connection((host, port), self._remaining())
        self._connection.settimeout(self._remaining())
        self._connection.sendall(message)

    def close(self) -> None:
        self._connection.close()

    def until(self, mark: bytes) -> bytes:
        """Read up to ``mark``, which is dropped. Raises Garbled at an early end."""
        while mark not in self._current:
            self._more(f"complete up to {mark!r}")
        data, _mark, self._current = self._current.partition(mark)
        return data

    def exactly(self, size: int) -> bytes:
        while len(self._current) < size:
            self._more(f"{size} bytes long, as its header says")
        data, self._current = self._current[:size], self._current[size:]
        return data

    def rest(self) -> bytes:
        while self._receive():
            pass
        return self._current

    def _more(self, expected: str) -> None:
        if not self._receive():
            raise Garbled(f"the answer to {self._request}", expected, self._current.decode(errors="replace"))

    def _receive(self) -> bool:
        """Receive some bytes. False at the end of the stream."""
        self._connection.settimeout(self._remaining())
        came = self._connection.recv(65536)
        self._current += came
        self.received += len(came)
        if self.received > ANSWER_LIMIT:
            raise Garbled(f"the answer to {self._request}", f"at most {ANSWER_LIMIT} bytes long", "more")
        return bool(came)

    def _remaining(self) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining


def _body(request: str, stream: _Stream) -> bytes:
    """Return the body of an answer with status 200 (RFC 9112 sections 4, 6 and 7.1). Raises Rejected or Garbled."""
    parts = None
    while not parts or parts[1].startswith("1"):  # interim answers, such as 100 Continue (RFC 9110 section 15.2)
        status, *fields = stream.until(b"\r\n\r\n").decode(errors="replace").split("\r\n")
        parts = re.fullmatch(r"HTTP/1\.[01] ([0-9]{3})(?: (.*))?", status)
        if not parts:
            raise Garbled(f"the answer to {request}", "HTTP", status)
    if parts[1] != "200":
        raise Rejected(request, int(parts[1]), parts[2] or "")
    headers = {name.strip().lower(): value.strip() for name, _colon, value in (field.partition(":") for field in fields)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join(_chunks(request, stream))
    length = headers.get("content-length")
    if length is None:
        return stream.rest()
    return stream.exactly(_number(request, length, 10))


def _chunks(request: str, stream: _Stream) -> t.Iterator[bytes]:
    while True:
        size = _number(request, stream.until(b"\r\n").decode(errors="replace").partition(";")[0], 16)
        if size == 0:
            return
        yield stream.exactly(size)
        stream.until(b"\r\n")


def _number(request: str, text: str, base: int) -> int:
    try:
        if re.fullmatch("[0-9a-fA-F]{1,16}", text.strip()):
            return int(text, base)
    except ValueError:
        pass
    raise Garbled(f"a length in the answer to {request}", f"a number of base {base}", text)


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
