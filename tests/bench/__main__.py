# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``make bench`` runs: ratios against a baseline of the same run, as machines differ and are noisy.

python -m bench
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lab import Lab, Node

ROUNDS = 25
HERE = Path(__file__).parent
PING = {"ansible.builtin.ping": {}}
PROBE_SNAT = {"kubenode.datapath.nftables_probe_snat": {}}


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab, tempfile.TemporaryDirectory() as folder:
        lab.node("node1").module("nftables_probe_snat")
        durations = compare(lab, Path(folder), {"ping": PING, "probe_snat": PROBE_SNAT})
        with lab.node("node1").count_processes() as calls:
            lab.node("node1").module("nftables_probe_snat")
    show("converged nftables_probe_snat / ansible.builtin.ping", durations["probe_snat"], durations["ping"], target=1.3)
    print(f"{'':4}programs that a converged run starts: {[' '.join(call) for call in calls]}")


def compare(lab: Lab, folder: Path, tasks: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds of each named task over ROUNDS rounds, taking turns in one play over one connection plugin."""
    rounds = [{"name": f"{name}", **task} for _round in range(ROUNDS + 1) for name, task in tasks.items()]
    (folder / "play.json").write_text(json.dumps([{"hosts": "nodes", "gather_facts": False, "tasks": rounds}]))
    environment = {
        "ANSIBLE_STDOUT_CALLBACK": "durations",
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
        "BENCH_DURATIONS": str(folder / "durations"),
    }
    inventory = lab.write_inventory(folder / "inventory.json")
    subprocess.run(
        ["ansible-playbook", "-i", str(inventory), str(folder / "play.json")],
        env={**os.environ, **lab.ansible_environment(), **environment},
        check=True,
    )
    durations: dict[str, list[float]] = {name: [] for name in tasks}
    for line in (folder / "durations").read_text().splitlines():
        name, seconds = line.split()
        durations[name].append(float(seconds))
    return {name: seconds[1:] for name, seconds in durations.items()}  # the first round warms the caches


def show(title: str, measured: list[float], baseline: list[float], target: float) -> None:
    ratios = [one / other for one, other in zip(measured, baseline, strict=True)]
    middle = statistics.median(ratios)
    print(f"{title}: {middle:.2f} (target: at most {target}), quartiles {quartiles(ratios)}, {len(ratios)} pairs")
    for name, seconds in (("measured", measured), ("baseline", baseline)):
        print(f"    {name}: median {statistics.median(seconds) * 1000:.0f} ms, fastest {min(seconds) * 1000:.0f} ms")


def quartiles(values: list[float]) -> str:
    low, _middle, high = statistics.quantiles(values, n=4)
    return f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()
