# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier programs left: frames and packets that go astray until it is removed."""

from __future__ import annotations

import shlex

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .test_mark_checks import apply, findings


def test_rules_of_ebtables_to_a_pod_that_is_gone() -> None:
    with scenes.stolen() as scene:
        found = findings(scene.node, "ebtables-stale")
        by_proof = {finding["proof"]: finding for finding in found}
        assert {finding["subject"] for finding in found} == {scene.packet["destination"]}
        assert by_proof["twin"]["severity"] == "error" and "8a:93:40:b3:c8:0a" in by_proof["twin"]["evidence"][0]
        assert not scene.arrives()
        for finding in found:
            apply(scene.node, finding["remedy"])
        assert scene.arrives() and findings(scene.node, "ebtables-stale") == []


def test_rules_of_pods_that_cover_the_network_of_the_cloud_alone() -> None:
    with scenes.shared_enis(scenes.OFF) as (_lab, node):
        pod = scenes.ENIS[0].pod_address(0)
        node.ip([f"rule del from {pod}", f"rule add from {pod} to 10.0.0.0/16 lookup 1001 priority 2048"])
        (finding,) = findings(node, "pod-rule-within-network")
        assert (finding["subject"], finding["severity"], finding["proof"]) == ("eth1", "risk", "twin")
        node.ip([f"rule add from {pod} lookup 1001 priority 2049"])
        assert findings(node, "pod-rule-within-network") == []


def test_a_probe_that_is_translated_and_finds_no_way_back() -> None:
    with scenes.probe() as scene:
        options = {"checks": ["probe-no-way-back"], "context": {"cloud": "azure"}}
        Steps(scene.node, "nftables_probe_snat", {"permanent": False, "boot_condition": "none"}).run()
        assert Steps(scene.node, "datapath_audit", options).run()["findings"] == []
        scene.node.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=0"])
        (finding,) = Steps(scene.node, "datapath_audit", options).run()["findings"]
        assert (finding["subject"], finding["proof"]) == ("eth0", "twin") and not scene.arrives()
        scene.node.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"])
        assert Steps(scene.node, "datapath_audit", options).run()["findings"] == [] and scene.arrives()


def test_a_rule_that_takes_the_port_of_kubelet(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    for port, target in (
        (10250, "DNAT --to-destination 10.0.0.9:80"),
        (10251, "DNAT --to-destination 10.0.0.9:80"),
        (10250, "RETURN"),
    ):
        node.run(shlex.split(f"iptables -t nat -A PREROUTING -p tcp --dport {port} -j {target}"))
    (finding,) = findings(node, "kubelet-port-taken")
    assert finding["subject"] == "ipv4 10250" and "--dport 10250 -j DNAT" in finding["evidence"][0]


def test_policy_rules_by_the_hundred(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    node.ip([f"rule add from 10.8.{number >> 8}.{number & 255} lookup 100 priority 100" for number in range(500)])
    (finding,) = findings(node, "rules-by-the-hundred")
    assert (finding["subject"], finding["severity"], finding["evidence"]) == ("ipv4", "note", ["503 rules"])
    node.ip(["rule del priority 100"] * 3)
    assert findings(node, "rules-by-the-hundred") == []


def test_the_table_for_probes_beside_cilium() -> None:
    """The programs are in the snapshot alone: a namespace node has no Cilium."""
    with scenes.probe() as scene:
        Steps(scene.node, "nftables_probe_snat", {"permanent": False, "boot_condition": "none"}).run()
        snapshot = Steps(scene.node, "datapath_info").run()["snapshot"]
        options = {"checks": ["probe-table-beside-cilium"], "snapshot": snapshot}
        assert Steps(scene.node, "datapath_audit", options).run()["findings"] == []
        snapshot["bpf"] = [{"link": "eth0", "hook": "tc", "direction": "ingress", "name": "cil_from_netdev"}]
        (finding,) = Steps(scene.node, "datapath_audit", options).run()["findings"]
        assert (finding["subject"], finding["severity"]) == ("eth0", "note")
        assert finding["remedy"]["options"] == {"interface": "eth0", "backend": "bpf"}
