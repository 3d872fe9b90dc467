# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""imds_info against working and faulty metadata services, and on nodes whose links share addresses."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import imds_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._cloud.metadata import (
    Garbled,
    NoMetadata,
    Rejected,
    Silent,
    Unreachable,
)
from lab import Lab, Node
from lab.metadata import Behaviour, Fault, MetadataServer
from lab.metadata_replies import DUAL_STACK, IPV4_ONLY, NO_IPV6_KEY, Alibaba, Aws, Azure, Cloud, Nic
from lab.node import NamespaceNode

MAC = "00:0d:3a:f8:06:ec"
SECOND = Nic(mac="00:0d:3a:f8:06:ed", ipv4=("10.1.0.4",), subnet4="10.1.0.0/24", device_number=1)


@pytest.fixture
def running() -> Iterator[Lab]:
    with Lab("imds", nodes=[Node("node1")]) as lab:
        yield lab


@pytest.fixture
def node(running: Lab) -> NamespaceNode:
    """A node whose eth0 has MAC."""
    node = running.node("node1")
    node.ip([f"link set eth0 address {MAC}"])
    return node


def serve(running: Lab, cloud: Cloud, *nics: Nic) -> MetadataServer:
    return MetadataServer(running.load_balancer, cloud, nics)


def ask(node: NamespaceNode, **options: Any) -> dict[str, Any]:
    result = node.module("imds_info", {"timeout": 1, "retries": 0, **options})
    assert not result["failed"], result
    assert result["changed"] is False
    return result


# Clouds

CLOUDS: dict[str, tuple[Cloud, str, dict[str, str | None]]] = {
    "azure": (Azure(), "azure", {"ipv4": "10.0.0.1", "ipv6": None}),
    "aws": (Aws(), "aws", {"ipv4": "10.0.0.1", "ipv6": None}),
    "alibaba": (Alibaba(), "alibaba", {"ipv4": "10.0.0.253", "ipv6": None}),
    "alibaba with tokens": (Alibaba(needs_token=True), "alibaba", {"ipv4": "10.0.0.253", "ipv6": None}),
}


@pytest.mark.parametrize("given", ["by name", "auto"])
@pytest.mark.parametrize("which", CLOUDS)
def test_each_cloud_is_read(running: Lab, node: NamespaceNode, which: str, given: str) -> None:
    cloud, name, gateway = CLOUDS[which]
    before = node.snapshot()
    with serve(running, cloud, Nic(mac=MAC, ipv6=("fd00:10::4",)), SECOND):
        result = ask(node, cloud=name if given == "by name" else "auto")
    assert result["cloud"] == name
    assert result["has_ipv6"] is True
    first, second = result["interfaces"]
    assert first == {
        "name": "eth0",
        "mac": MAC,
        "ipv4": ["10.0.0.4"],
        "ipv6": ["fd00:10::4"],
        "gateway": gateway,
        "subnets": ["10.0.0.0/24", "fd00:10::/64"],
        "primary": True,
        "master": None,
        "index": int(node.read("/sys/class/net/eth0/ifindex")),
        "device_number": 0 if name == "aws" else None,
        "network_card": None,
    }
    assert (second["name"], second["mac"], second["ipv6"], second["primary"]) == (None, SECOND.mac, [], False)
    assert (second["index"], second["device_number"]) == (None, 1 if name == "aws" else None)
    assert node.snapshot() == before


def test_check_mode_tells_the_same(running: Lab, node: NamespaceNode) -> None:
    with serve(running, Azure(), DUAL_STACK):
        result = ask(node, cloud="azure")
        checked = node.module("imds_info", {"cloud": "azure"}, check=True)
    assert checked["interfaces"] == result["interfaces"]


