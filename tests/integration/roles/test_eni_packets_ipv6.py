# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv6 packets on a node whose pods share ENIs: client -> node port -> pod. IPv6 has no reverse-path filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from lab import Eni, EniLab, eni6
from lab.eni import PRIMARY, EniNamespaceNode
from lab.node import POD_PORT
from lab.prober import Answer, Prober
from lab.service import Backend, Policy
from lab.steps import Steps, warnings

QUICK = 0.3  # seconds to wait for an answer that must not come; one that comes takes a millisecond
NODE_PORT = 30080


@pytest.fixture
def lab() -> Iterator[EniLab]:
    with EniLab("eni6", [Eni("eth1", pods=["pod1"])]) as running:
        eni6.add_to(running)
        yield running


@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
@pytest.mark.parametrize("policy", get_args(Policy))
@pytest.mark.parametrize("backend", get_args(Backend))
def test_a_node_port_answers_with_the_module_and_the_rule_only(
    lab: EniLab, node: EniNamespaceNode, backend: Backend, policy: Policy, strict: bool
) -> None:
    node.service(NODE_PORT, [lab.pod("pod1").address], policy, backend=backend)
    connmark = Steps(
        node,
        "nftables_connmark",
        {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "permanent": False, "strict": strict},
    )
    assert_refused(lab)
    (_ipv4, ipv6) = warnings(connmark.run())
    assert ipv6.startswith("No ipv6 rule routes by mark 0x80/0x80")
    assert_refused(lab)
    node.run(["ip", *eni6.MARK_RULE.split()])
    answer = lab.client.fetch(eni6.NODE, NODE_PORT)
    assert answer and (answer.peer == eni6.CLIENT) == (policy == "Local")
    assert Prober(lab.client).udp(eni6.NODE, NODE_PORT, timeout=1.0, tries=1)
    connmark.run(state="absent")
    assert_refused(lab)


SERVICE = "2001:db8:80::80"


@pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])
@pytest.mark.parametrize("prefix", [SERVICE, "2001:db8:80::/64"])
def test_a_service_address_that_no_interface_has_answers_if_it_is_listed(
    lab: EniLab, node: EniNamespaceNode, prefix: str, strict: bool
) -> None:
    node.service(NODE_PORT, [lab.pod("pod1").address], "Local", load_balancer_ip=SERVICE)
    lab.router.run(["ip", "-6", "route", "add", SERVICE, "via", eni6.NODE])
    lab.router.run_from_host(["nft", f"insert rule ip6 cloud prerouting iifname {PRIMARY.port} ip6 saddr {SERVICE} accept"])
    node.run(["ip", *eni6.MARK_RULE.split()])
    options = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "permanent": False, "strict": strict}
    connmark = Steps(node, "nftables_connmark", options)
    connmark.run()
    before = lab.router.refused()
    assert lab.client.fetch(SERVICE, 80, timeout=QUICK) is None
    assert lab.router.refused() > before
    connmark.run(service_addresses=[prefix])
    answer = lab.client.fetch(SERVICE, 80)
    assert answer and answer.peer == eni6.CLIENT


def test_a_request_that_came_in_by_another_eni_is_answered_by_it(lab: EniLab) -> None:
    """As with Cilium and a client outside the VPC: the pod is on eth1, and its own route is by eth0."""
    node, pod = lab.node("node1"), lab.pod("pod1")
    node.run(["ip", *eni6.MARK_RULE.split()])
    node.run(["ip", "-6", "rule", "delete", "from", pod.address, "lookup", "1001"])
    clean = node.snapshot()
    options = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "interfaces": [{"name": "eth1", "mark": "0x100"}]}
    rules = [{"priority": 1024, "fwmark": "0x100/0x180", "table": 1001, "family": family} for family in ("ipv4", "ipv6")]
    steps = [Steps(node, "policy_routes", {"rules": rules}), Steps(node, "nftables_connmark", options)]

    def call(timeout: float = 1.0) -> Answer | None:
        return lab.client.fetch(pod.address, POD_PORT, timeout=timeout)

    before = lab.router.refused()
    assert call(QUICK) is None and lab.router.refused() > before
    for one in steps:
        assert one.run()["changed"]
    answer = call()
    assert answer and answer.peer == eni6.CLIENT
    assert not any(one.run()["changed"] for one in steps)
    for one in reversed(steps):
        one.run(state="absent")
    assert call(QUICK) is None
    assert node.snapshot() == clean


def test_a_node_port_of_another_eni_is_answered_by_it() -> None:
    """The pod is on eth2, and its node port is called by an address of eth1."""
    with EniLab("eni6", [Eni("eth1", pods=["pod1"]), Eni("eth2", pods=["pod2"])]) as lab:
        eni6.add_to(lab)
        node, own = (
            lab.node("node1"),
            "2001:db8:0:1::21",
        )  # of the prefix on whose addresses the lab's kube-proxy serves node ports
        node.service(NODE_PORT, [lab.pod("pod2").address], "Local")
        node.run(["ip", "-6", "address", "add", f"{own}/128", "dev", "eth1", "nodad"])
        lab.router.run(["ip", "-6", "route", "add", own, "via", lab.pod("pod1").address])
        lab.router.run_from_host(["nft", f"insert rule ip6 cloud prerouting iifname eni1 ip6 saddr {own} accept"])
        before = lab.router.refused()
        assert lab.client.fetch(own, NODE_PORT, timeout=QUICK) is None and lab.router.refused() > before
        options = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "interfaces": [{"name": "eth1", "mark": "0x100"}]}
        rule = {"priority": 1024, "fwmark": "0x100/0x180", "table": 1001, "family": "ipv6"}
        Steps(node, "policy_routes", {"rules": [rule]}).run()
        Steps(node, "nftables_connmark", {**options, "permanent": False}).run()
        answer = lab.client.fetch(own, NODE_PORT)
        assert answer and answer.peer == eni6.CLIENT


def assert_refused(lab: EniLab) -> None:
    """The reply leaves by the ENI with the node's address, so the router drops it."""
    before = lab.router.refused()
    assert lab.client.fetch(eni6.NODE, NODE_PORT, timeout=QUICK) is None
    assert lab.router.refused() > before
