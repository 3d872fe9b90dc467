# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role symmetric_routing as a user runs it: its playbook, on a node with two uplinks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import collection, playbook
from lab.node import NamespaceNode
from lab.playbook import Played
from lab.steps import Steps, warnings
from lab.uplinks import BOTH, SERVER, V4, V6, UplinkLab

PLAYBOOK = "kubenode.datapath.symmetric_routing"
LISTED = [{"name": "eth0"}, {"name": "eth1", "gateway": V4.gateway(1)}]


class Site:
    """A node whose eth1 has IPv4 alone, and the playbook that is run against the node."""

    def __init__(self, lab: UplinkLab, inventory: Path) -> None:
        self.lab = lab
        self.node: NamespaceNode = lab.node("node1")
        self.node.ip([f"address delete {V6.node(1)}/64 dev eth1"])
        self.node.serve(SERVER)
        self.inventory = lab.write_inventory(inventory)

    def play(self, *arguments: str, **variables: Any) -> Played:
        """Run the playbook with a mode: the namespace node has no systemd of its own, and would be taken for an image."""
        values = {f"symmetric_routing_{name}": value for name, value in {"mode": "runtime", **variables}.items()}
        return playbook.play(self.inventory, PLAYBOOK, "-vvv", *arguments, variables=values)

    def module(self, **options: Any) -> Steps:
        """The role's module on the node, without Ansible's controller."""
        return Steps(self.node, "profile", {"name": "symmetric_routing", "options": {"mode": "runtime", **options}})

    def is_answered(self) -> bool:
        return self.lab.fetch(V4.node(1), SERVER) is not None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with UplinkLab("role") as lab:
        yield Site(lab, tmp_path / "inventory.json")


def diffs(play: Played) -> list[str]:
    return [line for line in play.output.splitlines() if line.startswith(("+", "-"))]


@pytest.mark.each_core
def test_the_uplinks_of_the_node_are_found_and_absent_leaves_nothing(site: Site) -> None:
    site.node.ip([f"route add default via {V4.gateway(1)} dev eth1 metric 200"])
    clean = site.node.snapshot()
    assert not site.is_answered()
    predicted = site.play("--check", "--diff").well()
    assert predicted.changed == 1 and site.node.snapshot() == clean
    played = site.play("--diff").well()
    assert played.changed == 1 and diffs(played) == diffs(predicted)
    assert f"Uplink eth0: mark 0x2, gateway {V4.gateway(0)}" in played.output
    assert f"Uplink eth1: mark 0x4, gateway {V4.gateway(1)}" in played.output
    assert site.is_answered()
    after = site.node.snapshot()
    again = site.play().well()
    assert again.changed == 0 and again.modules == ["profile"]
    assert site.node.snapshot() == after
    assert site.play(state="absent").well().changed == 1
    assert site.node.snapshot() == clean and not site.is_answered()
    assert site.play(state="absent").well().changed == 0


def test_a_change_is_confirmed_and_may_be_rehearsed(site: Site) -> None:
    """The gateway is in a file of the node, which its twin does not have."""
    keyfile = f"[connection]\ninterface-name=eth1\n\n[ipv4]\naddress1={V4.node(1)}/24\ngateway={V4.gateway(1)}\n"
    site.node.write("/etc/NetworkManager/system-connections/second.nmconnection", keyfile, mode=0o600)
    request = {"source": V4.client, "destination": V4.node(1), "destination_port": SERVER, "interface": "eth1"}
    played = site.play(checkpoint=30, rehearse=True, rehearse_packets=[request]).well()
    assert played.changed == 1 and site.is_answered()


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"uplinks": [{"name": "eth1"}]},
        "symmetric_routing_uplinks[0].gateway must be given, because no default route, DHCP lease or",
    ),
    ({"uplinks": [{"name": "eth7"}]}, "symmetric_routing_uplinks[0].name must be an interface of this node (eth0, eth1"),
    ({"uplinks": [{"name": "eth1", "gateway": "x"}]}, "symmetric_routing_uplinks[0].gateway must be the IPv4 address of the"),
    ({"uplinks": []}, "symmetric_routing_uplinks must be a list of at least one network interface"),
]


def test_wrong_variables_are_named_and_change_nothing(site: Site) -> None:
    for options, error in REFUSED:
        assert error in site.module(**options).refused()


def test_an_uplink_may_come_later(site: Site) -> None:
    later = site.module(uplinks=[*LISTED, {"name": "eth7"}], later_interfaces=True)
    assert later.run()["changed"] and site.is_answered()
    assert not later.run()["changed"]


def test_a_node_without_a_gateway_is_refused(site: Site) -> None:
    site.node.ip([f"route delete default via {family.gateway(0)}" for family in BOTH])
    assert "this node has no uplink: no link has an address of global scope and a gateway" in site.module().refused()


def test_an_image_has_the_profiles_that_are_selected_and_needs_no_variables_of_others(site: Site) -> None:
    template = collection.CHECKOUT / "packer/node-image.yml"
    variables = {"symmetric_routing_mode": "image", "symmetric_routing_uplinks": [{"name": "eth0"}, {"name": "eth1"}]}
    built = playbook.play(site.inventory, template, "--tags", "symmetric_routing", variables=variables).well()
    assert built.changed == 1
    query = '"uplinks": [{"name": "eth0", "mark": "0x2"}, {"name": "eth1", "mark": "0x4"}]'
    assert query in site.node.read("/etc/kubenode/policy-routes-75.json")
    assert "1200:" not in site.node.run(["ip", "rule"]).stdout
    other = {"aks_dual_stack_mode": "image", "aks_dual_stack_ipv6": "always"}
    assert not playbook.play(site.inventory, template, "--check", "--tags", "aks_dual_stack", variables=other).failed


def test_absent_beside_the_other_profile_reports_what_stays(site: Site) -> None:
    enis = [{"name": "eth0", "primary": True}, {"name": "eth1", "gateway": {"ipv4": V4.gateway(1)}, "table": 1101}]
    options = {"mode": "runtime", "layout": "custom", "connmark": "never", "enis": enis}
    assert not site.node.module("profile", {"name": "eni_policy_routing", "options": options})["failed"]
    before = site.node.snapshot()
    undone = site.module(state="absent").run()
    assert not undone["changed"] and site.node.snapshot() == before
    assert "protocol 75 stays, because it belongs to the profile eni_policy_routing on this node" in str(warnings(undone))
