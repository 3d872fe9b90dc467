# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules by source of the role eni_policy_routing do not cut the node off from what it reaches without an ENI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.node import POD_PORT, NamespaceNode
from lab.uplinks import SERVER, V4, V6, Addresses, UplinkLab
from lab.waiting import until

FAMILIES = pytest.mark.parametrize("family", [V4, V6], ids=["ipv4", "ipv6"])
OPTIONS: dict[str, Any] = {
    "mode": "runtime",
    "layout": "custom",
    "connmark": "never",
    "manage": ["mark_rule", "tables"],
    "enis": [
        {"name": "eth0", "primary": True, "ipv4": [V4.node()], "ipv6": [V6.node()]},
        {
            "name": "eth1",
            "table": 1101,
            "ipv4": [V4.node(1)],
            "ipv6": [V6.node(1)],
            "gateway": {"ipv4": V4.gateway(1), "ipv6": V6.gateway(1)},
        },
    ],
}


@pytest.fixture
def lab() -> Iterator[UplinkLab]:
    with UplinkLab("local") as running:
        running.node("node1").serve(SERVER)
        yield running


def profile(node: NamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    return node.module("profile", {"name": "eni_policy_routing", "options": {**OPTIONS, **options}}, check=check)


@FAMILIES
def test_the_address_of_an_eni_reaches_pods_here_and_on_other_nodes(
    lab: UplinkLab, node: NamespaceNode, family: Addresses
) -> None:
    clean = node.snapshot()

    def reached() -> list[bool]:
        pods = (family.pod(0), family.pod(1))
        return [lab.fetch(pod, POD_PORT, node, family.node(1)) is not None for pod in pods]

    # The pod on node2 gets the request by eth0, and its answer comes by eth0.
    until("a new lab reaches both pods", reached, expected=[True, True])
    assert lab.fetch(family.node(1), SERVER) is None
    result = profile(node)
    assert not result["failed"] and result["changed"], result
    assert reached() == [True, True]
    assert lab.fetch(family.node(1), SERVER) is not None
    after = node.snapshot()
    assert profile(node)["changed"] is False and node.snapshot() == after
    assert profile(node, state="absent")["changed"]
    assert node.snapshot() == clean


@FAMILIES
def test_a_reply_to_the_network_of_another_eni_leaves_by_the_eni_of_its_source(lab: UplinkLab, family: Addresses) -> None:
    """The request of a neighbour of eth0 came in by eth1, through the router."""
    node, refused = lab.node("node1"), lab.refused()
    assert not profile(node)["failed"]
    assert lab.fetch(family.node(1), SERVER, lab.node("node2")) is not None
    assert lab.refused() == refused
    way = node.run(["ip", "route", "get", family.neighbour, "from", family.node(1)]).stdout
    assert f"via {family.gateway(1)} dev eth1" in way


def test_a_pod_whose_address_is_in_the_network_of_an_eni_is_reached(lab: UplinkLab) -> None:
    node, pod = lab.node("node1"), lab.pod("pod1")
    address = V4.host(V4.segments[0], 99)
    node.ip([f"route add {address} dev br0"])
    pod.ip([f"address add {address}/32 dev eth0"])
    assert not profile(node)["failed"]
    assert lab.fetch(address, POD_PORT, node, V4.node(1)) is not None


def test_the_rehearsal_refuses_rules_that_cut_the_node_off_from_its_pods(node: NamespaceNode) -> None:
    """Without the exceptions by which the profile keeps what the node reaches without an ENI."""
    rules = [{"priority": 1400, "from": V4.node(1), "table": 1101}]
    routes = [{"table": 1101, "to": "default", "via": V4.gateway(1), "dev": "eth1", "onlink": True}]
    packet = {"source": V4.node(1), "destination": V4.pod(0), "destination_port": POD_PORT}
    changes = [{"policy_routes": {"rules": rules, "routes": routes, "permanent": False}}]
    said = node.module("datapath_rehearsal", {"changes": changes, "packets": [packet]})
    assert said["failed"] and "is delivered at" in said["msg"], said
