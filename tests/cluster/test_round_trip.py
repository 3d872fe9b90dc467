# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scene of ``make kind`` on the cluster of the lab."""

from __future__ import annotations

from pathlib import Path

from lab.kubernetes import Cluster, manifests, round_trip
from lab.kubernetes.delivery import Delivery


def test_a_service_answers_the_audit_is_clean_and_absent_restores(cluster: Cluster, agent: str, tmp_path: Path) -> None:
    workload = [manifests.server("trip"), manifests.service("trip", "NodePort")]
    cluster.apply(*workload)
    cluster.wait_for_rollout("daemonset/trip")
    port = cluster.node_port("trip")
    addresses = [address for node in cluster.workers for address in (node.address, node.ipv4)]
    folders = [tmp_path / name for name in ("audit", "profile")]
    for folder in folders:
        folder.mkdir()
    with (
        Delivery(cluster, agent, folders[0], "audit") as audit,
        Delivery(cluster, agent, folders[1], "aks-dual-stack", aks_dual_stack_ipv6="address") as profile,
    ):
        round_trip.run(profile, audit, lambda: [address for address in addresses if not cluster.client.fetch(address, port)])
    cluster.delete(*workload)
