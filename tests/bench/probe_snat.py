# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_probe_snat on a node where there is nothing to do."""

from __future__ import annotations

from bench.measuring import PING, durations, show
from lab import Lab, Node

ROUNDS = 25


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab:
        node = lab.node("node1")
        node.module("nftables_probe_snat")
        seconds = durations(lab, {"ping": PING, "probe_snat": {"kubenode.datapath.nftables_probe_snat": {}}}, ROUNDS)
        with node.count_processes() as calls:
            node.module("nftables_probe_snat")
    show("converged nftables_probe_snat / ansible.builtin.ping", seconds["probe_snat"], seconds["ping"], target=1.3)
    print(f"{'':4}programs that a converged run starts: {[' '.join(call) for call in calls]}")
