# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks and filters of reverse paths that keep replies back: each remedy is applied on the node, and the finding is gone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from lab import Lab, eni6
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .auditing import apply, audited, findings
from .troubles import FIREWALLD, OFF, transparent_tunnel

# Marks that do not lead replies back: each finding's remedy is applied on the node, and the finding is gone


STRICT_LINK = "sysctl -qw net.ipv4.conf.eth0.rp_filter=1"


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


WHOLE = "CONNMARK --restore-mark"
OF_IPTABLES = {
    "MARK --set-xmark 0x4": "ipv4 PREROUTING 0x4",
    "MARK --set-xmark 0x4/0x4": "",
    "MARK --set-xmark 0x84": "",
    "MARK --set-xmark 0": "",
    WHOLE: "ipv4 PREROUTING ct mark",
    f"{WHOLE} --nfmask 0x80 --ctmask 0x80": "",
    f"{WHOLE} --nfmask 0xffffffff --ctmask 0x4": "ipv4 PREROUTING ct mark",
}
OF_NFT = {
    "meta mark set 0x4": "0x4",
    "meta mark set 0x84": "",
    "meta mark set meta mark & 0xffffff00 | 0x4": "",
    "meta mark set meta mark | 0x4": "",
    "meta mark set numgen inc mod 2": "",
    "meta mark set ct mark": "ct mark",
    "meta mark set ct mark & 0x4": "ct mark & 0x4",
    "ct mark & 0x4 == 0x4 meta mark set meta mark | 0x4": "",
}
SAVING = ("", "CONNMARK --set-xmark 0x80/0x80", "CONNMARK --save-mark")


@pytest.fixture
def marked(lab: Lab) -> NamespaceNode:
    """A node whose policy rules test a bit of the mark."""
    node: NamespaceNode = lab.node("node1")
    node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
    return node


@pytest.mark.parametrize("rule", OF_IPTABLES)
def test_a_rule_of_iptables_that_writes_the_whole_mark(marked: NamespaceNode, rule: str) -> None:
    for _number in range(2):
        marked.run(shlex.split(f"iptables -t mangle -A PREROUTING -i eth0 -j {rule}"))
    found = findings(marked, "mark-clobbered")
    assert [finding["subject"] for finding in found] == [*filter(None, [OF_IPTABLES[rule]])]


@pytest.mark.parametrize("rule", OF_NFT)
def test_a_rule_of_nft_that_writes_the_whole_mark(marked: NamespaceNode, rule: str) -> None:
    marked.run(["nft", f"table inet other {{ chain early {{ type filter hook prerouting priority -150; {rule}; }}; }}"])
    expected = [f"inet other early {OF_NFT[rule]}"] if OF_NFT[rule] else []
    assert [finding["subject"] for finding in findings(marked, "mark-clobbered")] == expected
    listing = {command: marked.run(command.split()).stdout for command in ("ip rule", "ip -6 rule", "nft list ruleset")}
    result = audited(marked, "mark-clobbered", snapshot=pastes.read(listing).snapshot)
    # A report without the rules of iptables does not show which bits marks of connections have.
    is_certain = expected and OF_NFT[rule] != "ct mark"
    present = [finding["subject"] for finding in result["findings"] if finding["state"] == "present"]
    assert present == (expected if is_certain else []) and any(each["state"] == "cannot_tell" for each in result["findings"])


@pytest.mark.parametrize("saving", SAVING)
@pytest.mark.parametrize("restoring", [WHOLE, "meta mark set ct mark"])
def test_a_whole_mark_that_the_connection_has_is_restored(marked: NamespaceNode, saving: str, restoring: str) -> None:
    for target in filter(None, (saving, restoring if restoring.startswith("CONNMARK") else "")):
        marked.run(shlex.split(f"iptables -t mangle -A PREROUTING -j {target}"))
    if restoring.startswith("meta"):
        marked.run(["nft", f"table ip other {{ chain early {{ type filter hook prerouting priority -150; {restoring}; }}; }}"])
    assert bool(findings(marked, "mark-clobbered")) == (not saving)


def test_packets_between_pods_that_come_back_by_the_network() -> None:
    with transparent_tunnel() as node:
        node.run(shlex.split(STRICT_LINK))
        (finding,) = findings(node, "tunnel-strict")
        assert (finding["subject"], finding["proof"], finding["packet"]) == (
            "eth0",
            "twin",
            "tcp 10.240.0.1:40000 > 10.240.0.2:80 in eth0",
        )
        apply(node, finding["remedy"])
        assert findings(node, "tunnel-strict") == []


# firewalld's filter of reverse paths drops what a real client sends, and the remedy of the finding lets it pass


OF_FIREWALLD = "firewalld-strict-ipv6"
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


def of_firewalld(node: NamespaceNode) -> dict[str, Any]:
    (found,) = findings(node, OF_FIREWALLD)
    assert (found["subject"], found["severity"], found["proof"]) == ("firewalld.service", "error", "twin")
    return dict(found)


def test_a_node_without_marks_needs_them_for_the_filter_and_for_the_reply() -> None:
    with requested() as (node, arrives):
        load(node, FIREWALLD)
        remedy = of_firewalld(node)["remedy"]
        assert not arrives()
        scenes.apply(node, yaml.safe_load(remedy["task"])[0])
        assert arrives() and findings(node, OF_FIREWALLD) == []


def test_a_node_whose_replies_are_marked_needs_a_loose_filter() -> None:
    with requested() as (node, arrives):
        node.run(["ip", "-6", "rule", "add", "fwmark", "0x80/0x80", "lookup", "main", "priority", "1024"])
        Steps(node, "nftables_connmark", MARKS).run()
        assert arrives()
        load(node, FIREWALLD)
        remedy = of_firewalld(node)["remedy"]
        assert not arrives() and remedy["operator"].startswith("Set IPv6_rpfilter=loose in /etc/firewalld/firewalld.conf")
        apply(node, remedy)
        assert arrives() and findings(node, OF_FIREWALLD) == []


@pytest.mark.parametrize("mode", ["iif oif missing", "oif missing"], ids=["strict", "loose"])
def test_a_loose_filter_is_no_trouble(mode: str) -> None:
    with requested() as (node, _arrives):
        load(node, FIREWALLD.replace("iif oif missing", mode).replace("mark . oif", "mark oif"))
        assert bool(findings(node, OF_FIREWALLD)) == mode.startswith("iif")