@pytest.mark.parametrize(
    ("nics", "has_ipv6"), [((IPV4_ONLY,), False), ((NO_IPV6_KEY, DUAL_STACK), False), ((DUAL_STACK, NO_IPV6_KEY), True)]
)
def test_ipv6_of_the_primary_interface_counts(running: Lab, node: NamespaceNode, nics: tuple[Nic, ...], has_ipv6: bool) -> None:
    with serve(running, Azure(), *nics):
        assert ask(node, cloud="azure")["has_ipv6"] is has_ipv6


def test_another_cloud_than_the_one_named_is_not_taken_for_it(running: Lab, node: NamespaceNode) -> None:
    with serve(running, Aws(), DUAL_STACK):
        result = node.module("imds_info", {"cloud": "azure", "retries": 0})
    assert result["failed"]
    assert "HTTP status 401" in result["msg"]


def test_the_environments_proxy_is_not_used(running: Lab, node: NamespaceNode) -> None:
    with serve(running, Azure(), DUAL_STACK) as service:
        result = node.module("imds_info", {"cloud": "azure"}, through=["env", "http_proxy=http://192.0.2.99:3128"])
    assert not result["failed"], result
    assert len(service.requests) == 1


# Faults

FAULTS: dict[Fault, str] = {
    "status": "was answered with HTTP status 500",
    "garbage": "must be JSON",
    "truncated": "bytes long, as its header says",
    "silence": "was not answered within 1 s: nothing came",
    "refused": "Connection refused",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_own_message(running: Lab, node: NamespaceNode, fault: Fault) -> None:
    service = serve(running, Azure(), DUAL_STACK)
    service.start(Behaviour(fault))
    result = node.module("imds_info", {"cloud": "azure", "timeout": 1, "retries": 0})
    service.stop()
    assert result["failed"]
    found = [other for other, text in FAULTS.items() if text in result["msg"]]
    assert found == [fault], result["msg"]
    assert result["msg"].startswith("imds_info: ")


def test_no_service_at_all_says_what_each_cloud_answered(node: NamespaceNode) -> None:
    result = node.module("imds_info", {"timeout": 1, "retries": 0})
    assert result["failed"]
    assert all(f"{cloud}: GET" in result["msg"] or f"{cloud}: PUT" in result["msg"] for cloud in ("azure", "aws", "alibaba"))


def test_a_service_that_comes_up_late_is_waited_for(running: Lab, node: NamespaceNode) -> None:
    service = serve(running, Azure(), DUAL_STACK)
    service.start(Behaviour(up_after=1.5))
    assert ask(node, cloud="azure", retries=5)["has_ipv6"]
    service.stop()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": "nan"}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"endpoint": "x"}, "endpoint"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(node: NamespaceNode, options: dict[str, Any], named: str) -> None:
    result = node.module("imds_info", {"cloud": "azure", **options})
    assert result["failed"]
    assert f"imds_info: {named} must be" in result["msg"]


# HTTP, to the byte

BODY = json.dumps([{"macAddress": "000D3AF806EC", "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::4"}]}}]).encode()
HALF = len(BODY) // 2


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """An endpoint that reads a request and then calls ``answer``."""

    def serve() -> None:
        with suppress(OSError):
            connection, _peer = listener.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


WELL_FORMED = {
    "with a length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "with a length, in lower case and more after it": b"HTTP/1.1 200 OK\r\ncontent-length:%d\r\n\r\n%s more" % (len(BODY), BODY),
    "until the end": b"HTTP/1.0 200 OK\r\n\r\n%s" % BODY,
    "after interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 200 OK\r\n\r\n%s" % BODY,
    "without a reason": b"HTTP/1.1 200\r\n\r\n%s" % BODY,
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n%X\r\n%s\r\n0\r\n\r\n"
    % (HALF, BODY[:HALF], len(BODY) - HALF, BODY[HALF:]),
}


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("form", WELL_FORMED)
def test_an_answer_is_read_in_every_form_of_http(form: str, bytewise: bool) -> None:
    def answer(connection: socket.socket) -> None:
        pieces = [bytes([byte]) for byte in WELL_FORMED[form]] if bytewise else [WELL_FORMED[form]]
        for piece in pieces:
            connection.sendall(piece)

    with answering(answer) as endpoint:
        (nic,) = imds_backend.interfaces("azure", endpoint, 2)
    assert nic.ipv6 == ("fd00::4",)


