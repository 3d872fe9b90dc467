# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of a packet that is no probe and that a node forwards: with the BPF programs for probes, with the table, with none.

A packet passes the node before the call that sends it returns, so the sender's thread has the whole CPU time.
"""

from __future__ import annotations

import functools
import socket
import statistics
from collections.abc import Callable
from typing import Any

from bench.measure import in_turn, judge, packet_seconds
from lab import Lab, Node
from lab.load_balancer import LINK
from lab.node import NamespaceNode

ROUNDS = 60
TARGET = 1.02  # of none
CALLER, PORT = "2001:db8:0:1::99", 40000
CASES: dict[str, dict[str, Any]] = {"none": {"state": "absent"}, "table": {"backend": "nftables"}, "programs": {"backend": "bpf"}}


def main() -> None:
    with Lab("bench", nodes=[Node("node1", pods=["pod1"])]) as lab:
        node, pod = lab.node("node1"), lab.pod("pod1")
        lab.load_balancer.ip([f"address add {CALLER}/64 dev {LINK} nodad"])
        with (
            lab.load_balancer.socket(socket.AF_INET6, socket.SOCK_DGRAM) as caller,
            pod.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server,
        ):
            caller.bind((CALLER, PORT))
            server.bind((pod.address, PORT))
            caller.connect((pod.address, PORT))
            server.connect((CALLER, PORT))
            for direction, sender in (("to a pod", caller), ("from a pod", server)):
                measures: dict[str, Callable[[], float]] = {
                    name: functools.partial(_seconds, node, options, (caller, server), sender) for name, options in CASES.items()
                }
                _show(direction, in_turn(ROUNDS, measures))


def _seconds(node: NamespaceNode, options: dict[str, Any], pair: tuple[socket.socket, ...], sender: socket.socket) -> float:
    result = node.module("nftables_probe_snat", {"permanent": False, **options})
    assert not result["failed"], result
    return packet_seconds(pair, sender)


def _show(direction: str, taken: dict[str, list[float]]) -> None:
    for name, seconds in taken.items():
        ratio = statistics.median(one / none for one, none in zip(seconds, taken["none"], strict=True))
        wanted = f" (target: at most {TARGET})" if name == "programs" else ""
        title = f"packet {direction}, no probe, {name}"
        print(f"{title}: {statistics.median(seconds) * 1e6:.2f} microseconds, {ratio:.3f} of none{wanted}", flush=True)
        judge(f"{title} {ratio:.3f}", not wanted or ratio <= TARGET)
