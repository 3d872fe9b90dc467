# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role eni_policy_routing beside kube-proxy in its mode ipvs, which gives load balancers' addresses to kube-ipvs0.

The node is a VM, whose kernel has ip_vs. It has the ENIs of lab.kubernetes.eni, one pod behind eth1, and no kubelet.
It is emulated: minutes on an idle machine, half an hour on a busy one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Node, place, playbook, snapshot
from lab.kubernetes import Cluster, eni, manifests, worker
from lab.kubernetes.client import PATIENCE
from lab.node import POD_PORT, Pod
from lab.playbook import Played
from lab.prober import Answer, Prober
from lab.vm import Cable, VmNode
from lab.waiting import until

PLAYBOOK = "kubenode.datapath.eni_policy_routing"
QUICK = 0.5  # seconds to wait for an answer that must not come
SERVED = """
ip -o address show dev kube-ipvs0 | grep -q " $1/32 " &&
ipset -q test KUBE-LOAD-BALANCER "$1,tcp:80" &&
iptables-save --table nat | grep -q "^-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ"
"""
LOCAL, REMOTE = "local", "remote"
"""Services: the first leads to the pod, the second to a machine elsewhere."""
ADDRESS = "203.0.113.1"
"""The load balancer's address of the second."""


class Site:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.node: VmNode = cluster.node("node1")
        self.pod: Pod = cluster.pod("pod1")
        self._inventory = cluster.write_inventory(folder / "inventory.json")

    def play(self, **variables: Any) -> Played:
        given = {"layout": "custom", "enis": eni.described(self.node), "pod_interfaces": ["veth-*"], **variables}
        prefixed = {f"eni_policy_routing_{name}": value for name, value in given.items()}
        return playbook.play(self._inventory, PLAYBOOK, "--limit=node1", variables=prefixed).well()

    def call_load_balancer(self, limit: float = 3.0) -> Answer | None:
        return Prober(self.pod).http(ADDRESS, 80, limit, tries=1)

    def call_node_port(self, limit: float = 3.0) -> Answer | None:
        return self.cluster.client.fetch(self.node.ipv4, self.cluster.node_port(LOCAL), limit)

    def is_served(self) -> bool:
        """Whether kube-proxy has written all rules of the service whose pod is elsewhere; the masquerade rule is the last."""
        return self.node.run(["sh", "-c", SERVED, "sh", ADDRESS], check=False).returncode == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    others = [Node("node1", ["pod1"], "bookworm", besides=["conntrack", "ipset"], vm=True), Node("elsewhere")]
    with Cluster("eni-ipvs", nodes=(), others=others) as cluster:
        running = Site(cluster, tmp_path_factory.mktemp("eni-ipvs"))
        connect(running)
        eni.filter_strictly(running.node)
        elsewhere = cluster.node("elsewhere")
        elsewhere.serve(POD_PORT)
        pod_address = eni.interfaces(running.node.place)[0].pod_address(0)
        services = manifests.service(LOCAL, policy="Local", families=["IPv4"]), manifests.service(REMOTE, families=["IPv4"])
        for service, address in zip(services, (pod_address, elsewhere.ipv4), strict=True):
            del service["spec"]["selector"]
            name = service["metadata"]["name"]
            node = {"nodeName": "node1"} if name == LOCAL else {}
            subset = {"addresses": [{"ip": address, **node}], "ports": [{"port": POD_PORT}]}
            cluster.apply(service, {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}, "subsets": [subset]})
        cluster.balance(REMOTE, ADDRESS)
        cluster.start_proxy(running.node, "ipvs")
        until("kube-proxy serves the Services", running.is_served, running.node, limit=PATIENCE)
        yield running


def connect(site: Site) -> None:
    """The ENIs, and the pod's IPv4."""
    node, pod, router = site.node, site.pod, site.cluster.load_balancer
    for interface in eni.interfaces(node.place):
        assert node.plug(Cable(interface.mac, router, interface.port)) == interface.name
        eni.connect_router(router, interface)
    eni.connect_node(node)
    first = eni.interfaces(node.place)[0]
    address, gateway = first.pod_address(0), first.pod_gateway
    node.ip([f"address add {gateway}/32 dev {pod.link}", f"route add {address}/32 dev {pod.link}"])
    pod.ip([f"address add {address}/32 dev eth0", f"route add default via {gateway} dev eth0 onlink"])


@pytest.mark.parametrize("remedy", ["loose", "strict"])
def test_a_pods_call_hangs_without_the_role_and_is_answered_with_it_whatever_kube_proxy_writes(site: Site, remedy: str) -> None:
    before = state(site)
    assert not site.call_load_balancer(QUICK)
    assert_node_port_is_answered(site)
    assert site.play(remedy=remedy).changed == 1
    assert_answered(site)
    with_role = state(site)

    site.node.run(["systemctl", "stop", "kube-proxy"])
    site.node.run([f"{worker.PROGRAMS}/kube-proxy", "--cleanup"])
    assert not site.is_served()
    site.node.run(["systemctl", "start", "kube-proxy"])
    until("kube-proxy serves the Services", site.is_served, site.node, limit=PATIENCE)
    assert_answered(site)
    assert state(site) == with_role

    site.play(remedy=remedy, state="absent")
    assert not site.call_load_balancer(QUICK)
    assert_node_port_is_answered(site)
    assert state(site) == before


def assert_answered(site: Site) -> None:
    """The pod is masqueraded to the node's address."""
    answer = site.call_load_balancer()
    assert answer and answer.peer == site.node.ipv4
    assert_node_port_is_answered(site)


def assert_node_port_is_answered(site: Site) -> None:
    """The node port works without the role too: ipvs gets the request as one to the node itself, and routes the reply by the
    node's address (the kernel's net.ipv4.vs.snat_reroute). The role does not change this."""
    answer = site.call_node_port()
    assert answer and answer.peer == place.CLIENT_IPV4


def state(site: Site) -> dict[str, list[str]]:
    """Rules, routes and filters of IPv4; without kube-ipvs0, which belongs to kube-proxy."""
    network = snapshot.network(site.node)
    return {kind: [line for line in network[kind] if "kube-ipvs0" not in line] for kind in ("rules -4", "routes -4", "sysctls")}
