# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the probes by which a load balancer asks whether a node is healthy, and of the tables of this collection for them."""

from __future__ import annotations

import contextlib
import functools
import re
import typing as t

from .._probe_snat import probe_programs
from .._probe_snat.probe_table import AZURE_SOURCE, ProbeSnat
from .._ruleset.ruleset import Table
from .._snapshot.values import Program
from .._systemd.boot_unit import UnitState, UnitVerdict
from .._trace.answer import Way
from .._twin import translating_programs
from . import service
from .context import SHARED
from .finding import check
from .node import FAMILIES, IPV4, IPV6, Node
from .reverse_path_checks import severity_of_services
from .suspicion import ERROR, NOTE, Miss, Remedy, Suspicion, Trial, Unobserved

OF_CILIUM = ("cil_", "bpf_netdev")  # the beginnings of the names of its programs
OF_MICROSOFT = "ipv6_hp_"  # ipv6-hp-bpf, which translates probes
SHOWN = 3  # routes in the evidence
_UNIT = re.compile(r"kubenode-(?:nft-(\w+)|bpf)-(.+)\.service")
PORT = 10256  # of kube-proxy (healthzBindAddress)
PROBES = {IPV4: "168.63.129.16", IPV6: AZURE_SOURCE}  # from which Azure probes
EVERY = {IPV4: ("0.0.0.0", "::"), IPV6: ("::",)}  # all addresses of a family; a socket of IPv6 serves IPv4 too


@check(
    "probe-untranslated",
    ERROR,
    "Azure's IPv6 health probe has a link-local source and is not forwarded to a pod, so that the node counts as unhealthy.",
    "Azure's marks of the node, its IPv6 addresses and pods, and the probe through the twin; beside Cilium, its BPF programs.",
    "nftables_probe_snat, with the backend bpf beside Cilium, or the role aks_dual_stack.",
    "https://github.com/Azure/AKS/issues/2919",
    "An IPv6 health probe fails, and the load balancer removes the node",
)
def _untranslated(node: Node) -> t.Iterator[Suspicion]:
    probes = [*_probes(node)]  # of which other nodes than Azure's have none, whatever rules they have
    for link, pod, address, trial in probes if probes and not _translators(node) else ():
        what = f"Azure's IPv6 probe comes from {AZURE_SOURCE}, a link-local address, with which no packet is forwarded to a pod."
        evidence = (f"inet6 {address} dev {link}", f"{pod} dev {node.pods[pod]}")
        taking = _taking(node, link)
        if not taking:
            remedy = Remedy("nftables_probe_snat", {"interface": link})
            yield Suspicion(link, what, evidence, remedy, trial, severity_of_services(node, trial))
            continue
        what += f" {', '.join(map(str, taking))} has it before nftables, and drops the reply if Cilium replaces kube-proxy."
        doubt = f"What {', '.join(each.name for each in taking)} does with a packet is open: a twin has no such program."
        ask = f"tcpdump -ni {link} host {AZURE_SOURCE}"
        yield Suspicion(link, what, (*evidence, *map(_line, taking)), _before(taking), doubt=(doubt, ask))


def _taking(node: Node, link: str) -> list[Program]:
    """Return the programs of Cilium that receive a link's packets; none if one that may translate probes does, too."""
    entered = [each for each in _programs(node) if (each.link, each.direction) == (link, "ingress")]
    if any(each.has_own_name or each.name.startswith(OF_MICROSOFT) for each in entered):
        return []
    return [each for each in entered if each.name.startswith(OF_CILIUM)]


def _before(taking: t.Sequence[Program], **further: str) -> Remedy:
    """Return what translates a probe before these programs. further: options of the module."""
    if any(each.hook == "XDP" for each in taking):
        text = "Set Cilium's loadBalancer.acceleration to disabled, and then use nftables_probe_snat with the backend bpf"
        return Remedy(operator=text)
    return Remedy("nftables_probe_snat", {"interface": taking[0].link, "backend": "bpf", **further})


