# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A finding is known by its check and its subject."""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import OUTSIDE
from lab.eni import CLIENT, PRIMARY
from lab.steps import Steps

from .._trace import random_nodes
from .._trace import test_cures as scenes
from .healthy_nodes import KERNEL, POD, Node, eks_ubuntu
from .troubles import ENI, TROUBLES

# By check, the subject of which two objects are wrong on the node below.
TWICE = {
    "networkd-removes-foreign": {"systemd-networkd rules", "systemd-networkd routes"},
    "mark-clobbered": {"ipv4 PREROUTING 0x4"},
    "default-by-secondary": {"eth1"},
    "rule-to-empty-table": {"10.0.1.99"},
    "neighbor-moved": {POD},
    "kubelet-port-taken": {"ipv4 10250"},
    "ra-route-expires": {"eth0"},
    "ebtables-stale": {"10.0.0.77"},
}


def findings(snapshot: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    audit = audit_backend.Audit(snapshot, catalogue.CHECKS, **options)
    return list(audit_backend.result(audit, random_nodes.run)["findings"])


def repeated(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    counts = Counter((finding["id"], finding["subject"]) for finding in found)
    return [name for name, count in counts.items() if count > 1]


def with_each_twice() -> Node:
    node = eks_ubuntu(KERNEL)
    for number in (1, 2):
        node.iptables("ip", "mangle", f"-A PREROUTING -i eni{number} -j MARK --set-xmark 0x4/0xffffffff")
        node.iptables("ip", "nat", f"-A PREROUTING -i eni{number} -p tcp --dport 10250 -j REDIRECT")
        node.route("default", "eth1", via=f"10.0.1.{number}", protocol="dhcp", metric=500 + number)
        node.route("default", "eth0", via=f"fe80::{number}", protocol="ra", metric=500 + number)
        node.route(f"10.9.{number}.0/24", "eth0", protocol="66")
        node.rule(3000 + number, from_="10.0.1.99", table=str(700 + number))
        moved = {"address": POD, "dev": f"eth{number - 1}", "mac": "02:00:00:00:00:77", "state": "PERMANENT"}
        node.snapshot["neighbors"].append(moved)
    rules = [f"-p {kind} -j {target} 02:00:00:00:99:99" for kind, target in (
        ("IPv4 --ip-dst 10.0.0.77", "dnat --to-dst"), ("ARP --arp-ip-dst 10.0.0.77", "arpreply --arpreply-mac"),
    )]  # fmt: skip
    node.snapshot["ebtables"] = [{"table": "nat", "chain": "PREROUTING", "rules": rules}]
    return node


@pytest.mark.parametrize("does_prove", [True, False])
def test_two_objects_of_one_subject_are_one_finding(does_prove: bool) -> None:
    node = with_each_twice()
    snapshot = node.done()
    snapshot["settings"]["ipv6"]["eth0"]["accept_ra"] = 1
    found = findings(snapshot, does_prove=does_prove)
    assert repeated(found) == []
    assert {check: {finding["subject"] for finding in found if finding["id"] == check} for check in TWICE} == TWICE
    for check in ("mark-clobbered", "kubelet-port-taken", "neighbor-moved", "rule-to-empty-table", "default-by-secondary"):
        (finding,) = (finding for finding in found if finding["id"] == check)
        lines = finding["remedy"]["commands"] or finding["evidence"]
        assert len(lines) == 2, finding


def test_a_subject_stays_where_rules_and_interfaces_are_numbered_anew() -> None:
    def subjects(first: int) -> set[tuple[str, str]]:
        node = with_each_twice()
        for entry in node.snapshot["rules"]:
            if 0 < entry["priority"] < 32000:
                entry["priority"] += first
        for link in node.snapshot["links"][1:]:
            link["index"] += first
        return {(finding["id"], finding["subject"]) for finding in findings(node.done())}

    assert subjects(0) == subjects(7)


@pytest.mark.parametrize("check", ["rp-strict-asymmetric", "valid-mark-missing", "mark-rule-late"])
def test_each_secondary_interface_is_tried(check: str) -> None:
    """Replies of the pods behind the first one leave by the primary interface, so that only requests to the others are lost."""
    trouble = TROUBLES[check]
    with trouble.node() as node:
        node.ip([f"rule add from {scenes.POD} to {OUTSIDE['ipv4']} lookup main priority 1000"])
        found = trouble.audit(node, check)
    assert [(finding["subject"], finding["state"], finding["proof"]) for finding in found] == [
        (trouble.subject, "present", "twin")
    ]


@pytest.mark.parametrize("mask", [16, 32])
@pytest.mark.parametrize(("check", "subject"), [("rp-strict-asymmetric", "eth0"), ("reply-by-other-interface", ENI.name)])
def test_a_client_that_the_rule_of_a_pod_is_about_is_tried(check: str, subject: str, mask: int) -> None:
    """Replies to other clients leave by the interface of the request."""
    network = str(ipaddress.ip_interface(f"{CLIENT}/{mask}").network)
    with scenes.node_port(scenes.STRICT, "pod1", PRIMARY.address, "eth0") as scene:
        scene.node.ip([f"rule del from {eni.pod_address(0)} lookup {eni.table}" for eni in scenes.ENIS])
        assert scene.arrives()
        scene.node.ip([f"rule add from {scenes.POD} to {network} lookup {ENI.table} priority 2048"])
        (finding,) = Steps(scene.node, "datapath_audit", {"checks": [check]}).run()["findings"]
        client = finding["packet"].split()[1].partition(":")[0]
        assert not scene.arrives() and ipaddress.ip_address(client) in ipaddress.ip_network(network)
        assert (finding["subject"], finding["severity"], finding["proof"]) == (subject, "error", "twin")
        assert f"from {client}" in finding["what"]
