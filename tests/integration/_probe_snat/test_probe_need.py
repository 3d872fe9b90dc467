# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node needs the probe table, and programs that redirect probes before nftables: real BPF on a real link."""

from __future__ import annotations

import re

import pytest

from lab import Lab, bpf, cilium, steps
from lab.load_balancer import PROBE_SOURCE
from lab.node import NamespaceNode
from lab.node_conditions import ANOTHER_ROOT

REPLACING = {"kube-proxy-replacement": "true", "enable-ipv6": "true"}
QUICK = 0.3  # seconds to wait for an answer that must not come


run, refused, _four_steps = steps.of("nftables_probe_snat")


def counted(node: NamespaceNode) -> list[int]:
    """The packets that each rule of the table has counted."""
    listing = node.run(["nft", "list", "table", "ip6", "azureSLBProbe"]).stdout
    return [int(packets) for packets in re.findall(r"counter packets (\d+)", listing)]


# Cilium


@pytest.mark.parametrize("hook", ["ingress", "tcx", "XDP"])
def test_cilium_that_answers_node_ports_refuses_present_but_not_absent(node: NamespaceNode, hook: bpf.Hook) -> None:
    run(node)
    cilium.create_links(node)
    bpf.attach(node, hook, "cil_from_netdev")
    kind = {"ingress": "tc"}.get(hook, hook)
    with cilium.agent(node, REPLACING):
        for plane in ("immediate", "permanent"):
            error = refused(node, **{plane: False})
            assert f"eth0 carries Cilium's BPF programs {kind} cil_from_netdev, and by the configuration of the process" in error
            assert "Set backend to bpf" in error
        absent = run(node, state="absent")
    assert absent["changed"] and absent["needed"]["verdict"] == "ineffective"
    assert f"{kind} cil_from_netdev" in absent["needed"]["reasons"][0]


@pytest.mark.parametrize("options", [{"kube-proxy-replacement": "false"}, {**REPLACING, "enable-ipv6": "false"}])
def test_cilium_that_leaves_ipv6_node_ports_to_others_is_no_reason(node: NamespaceNode, options: dict[str, str]) -> None:
    cilium.create_links(node)
    bpf.attach(node, "tcx", "cil_from_netdev")
    with cilium.agent(node, options):
        result = run(node)
    assert result["needed"]["verdict"] == "possible" and not result.get("warnings")


def test_the_agents_state_decides_while_no_agent_runs(node: NamespaceNode) -> None:
    cilium.create_links(node)
    bpf.attach(node, "ingress", "cil_from_netdev-eth0")
    cilium.store_state(node, KubeProxyReplacement="false", EnableNodePort=False, EnableIPv6=True)
    assert not run(node, check=True).get("warnings")
    cilium.store_state(node, KubeProxyReplacement="true", EnableNodePort=True, EnableIPv6=True)
    assert f"by {cilium.STATE} Cilium replaces kube-proxy" in refused(node)


def test_programs_without_the_agents_options_are_warned_of(node: NamespaceNode) -> None:
    cilium.create_links(node)
    bpf.attach(node, "tcx", "cil_from_netdev")
    cilium.store_state(node, EnableIPv6=True)  # as newer versions of Cilium do
    result = run(node)
    (warning,) = steps.warnings(result)
    assert "the agent's options were not found" in warning and warning in result["needed"]["reasons"]


def test_an_agent_whose_programs_are_not_there_yet_is_warned_of(node: NamespaceNode) -> None:
    cilium.create_links(node)
    bpf.attach(node, "ingress", "another_program")
    with cilium.agent(node, REPLACING):
        result = run(node)
    (warning,) = steps.warnings(result)
    assert "none of its BPF programs was found on eth0" in warning and result["needed"]["verdict"] == "possible"


def test_what_an_agent_of_another_node_was_told_is_no_reason(lab: Lab, node: NamespaceNode) -> None:
    cilium.create_links(node)
    bpf.attach(node, "ingress", "cil_from_netdev-eth0")
    with cilium.agent(lab.node("node2"), REPLACING):
        assert "the agent's options were not found" in steps.warnings(run(node))[0]


