# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Checks of what Azure's load balancer sends to a node by IPv6, and of the tables of this collection."""

from __future__ import annotations

import re
import typing as t

from .._probe_snat.probe_table import AZURE_SOURCE
from .._systemd.boot_unit import UnitState, UnitVerdict
from . import service
from .context import SHARED
from .finding import check
from .node import IPV6, Node
from .reverse_path_checks import severity_of_services
from .suspicion import ERROR, NOTE, Remedy, Suspicion, Trial, Unobserved

OF_CILIUM = ("cil_", "bpf_netdev")  # the beginnings of the names of its programs
SHOWN = 3  # routes in the evidence
_UNIT = re.compile(r"kubenode-nft-(\w+)-(.+)\.service")


@check(
    "probe-untranslated",
    ERROR,
    "Azure's IPv6 health probe has a link-local source and is not forwarded to a pod, so that the node counts as unhealthy.",
    "Azure's marks of the node, its IPv6 addresses and pods, and the probe through the twin.",
    "nftables_probe_snat, or the role aks_dual_stack.",
    "https://github.com/Azure/AKS/issues/2919",
    "An IPv6 health probe fails, and the load balancer removes the node",
)
def _untranslated(node: Node) -> t.Iterator[Suspicion]:
    probes = [*_probes(node)]  # of which other nodes than Azure's have none, whatever rules they have
    for link, pod, address, trial in probes if probes and not _translates(node) else ():
        what = f"Azure's IPv6 probe comes from {AZURE_SOURCE}, a link-local address, with which no packet is forwarded to a pod."
        evidence = (f"inet6 {address} dev {link}", f"{pod} dev {node.pods[pod]}")
        remedy = Remedy("nftables_probe_snat", {"interface": link})
        yield Suspicion(link, what, evidence, remedy, trial, severity_of_services(node, trial))


@check(
    "probe-no-way-back",
    ERROR,
    "Azure's IPv6 probe is translated, and its reply finds no way: the node has no default route, or does not forward.",
    "The table that translates the probe, and the probe through the twin.",
    "What the trace of the packet names.",
    "https://github.com/microsoft/azurelinux/pull/18633",
    "An IPv6 health probe fails, and the load balancer removes the node",
)
def _no_way_back(node: Node) -> t.Iterator[Suspicion]:
    probes = [*_probes(node)]
    tables = _translates(node) if probes else []
    for link, _pod, _address, trial in probes if tables else ():
        what = f"The table {tables[0]} translates Azure's IPv6 probe, and the probe or its reply is lost all the same."
        routes = tuple(map(str, node.routes(IPV6)))
        yield Suspicion(link, what, (f"table {tables[0]}", *routes[:SHOWN]), None, trial, severity_of_services(node, trial))


def _probes(node: Node) -> t.Iterator[tuple[str, str, str, Trial]]:
    """Yield the uplink, a pod, the node's address and a probe for the pod, on a node of Azure with pods of IPv6.

    In the shared mode, no probe is for a pod.
    """
    if node.context.probe_mode == SHARED:
        return
    pods = node.pods_of(IPV6)
    links = node.probed_links() if pods and node.is_azure() else []
    served = node.entrances(IPV6) if links else {}
    pod = next((pod for pod in pods if pod in served), next(iter(pods), ""))
    for link in links:
        for address in node.addresses(link, IPV6)[:1]:
            packet = {"source": AZURE_SOURCE, "destination": address, "interface": link}
            yield link, pod, address, service.request(packet, pod, served)


def _translates(node: Node) -> list[str]:
    """Return the tables of nftables with a rule that names the source of the probe."""
    return [str(table) for table in node.listed_tables() if table.has_value(AZURE_SOURCE)]


@check(
    "probe-table-beside-cilium",
    NOTE,
    "The table for Azure's probe is of no use on a node where Cilium replaces kube-proxy.",
    "The BPF programs at the uplink, and the tables of nftables.",
    "The shared probe mode of Azure's load balancer, with the health port of Cilium.",
    "https://github.com/cilium/cilium/issues/25242",
    "The table for probes is there, and changes nothing under Cilium",
)
def _useless(node: Node) -> t.Iterator[Suspicion]:
    tables = _translates(node)
    programs = [program for program in (node.programs() if tables else ()) if program.name.startswith(OF_CILIUM)]
    uplinks = node.probed_links() if programs else []
    entered = [program for program in programs if program.link in uplinks and program.direction == "ingress"]
    if entered:
        link = entered[0].link
        what = (
            f"Cilium's programs take packets at {link} before nftables does, so that the table {tables[0]} translates no probe."
        )
        text = "Let the load balancer probe the health port of Cilium (shared probe mode), and undo the table"
        yield Suspicion(link, what, (f"{link} {entered[0].hook} ingress {entered[0].name}",), Remedy(operator=text))


@check(
    "own-table-lost",
    NOTE,
    "A table of this collection is enabled at boot and is not in the kernel: its unit stopped, or the ruleset was flushed.",
    "The units of this collection, and the tables of nftables.",
    "Restart the unit.",
    "https://github.com/Azure/AKS/issues/4144",
    "It works until the node reboots",
    "Services fail after the firewall was reloaded or restarted",
    "A profile was applied, and the trouble came back",
)
def _lost_table(node: Node) -> t.Iterator[Suspicion]:
    """Yield the tables of enabled units that the kernel lacks, except those of units that their boot condition has skipped."""
    open_units = []
    for unit in node.units():
        name = unit.name
        match = _UNIT.fullmatch(name)
        if not match or not unit.is_enabled or f"{match[1]} {match[2]}" in map(str, node.listed_tables()):
            continue
        state = UnitState(unit.active, unit.sub, unit.result, unit.job)
        if not state.active or state.verdict is UnitVerdict.STARTING or (state.active == "inactive" and not state.result):
            open_units.append(name)
        elif state.verdict is not UnitVerdict.SKIPPED:
            what = f"The unit {name} loads the table {match[1]} {match[2]} at boot, and the kernel does not have it."
            text = "Load the table again, and find what stopped the unit or flushed the ruleset"
            evidence = (f"{name} enabled", f"Active: {state.active} ({state.sub})")
            remedy = Remedy(operator=text, commands=(f"systemctl restart {name}",))
            yield Suspicion(f"{match[1]} {match[2]}", what, evidence, remedy)
    if open_units:
        names = " ".join(open_units)
        raise Unobserved(f"Whether these units have loaded their tables is open: {names}.", f"systemctl show {names}")
