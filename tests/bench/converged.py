# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of a run that changes nothing, and the least possible cost of an Ansible task."""

from __future__ import annotations

from bench.measure import PING, show_ratio, task_seconds
from lab import Lab, Node

ROUNDS = 25
TASKS = {"ping": PING, "probe_snat": {"kubenode.datapath.nftables_probe_snat": {}}}


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab:
        node = lab.node("node1")
        node.module("nftables_probe_snat")
        seconds = task_seconds(lab, ROUNDS, TASKS)
        with node.count_processes() as calls:
            node.module("nftables_probe_snat")
    show_ratio("converged nftables_probe_snat / ping", seconds["probe_snat"], seconds["ping"], target=1.15)
    print(f"    programs that it starts: {', '.join(' '.join(call) for call in calls)}")
