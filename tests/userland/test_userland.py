# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make userland``: the modules on a node of another Debian release, across a boot.

No part of ``make test``: the packages of sid change daily.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab, Node, registry
from lab.container import SystemdNode
from lab.node import POD_PORT

CALLS: dict[str, dict[str, Any]] = {
    "nftables_probe_snat": {},
    "rp_filter": {"interfaces": ["eth0"], "mode": "loose"},
    "policy_routes": {
        "rules": [
            {"priority": 700, "to": "10.0.1.5", "table": "main"},
            {"priority": 1024, "fwmark": "0x80/0x80", "table": "main"},
        ],
        "routes": [{"table": 1003, "to": "10.0.1.1", "dev": "eth0"}, {"table": 1003, "to": "default", "via": "10.0.1.1"}],
    },
    "nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["eni*"], "strict": True},
}


@pytest.fixture
def lab(system: str) -> Iterator[Lab]:
    if system in registry.DISTRIBUTIONS:
        pytest.skip(f"no node of {system} boots: a registry's image has no init system")
    with Lab("userland", nodes=[Node("node1", pods=["pod1"], system=system)]) as lab:
        yield lab


def versions(node: SystemdNode) -> str:
    return node.run(["sh", "-c", "nft --version; systemctl --version; python3 --version"]).stdout


def reached(lab: Lab, address: str) -> bool:
    return bool(lab.load_balancer.probe_tcp(address, POD_PORT, timeout=1.0))


def test_probes_are_answered_before_and_after_a_boot_and_absent_gives_the_node_back(lab: Lab) -> None:
    node: SystemdNode = lab.node("node1")
    pod = lab.pod("pod1")
    clean = node.snapshot()
    assert not lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=0.3)
    for module, options in CALLS.items():
        result = node.module(module, options)
        assert result["changed"], (versions(node), result)
    assert reached(lab, pod.address)
    node.reboot()
    assert reached(lab, pod.address)
    for module, options in CALLS.items():
        again = node.module(module, options)
        assert not again["failed"] and not again["changed"], (versions(node), again)
    for module in reversed(CALLS):
        result = node.module(module, {"state": "absent"})
        assert result["changed"], (versions(node), result)
    assert node.snapshot() == clean
