# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checks count depends on what the load balancer probes: the node's health port, or the ports of each Service."""

from __future__ import annotations

from typing import Any

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps

AZURE = {"cloud": "azure"}
SHARED = {**AZURE, "probe_mode": "shared"}


def findings(node: NamespaceNode, context: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The id, the state and the subject of each finding of the two checks."""
    checks = ["probe-untranslated", "probe-port-closed"]
    result = Steps(node, "datapath_audit", {"checks": checks, "context": context}).run()
    return [(finding["id"], finding["state"], finding["subject"]) for finding in result["findings"]]


def test_the_shared_probe_ends_at_the_node_and_needs_no_translation(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    node.ip([f"route add 10.240.0.5 dev {node.pods[0].link}"])
    server = node.serve(10256)
    assert lab.load_balancer.probe_http(node.address, 10256) is not None
    assert findings(node, SHARED) == []
    assert findings(node, {**AZURE, "probe_mode": "servicenodeport"}) == [("probe-untranslated", "present", "eth0")]
    assert findings(node, AZURE) == [("probe-untranslated", "present", "eth0")]
    node.stop_serving(server)
    assert lab.load_balancer.probe_http(node.address, 10256) is None
    assert findings(node, SHARED) == [("probe-port-closed", "present", f"{family} 10256") for family in ("ipv4", "ipv6")]
    assert findings(node, AZURE) == [("probe-untranslated", "present", "eth0"), ("probe-port-closed", "cannot_tell", "")]
    assert findings(node, {"cloud": "aws"}) == []


def test_a_port_that_is_open_to_the_node_alone_is_closed(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    node.ip([f"route add 10.240.0.5 dev {node.pods[0].link}"])
    snapshot = Steps(node, "datapath_info").run()["snapshot"]
    snapshot["listeners"] = [{"address": "127.0.0.1", "port": 10256}, {"address": node.address, "port": 10256}]
    options = {"checks": ["probe-port-closed"], "snapshot": snapshot, "context": SHARED}
    (finding,) = Steps(node, "datapath_audit", options).run()["findings"]
    assert finding["subject"] == "ipv4 10256" and "LISTEN 127.0.0.1:10256" in finding["evidence"]
