# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's cluster: real components that work together, over IPv4 and IPv6, also after a reboot."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from lab.kubernetes import Cluster, manifests
from lab.kubernetes.pod_images import SERVER_PORT
from lab.machine import Machine
from lab.prober import Answer, Prober

NAME = "web"


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[str]:
    """A server on each node, and a service of both families in front of them."""
    objects = [manifests.server(NAME), manifests.service(NAME, "NodePort")]
    cluster.apply(*objects)
    cluster.wait_for_rollout(f"daemonset/{NAME}")
    wait_for_pods(cluster, f"app={NAME}")
    yield f"app={NAME}"
    cluster.delete(*objects)


def wait_for_pods(cluster: Cluster, selector: str) -> None:
    """Until a pod runs on each node and has an address of each family; kubelet reports both later than that the pod is ready."""

    def nodes() -> list[str]:
        return [pod.node for pod in cluster.pods_of(selector) if pod.address and pod.ipv4]

    cluster.until("each node has a pod with its addresses", nodes, expected=[node.name for node in cluster.nodes])


@pytest.mark.sample
def test_all_nodes_are_ready_and_run_the_version_that_was_built(cluster: Cluster) -> None:
    cluster.wait_until_ready()
    versions = cluster.kubectl("get", "nodes", "--output=jsonpath={.items[*].status.nodeInfo.kubeletVersion}").split()
    assert versions == ["v1.20.2"] * len(cluster.nodes)


@pytest.mark.sample
def test_a_pod_of_each_node_has_an_address_of_each_family_out_of_the_nodes_subnets(cluster: Cluster, web: str) -> None:
    pods = cluster.pods_of(web)
    assert [pod.node for pod in pods] == [node.name for node in cluster.nodes]
    for pod, node in zip(pods, cluster.nodes, strict=True):
        assert pod.address.startswith(node.pod_subnet.removesuffix("/64"))
        assert pod.ipv4.startswith(node.place.pod_subnet_ipv4.removesuffix("0/24"))


@pytest.mark.sample
def test_a_pod_reaches_a_pod_of_the_other_node_under_its_own_address(cluster: Cluster, web: str) -> None:
    here, there = cluster.pods_of(web)
    assert here.fetch(there.address, SERVER_PORT) == Answer(200, here.address, there.name)
    assert here.fetch(there.ipv4, SERVER_PORT) == Answer(200, here.ipv4, there.name)


@pytest.mark.sample
def test_a_service_answers_at_its_cluster_addresses_by_each_of_its_pods(cluster: Cluster, web: str) -> None:
    names = {pod.name for pod in cluster.pods_of(web)}
    addresses = cluster.get("service", NAME)["spec"]["clusterIPs"]
    assert len(addresses) == 2
    for node in cluster.nodes:
        for address in addresses:
            answered: set[str] = set()
            what = f"{node.name} is answered by each pod at {address}"
            cluster.until(what, partial(_collect, answered, node, address), expected=names)


@pytest.mark.sample
def test_a_service_answers_a_client_from_outside_at_each_nodes_port(cluster: Cluster, web: str) -> None:
    port = cluster.node_port(NAME)
    for node in cluster.nodes:
        for address in (node.address, node.ipv4):
            assert cluster.client.fetch(address, port, tries=10), address


@pytest.mark.sample
def test_kubectl_runs_a_command_in_a_pod(cluster: Cluster, web: str) -> None:
    pod = cluster.pods_of(web)[0]
    assert cluster.kubectl("exec", pod.name, "--", "hostname").strip() == pod.name


def test_a_node_that_reboots_comes_back_with_its_pods(cluster: Cluster, web: str) -> None:
    node = cluster.node("node1")
    port = cluster.node_port(NAME)
    node.reboot()
    cluster.wait_until_ready()
    addresses = [node.address, node.ipv4]
    for address in addresses:
        cluster.until(f"the service answers at {address}", partial(cluster.client.fetch, address, port))
    wait_for_pods(cluster, web)
    here, there = cluster.pods_of(web)
    answer = Answer(200, there.ipv4, here.name)
    cluster.until("the pod of the rebooted node answers", lambda: there.fetch(here.ipv4, SERVER_PORT), expected=answer)


@pytest.mark.sample
def test_the_settings_of_this_machines_kernel_stay(cluster: Cluster) -> None:
    """kubelet sets kernel.panic to 10 on a node of its own."""
    shown = cluster.node("node1").read("/proc/sys/kernel/panic").strip()
    with open("/proc/sys/kernel/panic") as setting:
        assert shown == "10" != setting.read().strip()


def _collect(answered: set[str], machine: Machine, address: str) -> set[str]:
    """Adds the pod that answers now: kube-proxy chooses one by chance for each connection."""
    answer = Prober(machine).http(address, 80, timeout=1.0, tries=1)
    answered.update({answer.host} if answer else ())
    return answered
