# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time for each node of a converged fleet: the playbook, beside its role alone and beside as many pings.

The lab's nodes are on the controller's machine, so that the modules' own time is in all figures.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
from pathlib import Path

from bench.measure import PING, in_turn, show_ratio, show_times
from lab import Lab, Node, playbook

NODES = 10
ROUNDS = 3
MODULES = 2  # that the role executes on a node that has IPv6 for certain
PROFILE = {"aks_dual_stack_mode": "runtime", "aks_dual_stack_ipv6": "always"}
ROLE = {"ansible.builtin.import_role": {"name": "kubenode.datapath.aks_dual_stack"}}
PLAYBOOK = "kubenode.datapath.aks_dual_stack"


def main() -> None:
    with (
        Lab("bench", nodes=[Node(f"node{number}") for number in range(NODES)]) as lab,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        pings, role = (
            str(playbook.write(folder / f"{kind}.json", tasks, hosts="nodes"))
            for kind, tasks in (("pings", [PING] * MODULES), ("role", [ROLE]))
        )
        lab.write_inventory(folder / "inventory.json")
        taken = in_turn(
            ROUNDS,
            {
                "playbook": lambda: _cpu_seconds(lab, folder, PLAYBOOK),
                "role": lambda: _cpu_seconds(lab, folder, role),
                "pings": lambda: _cpu_seconds(lab, folder, pings),
            },
        )
    show_ratio(f"CPU of a converged node, aks_dual_stack / {MODULES} pings", taken["playbook"], taken["pings"])
    show_times("the role in a play without batches", taken["role"])


def _cpu_seconds(lab: Lab, folder: Path, name: str) -> float:
    """User and system time of a run, all its processes, by node."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["ansible-playbook", "-i", str(folder / "inventory.json"), name, "-e", json.dumps(PROFILE)]
    callback = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
    subprocess.run(
        [*command, "-e", f"report={folder}/report.json"],
        env={**os.environ, **lab.ansible_environment(), **callback},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / NODES
