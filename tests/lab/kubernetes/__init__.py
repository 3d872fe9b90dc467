# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes in the lab: version 1.20, compiled from Debian's source package.

    with Cluster() as cluster:
        cluster.apply(manifests.server("web"), manifests.service("web", policy="Local"))
        cluster.wait_for_rollout("daemonset/web")
        port = cluster.node_port("web")
        assert cluster.client.fetch(cluster.node("node1").address, port, tries=3)
        cluster.node("node1").reboot()
        cluster.wait_until_ready()

A cluster is a ``Lab``: it has the same load balancer, client and metadata service, its nodes run systemd in containers, and
``inventory()`` gives them to playbooks. Needs on the host, besides what nodes that run systemd need: ssh-keygen, apt-get.
"""

from __future__ import annotations

from lab.kubernetes.cluster import Cluster
from lab.kubernetes.pod_network import PodNetwork, PointToPoint

__all__ = ["Cluster", "PodNetwork", "PointToPoint"]
