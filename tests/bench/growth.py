# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How CPU time grows with the node: the exponent of each curve, over a size, four times and sixteen times as much.

An exponent of 1 is linear. It is that of the last step, less what a run costs without any size: of the first steps, fixed costs
are too large a part. What the program needs that lists the objects is left out of the exponent that is judged: that of
iptables-nft-save is 1.4, whoever calls it.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench import ebtables, policy_routes
from bench.measure import cpu, judge
from lab import Lab, Node, kube_proxy
from lab.node import NamespaceNode

STEPS = (0, 1, 4, 16)
LIMIT = 1.1
ROUNDS = 3
WAITED = ["env"]  # as in trace.py
PACKET = {"source": "10.1.0.5", "interface": "eth0", "destination": "10.96.0.2", "destination_port": 80}
QUERIES: dict[str, dict[str, Any]] = {"datapath_info": {}, "datapath_trace": {"packet": PACKET}, "datapath_audit": {}}


class Size(NamedTuple):
    """What a node has many of. unit: the number at the first step. fill: gives a new node so many. listing: what lists them."""

    objects: str
    unit: int
    fill: Callable[[NamespaceNode, int], object]
    listing: Sequence[str] = ("true",)


Act = Callable[[NamespaceNode, int], None]  # what is measured: again and again, it costs the same


def main() -> None:
    listings = {"nftables": ["nft", "-j", "list", "ruleset"], "iptables": ["iptables-nft-save"]}
    sizes = [Size(f"Services of {mode}", 300, functools.partial(_services, mode), listings[mode]) for mode in kube_proxy.MODES]
    for size in (*sizes, Size("routes", 4_000, _routes)):
        for name, options in QUERIES.items():
            _show(name, size, functools.partial(_run, name, options))
    _show("policy_routes, converged", Size("rules", 1_250, _rules), _rules)
    _show("ebtables_cleanup, and put back", Size("rules", 600, ebtables.fill), _clean_up)


def _show(title: str, size: Size, act: Act) -> None:
    counts = [size.unit * step for step in STEPS]
    costs = [_cost(size, count, act) for count in counts]
    whole, judged = _exponent([cost.whole for cost in costs]), _exponent([cost.whole - cost.listing for cost in costs])
    figures = ", ".join(f"{count}: {cost.whole:.2f} s" for count, cost in zip(counts, costs, strict=True))
    with_listing = "" if size.listing == ("true",) else f", with {size.listing[0]} {whole:.2f}"
    print(f"{title}, exponent by {size.objects}: {judged:.2f} (target: at most {LIMIT}){with_listing}; {figures}", flush=True)
    judge(f"exponent of {title} by {size.objects}", judged <= LIMIT)


class Cost(NamedTuple):
    """Seconds of processors: whole, and of them those of the listing."""

    whole: float
    listing: float


def _exponent(seconds: Sequence[float]) -> float:
    fixed, *_first, before, last = seconds
    return math.log((last - fixed) / (before - fixed), STEPS[-1] / STEPS[-2]) if last > before > fixed else 0.0


def _cost(size: Size, count: int, act: Act) -> Cost:
    with Lab("bench", nodes=[Node("node1")]) as lab:
        node: NamespaceNode = lab.node("node1")
        size.fill(node, count)
        measured = (lambda: act(node, count), lambda: node.run_from_host(list(size.listing)))
        return Cost(*(statistics.median(cpu(measure) for _round in range(ROUNDS)) for measure in measured))


def _run(name: str, options: Mapping[str, Any], node: NamespaceNode, _count: int) -> None:
    result = node.module(name, dict(options), diff=False, through=WAITED, timeout=600)
    assert not result["failed"], result


def _services(mode: str, node: NamespaceNode, count: int) -> None:
    if count:
        kube_proxy.load(node, mode, kube_proxy.services(count))


def _routes(node: NamespaceNode, count: int) -> None:
    """Give the node what a router learns by BGP."""
    networks = (f"{20 + number // 65536}.{number // 256 % 256}.{number % 256}.0/24" for number in range(count))
    node.ip([f"route add {network} via 192.0.2.1 dev eth0 onlink" for network in networks])


def _rules(node: NamespaceNode, count: int) -> None:
    _run("policy_routes", {"rules": json.dumps(policy_routes.pods(count // 2))}, node, count)


def _clean_up(node: NamespaceNode, count: int) -> None:
    for state in ("absent", "restored"):
        _run("ebtables_cleanup", {"state": state}, node, count)
