# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_probe_snat beside kube-proxy: no probe of a load balancer is lost, also while kube-proxy restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.probing import ProbeRecord, Probing
from lab.steps import Steps
from lab.upstream import Endpoint, KubeProxy, Service
from lab.upstream.services import PORT

CLUSTER_PORT, LOCAL_PORT, HEALTH_PORT = 30080, 30081, 32080
CLUSTER_BALANCER, LOCAL_BALANCER = "2001:db8:fffe::1", "2001:db8:fffe::2"
COUNT = 1000


@pytest.fixture
def targets(lab: Lab, proxy: KubeProxy) -> dict[str, Callable[[], bool]]:
    """A probe of each target that a load balancer of Azure may have, by name."""
    node: NamespaceNode = lab.node("node1")
    # A Service of both IP versions has endpoints of both; the health port of an old kube-proxy speaks of those of IPv4.
    ends = [Endpoint(address, pod.node.name) for pod in lab.pods for address in (pod.address, "10.244.1.17")]
    proxy.serve(
        Service(1, ends[:2], CLUSTER_PORT, [CLUSTER_BALANCER]),
        Service(2, ends, LOCAL_PORT, [LOCAL_BALANCER], policy="Local", health_port=HEALTH_PORT),
    )
    balancer = lab.load_balancer
    for address in (CLUSTER_BALANCER, LOCAL_BALANCER):
        balancer.route(f"{address}/128", node.address)
    return {
        "node port, Cluster": partial(balancer.probe_tcp, node.address, CLUSTER_PORT),
        "node port, Local": partial(balancer.probe_tcp, node.address, LOCAL_PORT),
        "load balancer address, Cluster": partial(balancer.probe_tcp, CLUSTER_BALANCER, PORT),
        "load balancer address, Local": partial(balancer.probe_tcp, LOCAL_BALANCER, PORT),
        "health port": partial(_is_healthy, lab, node),
    }


def _is_healthy(lab: Lab, node: NamespaceNode) -> bool:
    answer = lab.load_balancer.probe_http(node.address, HEALTH_PORT)
    return bool(answer and answer.status == 200)


Targets = dict[str, Callable[[], bool]]


def test_no_probe_is_lost_with_the_table_and_all_of_pods_without_it(lab: Lab, proxy: KubeProxy, targets: Targets) -> None:
    of_pods = [name for name in targets if name != "health port"]
    node: NamespaceNode = lab.node("node1")
    before = node.snapshot()
    assert [name for name in of_pods if targets[name]()] == []
    Steps(node, "nftables_probe_snat").four()
    lost = {name: sum(not probe() for _number in range(COUNT)) for name, probe in targets.items()}
    assert lost == dict.fromkeys(targets, 0)
    assert Steps(node, "nftables_probe_snat").run(state="absent")["changed"]
    assert node.snapshot() == before
    assert [name for name in of_pods if targets[name]()] == []


def test_no_probe_of_a_pod_is_lost_while_kube_proxy_restarts(lab: Lab, proxy: KubeProxy, targets: Targets) -> None:
    Steps(lab.node("node1"), "nftables_probe_snat").run()
    is_healthy = targets.pop("health port")  # kube-proxy itself answers there
    with probing(targets) as records:
        for _number in range(2):
            time.sleep(1)
            proxy.restart()
        while min(record.sent for record in records().values()) < COUNT:
            time.sleep(0.1)
    assert {name: len(record.lost) for name, record in records().items()} == dict.fromkeys(targets, 0)
    assert is_healthy()


@contextmanager
def probing(targets: Targets) -> Iterator[Callable[[], dict[str, ProbeRecord]]]:
    """Probe all targets a hundred times a second during the block."""
    running = {name: Probing(probe, 0.01) for name, probe in targets.items()}
    try:
        yield lambda: {name: target.record for name, target in running.items()}
    finally:
        for target in running.values():
            target.close()
