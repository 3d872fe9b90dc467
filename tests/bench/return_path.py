# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of a packet that a node forwards between two links: no table, its chains empty, the table of nftables_connmark.

A packet passes the node before the call that sends it returns, so the sender's thread has the whole CPU time.
"""

from __future__ import annotations

import functools
import socket
import statistics
from collections.abc import Callable

from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_table import replacement
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.return_path_table import MarkedLink, ReturnPath
from bench.measure import PAYLOAD, in_turn, judge, packet_seconds
from lab import Eni, EniLab
from lab.eni import PRIMARY, EniNamespaceNode

ROUNDS = 60
TARGET = 1.04  # with a route lookup for each packet it is 1.08 to 1.1
NODE_PORT, TARGET_PORT, CALLER_PORT = 30080, 9999, 40000

TABLE = "kubenodeReturnPath"
HOOKS = {"prerouting": "filter", "output": "route"}
CHAINS = "".join(f"chain {hook} {{ type {kind} hook {hook} priority mangle; }}\n" for hook, kind in HOOKS.items())
DESIRED = ReturnPath(TABLE, PRIMARY.name, ("veth-*",), 0x80, 0x80)
ENIS = tuple(MarkedLink(f"eth{number}", number) for number in range(1, 16))
CASES = {
    "none": "",
    "empty chains": f"table inet {TABLE} {{\n{CHAINS}}}\n",
    "table": DESIRED.table().text(),
    "table of 15 more ENIs": DESIRED._replace(mask=0x8F, interfaces=ENIS).table().text(),
}


def main() -> None:
    with EniLab("bench", [Eni("eth1", pods=["pod1"])], source_check=False) as lab:
        node, pod = lab.node("node1"), lab.pod("pod1")
        node.service(NODE_PORT, [pod.address], "Local", target_port=TARGET_PORT)
        node.filter_reverse_path(0)
        node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
        with (
            lab.router.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller,
            pod.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        ):
            server.bind((pod.address, TARGET_PORT))
            caller.bind((PRIMARY.gateway, CALLER_PORT))
            caller.connect((PRIMARY.address, NODE_PORT))
            server.connect((PRIMARY.gateway, CALLER_PORT))
            for way, sender, receiver in (("to a node port", caller, server), ("to the client", server, caller)):
                measures: dict[str, Callable[[], float]] = {
                    name: functools.partial(seconds, node, text, (caller, server), sender) for name, text in CASES.items()
                }
                show(way, in_turn(ROUNDS, measures))
                receiver.settimeout(1)
                assert receiver.recv(100) == PAYLOAD


def seconds(node: EniNamespaceNode, text: str, pair: tuple[socket.socket, socket.socket], sender: socket.socket) -> float:
    """CPU seconds of one packet with this table."""
    node.run_from_host(["nft", "-f", "-"], replacement("inet", TABLE, text))
    return packet_seconds(pair, sender)


def show(way: str, taken: dict[str, list[float]]) -> None:
    for name in CASES:
        microseconds = statistics.median(taken[name]) * 1e6
        ratios = {of: [a / b for a, b in zip(taken[name], taken[of], strict=True)] for of in ("none", "empty chains")}
        print(
            f"return path {way}, {name}: {microseconds:.2f} microseconds a packet,"
            f" {statistics.median(ratios['none']):.3f} of none, {statistics.median(ratios['empty chains']):.3f} of empty chains",
            flush=True,
        )
    for name in ("table", "table of 15 more ENIs"):
        ratio = statistics.median(a / b for a, b in zip(taken[name], taken["empty chains"], strict=True))
        judge(f"return path {way}: {name} / empty chains {ratio:.3f} (target: at most {TARGET})", ratio <= TARGET)
