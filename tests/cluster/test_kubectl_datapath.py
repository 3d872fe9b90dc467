# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubectl datapath reads a node of the cluster from a pod of kubectl debug. With the agent's pod, it is in test_agent.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lab import place
from lab.container import SystemdNode
from lab.kubernetes import Cluster, manifests
from lab.kubernetes.pod_images import SERVER, SERVER_PORT

Plugin = Callable[..., Any]  # as of conftest.py


@pytest.mark.sample
def test_a_packet_is_followed_through_a_node_and_the_pod_that_read_it_is_deleted(cluster: Cluster, plugin: Plugin) -> None:
    workload = [manifests.server("read"), manifests.service("read", "NodePort", "Local")]
    cluster.apply(*workload)
    cluster.wait_for_rollout("daemonset/read")
    node: SystemdNode = cluster.node("node1")
    (pod,) = (pod for pod in cluster.pods_of("app=read") if pod.node == node.name)
    packet = f"tcp {place.CLIENT_IPV4} > {node.ipv4}:{cluster.node_port('read')} in eth0"
    completed = plugin("--node", node.name, "--image", SERVER, "--json", packet)
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    assert (answer["packet"]["destination"], answer["packet"]["destination_port"]) == (pod.ipv4, SERVER_PORT)
    assert answer["reply"]["verdict"] == "forwarded"
    assert not (node.exists("/tmp/kubenode-datapath") or "kubenode-datapath" in node.run(["ps", "-ef"]).stdout)
    cluster.until("the pod is deleted", cluster.debug_pods, expected=[])
    cluster.delete(*workload)


def test_a_node_that_is_not_there_is_an_error_in_one_line(cluster: Cluster, plugin: Plugin) -> None:
    completed = plugin("snapshot", "--node", "node9", "--image", SERVER)
    assert (completed.returncode, len(completed.stderr.splitlines())) == (3, 1) and '"node9" not found' in completed.stderr
    assert cluster.debug_pods() == []