def _programs(node: Node) -> list[Program]:
    """Return the BPF programs of the node as far as they were read."""
    with contextlib.suppress(Unobserved):
        return node.programs()
    return []


def _line(program: Program) -> str:
    return f"{program.link} {program.hook} {program.direction} {program.name}"


@check(
    "probe-no-way-back",
    ERROR,
    "Azure's IPv6 probe is translated, and its reply finds no way: the node has no default route, or does not forward.",
    "The table or the BPF program that translates the probe, and the probe through the twin.",
    "What the trace of the packet names.",
    "https://github.com/microsoft/azurelinux/pull/18633",
    "An IPv6 health probe fails, and the load balancer removes the node",
)
def _no_way_back(node: Node) -> t.Iterator[Suspicion]:
    probes = [*_probes(node)]
    by = _translators(node)[:1] if probes else []
    for link, _pod, _address, trial in probes if by else ():
        what = f"The {by[0]} translates Azure's IPv6 probe, and the probe or its reply is lost all the same."
        routes = tuple(map(str, node.routes(IPV6)))
        yield Suspicion(link, what, (*by, *routes[:SHOWN]), None, trial, severity_of_services(node, trial))


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


def _translators(node: Node) -> list[str]:
    """Return the BPF programs of this collection, or else the tables of nftables, that name the source of the probe."""
    known = filter(translating_programs.is_known, _programs(node))
    programs = [f"BPF program {each}" for each in known if any(probe.source == AZURE_SOURCE for probe in each.probes)]
    return programs or [f"table {table}" for table in _tables(node)]


def _tables(node: Node) -> list[Table]:
    return [table for table in node.listed_tables() if table.has_value(AZURE_SOURCE)]


@check(
    "probe-table-beside-cilium",
    NOTE,
    "The table for Azure's probe is of no use on a node where Cilium replaces kube-proxy.",
    "The BPF programs at the uplink, and the tables of nftables.",
    "nftables_probe_snat with the backend bpf, or the shared probe mode of Azure's load balancer with the health port of Cilium.",
    "https://github.com/cilium/cilium/issues/25242",
    "The table for probes is there, and changes nothing under Cilium",
)
def _useless(node: Node) -> t.Iterator[Suspicion]:
    tables = _tables(node)
    uplinks = node.probed_links() if tables and node.programs() else []
    for link, taking in [(link, taking) for link in uplinks if (taking := _taking(node, link))][:1]:
        what = (
            f"If Cilium replaces kube-proxy, its programs take probes at {link} before nftables does, and the table {tables[0]}"
            " translates none. Instead of the remedy, the load balancer may probe the health port of Cilium (shared probe mode),"
            " without the table."
        )
        named = {} if tables[0].name == ProbeSnat().name else {"table": tables[0].name}
        yield Suspicion(link, what, (_line(taking[0]),), _before(taking, **named))


@check(
    "own-table-lost",
    NOTE,
    "A table of this collection is enabled at boot and is not in the kernel: its unit stopped, or the ruleset was flushed.",
    "The units of this collection, the tables of nftables, and the BPF programs of links.",
    "Restart the unit.",
    "https://github.com/Azure/AKS/issues/4144",
    "It works until the node reboots",
    "Services fail after the firewall was reloaded or restarted",
    "A profile was applied, and the trouble came back",
)
def _lost_table(node: Node) -> t.Iterator[Suspicion]:
    """Yield the tables of enabled units that the kernel lacks, except those of units that their boot condition has skipped. BPF
    programs have the name of a table, too.
    """
    open_units = []
    for unit in node.units():
        name = unit.name
        match = _UNIT.fullmatch(name)
        if not match or not unit.is_enabled or _is_loaded(node, match[1], match[2]):
            continue
        state = UnitState(unit.active, unit.sub, unit.result, unit.job)
        if not state.active or state.verdict is UnitVerdict.STARTING or (state.active == "inactive" and not state.result):
            open_units.append(name)
        elif state.verdict is not UnitVerdict.SKIPPED:
            what = f"The unit {name} loads the table {match[1]} {match[2]} at boot, and the kernel does not have it."
            text = "Load the table again, and find what stopped the unit or flushed the ruleset"
            if not match[1]:
                what = f"The unit {name} attaches BPF programs to its link, and no link has them."
                text = "Attach the programs again, and find what stopped the unit, or keeps them from the link"
            evidence = (f"{name} enabled", f"Active: {state.active} ({state.sub})")
            remedy = Remedy(operator=text, commands=(f"systemctl restart {name}",))
            yield Suspicion(f"{match[1] or 'bpf'} {match[2]}", what, evidence, remedy)
    if open_units:
        names = " ".join(open_units)
        raise Unobserved(f"Whether these units have loaded their tables is open: {names}.", f"systemctl show {names}")


