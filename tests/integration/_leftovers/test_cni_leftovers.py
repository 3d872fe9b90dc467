# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cni_info names what azure-vnet, azure-cns and Cilium left, and each command that cni_info names removes its object alone."""

from __future__ import annotations

from typing import Any

import pytest

from lab import cilium
from lab.azure_bridge import enslave
from lab.node import NamespaceNode
from lab.steps import Steps, warnings

from .azure_rules import AZURE, AZURE6, BACKENDS, FOREIGN, NODE, NODE6, PODS6, SWIFT, TUNNEL, UNCERTAIN, apply, saved

CONFIGURATIONS = "/etc/cni/net.d"


def look(node: NamespaceNode) -> dict[str, Any]:
    before = node.snapshot()
    found = Steps(node, "cni_info").run()
    assert not found["changed"] and node.snapshot() == before
    return found


def remove(node: NamespaceNode, found: list[dict[str, Any]]) -> None:
    for one in found:
        node.run(["sh", "-c", one["command"]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_rule_is_found_in_its_backend_and_its_command_removes_it_alone(node: NamespaceNode, backend: str) -> None:
    apply(node, f"iptables-{backend}", FOREIGN)
    node.ip(["link add azSnatbr type bridge", "address add 169.254.128.1/17 dev azSnatbr", "link set azSnatbr up"])
    node.ip(["neighbour add 169.254.128.9 lladdr 02:00:00:00:00:09 nud permanent dev azSnatbr"])
    node.set_sysctls({"net.ipv4.conf.azSnatbr.proxy_arp": 1})
    before = saved(node)
    apply(node, f"iptables-{backend}", [*AZURE, *UNCERTAIN])
    found = look(node)["leftovers"]
    rules = [one for one in found if one["kind"] in ("rule", "chain") and one["certain"]]
    assert len(rules) == len(AZURE) and all(one["place"].endswith(f"({backend})") for one in rules)
    assert {one["owner"] for one in rules} == {"azure-vnet", "azure-cns"}
    assert f"{NODE}, which the node does not have, so that no answer arrives" in str([one["evidence"] for one in rules])
    uncertain = [one for one in found if not one["certain"]]
    assert [one["text"] for one in uncertain] == [
        "-d 168.63.129.16/32 -p tcp -m tcp --dport 80 -j DROP", "-j ACCEPT"
    ]  # fmt: skip
    other_objects = [(one["kind"], one["text"]) for one in found if one["kind"] not in ("rule", "chain")]
    assert other_objects == [
        ("neighbor", "169.254.128.9 dev azSnatbr lladdr 02:00:00:00:00:09 PERMANENT"),
        ("link", "azSnatbr"),
        ("sysctl", "net.ipv4.conf.azSnatbr.proxy_arp = 1"),
    ]
    remove(node, [*rules, *uncertain])
    assert [line for line in saved(node) if line not in before] == [] and [
        line for line in before if line not in saved(node)
    ] == []
    remove(node, [one for one in found if one["kind"] in ("neighbor", "link")])
    assert look(node)["leftovers"] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ipv6_snat_the_mark_and_the_gateway_are_told_by_each_other(node: NamespaceNode, backend: str) -> None:
    enslave(node)
    before = saved(node)
    apply(node, f"ip6tables-{backend}", AZURE6)
    found = look(node)["leftovers"]
    assert [(one["kind"], one["certain"]) for one in found] == [("rule", False), ("rule", False)]
    node.ip(["address add fd00:10:241::1/64 dev azure0 nodad"])
    found = look(node)["leftovers"]
    assert [(one["kind"], one["text"], one["certain"]) for one in found] == [
        ("rule", "-j MARK --set-xmark 0x0/0xffffffff", True),
        ("rule", f"-s {PODS6} -j SNAT --to-source {NODE6}", True),
        ("address", "fd00:10:241::1/64", True),
    ]
    remove(node, found)
    assert look(node)["leftovers"] == [] and [line for line in saved(node) if line.startswith("-A")] == [
        line for line in before if line.startswith("-A")
    ]


def test_without_a_trace_of_azure_vnet_no_rule_is_taken_for_one_of_its_own(node: NamespaceNode) -> None:
    for backend in BACKENDS:
        apply(node, f"iptables-{backend}", [*UNCERTAIN, "-t nat -A POSTROUTING -s 169.254.128.0/17 -j MASQUERADE"])
        apply(node, f"ip6tables-{backend}", AZURE6)
    assert look(node)["leftovers"] == []


def test_nothing_is_certain_while_azure_vnet_serves_a_pod_or_another_program_uses_its_chain(node: NamespaceNode) -> None:
    apply(node, "iptables-nft", ["-t nat -N SWIFT", "-t nat -A POSTROUTING -j SWIFT", SWIFT[0]])
    assert [one["certain"] for one in look(node)["leftovers"]] == [True, True, True]
    apply(node, "iptables-nft", ["-t nat -A SWIFT -d 192.0.2.1 -j RETURN"])
    found = look(node)["leftovers"]
    assert [(one["kind"], one["owner"], one["certain"]) for one in found] == [
        ("rule", "azure-vnet", True),
        ("rule", "azure-vnet", True),
        ("rule", "unknown", False),
        ("chain", "azure-vnet", False),
    ]
    node.ip(["link add azv0123456789a type veth peer name p0"])
    found = look(node)["leftovers"]
    assert not any(one["certain"] for one in found)
    assert "azure-vnet still serves the pod at azv0123456789a" in found[0]["evidence"]


def test_what_the_mode_transparent_tunnel_left_is_named_and_removed(node: NamespaceNode) -> None:
    node.write("/var/run/azure-vnet.json", "{}")
    node.run(["iptables-nft", "-t", "mangle", "-A", "PREROUTING", "-i", "vethx", "-j", "MARK", "--set-mark", "3"])
    node.run(["iptables-nft", "-t", "raw", "-A", "PREROUTING", "-d", "192.0.2.9", "-j", "NOTRACK"])
    before = node.snapshot()
    node.run(["ipset", "create", "azure-tt-local-pods", "hash:ip"])
    apply(node, "iptables-nft", TUNNEL)
    gateway = node.run(["sh", "-c", "ip route show default | cut -d ' ' -f 3"]).stdout.strip()
    node.ip([f"route add default via {gateway} dev eth0 table 101", "rule add fwmark 3 lookup 101"])
    found = look(node)["leftovers"]
    assert [(each["kind"], each["certain"]) for each in found] == [
        (kind, True) for kind in ("rule", "rule", "policy_rule", "route", "set")
    ]
    node.ip(["link add azv0123456789a type veth peer name p0"])
    assert not any(each["certain"] for each in look(node)["leftovers"])
    node.ip(["link del azv0123456789a"])
    remove(node, found)
    assert look(node)["leftovers"] == [] and node.snapshot() == before


def test_what_cilium_left_is_named_once_it_is_gone(node: NamespaceNode) -> None:
    node.write(f"{CONFIGURATIONS}/05-cilium.conflist", '{"plugins": [{"type": "cilium-cni"}]}')
    apply(node, "iptables-nft", FOREIGN)
    before = saved(node)
    jump = '-t nat -A POSTROUTING -m comment --comment "cilium-feeder: CILIUM_POST_nat" -j CILIUM_POST_nat'
    apply(node, "iptables-nft", ["-t nat -N CILIUM_POST_nat", jump, "-t nat -A CILIUM_POST_nat -s 10.0.1.0/24 -j MASQUERADE"])
    cilium.create_links(node)
    assert look(node)["leftovers"] == []
    node.remove(CONFIGURATIONS)
    found = look(node)
    assert [(one["kind"], one["owner"]) for one in found["leftovers"]] == [
        (kind, "cilium") for kind in ("rule", "rule", "chain", "link")
    ]
    remove(node, found["leftovers"])
    assert look(node)["leftovers"] == [] and saved(node) == before and warnings(found) == []
