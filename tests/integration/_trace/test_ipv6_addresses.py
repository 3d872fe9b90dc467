# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From which of its IPv6 addresses a node sends, and at which it takes what comes.

A node of flannel has the address of its tunnel as the anycast address of its bridge, too, as the node forwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.network import Connection

from .._audit.layouts import FAR, PORT, REMOTE_POD, Bridge, Calico, DockerAndLibvirt, Vxlan
from .built_node import Node, built

ANYCAST = "fd00:60::"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with built(Vxlan()) as node:
        yield node


def test_an_answer_to_an_anycast_address_arrives(node: Node) -> None:
    connection = Connection("node", "", REMOTE_POD[6], PORT, "")
    assert node.passes(connection)
    way = node.trace(connection)
    assert way.met.frame and way.met.frame.packet.source.hex().startswith("fd000060") and way.is_well(True), way.reason


def test_a_new_connection_by_the_bridge_is_dropped_and_one_by_the_tunnel_arrives(node: Node) -> None:
    """Each has its own route to the address, and the kernel takes that of the link by which the packet comes in."""
    of_pod = Connection("pod1", "fd00:60::5", ANYCAST, PORT, "veth1")
    assert not node.passes(of_pod) and node.passes(of_pod._replace(destination="fd00:60::1"))
    way = node.trace(of_pod)
    assert (way.verdict, str(way.culprit and way.culprit.text)) == ("dropped", f"{ANYCAST} dev cni0 anycast")
    of_remote = Connection("pod3", REMOTE_POD[6], ANYCAST, PORT, "flannel-v6.1")
    assert node.passes(of_remote) and node.trace(of_remote).is_well(True)


def test_a_node_without_a_global_address_sends_from_a_link_local_one() -> None:
    """A pod answers it on the link, even if the gateway of its default route is gone, and no router does."""
    with built(Calico(), "ip addr del 2001:db8:5::11/64 dev eth0") as node:
        to_pod = Connection("node", "", "fd00:60::5", PORT, "")
        to_outside = to_pod._replace(destination=FAR["eth0"][6])
        assert (node.passes(to_pod), node.passes(to_outside)) == (True, False)
        assert node.trace(to_pod).is_well(True)
        way = node.trace(to_outside)
        assert way.reply and way.reply.verdict == "dropped" and "no address of ipv6 on eth0" in way.reason, way.reason


def test_a_pod_sends_its_mac_address_to_another_pod_by_its_own_neighbour() -> None:
    """So a pod that has a wrong one for another one gets no reply from it, though it sends to a Service's address."""
    wrong = "ip neigh replace fd00:60::6 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
    with built(DockerAndLibvirt(), wrong, "pod1") as node:
        connection = Connection("pod1", "fd00:60::5", "fd00:96::10", 80, "veth1")
        assert not node.passes(connection)
        way = node.trace(connection)
        assert str(way.culprit and way.culprit.text) == "fd00:60::6 dev veth1 lladdr 02:00:00:00:00:99", way.reason


def test_a_pod_sends_its_mac_address_by_its_own_neighbour() -> None:
    """An answer of ARP goes to the MAC address of who asks, and one of IPv6 to the neighbour that the pod has for it."""
    wrong = "ip neigh replace fd00:60::1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
    with built(Bridge(), wrong, "pod2") as node:
        connection = Connection("node", "", "fd00:60::6", PORT, "")
        assert not node.passes(connection)
        way = node.trace(connection)
        assert str(way.culprit and way.culprit.text) == "fd00:60::1 dev veth2 lladdr 02:00:00:00:00:99", way.reason