def test_programs_of_a_node_without_an_agent_are_no_reason(node: NamespaceNode) -> None:
    cilium.store_state(node, KubeProxyReplacement="true", EnableIPv6=True)
    bpf.attach(node, "tcx", "cil_from_netdev")
    assert not run(node).get("warnings")


def test_a_program_at_ingress_takes_the_probe_before_the_table(lab: Lab, node: NamespaceNode) -> None:
    """Like BPF host routing, the program hands the packet to the pod's link. The pod sees the link-local source."""
    pod = lab.pod("pod1")
    run(node, permanent=False)
    # A datagram, because the last packets of a TCP connection are counted after the probe has its answer.
    assert lab.load_balancer.probe_udp(pod.address, 8080)
    assert counted(node)[1:] == [1, 1]
    bpf.attach(node, "ingress", "cil_from_netdev-eth0", to=pod.link)
    assert not lab.load_balancer.probe_tcp(pod.address, 8080, timeout=QUICK)
    assert counted(node)[1:] == [1, 1]


# The result


def test_a_node_with_an_address_may_need_the_table(node: NamespaceNode) -> None:
    for result in (run(node, check=True), run(node)):
        assert result["needed"]["verdict"] == "possible"
        assert "eth0 has a global IPv6 address." in result["needed"]["reasons"]
        assert "was not looked at" in result["needed"]["reasons"][-1]


def test_a_node_without_ipv6_does_not(node: NamespaceNode) -> None:
    node.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"])
    needed = run(node, permanent=False)["needed"]
    assert needed["verdict"] == "unneeded"
    assert needed["reasons"] == ["No link of the node has a global IPv6 address, so the node receives no IPv6 probes."]


def test_another_link_with_ipv6_is_named(node: NamespaceNode) -> None:
    needed = run(node, permanent=False, interface="ens3")["needed"]
    assert needed["verdict"] == "possible" and f"eth0 ({node.address})" in needed["reasons"][0]


def test_a_bridge_that_has_the_nodes_address_is_named_and_then_receives_the_probes(lab: Lab, node: NamespaceNode) -> None:
    node.ip(
        [
            f"link add br-ex address {node.run(['cat', '/sys/class/net/eth0/address']).stdout.strip()} type bridge",
            f"address del {node.address}/64 dev eth0",
            "link set eth0 master br-ex",
            "link set br-ex up",
            f"address add {node.address}/64 dev br-ex nodad",
            f"route replace default via {PROBE_SOURCE} dev br-ex",
        ]
    )
    pod = lab.pod("pod1").address
    assert (
        f"eth0 has no global IPv6 address, and these links have one: br-ex ({node.address})"
        in (run(node, permanent=False)["needed"]["reasons"][0])
    )
    assert not lab.load_balancer.probe_tcp(pod, 8080, timeout=QUICK)
    needed = run(node, permanent=False, interface="br-ex")["needed"]
    assert "br-ex has a global IPv6 address." in needed["reasons"]
    assert lab.load_balancer.probe_tcp(pod, 8080, tries=20)


def test_microsofts_programs_make_it_unneeded(node: NamespaceNode) -> None:
    bpf.attach(node, "egress", "ipv6_hp_egress")
    needed = run(node, state="absent")["needed"]
    assert needed["verdict"] == "unneeded" and "ipv6_hp_egress of ipv6-hp-bpf on eth0" in needed["reasons"][0]


def test_nothing_is_said_of_the_builders_machine(node: NamespaceNode) -> None:
    node.run(["sh", "-e", "-c", ANOTHER_ROOT])
    result = node.module("nftables_probe_snat", {"immediate": False}, through=["chroot", "/mnt"])
    assert result["needed"]["verdict"] == "unknown" and "this root is not the running system's" in result["needed"]["reasons"][0]
