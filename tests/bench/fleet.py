# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU and wall time for each node of a converged fleet: the role, its modules one after another, and a ping.

The lab's nodes are on the controller's machine, so all figures contain the modules' own time.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import PING, in_turn, show_ratio, show_times
from bench.roles import ROLES
from lab import Lab, Node, host, playbook

FLEETS = {1: 5, 50: 2}  # rounds, by number of nodes
ROLE = "aks_dual_stack"
MOST_CPU = 1.4  # times that of a ping


class Cost(NamedTuple):
    """Seconds, by node."""

    cpu: float
    wall: float


def main() -> None:
    for count, rounds in FLEETS.items():
        with (
            Lab("bench", nodes=[Node(f"node{number}") for number in range(count)]) as lab,
            tempfile.TemporaryDirectory() as folder,
        ):
            _measure(lab, Path(folder), count, rounds)


def _measure(lab: Lab, folder: Path, count: int, rounds: int) -> None:
    variables, modules, _target = ROLES[ROLE]
    lab.write_inventory(folder / "inventory.json")
    role = {"ansible.builtin.import_role": {"name": f"kubenode.datapath.{ROLE}"}}
    plays: dict[str, list[dict[str, Any]]] = {"role": [role], "row": modules, "ping": [PING]}
    files = {name: playbook.write(folder / f"{name}.json", tasks, hosts="nodes") for name, tasks in plays.items()}
    extra = json.dumps({f"{ROLE}_{name}": value for name, value in variables.items()})
    spent: dict[str, list[Cost]] = {name: [] for name in plays}

    def run(name: str) -> float:
        command = ["ansible-playbook", "-i", str(folder / "inventory.json"), str(files[name]), "-e", extra]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        host.run(command, env={**os.environ, **lab.ansible_environment()})
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent[name].append(Cost(cpu / count, wall / count))
        return wall

    in_turn(rounds, {name: functools.partial(run, name) for name in plays})
    cpu, wall = ({name: [getattr(cost, kind) for cost in costs[1:]] for name, costs in spent.items()} for kind in Cost._fields)
    show_ratio(f"CPU of a converged node of {count}, the play of {ROLE} / of a ping", cpu["role"], cpu["ping"], MOST_CPU)
    show_times("its modules one after another", cpu["row"])
    show_ratio(f"wall time of a converged node of {count}, the play of {ROLE} / of a ping", wall["role"], wall["ping"])
    show_times("its modules one after another", wall["row"])
