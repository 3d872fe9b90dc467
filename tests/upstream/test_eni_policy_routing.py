# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""eni_policy_routing beside kube-proxy, on a node whose ENI has no address of its own and whose links filter strictly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab import EniLab
from lab.eni import BACKEND, CLIENT, LOAD_BALANCER, PRIMARY, EniNamespaceNode
from lab.prober import Answer
from lab.upstream import Endpoint, KubeProxy, Service
from lab.upstream.services import PORT

CLUSTER_PORT, LOCAL_PORT = 30080, 30081
QUICK = 0.3  # seconds to wait for an answer that must not come
TRIES = 100
STRICT = 1
POD = "10.0.1.11"

Calls = dict[str, Callable[[float], Answer | None]]


@pytest.fixture
def calls(eni_lab: EniLab, eni_proxy: KubeProxy) -> Calls:
    """The calls that get no answer without the role."""
    eni_lab.node("node1").filter_reverse_path(STRICT)
    eni_proxy.serve(
        Service(1, [Endpoint(POD, "node1")], CLUSTER_PORT),
        Service(2, [Endpoint(POD, "node1")], LOCAL_PORT, policy="Local", health_port=32081),
        Service(3, [Endpoint(BACKEND, "node2")], 30082, [LOAD_BALANCER]),
    )
    return {
        "a pod, to the load balancer's address": lambda limit: eni_lab.fetch_from("pod1", LOAD_BALANCER, PORT, limit),
        "a client, to the node port, policy Cluster": lambda limit: eni_lab.client.fetch(PRIMARY.address, CLUSTER_PORT, limit),
        "a client, to the node port, policy Local": lambda limit: eni_lab.client.fetch(PRIMARY.address, LOCAL_PORT, limit),
    }


def hanging(calls: Calls) -> list[str]:
    return [name for name, call in calls.items() if call(QUICK) is None]


def state(node: EniNamespaceNode) -> dict[str, Any]:
    """Return the node's snapshot. A kube-proxy that restarts may write the same rules in another order."""
    snapshot = node.snapshot()
    return {**snapshot, "nft": sorted(snapshot["nft"].splitlines())}


def profile(node: EniNamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    enis = [
        {"name": "eth0", "primary": True, "ipv4": [PRIMARY.address]},
        {"name": "eth1", "table": 1001, "gateway": {"ipv4": "10.0.1.1"}},
    ]
    options = {"mode": "runtime", "layout": "custom", "pod_interfaces": ["veth-*"], "enis": enis, **options}
    result = node.module("profile", {"name": "eni_policy_routing", "options": options}, check=check)
    assert not result["failed"], result
    return result


@pytest.mark.parametrize("remedy", ["loose", "strict"])
def test_every_call_is_answered_also_after_a_restart_and_absent_restores_the_node(
    eni_lab: EniLab, eni_proxy: KubeProxy, calls: Calls, remedy: str
) -> None:
    node: EniNamespaceNode = eni_lab.node("node1")
    before = state(node)
    troubled = hanging(calls)
    assert "a pod, to the load balancer's address" in troubled
    assert profile(node, remedy=remedy)["changed"]
    for _restart in range(2):
        answers = {name: [call(1.0) for _try in range(TRIES)] for name, call in calls.items()}
        assert {name: answered.count(None) for name, answered in answers.items()} == dict.fromkeys(calls, 0)
        # kube-proxy masquerades by its own mark, beside the role's.
        assert {answer.peer for answer in answers["a pod, to the load balancer's address"] if answer} == {PRIMARY.address}
        assert {answer.peer for answer in answers["a client, to the node port, policy Local"] if answer} == {CLIENT}
        eni_proxy.restart()
        assert not profile(node, check=True, remedy=remedy)["changed"]
    assert profile(node, remedy=remedy, state="absent")["changed"]
    assert hanging(calls) == troubled and state(node) == before
