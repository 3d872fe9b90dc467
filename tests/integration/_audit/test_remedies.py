# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remedies of datapath_audit leave alone what is right on the node, and conclusions hold for the checks that were made."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace.test_cures import ENIS
from .auditing import audited, concluded, findings
from .healthy_nodes import KERNEL, PROBE_TABLE, Node
from .troubles import ENI, MARKS, POD, STRICT, TROUBLES, dual_stack, shared_enis

KEPT = {"priority": 700, "to": "192.0.2.0/24", "table": "main"}


def rules(node: NamespaceNode) -> list[str]:
    return [" ".join(line.split()) for line in node.run(["ip", "rule"]).stdout.splitlines()]


def test_of_two_rules_of_a_pod_that_of_its_interface_stays_though_the_other_comes_first() -> None:
    with shared_enis() as node:
        node.run(["ip", "rule", "add", "from", POD, "lookup", "1002", "priority", "2047"])
        (finding,) = findings(node, "rules-of-one-source")
        for command in finding["remedy"]["commands"]:
            node.run(shlex.split(command))
        assert [rule for rule in rules(node) if f"from {POD} " in rule] == [f"2048: from {POD} lookup {ENI.table}"]
        assert findings(node, "rules-of-one-source") == []


# The pod has its way out by the rule alone, and the other pod is unreachable by it. A daemon would add the route again.
MISLED = (
    f"ip rule add from {POD} lookup 99 priority 100",
    f"ip route add default via {ENI.gateway} dev eth1 onlink table 99",
    f"ip route add unreachable {ENIS[1].pod_address(0)} table 99 proto bird",
    f"ip rule del from {POD} lookup {ENI.table} priority 2048",
    "ip route del default",
)


def test_a_remedy_that_ends_another_path_of_the_node_is_not_offered() -> None:
    with shared_enis() as node:
        for command in MISLED:
            node.run(shlex.split(command))
        found = findings(node, "path-lost")
    finding = next(finding for finding in found if "unreachable" in finding["subject"])
    assert finding["remedy"] is None
    remedy = f"ip rule del priority 100 from {POD} lookup 99"
    assert f"{remedy} is not offered: It ends the path of tcp {POD}:40000 > 198.51.100.7:443 in veth-pod1" in finding["what"]


# Pods are cut off from the node's address by the rule that alone leads its answers to the outside.
APART = (
    f"ip route add {POD} dev veth-pod1",
    "sysctl net.ipv4.conf.veth-pod1.proxy_arp=1",
    "ip route add 169.254.0.0/16 dev eth0",
    "ip addr add 203.0.113.50/24 dev eth0",
    "ip route add default via 203.0.113.1 dev eth0 table 101",
    "ip rule add from 203.0.113.50 lookup 101 priority 601",
    "ip route del default",
)


def test_a_remedy_that_cuts_off_an_operator_is_not_offered() -> None:
    with dual_stack() as node:
        (pod,) = node.pods
        pod.ip([f"address add {POD}/32 dev eth0", "route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1"])
        for command in APART:
            node.run(shlex.split(command), check=False)
        found = findings(node, "path-lost")
    finding = next(finding for finding in found if "601" in finding["subject"])
    assert finding["remedy"] is None
    assert "It ends the path of tcp 198.51.100.7:40000 > 203.0.113.50:22 in eth0" in finding["what"]


def test_a_rule_to_a_table_without_a_default_route_leaves_the_packets_to_the_next_rule() -> None:
    with shared_enis() as node:
        node.run(["ip", "route", "add", "192.0.2.0/24", "dev", "eth1", "table", "77"])
        node.run(["ip", "rule", "add", "from", POD, "lookup", "77", "priority", "2000"])
        assert findings(node, "rules-of-one-source") == []


def test_the_remedy_for_a_lost_rule_keeps_the_rules_of_a_role() -> None:
    with shared_enis() as node:
        Steps(node, "policy_routes", {"rules": [KEPT]}).run()
        node.run(shlex.split(f"iptables -t mangle -A PREROUTING {MARKS}"))
        (finding,) = findings(node, "mark-without-rule")
        Steps(node, "policy_routes", finding["remedy"]["options"]).run()
        now = rules(node)
        assert [rule for rule in now if rule.startswith("700:")] and [rule for rule in now if "fwmark 0x80/0x80" in rule]
        assert findings(node, "mark-without-rule") == []


TERWAY = """table ip terway_symmetric {
    chain prerouting {
        type filter hook prerouting priority mangle; policy accept;
        iifname "eth0" ct mark set ct mark & 0xffffffcf | 0x20 comment "terway-symmetric"
        meta mark set ct mark & 0x30 comment "terway-symmetric"
    }
}
"""


