# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_info on nodes with 10,000 rules or chains and 500 links, with 500 pods, and with 5,000 Services: CPU and memory."""

from __future__ import annotations

import statistics
import sys

from bench.measure import cpu, judge
from bench.policy_routes import PEAK, lines, pods
from lab import Lab, Node, kube_proxy
from lab.node import NamespaceNode

RULES = 10_000
LINKS = 250  # pairs
ROUNDS = 5
WAITED = ("env",)  # as in trace.py
MOST_SECONDS, MOST_MEMORY = 2, 200  # MiB
PODS, MOST_SECONDS_OF_PODS = 500, 1
SERVICES = kube_proxy.services(5_000)
MOST_SECONDS_OF_SERVICES, MOST_MEMORY_OF_SERVICES = 6, 400  # of which nft takes 300 MiB to print the JSON


def main() -> None:
    for program in ("ip rule", "iptables", "nft"):
        with Lab("bench", nodes=[Node("node1")]) as lab:
            node = lab.node("node1")
            node.ip(f"link add l{number} type veth peer name p{number}" for number in range(LINKS))
            fill(node, program)
            objects = "chains" if program == "nft" else "rules"
            measure(node, f"datapath_info, {RULES} {objects} of {program} and {2 * LINKS} links", MOST_SECONDS, MOST_MEMORY)
    with Lab("bench", nodes=[Node("node1", pods=[f"pod{number}" for number in range(PODS)])]) as lab:
        measure(lab.node("node1"), f"datapath_info, {PODS} pods", MOST_SECONDS_OF_PODS, MOST_MEMORY)
    for mode in kube_proxy.MODES:
        with Lab("bench", nodes=[Node("node1")]) as lab:
            node = lab.node("node1")
            kube_proxy.load(node, mode, SERVICES)
            title = f"datapath_info, {len(SERVICES)} Services of {mode}"
            measure(node, title, MOST_SECONDS_OF_SERVICES, MOST_MEMORY_OF_SERVICES)


def fill(node: NamespaceNode, program: str) -> None:
    if program == "ip rule":
        node.ip(lines(pods(RULES // 2)))
    elif program == "iptables":
        rule = "-A KUBE-SVC-{0} -d 10.96.0.10/32 -p tcp -m comment --comment ns/svc-{0} -m tcp --dport {0} -j MASQUERADE"
        chains = [f":KUBE-SVC-{number} - [0:0]" for number in range(RULES // 2)]
        text = ["*nat", *chains, *(rule.format(number // 2) for number in range(RULES)), "COMMIT", ""]
        node.run(["iptables-nft-restore", "--noflush"], "\n".join(text))
    else:
        rules = "chain svc-{0} {{\nip saddr 10.244.0.5 meta mark set 1\ntcp dport {0} counter dnat to 10.244.0.5:{0}\n}}"
        node.run(["nft", "-f", "-"], "\n".join(["table ip s {", *(rules.format(number) for number in range(RULES)), "}"]))


def measure(node: NamespaceNode, objects: str, most_seconds: float, most_memory: int) -> None:
    seconds = statistics.median(cpu(lambda: look(node, *WAITED)) for _round in range(ROUNDS))
    look(node, sys.executable, "-c", PEAK)
    memory = int(node.read("/run/peak")) // 1024
    print(f"{objects}: {seconds:.2f} s (target: at most {most_seconds}), {memory} MiB (target: at most {most_memory})")
    judge(objects, seconds <= most_seconds and memory <= most_memory)


def look(node: NamespaceNode, *through: str) -> None:
    result = node.module("datapath_info", through=through)
    assert not result["failed"] and not result["snapshot"]["unread"], result
