# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's cluster: the version that was built, with addresses of both families, and none of its settings on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.kubernetes import Cluster, manifests

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
def test_the_settings_of_this_machines_kernel_stay(cluster: Cluster) -> None:
    """kubelet sets kernel.panic to 10 on a node of its own."""
    output = cluster.node("node1").read("/proc/sys/kernel/panic").strip()
    with open("/proc/sys/kernel/panic") as setting:
        assert output == "10" != setting.read().strip()
