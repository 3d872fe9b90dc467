# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile symmetric_routing: a reply leaves by the uplink where its request came in, behind a router that checks sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab import bpf, cilium
from lab.node import POD_PORT, NamespaceNode
from lab.service import Backend
from lab.uplinks import BOTH, SERVER, V4, V6, Addresses, UplinkLab, requests

FAMILIES = pytest.mark.parametrize("family", BOTH, ids=["ipv4", "ipv6"])
BACKENDS = pytest.mark.parametrize("backend", ["nftables", "iptables"])
UPLINKS = [{"name": "eth0"}, {"name": "eth1", "gateway": V4.gateway(1), "gateway6": V6.gateway(1)}]


def profile(node: NamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    return node.module("profile", {"name": "symmetric_routing", "options": {"mode": "runtime", **options}}, check=check)


@pytest.fixture
def lab() -> Iterator[UplinkLab]:
    with UplinkLab("symmetric") as running:
        yield running


@FAMILIES
@BACKENDS
def test_each_request_by_the_second_uplink_is_answered(
    lab: UplinkLab, node: NamespaceNode, family: Addresses, backend: Backend
) -> None:
    lab.serve(family, backend)
    clean = node.snapshot()
    assert lab.lost(family) == [*requests(family)]
    predicted = profile(node, check=True, uplinks=UPLINKS)
    assert predicted["changed"] and node.snapshot() == clean
    result = profile(node, uplinks=UPLINKS)
    assert not result["failed"] and result["diff"] == predicted["diff"], result
    assert lab.lost(family) == []
    after = node.snapshot()
    assert not profile(node, check=True, uplinks=UPLINKS)["changed"]
    assert not profile(node, uplinks=UPLINKS)["changed"]
    assert node.snapshot() == after
    assert profile(node, state="absent")["changed"]
    assert lab.lost(family) == [*requests(family)]
    assert node.snapshot() == clean


@FAMILIES
def test_pods_of_other_nodes_behind_a_tunnel_are_reached_and_answer(
    lab: UplinkLab, node: NamespaceNode, family: Addresses
) -> None:
    """The packets of the tunnel are connections by eth0 of their own, which the profile marks, too."""
    lab.tunnel()
    lab.serve(family)
    clean = node.snapshot()
    assert lab.lost(family) == [*requests(family)]
    assert not profile(node, uplinks=UPLINKS)["failed"]
    assert lab.lost(family) == []
    assert lab.fetch(family.pod(1), POD_PORT, node, family.node(1)) is not None
    assert lab.fetch(family.pod(1), POD_PORT, lab.pod("pod1")) is not None
    assert lab.fetch(family.pod(0), POD_PORT, lab.pod("pod2")) is not None
    assert not profile(node, uplinks=UPLINKS)["changed"]
    assert profile(node, state="absent")["changed"] and node.snapshot() == clean
    assert lab.lost(family) == [*requests(family)]


@FAMILIES
def test_cilium_with_kube_proxy_keeps_its_routes_and_programs(lab: UplinkLab, node: NamespaceNode, family: Addresses) -> None:
    """Its programs on an uplink, as for its host firewall, pass packets on if kube-proxy answers node ports."""
    cilium.create_links(node)
    cilium.create_routes(node)
    for link in ("eth0", "eth1"):
        bpf.attach(node, "ingress", "cil_from_netdev", link)
    lab.serve(family)
    with cilium.agent(node, {"kube-proxy-replacement": "false"}):
        clean = node.snapshot()
        assert lab.lost(family) == [*requests(family)]
        assert not profile(node, uplinks=UPLINKS)["failed"]
        assert lab.lost(family) == []
        assert not profile(node, uplinks=UPLINKS)["changed"]
        assert profile(node, state="absent")["changed"] and node.snapshot() == clean


@FAMILIES
def test_what_the_node_reaches_without_an_uplink_stays_in_reach(lab: UplinkLab, node: NamespaceNode, family: Addresses) -> None:
    node.serve(SERVER)
    assert not profile(node, uplinks=UPLINKS)["failed"]
    assert lab.fetch(family.pod(0), POD_PORT, node, family.node(1)) is not None
    assert lab.fetch(family.pod(1), POD_PORT, node, family.node(0)) is not None
    assert lab.fetch(family.node(1), SERVER, lab.pod("pod2")) is not None, "a pod of another node, by the router"
    assert lab.fetch(family.node(0), SERVER, lab.pod("pod2")) is not None, "a pod of another node, over the route to its pods"
    assert lab.fetch(family.node(1), SERVER, lab.node("node2")) is not None, "a client in the network of the other uplink"


@pytest.mark.parametrize("selector", [f"from {V4.node(1)}", "from all"])
def test_a_rule_of_another_program_that_takes_replies_is_named(lab: UplinkLab, node: NamespaceNode, selector: str) -> None:
    """As an operator who worked around the trouble leaves it."""
    node.ip([f"rule add {selector} lookup 77 priority 900", f"route add default via {V4.gateway(0)} table 77"])
    node.serve(SERVER)
    (warning,) = [str(warning) for warning in profile(node, uplinks=UPLINKS)["warnings"]]
    assert f"comes after ip rule 900: {selector} lookup 77" in warning
    assert lab.fetch(V4.node(1), SERVER) is None
    node.ip([f"rule delete {selector} lookup 77 priority 900"])
    assert lab.fetch(V4.node(1), SERVER) is not None


def test_an_uplink_may_have_ipv6_alone_and_a_router_that_announces_itself(lab: UplinkLab, node: NamespaceNode) -> None:
    output = lab.router.run_from_host(["ip", "-6", "-o", "address", "show", "dev", "port1", "scope", "link"])
    router = output.split()[3].partition("/")[0]
    node.ip([f"address delete {V4.node(1)}/24 dev eth1", f"route add default via {router} dev eth1 proto ra metric 2048"])
    lab.serve(V6)
    clean = node.snapshot()
    assert lab.lost(V6) == [*requests(V6)]
    assert profile(node)["node"]["gateways"]["eth1"] == {"ipv6": router}
    assert lab.lost(V6) == [] and not profile(node)["changed"]
    assert profile(node, state="absent")["changed"] and node.snapshot() == clean


LEASE = "/run/systemd/netif/leases"
SCENES = {
    "a lease of a network that the node has left": (
        'mkdir -p /var/lib/dhcp && printf \'lease {\n interface "eth1";\n fixed-address 192.168.122.9;\n'
        " option routers 192.168.122.1;\n}\n' > /var/lib/dhcp/dhclient.leases",
        None,
    ),
    "a lease that names the node itself": (
        f"mkdir -p {LEASE} && printf 'ADDRESS={V4.node(1)}\nROUTER={V4.node(1)}\n' > {LEASE}/$(cat /sys/class/net/eth1/ifindex)",
        None,
    ),
    "a lease without a route": (
        f"mkdir -p {LEASE} && printf 'ADDRESS={V4.node(1)}\nROUTER=10.9.2.1\n' > {LEASE}/$(cat /sys/class/net/eth1/ifindex)",
        "10.9.2.1",
    ),
    "no lease but garbage": (
        "mkdir -p /var/lib/dhcp && head -c 3000 /dev/urandom > /var/lib/dhcp/dhclient.leases &&"
        " mkfifo /var/lib/dhcp/dhclient.eth1.leases && ln -s /dev/zero /var/lib/dhcp/dhclient.eth2.leases",
        None,
    ),
    "a default route of several next hops": (
        "ip route replace default nexthop via 10.9.1.1 dev eth0 nexthop via 10.9.2.1 dev eth1",
        "10.9.2.1",
    ),
    "two default routes": (
        "ip route add default via 10.9.2.9 dev eth1 metric 50 && ip route add default via 10.9.2.1 dev eth1 metric 40",
        "10.9.2.1",
    ),
    "a gateway in no network": (
        "ip address delete 10.9.2.7/24 dev eth1 && ip address add 10.9.2.7/32 dev eth1"
        " && ip route add default via 192.0.2.1 dev eth1 onlink metric 50",
        "192.0.2.1",
    ),
    "a table that another program fills": (
        "ip route add default via 10.9.2.1 dev eth1 metric 50"
        " && ip route add 10.0.0.0/8 dev br0 table $((1000 + $(cat /sys/class/net/eth1/ifindex)))",
        "10.9.2.1",
    ),
}


@pytest.mark.parametrize(("command", "gateway"), SCENES.values(), ids=SCENES)
def test_the_gateway_of_an_uplink_is_read_from_the_node(node: NamespaceNode, command: str, gateway: str | None) -> None:
    node.run_from_host(["ip", "address", "delete", f"{V6.node(1)}/64", "dev", "eth1"])
    node.run(["sh", "-c", command])
    clean = node.snapshot()
    result = profile(node)
    assert not result["failed"], result
    assert result["node"]["gateways"].get("eth1", {}).get("ipv4") == gateway
    assert not profile(node)["changed"]
    assert profile(node, state="absent")["changed"] and node.snapshot() == clean


def test_an_uplink_that_the_node_cannot_have_is_named(node: NamespaceNode) -> None:
    clean = node.snapshot()
    for entry, error in (
        ({"name": node.pods[0].link, "gateway": "172.30.5.9"}, "[0].name must be a link in no bridge, bond or VRF; it is in br0"),
        ({"name": "eth1", "gateway": V4.node(1)}, "[0].gateway must be an address of another node"),
        ({"name": "eth1", "gateway": "10.9.2.255"}, "[0].gateway must be a unicast address"),
    ):
        assert error in profile(node, uplinks=[entry])["msg"]
        assert node.snapshot() == clean


@pytest.mark.parametrize("hook", ["ingress", "tcx"])
def test_a_node_is_refused_only_if_programs_of_cilium_decide_before_netfilter(node: NamespaceNode, hook: bpf.Hook) -> None:
    cilium.create_links(node)
    bpf.attach(node, hook, "cil_from_netdev", "eth1")
    with cilium.agent(node, {"kube-proxy-replacement": "true"}):
        clean = node.snapshot()
        refused = profile(node, uplinks=UPLINKS)
        assert refused["msg"].startswith("profile: eth1 carries Cilium's BPF programs cil_from_netdev"), refused
        assert node.snapshot() == clean
        assert not profile(node, state="absent")["failed"]
    with cilium.agent(node, {"kube-proxy-replacement": "false"}):
        assert not profile(node, check=True, uplinks=UPLINKS)["failed"]
    doubtful = profile(node, check=True, uplinks=UPLINKS)
    assert "and the agent's options were not found" in str(doubtful["warnings"])