def _is_loaded(node: Node, family: str | None, table: str) -> bool:
    """Return whether the kernel has a table; without a family, one of its BPF programs."""
    if family:
        return f"{family} {table}" in map(str, node.listed_tables())
    names = {probe_programs.name(table, direction) for direction in (probe_programs.INGRESS, probe_programs.EGRESS)}
    return any(program.name in names for program in node.programs())


@check(
    "probe-port-closed",
    ERROR,
    f"The load balancer probes the health port {PORT} alone (shared probe mode), and no program of the node listens there.",
    "The probe mode in the context, the addresses of the node, and the sockets on which programs listen.",
    "healthzBindAddress of kube-proxy, or kubeProxyReplacementHealthzBindAddr of Cilium.",
    "https://github.com/openshift/hypershift/pull/6917",
    "All nodes are unhealthy in the shared probe mode, port 10256",
)
def _closed_port(node: Node) -> t.Iterator[Suspicion]:
    mode = node.context.probe_mode
    if mode != SHARED and (mode or not node.is_azure()):
        return
    for family in FAMILIES:
        address, link = _probed(node, family)
        if not address or _is_served(node, address):
            continue
        if not mode:
            what = f"Whether the load balancer probes port {PORT} of the node, on which no program listens, is open."
            raise Unobserved(what, "az network lb probe list --resource-group GROUP --lb-name NAME")
        what = f"No program listens on port {PORT} of {address}, which the load balancer probes in its shared mode."
        text = (
            f"Let kube-proxy listen there (healthzBindAddress), or Cilium if it replaces kube-proxy"
            f" (kubeProxyReplacementHealthzBindAddr: 0.0.0.0:{PORT})"
        )
        evidence = (f"{'inet6' if family == IPV6 else 'inet'} {address} dev {link}", *_lines(node))
        packet = {"source": PROBES[family], "destination": address, "destination_port": PORT, "interface": link}
        missed = functools.partial(_missed, f"{family} {PORT}", what)
        yield Suspicion(f"{family} {PORT}", what, evidence, Remedy(operator=text), Trial(packet, missed=missed))


def _missed(subject: str, what: str, _way: Way) -> Miss:
    """Return what a probe misses that arrives at the node: a program that answers."""
    return Miss(subject, what)


def _probed(node: Node, family: str) -> tuple[str, str]:
    """Return the node's address that is probed and its link, if the cluster has pods of the family; otherwise empty texts."""
    if node.pods_of(family):
        for link in node.probed_links() if family == IPV6 else node.uplinks(family):
            for address in node.addresses(link, family):
                return address, link
    return "", ""


def _is_served(node: Node, address: str) -> bool:
    served = (*EVERY[IPV6 if ":" in address else IPV4], address)
    return any(listener.port == str(PORT) and listener.address in served for listener in node.listeners())


def _lines(node: Node) -> list[str]:
    """Return the sockets with the port at other addresses."""
    return [f"LISTEN {listener.address}:{PORT}" for listener in node.listeners() if listener.port == str(PORT)]
