# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds of Ansible tasks, and ratios of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import Lab

HERE = Path(__file__).parent
PING = {"ansible.builtin.ping": {}}


def durations(lab: Lab, tasks: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each named task on the first node, over the rounds, taking turns in one play over one connection plugin."""
    plays = [{"name": name, **task} for _round in range(rounds + 1) for name, task in tasks.items()]
    with tempfile.TemporaryDirectory() as folder:
        play, log = Path(folder, "play.json"), Path(folder, "durations")
        play.write_text(json.dumps([{"hosts": lab.nodes[0].name, "gather_facts": False, "tasks": plays}]))
        environment = {
            "ANSIBLE_STDOUT_CALLBACK": "durations",
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "BENCH_DURATIONS": str(log),
        }
        inventory = lab.write_inventory(Path(folder, "inventory.json"))
        subprocess.run(
            ["ansible-playbook", "-i", str(inventory), str(play)],
            env={**os.environ, **lab.ansible_environment(), **environment},
            check=True,
        )
        taken: dict[str, list[float]] = {name: [] for name in tasks}
        for line in log.read_text().splitlines():
            name, seconds = line.split()
            taken[name].append(float(seconds))
    return {name: seconds[1:] for name, seconds in taken.items()}  # the first round warms the caches


def stopwatch(act: Callable[[], object]) -> float:
    """Seconds that something takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def show(title: str, measured: list[float], baseline: list[float], target: float) -> None:
    ratios = [one / other for one, other in zip(measured, baseline, strict=True)]
    middle = statistics.median(ratios)
    print(f"{title}: {middle:.2f} (target: at most {target}), quartiles {quartiles(ratios)}, {len(ratios)} pairs")
    for name, seconds in (("measured", measured), ("baseline", baseline)):
        print(f"    {name}: median {statistics.median(seconds) * 1000:.0f} ms, fastest {min(seconds) * 1000:.0f} ms")


def quartiles(values: list[float]) -> str:
    low, _middle, high = statistics.quantiles(values, n=4)
    return f"{low:.2f} to {high:.2f}"
