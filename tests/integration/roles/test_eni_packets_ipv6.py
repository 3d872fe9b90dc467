# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv6 packets on a node whose pods share ENIs: client -> node port -> pod. There is no reverse-path filtering in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from lab import Eni, EniLab, eni6
from lab.eni import PRIMARY, EniNamespaceNode
from lab.prober import Prober
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
    lab: EniLab, backend: Backend, policy: Policy, strict: bool
) -> None:
    node: EniNamespaceNode = lab.node("node1")
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
def test_a_service_address_that_no_interface_has_answers_if_it_is_listed(lab: EniLab, prefix: str, strict: bool) -> None:
    node: EniNamespaceNode = lab.node("node1")
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


def assert_refused(lab: EniLab) -> None:
    """The reply leaves by the ENI under the node's address, and the router drops it for that."""
    before = lab.router.refused()
    assert lab.client.fetch(eni6.NODE, NODE_PORT, timeout=QUICK) is None
    assert lab.router.refused() > before