def test_an_answer_is_whole_when_its_length_says_so_though_the_connection_stays() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(WELL_FORMED["with a length"])
        connection.recv(1)

    with answering(answer) as endpoint:
        start = time.monotonic()
        imds_backend.interfaces("azure", endpoint, 2)
        assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x16\x03\x01",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[",
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 2**21,
        b"HTTP/1.1 200 OK\r\n\r\n" + BODY[:HALF],
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe",
    ],
)
def test_an_answer_that_is_not_http_or_is_cut_off_is_an_error(answer: bytes) -> None:
    with answering(lambda connection: connection.sendall(answer)) as endpoint, pytest.raises(Garbled):
        imds_backend.interfaces("azure", endpoint, 2)


@pytest.mark.parametrize("pieces", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + b"["])
def test_a_service_that_dribbles_is_silent_after_the_time_limit(pieces: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(pieces)
        with suppress(OSError):
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)

    with answering(answer) as endpoint:
        start = time.monotonic()
        with pytest.raises(Silent, match="bytes came, but not the whole answer"):
            imds_backend.interfaces("azure", endpoint, 0.4)
        assert 0.4 <= time.monotonic() - start < 0.6


def test_a_connection_that_no_server_accepts_is_silent_after_the_time_limit(node: NamespaceNode) -> None:
    chain = "type filter hook output priority 0; ip daddr 169.254.169.254 drop;"
    node.run(["nft", "-f", "-"], f"table ip firewall {{ chain output {{ {chain} }}; }}")
    result = node.module("imds_info", {"cloud": "azure", "timeout": 1, "retries": 0})
    assert "was not answered within 1 s: nothing came" in result["msg"]


def test_a_redirection_is_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n"
    with (
        answering(lambda connection: connection.sendall(moved)) as endpoint,
        pytest.raises(Rejected, match="302 Found") as error,
    ):
        imds_backend.interfaces("azure", endpoint, 2)
    assert not error.value.is_passing


def test_a_connection_that_is_cut_is_unreachable() -> None:
    def cut(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() sends a reset

    with answering(cut) as endpoint, pytest.raises(Unreachable, match="reset") as error:
        imds_backend.interfaces("azure", endpoint, 2)
    assert isinstance(error.value, NoMetadata)


# Links


def interface(running: Lab, node: NamespaceNode) -> tuple[str | None, str | None]:
    """Name and master of the link that the module reports for MAC."""
    with serve(running, Azure(), Nic(mac=MAC)):
        (found,) = ask(node, cloud="azure")["interfaces"]
    return found["name"], found["master"]


UPPERS = {
    "bridge": (["link add upper type bridge", f"link set upper address {MAC}", "link set eth0 master upper"], "upper"),
    "macvlan": (
        ["link add link eth0 name upper type macvlan mode passthru"],
        None,
    ),  # the mode that takes the address over
}


@pytest.mark.parametrize("kind", UPPERS)
def test_a_link_above_an_interface_is_not_meant_and_one_that_enslaves_it_is_told(
    running: Lab, node: NamespaceNode, kind: str
) -> None:
    commands, master = UPPERS[kind]
    address = f"{node.ipv4}/24 dev"
    node.ip([*commands, "link set upper up", f"address del {address} eth0", f"address add {address} upper"])
    node.ip(["route add default via 192.0.2.1"])
    assert node.run_from_host(["ip", "-brief", "link"]).count(MAC) == 2
    assert interface(running, node) == ("eth0", master)


def test_an_interface_that_the_node_does_not_have_has_no_name(running: Lab, node: NamespaceNode) -> None:
    node.ip(["link set eth0 address 02:00:00:00:00:99"])
    assert interface(running, node) == (None, None)
