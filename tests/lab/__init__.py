# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A little cloud for tests, demos and benchmarks of kubenode.datapath.

    with Lab("demo", nodes=[Node("node1", pods=["pod1"]), Node("node2", pods=["pod2"], system="bookworm")]) as lab:
        lab.node("node1").module("nftables_probe_snat", {"interface": "eth0"})
        assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)

    with EniLab("pods on ENIs", enis=[Eni("eth1", pods=["pod1"])]) as lab:
        lab.node("node1").service(30080, [lab.pod("pod1").address], policy="Local")

A node is a few namespaces on the host's files, built in a tenth of a second; or a container that runs systemd, boots in a
second and reboots; or a small VM with a separate kernel (``vm=True``), which takes ten seconds. ``lab.kubernetes`` has a
cluster of such nodes. ``python -m lab`` keeps a lab running for tools that start and end.

Needs root, and on the host: iproute2, nft, util-linux, bash, procps; overlayfs, veth and bridge in the kernel. For nodes
that run systemd: podman, mmdebstrap. For VMs: mmdebstrap, qemu-system-x86, ssh, mke2fs.
"""

from __future__ import annotations

from lab.cloud import Lab, Node
from lab.eni import Eni, EniLab
from lab.entering import LabError

__all__ = ["Eni", "EniLab", "Lab", "LabError", "Node"]
