# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time from the start of the boot unit's commands to the table, and that of a shell script for the same work."""

from __future__ import annotations

import re
import statistics
import time

from bench.measure import in_turn, judge, show_ratio
from lab import Lab, Node
from lab.metadata import MetadataServer
from lab.node import NamespaceNode

ROUNDS = 15
LIMIT = 0.3  # seconds, on an idle node
RULES = "/etc/kubenode/probe-snat.nft"
UNIT = "/etc/systemd/system/kubenode-nft-ip6-azureSLBProbe.service"
SCRIPT = f"""\
set -euo pipefail
url='http://169.254.169.254/metadata/instance/network/interface?api-version=2021-02-01'
count=$(curl --silent --show-error --fail --noproxy '*' --max-time 5 --header 'Metadata: true' "$url" |
  jq '[.[].ipv6.ipAddress[]? | select(.privateIpAddress != "")] | length')
[ "$count" -eq 0 ] || nft -f {RULES}
"""


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab, MetadataServer(lab.load_balancer):
        node = lab.node("node1")
        node.module("nftables_probe_snat", {"boot_condition": "imds", "immediate": False})
        unit = node.read(UNIT)
        (asks,), (loads,) = (re.findall(f"^{key}=(.*)$", unit, re.M) for key in ("ExecCondition", "ExecStart"))
        ours, script = ["sh", "-c", f"{asks.replace('$$', '$')} && {loads}"], ["bash", "-c", SCRIPT]
        seconds = in_turn(ROUNDS, {"ours": lambda: boot(node, ours), "script": lambda: boot(node, script)})
    show_ratio("boot program and nft / bash, curl, jq and nft", seconds["ours"], seconds["script"])
    judge(f"boot within {LIMIT * 1000:.0f} ms", statistics.median(seconds["ours"]) < LIMIT)


def boot(node: NamespaceNode, command: list[str]) -> float:
    """Seconds from the start of a command to its end, after which the table is loaded."""
    node.run(["nft", "flush", "ruleset"])
    started = time.monotonic()
    node.run(command)
    taken = time.monotonic() - started
    node.run(["nft", "list", "table", "ip6", "azureSLBProbe"])
    return taken
