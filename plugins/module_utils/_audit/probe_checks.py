# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Checks of what Azure's load balancer sends to a node by IPv6, and of the tables of this collection."""

from __future__ import annotations

import re
import typing as t

from .._probe_snat.probe_table import AZURE_SOURCE
from .finding import Check
from .node import IPV6, Node
from .service import PORT
from .suspicion import ERROR, RISK, Remedy, Suspicion, Trial

_UNIT = re.compile(r"kubenode-nft-(\w+)-(.+)\.service")


def _untranslated(node: Node) -> t.Iterator[Suspicion]:
    if not node.is_azure():
        return
    for link in node.uplinks(IPV6):
        pods = [address for address in node.pods if ":" in address]
        addresses = node.addresses(link, IPV6)
        if not (pods and addresses):
            continue
        what = f"Azure's IPv6 probe comes from {AZURE_SOURCE}, a link-local address, with which no packet is forwarded to a pod."
        packet = {"source": AZURE_SOURCE, "destination": addresses[0], "destination_port": PORT, "interface": link}
        remedy = Remedy("nftables_probe_snat", {"interface": link})
        severity = ERROR if node.has_node_ports() else RISK
        evidence = (f"inet6 {addresses[0]} dev {link}", f"{pods[0]} dev {node.pods[pods[0]]}")
        yield Suspicion(link, what, evidence, remedy, Trial(packet, pods[0]), severity)


def _lost_table(node: Node) -> t.Iterator[Suspicion]:
    tables = {(str(entry["table"]["family"]), str(entry["table"]["name"])) for entry in _tables(node)}
    for unit in node.demand("units"):
        match = _UNIT.fullmatch(str(unit.get("name")))
        if match and unit.get("is_enabled") and (match[1], match[2]) not in tables:
            what = f"The unit {unit['name']} loads the table {match[1]} {match[2]} at boot, and the kernel has it no more."
            command = f"systemctl restart {unit['name']}"
            text = "Load the table again, and find what flushed the ruleset"
            evidence = (f"{unit['name']}: {unit.get('active')} ({unit.get('sub')})",)
            yield Suspicion(f"{match[1]} {match[2]}", what, evidence, Remedy(operator=text, commands=(command,)))


def _tables(node: Node) -> list[t.Mapping[str, t.Any]]:
    return [entry for entry in node.demand("nftables") if "table" in entry]


CHECKS = (
    Check(
        "probe-untranslated",
        ERROR,
        "Azure's IPv6 health probe has a link-local source and is not forwarded to a pod, so that the node counts as unhealthy.",
        "Azure's marks of the node, its IPv6 addresses and pods, and the probe through the twin.",
        "nftables_probe_snat, or the role aks_dual_stack.",
        "https://github.com/Azure/AKS/issues/2919",
        _untranslated,
    ),
    Check(
        "own-table-lost",
        RISK,
        "A table of this collection is enabled at boot and is not in the kernel: something flushed the ruleset.",
        "The units of this collection, and the tables of nftables.",
        "Restart the unit.",
        "https://github.com/Azure/AKS/issues/4144",
        _lost_table,
    ),
)
