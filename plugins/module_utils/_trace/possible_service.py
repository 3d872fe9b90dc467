# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Packets that may be for a Service although no rule translates them."""

from __future__ import annotations

import ipaddress

from .._core import fields
from .packet import Packet
from .verdict import ARRIVED, DELIVERED, Finding

# Clusters take the addresses of Services from private networks (RFC 1918, RFC 6598, RFC 4193).
PRIVATE = [*map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))]
NODE_PORTS = range(30000, 32768)  # the default of kube-apiserver's --service-node-port-range


def may_be_for_service(sent: Packet, finding: Finding) -> bool:
    """Return whether a rule that the twin lacks may translate the destination: the node takes the packet at a node port, or has
    no route to its private address but a default route.
    """
    if finding.query is None or finding.query.destination != sent.destination:
        return False
    if finding.verdict == DELIVERED and not finding.interface:
        return sent.destination_port in NODE_PORTS
    address = ipaddress.ip_address(fields.show(sent.destination))
    return any(address in network for network in PRIVATE) and _leads_anywhere(finding)


def _leads_anywhere(finding: Finding) -> bool:
    """Return whether the packet leaves by a default route, or is lost because there is no route."""
    if finding.verdict in ARRIVED:
        return any(step.kind == "route" and " default " in f" {step.text} " for step in finding.steps)
    return finding.culprit is not None and finding.culprit.kind == "missing"
