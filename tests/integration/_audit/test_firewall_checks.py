# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""firewalld's filter of reverse paths drops what a real client sends, and the remedy of the finding lets it pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from lab import eni6
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .test_mark_checks import apply
from .troubles import FIREWALLD, OFF

CHECK = {"checks": ["firewalld-strict-ipv6"]}
MARKS = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "permanent": False}


@contextmanager
def requested() -> Iterator[tuple[NamespaceNode, Callable[[], bool]]]:
    """A node whose pod replies by a secondary interface, and whether a client gets an answer of it."""
    with scenes.shared_enis(OFF) as (lab, node):
        eni6.add_to(lab)
        node.service(scenes.NODE_PORT, [lab.pod("pod1").address], "Local", backend="iptables")
        yield node, lambda: lab.client.fetch(eni6.NODE, scenes.NODE_PORT, 0.3) is not None


def load(node: NamespaceNode, ruleset: str) -> None:
    node.write("/etc/firewalld.nft", ruleset)
    node.run(["nft", "-f", "/etc/firewalld.nft"])


def finding(node: NamespaceNode) -> dict[str, Any]:
    (found,) = Steps(node, "datapath_audit", CHECK).run()["findings"]
    assert (found["subject"], found["severity"], found["proof"]) == ("firewalld.service", "error", "twin")
    return dict(found)


def test_a_node_without_marks_needs_them_for_the_filter_and_for_the_reply() -> None:
    with requested() as (node, arrives):
        load(node, FIREWALLD)
        remedy = finding(node)["remedy"]
        assert not arrives()
        scenes.apply(node, yaml.safe_load(remedy["task"])[0])
        assert arrives() and Steps(node, "datapath_audit", CHECK).run()["passed"] == CHECK["checks"]


def test_a_node_whose_replies_are_marked_needs_a_loose_filter() -> None:
    with requested() as (node, arrives):
        node.run(["ip", "-6", "rule", "add", "fwmark", "0x80/0x80", "lookup", "main", "priority", "1024"])
        Steps(node, "nftables_connmark", MARKS).run()
        assert arrives()
        load(node, FIREWALLD)
        remedy = finding(node)["remedy"]
        assert not arrives() and remedy["operator"].startswith("Set IPv6_rpfilter=loose in /etc/firewalld/firewalld.conf")
        apply(node, remedy)
        assert arrives() and Steps(node, "datapath_audit", CHECK).run()["passed"] == CHECK["checks"]


@pytest.mark.parametrize("mode", ["iif oif missing", "oif missing"], ids=["strict", "loose"])
def test_a_loose_filter_is_no_trouble(mode: str) -> None:
    with requested() as (node, _arrives):
        load(node, FIREWALLD.replace("iif oif missing", mode).replace("mark . oif", "mark oif"))
        findings = Steps(node, "datapath_audit", CHECK).run()["findings"]
        assert bool(findings) == mode.startswith("iif")