def test_the_marks_of_a_table_of_nft_need_a_rule_like_those_of_iptables() -> None:
    with shared_enis() as node:
        node.write("/etc/terway.nft", TERWAY)
        node.run(["nft", "-f", "/etc/terway.nft"])
        (finding,) = findings(node, "mark-without-rule")
        assert (finding["subject"], finding["state"]) == ("0x20/0x30", "present")
        node.run(["ip", "rule", "add", "fwmark", "0x20/0x30", "lookup", "main", "priority", "1024"])
        assert findings(node, "mark-without-rule") == []


def test_a_node_port_of_ipvs_makes_a_loss_of_requests_an_error() -> None:
    with shared_enis(STRICT) as node:
        snapshot = Steps(node, "datapath_info").run()["snapshot"]
        (address, *_further) = (each for link in snapshot["links"] if link["name"] == "eth0" for each in link["addresses"])
        server = {"protocol": "tcp", "address": address["address"].partition("/")[0], "port": 30080, "scheduler": "rr"}
        for servers, severity in (([], "risk"), ([{**server, "flags": "", "destinations": []}], "error")):
            (finding,) = findings(node, "rp-strict-asymmetric", snapshot={**snapshot, "ipvs": servers})
            assert finding["severity"] == severity


def test_a_probe_has_no_way_back_without_a_default_route() -> None:
    with dual_stack() as node:
        node.write("/etc/probe.nft", PROBE_TABLE)
        node.run(["nft", "-f", "/etc/probe.nft"])
        azure = {"context": {"cloud": "azure"}}
        assert findings(node, "probe-no-way-back", **azure) == []
        node.run(["ip", "-6", "route", "del", "default"])
        (finding,) = findings(node, "probe-no-way-back", **azure)
        assert (finding["state"], finding["subject"], finding["proof"]) == ("present", "eth0", "twin")


def test_no_profile_is_ruled_out_by_checks_that_were_left_out() -> None:
    with shared_enis(STRICT) as node:
        (reason,) = audited(node, "note")["profile"]["reasons"]
        assert reason.startswith("That cannot be told without these checks, which the audit left out: ebtables-stale, ")


def test_a_filter_with_a_number_of_no_mode_is_loose() -> None:
    with shared_enis() as node:
        node.run(["sysctl", "-w", "net.ipv4.conf.eth0.rp_filter=7"])
        node.write("/etc/sysctl.d/60-hard.conf", "net.ipv4.conf.eth0.rp_filter = 1\n")
        (finding,) = findings(node, "rp-strict-at-boot")
        assert finding["remedy"]["options"] == {"interfaces": ["eth0"], "mode": "loose"}


@pytest.mark.parametrize(("source", "state"), [("all", "cannot_tell"), ("203.0.113.0/24", "present")])
def test_a_rule_that_no_twin_can_have_leaves_open_what_may_meet_it(source: str, state: str) -> None:
    with shared_enis(STRICT) as node:
        node.run(["ip", "rule", "add", "from", source, "nop", "priority", "900"])
        result = audited(node, "rp-strict-asymmetric", "rp-strict-at-boot")
        (finding,) = result["findings"]
        assert (finding["id"], finding["state"]) == ("rp-strict-asymmetric", state)
        assert ("snapshot.rules[3].action must be one of lookup, " in finding["what"]) == (state == "cannot_tell")
        assert result["passed"] == ["rp-strict-at-boot"]


def test_a_competing_agent_is_disabled_by_the_units_that_the_remedy_names() -> None:
    trouble = TROUBLES["daemon-competes"]
    with trouble.node() as node:
        (finding,) = findings(node, "daemon-competes")
    (undo,) = trouble.undo
    assert undo.replace("--root=/ disable", "disable --now") in finding["remedy"]["operator"]


@pytest.mark.parametrize(("count", "severity"), [(95, "note"), (100, "error")])
def test_a_larger_limit_of_tracked_connections_ends_the_trouble(count: int, severity: str) -> None:
    """In the snapshot: the limit is one of the whole machine, which a network namespace may not set."""

    def limited(most: int) -> list[dict[str, Any]]:
        node = Node(KERNEL)
        node.snapshot["counters"]["connections"] = {"count": count, "max": most}
        return list(concluded(node.done(), "conntrack-near-full")["findings"])

    (finding,) = limited(100)
    assert (finding["severity"], finding["proof"]) == (severity, "counter")
    (command,) = finding["remedy"]["commands"]
    key, _equals, most = command.removeprefix("sysctl -w ").partition("=")
    assert key == finding["subject"] and limited(int(most)) == []
