# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds and memory of datapath_audit on a node with thousands of Services that loses packets, against one datapath_info."""

from __future__ import annotations

import functools
import statistics
import sys
from typing import Any

from bench.measure import in_turn, judge, show_ratio, stopwatch
from bench.policy_routes import PEAK
from lab import Eni, EniLab, kube_proxy

SERVICES = kube_proxy.services(1_000)  # more than 10,000 rules in either mode
ROUNDS = 3
MOST_SECONDS, MOST_MEBIBYTES = 20, 300


def main() -> None:
    for mode in kube_proxy.MODES:
        with EniLab("bench", [Eni(f"eth{number}", pods=[f"pod{number}"], has_address=True) for number in (1, 2)]) as lab:
            node: Any = lab.node("node1")
            node.filter_reverse_path(1)
            kube_proxy.load(node, mode, SERVICES)
            acts = {
                name: functools.partial(node.module, f"datapath_{name}", diff=False, through=[sys.executable, "-c", PEAK])
                for name in ("audit", "info")
            }
            result = acts["audit"]()
            assert [finding["proof"] for finding in result["findings"][:3]] == ["twin"] * 3, result
            peak = int(node.read("/run/peak")) // 1024
            seconds = in_turn(ROUNDS, {name: functools.partial(stopwatch, act) for name, act in acts.items()})
            title = f"audit of a node with {len(SERVICES)} Services of {mode}"
            show_ratio(f"{title} / datapath_info", seconds["audit"], seconds["info"])
            judge(f"{title} within {MOST_SECONDS} s", statistics.median(seconds["audit"]) <= MOST_SECONDS)
            print(f"    peak memory: {peak} MiB (target: at most {MOST_MEBIBYTES})")
            judge(f"{title}: {peak} MiB of at most {MOST_MEBIBYTES}", peak <= MOST_MEBIBYTES)
