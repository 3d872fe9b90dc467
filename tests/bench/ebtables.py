# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup at 5,000 rules, half of them leftovers, against a listing by ebtables and by nft, and a ping task."""

from __future__ import annotations

import statistics
from typing import Any

from bench.measure import PING, cpu, show_ratio, task_seconds
from lab import Lab, Node, azure_vnet
from lab.node import NamespaceNode

RULES = 5_000
ROUNDS = 5

CLEAN_UP: dict[str, Any] = {"kubenode.datapath.ebtables_cleanup": {}}
PUT_BACK = {"kubenode.datapath.ebtables_cleanup": {"state": "restored"}}


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab:
        node = lab.node("node1")
        fill(node, RULES)
        listing = statistics.median(cpu(lambda: list_rules(node)) for _round in range(ROUNDS))
        seconds = task_seconds(lab, ROUNDS, {"ping": PING, "clean-up": CLEAN_UP, "again": CLEAN_UP, "back": PUT_BACK})
        baseline = [ping + listing for ping in seconds["ping"]]
        objects = f"ebtables_cleanup, {RULES} rules, half of them to go"
        show_ratio(f"{objects}: run / (ebtables-save + nft -a list + ping)", seconds["clean-up"], baseline, target=3)
        show_ratio(f"{objects}: converged / the same", seconds["again"], baseline)
        show_ratio(f"{objects}: put back / the same", seconds["back"], baseline, target=3)
        print(f"    ebtables-save and nft -a list: {listing * 1000:.0f} ms")


def fill(node: NamespaceNode, count: int) -> None:
    """Rules of removed pods, each followed by a foreign rule of the same shape."""
    pods = [azure_vnet.AzurePod(number) for number in range(count // 4)]
    azure_vnet.past(node, node.place.mac(), [])
    azure_vnet.restore(node, [rule for pod in pods for own in pod.rules for rule in (own, azure_vnet.foreign(own))])
    node.write(azure_vnet.STATE, azure_vnet.state_text(node.place.mac(), pods), 0o600)


def list_rules(node: NamespaceNode) -> None:
    node.run_from_host(["ebtables-nft-save"])
    node.run_from_host(["nft", "-a", "list", "ruleset"])
