# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make kind``: a profile by the DaemonSet on a cluster of kind, from nothing to absent.

KIND_NODE names the image of the nodes, PROXY the mode of kube-proxy, or ``none`` for Cilium in its place.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kubernetes import manifests, round_trip
from lab.kubernetes.delivery import Delivery
from lab.kubernetes.kind import AGENT_IMAGE, NEWEST, KindCluster

PROXY = os.environ.get("PROXY") or "iptables"

# aks_dual_stack refuses a node on which Cilium handles Services. There, cilium_migration finds nothing stale.
PROFILES: dict[bool, tuple[str, dict[str, Any]]] = {
    False: ("aks-dual-stack", {"aks_dual_stack_ipv6": "always"}),
    True: ("cilium-migration", {"cilium_migration_state": "absent"}),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KindCluster]:
    with KindCluster(os.environ.get("KIND_NODE") or NEWEST, PROXY, tmp_path) as running:
        yield running


def addresses(cluster: KindCluster) -> list[str]:
    """The addresses of all nodes, of both IP versions."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]
    return [entry["address"] for node in nodes for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"]


def is_answered(address: str, port: int) -> bool:
    """Whether a Service answers this machine, which is outside of the cluster."""
    try:
        connection = http.client.HTTPConnection(address, port, timeout=2)
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False


def test_a_service_answers_the_audit_is_clean_and_absent_restores(cluster: KindCluster, tmp_path: Path) -> None:
    cluster.apply(manifests.server("trip"), manifests.service("trip", "NodePort"))
    cluster.wait_for_rollout("daemonset/trip")
    port, targets = cluster.node_port("trip"), addresses(cluster)
    assert len(targets) == 2 * len(cluster.workers), targets

    def unanswered() -> list[str]:
        return [address for address in targets if not is_answered(address, port)]

    name, variables = PROFILES[PROXY == "none"]
    folders = [tmp_path / name for name in ("audit-files", "profile-files")]
    for folder in folders:
        folder.mkdir()
    with (
        Delivery(cluster, AGENT_IMAGE, folders[0], "audit") as audit,
        Delivery(cluster, AGENT_IMAGE, folders[1], name, **variables) as profile,
    ):
        round_trip.run(profile, audit, unanswered, changes=PROXY != "none")
