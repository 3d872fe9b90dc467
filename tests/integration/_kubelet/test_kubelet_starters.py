# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables, routes and addresses are there before kubelet, whichever service starts kubelet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node
from lab.container import SystemdNode
from lab.node import ClusterNode

BOOTS = int(os.environ.get("KUBENODE_BOOTS", "1"))
UNITS: dict[str, tuple[str, dict[str, Any]]] = {
    "nftables_probe_snat": ("kubenode-nft-ip6-azureSLBProbe.service", {"boot_condition": "address"}),
    "nftables_connmark": (
        "kubenode-nft-inet-kubenodeReturnPath.service",
        {"primary_interface": "eth0", "pod_interfaces": ["eni*"]},
    ),
    "policy_routes": (
        "kubenode-policy-routes-75.service",
        {"rules": [{"priority": 700, "fwmark": "0x80/0x80", "table": "main"}], "routes": []},
    ),
    "link_addresses": ("kubenode-addresses-eth0.service", {"addresses": [{"dev": "eth0", "address": "192.0.2.7"}]}),
}
each_module = pytest.mark.parametrize("module", sampled(UNITS, lambda module: module in ("nftables_probe_snat", "policy_routes")))
RULES = "/var/log/rules-before-kubelet"
LOOKS = f"[Service]\nExecStartPre=/bin/sh -c 'ip rule >> {RULES}; echo >> {RULES}'\n"
SLOW = "[Service]\nExecStartPre=/bin/sleep 2\n"
PATIENCE = 300  # seconds for a module, on a machine that is busy with other tests
FOLDER = "/etc/systemd/system"


@pytest.fixture(scope="module")
def node() -> Iterator[SystemdNode]:
    with Lab("starters", nodes=[Node("node1", system="bookworm")]) as lab:
        yield lab.node("node1")


def run(node: ClusterNode, module: str, **more: Any) -> tuple[bool, list[str]]:
    """Whether the module changed something, and its warnings about kubelet."""
    result = node.module(module, {**UNITS[module][1], **more}, timeout=PATIENCE)
    assert not result["failed"], result
    return result["changed"], [one for one in result.get("warnings", []) if "kubelet runs in" in one]


def test_the_boot_of_a_node_with_rke2_brings_all_before_kubelet(node: SystemdNode) -> None:
    """Each unit is slowed down by two seconds, so that only the ordering of units helps."""
    node.place_kubelet_stand_in("rke2-agent.service")
    node.write(f"{FOLDER}/rke2-agent.service.d/looks.conf", LOOKS)
    for module in ("nftables_probe_snat", "nftables_connmark", "policy_routes"):
        assert run(node, module) == (True, [])
        node.write(f"{FOLDER}/{UNITS[module][0]}.d/slow.conf", SLOW)
    for _boot in range(BOOTS):
        node.reboot()
    starts = node.kubelet_starts()
    assert [set(start.tables) for start in starts] == [{"ip6 azureSLBProbe", "inet kubenodeReturnPath"}] * BOOTS
    assert node.read(RULES).count("700:\tfrom all fwmark 0x80/0x80 lookup main proto 75") == BOOTS
    for module in ("nftables_probe_snat", "nftables_connmark", "policy_routes"):
        assert run(node, module) == (False, [])
    node.run(["systemctl", "disable", "--now", "--quiet", "rke2-agent.service"])


@pytest.fixture
def edge(node: SystemdNode) -> Iterator[str]:
    """A service that runs kubelet, and that the collection does not know."""
    unit = "edge-kubelet.service"
    node.place_kubelet_stand_in(unit)
    node.run(["systemctl", "start", unit])
    yield unit
    node.run(["systemctl", "disable", "--now", "--quiet", unit])
    node.remove(f"{FOLDER}/{unit}")


@each_module
def test_a_service_that_is_not_known_is_named_until_before_names_it(node: SystemdNode, edge: str, module: str) -> None:
    unit = UNITS[module][0]
    _changed, warnings = run(node, module)
    assert warnings == [
        f"kubelet runs in {edge}, which should start after {unit} at each boot, but is not ordered so and may start earlier."
        f" Add {edge} to the option before."
    ]
    assert run(node, module, permanent=False)[1] == []
    assert run(node, module, before=[edge]) == (True, [])
    assert run(node, module, before=[edge, "kubelet.service", edge]) == (False, [])
    assert edge in node.run(["systemctl", "show", "--property=Before", "--value", unit]).stdout.split()
    assert node.module(module, {"state": "absent"}, timeout=PATIENCE)["changed"]


def test_an_ordering_that_the_operator_made_is_seen(node: SystemdNode, edge: str) -> None:
    module = "nftables_probe_snat"
    unit = UNITS[module][0]
    run(node, module)
    node.write(f"{FOLDER}/{edge}.d/after.conf", f"[Unit]\nAfter={unit}\n")
    node.run(["systemctl", "daemon-reload"])
    assert run(node, module) == (False, [])
    node.remove(f"{FOLDER}/{edge}.d/after.conf")
    assert node.module(module, {"state": "absent"}, timeout=PATIENCE)["changed"]


@each_module
def test_a_unit_from_before_the_list_is_updated_once(lab: Lab, module: str) -> None:
    node = lab.node("node1")
    clean = node.snapshot()
    path = f"{FOLDER}/{UNITS[module][0]}"
    run(node, module)
    text = node.read(path)
    (line,) = [line for line in text.splitlines() if line.startswith("Before=kubelet.service ")]
    node.write(path, text.replace(line, "Before=kubelet.service"))
    assert run(node, module) == (True, [])
    assert node.read(path) == text
    assert run(node, module) == (False, [])
    assert node.module(module, {"state": "absent"}, timeout=PATIENCE)["changed"]
    assert node.snapshot() == clean


@each_module
def test_a_name_that_cannot_be_ordered_is_refused(lab: Lab, module: str) -> None:
    node = lab.node("node1")
    before = node.snapshot()
    result = node.module(module, {**UNITS[module][1], "before": ["my.service", "kubelet"]}, timeout=PATIENCE)
    assert result["failed"] and "before[1] must be " in result["msg"] and "'kubelet' was given" in result["msg"], result
    assert node.snapshot() == before
