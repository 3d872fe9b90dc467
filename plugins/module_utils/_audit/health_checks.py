# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the port by which a load balancer asks whether a node is healthy."""

from __future__ import annotations

import functools
import typing as t

from .._probe_snat.probe_table import AZURE_SOURCE
from .._trace.answer import Way
from .context import SHARED
from .finding import check
from .node import FAMILIES, IPV4, IPV6, Node
from .suspicion import ERROR, Miss, Remedy, Suspicion, Trial, Unobserved

PORT = 10256  # of kube-proxy (healthzBindAddress)
PROBES = {IPV4: "168.63.129.16", IPV6: AZURE_SOURCE}  # from which Azure probes
EVERY = {IPV4: ("0.0.0.0", "::"), IPV6: ("::",)}  # all addresses of a family; a socket of IPv6 serves IPv4 too


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
