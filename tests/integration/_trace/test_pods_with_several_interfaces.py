# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod with several interfaces answers by its own routes, and a trace follows the answer or says what it lacks."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import pytest

from lab import Lab, inner_pods
from lab.inner_pods import InnerPod
from lab.node import NamespaceNode

from . import tracing

ADDRESS = "10.77.0.5"
DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 80), 1)"
STRICT = {"kind": "sysctl", "text": "net.ipv4.conf.veth-second.rp_filter = 1"}
BY_SECOND = ["route add default via 169.254.1.1 dev net1 onlink"]
BY_RULE = [*BY_SECOND, "route add default via 169.254.1.1 dev eth0 onlink table 100", f"rule add from {ADDRESS} lookup 100"]


class Node(NamedTuple):
    """A node with a client, and with a pod that has an address on eth0, behind veth-first. Its net1 is behind veth-second."""

    node: NamespaceNode
    client: InnerPod
    pod: InnerPod

    def trace(self, **options: Any) -> dict[str, Any]:
        packet = {"source": self.client.address, "destination": ADDRESS, "destination_port": 80, "interface": self.client.link}
        return tracing.trace(self.node, packet, **options)

    def answers(self) -> bool:
        """Whether the pod refuses the connection: nothing listens on the port."""
        done = self.client.run([sys.executable, "-c", DIAL, ADDRESS], check=False)
        return "ConnectionRefusedError" in done.stderr


@pytest.fixture
def node(lab: Lab) -> Node:
    node: NamespaceNode = lab.node("node1")
    client = inner_pods.routed(node, "client", "10.77.0.6", "0a:00:00:00:00:06", "veth-client", "eth0")
    pod = inner_pods.InnerPod(node, "several", ADDRESS, "0a:00:00:00:00:05", "veth-first")
    inner_pods.batch(node, ["link add veth-second type veth peer name net1 netns several"])
    node.ip(["link set veth-first up", "link set veth-second up", f"route add {ADDRESS} dev veth-first"])
    node.ip(["address add 169.254.1.1/32 dev lo"])  # the gateway of both pods
    pod.ip([*(f"link set {link} up" for link in ("lo", "eth0", "net1")), f"address add {ADDRESS}/32 dev eth0"])
    return Node(node, client, pod)


@pytest.mark.parametrize(
    ("routes", "strict", "came_in_by", "verdict", "culprit"),
    [
        (BY_SECOND, 1, "veth-second", "dropped", STRICT),
        (BY_SECOND, 0, "veth-second", "delivered", None),
        (BY_RULE, 1, "veth-first", "delivered", None),
        ([], 0, "", "dropped", {"kind": "missing", "text": "no route to {source} in the pod"}),
    ],
    ids=["strict filter", "no filter", "rule by source", "no route"],
)
def test_the_answer_takes_the_way_of_the_pods_routes(
    node: Node, routes: list[str], strict: int, came_in_by: str, verdict: str, culprit: dict[str, str] | None
) -> None:
    node.pod.ip(routes)
    node.node.set_sysctls({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.veth-second.rp_filter": strict})
    result = node.trace()
    expected = culprit and {**culprit, "text": culprit["text"].format(source=node.client.address)}
    reply = result["reply"]
    assert (result["verdict"], reply["verdict"], reply["came_in_by"]) == ("delivered", verdict, came_in_by), result["reason"]
    assert (result["culprit"], result["certain"]) == (expected, True), result["depends_on"]
    assert node.answers() == (verdict == "delivered")


def test_an_answer_by_an_interface_that_does_not_lead_to_the_node_is_unknown(node: Node) -> None:
    node.pod.ip(["link add net2 type veth peer name net3", "link set net2 up", "link set net3 up", "route add default dev net2"])
    result = node.trace()
    assert (result["verdict"], result["reply"]["verdict"]) == ("delivered", "unknown")
    assert "by its interface net2, which does not lead to the node" in result["reply"]["reason"]
    assert not node.answers()


def test_pastes_without_the_pods_routes_depend_on_them(node: Node) -> None:
    node.pod.ip(BY_SECOND)
    node.node.set_sysctls({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.veth-second.rp_filter": 1})
    commands = ("ip addr", "ip rule", "ip route show table all", "iptables-save", "nft list ruleset", "sysctl -a", "ip neigh")
    dump = {command: node.node.run(command.split()).stdout for command in commands}
    result = node.trace(dump=dump)
    first = result["depends_on"][0]
    assert (result["reply"]["verdict"], first["fact"]) == ("unknown", f"pod-side:{ADDRESS}")
    assert [outcome["reply_verdict"] for outcome in first["outcomes"]] == ["delivered", "dropped"]
    told = node.trace(dump=dump, assume={first["fact"]: "veth-second"})
    assert (told["reply"]["verdict"], told["culprit"]) == ("dropped", STRICT)


def test_outputs_of_the_pods_namespace_show_by_which_interface_it_answers(node: Node) -> None:
    node.pod.ip(BY_SECOND)
    node.node.set_sysctls({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.veth-second.rp_filter": 1})
    of_node = ("ip -d addr", "ip rule", "ip route show table all", "iptables-save", "nft list ruleset", "sysctl -a", "ip neigh")
    of_pod = ("ip -d address show", "ip route show table all", "ip -4 rule list", "ip -6 rule list")
    commands = [*of_node, *(f"ip netns exec several {command}" for command in of_pod)]
    result = node.trace(dump={command: node.node.run(command.split()).stdout for command in commands})
    assert (result["reply"]["verdict"], result["culprit"], result["certain"]) == ("dropped", STRICT, True), result["depends_on"]
    assert result["reply"]["came_in_by"] == "veth-second"
