# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""policy_routes at 4,000 and 20,000 rules, against iproute2 doing the same and one ping task."""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from bench.measure import PING, cpu, show_ratio, task_seconds
from lab import Lab, Node
from lab.node import NamespaceNode

SIZES = {4_000: 9, 20_000: 3}
"""Rules, two for each pod, and rounds."""
LOOPED = 200

# Another protocol's rules keep the copied pyroute2 on the node while the measured ones come and go.
KEEP = {"kubenode.datapath.policy_routes": {"protocol": 76, "rules": [{"priority": 5000, "table": 9}]}}

# ru_maxrss is in kilobytes, getrusage(2).
PEAK = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
open("/run/peak", "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""


def main() -> None:
    for size, rounds in SIZES.items():
        with Lab("bench", nodes=[Node("node1"), Node("node2")]) as lab:
            measure(lab, pods(size // 2), rounds)
    with Lab("bench", nodes=[Node("node1")]) as lab:
        loop(lab, pods(LOOPED // 2))


def pods(count: int) -> list[dict[str, Any]]:
    """A rule to and a rule from each pod, in eight tables."""
    hosts = [f"10.{number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(count)]
    to = [{"priority": 512, "to": host, "table": "main"} for host in hosts]
    return to + [{"priority": 1536, "from": host, "table": 1000 + number % 8} for number, host in enumerate(hosts)]


def lines(rules: list[dict[str, Any]]) -> list[str]:
    """The same for ``ip -batch``."""
    words = ([f"{key} {value}" for key, value in rule.items()] for rule in rules)
    return [f"rule add {' '.join(one)} protocol 75" for one in words]


def measure(lab: Lab, rules: list[dict[str, Any]], rounds: int) -> None:
    node: NamespaceNode = lab.node("node1")
    other: NamespaceNode = lab.node("node2")
    batch = cpu(lambda: other.ip(lines(rules)))
    listing = statistics.median(cpu(lambda: list_rules(other)) for _round in range(rounds))
    desired = {"kubenode.datapath.policy_routes": {"rules": json.dumps(rules)}}
    away = {"kubenode.datapath.policy_routes": {"state": "absent"}}
    task_seconds(lab, 0, {"keep": KEEP})
    first = task_seconds(lab, rounds, {"ping": PING, "first": desired, "away": away})
    converged = task_seconds(lab, rounds, {"ping": PING, "again": desired})
    objects = f"policy_routes, {len(rules)} rules"
    baseline = [seconds + batch for seconds in first["ping"]]
    show_ratio(f"{objects}: first run / (ip -batch + ping)", first["first"], baseline, target=3)
    baseline = [seconds + listing for seconds in converged["ping"]]
    show_ratio(f"{objects}: converged / (ip -j rule, both families + ping)", converged["again"], baseline, target=1.5)
    print(f"    ip -batch: {batch * 1000:.0f} ms, ip -j rule: {listing * 1000:.0f} ms")
    for state in ("present", "absent"):
        print(f"    peak memory of a run that changes all, {state}: {peak(node, rules, state)} MiB (target: at most 250)")


def list_rules(node: NamespaceNode) -> None:
    for family in ("-4", "-6"):
        node.run_from_host(["ip", family, "-j", "rule"])


def peak(node: NamespaceNode, rules: list[dict[str, Any]], state: str) -> int:
    """The memory, in MiB, of a run that removes all rules, or that adds all."""
    node.module("policy_routes", {"state": "absent"}, timeout=600)
    arguments = {"rules": json.dumps(rules)}
    if state == "absent":
        node.module("policy_routes", arguments, timeout=600)
        arguments = {"state": "absent"}
    result = node.module("policy_routes", arguments, timeout=600, diff=False, through=[sys.executable, "-c", PEAK])
    assert result["changed"], result
    return int(node.read("/run/peak")) // 1024


def loop(lab: Lab, rules: list[dict[str, Any]]) -> None:
    """The same rules by ``ip`` commands, without the module."""
    add = {"ansible.builtin.command": "ip {{ item }}", "loop": lines(rules)}
    flush = {"ansible.builtin.command": "ip rule flush protocol 75"}
    desired = {"kubenode.datapath.policy_routes": {"rules": rules, "permanent": False}}
    seconds = task_seconds(lab, 1, {"loop": add, "flush": flush, "module": desired, "sweep": flush})
    print(f"{len(rules)} rules: {seconds['module'][0]:.1f} s; ansible.builtin.command in a loop: {seconds['loop'][0]:.1f} s")
