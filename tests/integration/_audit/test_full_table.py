# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An audit concludes the same from the part of a full table that matters as from all of its routes."""

from __future__ import annotations

import ipaddress
import itertools
import json
import random
import re
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import full_table

from .._trace import random_nodes
from .healthy_nodes import CIS, NODES

IN_SAMPLE = ("EKS", "GKE", "kube-router", "bare metal with MetalLB")
MOST = 250  # further routes


def with_full_table(snapshot: dict[str, Any], seed: int) -> dict[str, Any]:
    """The snapshot with routes by its gateways, to networks around its addresses and elsewhere."""
    chance = random.Random(seed)
    hosts = sorted({*re.findall(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", json.dumps(snapshot))})
    gateways = [route for route in snapshot["routes"] if route.get("via") and "." in route["via"] and route["to"] == "default"]
    present, further = {route["to"] for route in snapshot["routes"]}, dict[str, dict[str, Any]]()
    while gateways and len(further) < MOST:
        host = chance.choice(hosts) if chance.random() < 0.4 else f"{chance.randrange(1, 223)}.{chance.randrange(256)}.7.7"
        network = str(ipaddress.ip_network(f"{host}/{chance.choice([10, 12, 16, 20, 24, 28])}", strict=False))
        if network not in present and int(network.split(".")[0]) not in (0, 127, 169):
            further[network] = {**chance.choice(gateways), "to": network, "protocol": "bird"}
    return {**snapshot, "routes": [*snapshot["routes"], *further.values()]}


def conclusions(audit: audit_backend.Audit) -> Any:
    """The result without steps, which have counters of all packets of a twin, and without ports that masquerading chooses."""
    result = audit_backend.result(audit, random_nodes.run)
    findings = [{**finding, "trace": None} for finding in result["findings"]]
    return re.sub(r":\d{4,5}\b", ":N", json.dumps({**result, "findings": findings}))


def is_in_sample(case: tuple[str, int]) -> bool:
    return case in [(name, 0) for name in IN_SAMPLE]


@pytest.mark.parametrize(("name", "seed"), sampled(itertools.product(NODES, range(2)), is_in_sample))
def test_an_audit_of_the_routes_that_matter_is_that_of_all(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = with_full_table(NODES[name](CIS).done(), seed)
    audit = audit_backend.Audit(snapshot, catalogue.CHECKS)
    whole = conclusions(audit)
    monkeypatch.setattr(full_table, "FEW", 0)
    part = audit.in_part().snapshot
    assert len(part["routes"]) < len(snapshot["routes"]) - MOST / 4
    assert conclusions(audit) == whole
