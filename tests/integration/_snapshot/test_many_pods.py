# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node may have hundreds of pods. What a snapshot takes from listings of the kernel is what the files of /proc say."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import interfaces_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import Link
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import sock_diag
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel, process
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import pods_backend, settings, snapshot_backend
from lab import Lab
from lab.node import NamespaceNode

ODD = "ve.th0"  # a name with a dot


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    return node


def in_files(node: NamespaceNode) -> dict[str, dict[str, dict[str, int]]]:
    """The settings of links by family and link, as /proc/sys has them."""
    texts = node.run_from_host(["sh", "-c", "cd /proc/sys/net; grep -rs '' ipv4/conf ipv6/conf || true"]).splitlines()
    values: dict[str, dict[str, dict[str, int]]] = {"ipv4": {}, "ipv6": {}}
    for path, _colon, value in (text.partition(":") for text in texts):
        family, _conf, link, key = path.split("/")
        if key in settings.LINK[family]:
            values[family].setdefault(link, {})[key] = int(value)
    return values


def test_each_setting_of_a_link_is_the_one_below_proc(node: NamespaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a value of its own, as far as the kernel takes it, so that a wrong place among the listed values would show."""
    node.ip([f"link add {ODD} type veth peer name other", "link add small type veth peer name end", "link set small mtu 1000"])
    script = ["exec 2> /dev/null"]
    for family in settings.FAMILIES:
        for number, key in enumerate(settings.LINK[family]):  # the last value that the kernel takes remains
            path = f"/proc/sys/net/{family}/conf/{ODD}/{key}"
            script.append(f"for value in 2 1 3 {1300 + number} {10 + number}; do echo $value > {path}; done")
    node.run_from_host(["sh", "-c", "\n".join([*script, "true"])])

    def read() -> dict[str, Any]:
        return node.in_network(lambda: snapshot_backend.settings(process.run, lambda *_note: None))

    expected, whole = in_files(node), read()
    assert {family: whole[family] for family in settings.FAMILIES} == expected
    assert len({*expected["ipv4"][ODD].values()}) > 15 and len({*expected["ipv6"][ODD].values()}) > 15
    assert "small" in expected["ipv4"] and "small" not in expected["ipv6"]  # IPv6 needs 1280 bytes

    listed = Link.conf
    monkeypatch.setattr(Link, "conf", lambda link, family: listed(link, family)[:80])  # as an older kernel
    assert read() == whole

    def refuse(_backend: LinkMessages) -> None:
        raise Failure("links changed during each attempt")

    monkeypatch.setattr(LinkMessages, "links", refuse)
    assert read() == whole


def test_sockets_that_listen_are_those_of_the_files(node: NamespaceNode, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ("127.0.0.1", "0.0.0.0", "::", "::1")
    with ExitStack() as opened:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = opened.enter_context(node.socket(family, socket.SOCK_STREAM))
            listener.bind((address, 0))
            listener.listen()
            client = opened.enter_context(node.socket(family, socket.SOCK_STREAM))  # connections are no listeners
            client.connect(listener.getsockname())
        by_files = node.in_network(lambda: pods_backend.listening("/proc/thread-self/net"))
        assert len(by_files) == 4 and {each["address"] for each in by_files} == {*addresses}
        assert node.in_network(lambda: pods_backend.listening(opener=sock_diag.open_socket)) == by_files
    assert pods_backend.has_diagnosis()
    monkeypatch.setattr(kernel, "is_ready", lambda module: module != "tcp_diag")
    assert not pods_backend.has_diagnosis()  # the question would load the module


def test_namespaces_are_entered_in_turns_and_each_socket_is_in_its_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces_backend, "AT_ONCE", 2)
    machines = {f"process {machine.pid}": machine for node in lab.nodes for machine in (node, *node.pods)}
    assert len(machines) > 2
    macs, expected = {}, {}
    for namespace in interfaces_backend.entered(machines, sock_diag.SOCK_DIAG):
        macs[namespace.name] = {link.mac.hex(":") for link in interfaces_backend._links(namespace.opener())}
        assert sock_diag.listeners(namespace.opener(sock_diag.SOCK_DIAG)) is not None
    for name, machine in machines.items():
        links = json.loads(machine.run_from_host(["ip", "-j", "link"]))
        expected[name] = {link["address"] for link in links}
    assert macs == expected
