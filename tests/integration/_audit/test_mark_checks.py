# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks that do not lead replies back: each finding's remedy is applied on the node, and the finding is gone."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes

STRICT_LINK = "sysctl -qw net.ipv4.conf.eth0.rp_filter=1"


def findings(node: NamespaceNode, check: str) -> list[dict[str, Any]]:
    result = Steps(node, "datapath_audit", {"checks": [check]}).run()
    assert result["findings"] or result["passed"] == [check]
    return list(result["findings"])


def apply(node: NamespaceNode, remedy: dict[str, Any]) -> None:
    for command in remedy.get("commands", ()):
        node.run(shlex.split(command))
    if "module" in remedy:
        Steps(node, remedy["module"].rpartition(".")[2], remedy["options"]).run()


def test_a_strict_filter_that_does_not_look_at_marks() -> None:
    table = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "strict": True, "permanent": False}
    with scenes.node_port(scenes.STRICT, "pod1", scenes.PRIMARY.address, "eth0") as scene:
        scene.node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
        Steps(scene.node, "nftables_connmark", table).run()
        assert scene.arrives() and findings(scene.node, "valid-mark-missing") == []
        scene.node.run(["sysctl", "-qw", "net.ipv4.conf.all.src_valid_mark=0", "net.ipv4.conf.eth0.src_valid_mark=0"])
        (finding,) = findings(scene.node, "valid-mark-missing")
        assert (finding["subject"], finding["severity"], finding["proof"]) == ("eth0", "error", "twin")
        assert finding["evidence"] == [
            "net.ipv4.conf.all.src_valid_mark = 0", "1024: from all fwmark 0x80/0x80 lookup main"
        ]  # fmt: skip
        assert not scene.arrives()
        apply(scene.node, finding["remedy"])
        assert scene.arrives() and findings(scene.node, "valid-mark-missing") == []


def test_a_mark_that_requests_do_not_have_is_no_reason() -> None:
    """The CNI marks the connection and no packet of the request, so that the filter has no mark to look up."""
    with scenes.marks_of_cni() as scene:
        assert not scene.arrives() and findings(scene.node, "valid-mark-missing") == []
        assert [finding["subject"] for finding in findings(scene.node, "rp-strict-asymmetric")] == ["eth0"]


def test_a_rule_for_marks_behind_the_rules_of_pods() -> None:
    with scenes.marks_of_cni() as scene:
        scene.node.ip(["rule del priority 1024", "rule add fwmark 0x80/0x80 lookup main priority 3000"])
        scene.node.run(["sysctl", "-qw", "net.ipv4.conf.eth0.rp_filter=2"])
        (finding,) = findings(scene.node, "mark-rule-late")
        assert (finding["subject"], finding["proof"]) == ("0x80/0x80", "twin") and not scene.arrives()
        apply(scene.node, finding["remedy"])
        assert scene.arrives() and findings(scene.node, "mark-rule-late") == []


@pytest.mark.parametrize(
    ("mark", "is_found"), [("0x4/0x4", False), ("0x4", True), ("0x84", False)], ids=["masked", "whole", "with the bits"]
)
def test_a_rule_that_sets_the_whole_mark(lab: Lab, mark: str, is_found: bool) -> None:
    node: NamespaceNode = lab.node("node1")
    node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
    node.run(shlex.split(f"iptables -t mangle -A PREROUTING -i eth0 -j MARK --set-xmark {mark}"))
    subjects = [finding["subject"] for finding in findings(node, "mark-clobbered")]
    assert subjects == (["ipv4 PREROUTING 0x4"] if is_found else [])


def test_packets_between_pods_that_come_back_by_the_network(lab: Lab) -> None:
    """As azure-vnet's mode transparent-tunnel leads them."""
    node: NamespaceNode = lab.node("node1")
    node.ip(
        [
            *(f"link add azv{number} type veth peer name pod{number}" for number in (1, 2)),
            *(f"link set {name}{number} up" for name in ("azv", "pod") for number in (1, 2)),
            *(f"route add 10.240.0.{number} dev azv{number}" for number in (1, 2)),
            "rule add fwmark 0x3 lookup 101",
        ]
    )
    node.run(shlex.split(STRICT_LINK))
    (finding,) = findings(node, "tunnel-strict")
    assert (finding["subject"], finding["proof"], finding["packet"]) == ("eth0", "twin", "tcp 10.240.0.1:40000 > 10.240.0.2:80")
    apply(node, finding["remedy"])
    assert findings(node, "tunnel-strict") == []
