# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two profiles that set the same protocol, table and files on one node: one of them owns these, the other is refused."""

from __future__ import annotations

from typing import Any

import pytest
from sampling import sampled

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps, warnings

ENIS = [
    {"name": "eth0", "primary": True, "ipv4": ["192.0.2.10"]},
    {"name": "eth1", "gateway": {"ipv4": "10.0.1.1"}, "table": 1101, "pods": ["10.0.1.20"]},
]
OPTIONS: dict[str, dict[str, Any]] = {
    "symmetric_routing": {"uplinks": [{"name": "eth0", "gateway": "192.0.2.1"}, {"name": "eth1", "gateway": "10.0.1.1"}]},
    "eni_policy_routing": {"layout": "custom", "connmark": "always", "pod_interfaces": ["veth-*"], "enis": ENIS},
}
ORDERS = pytest.mark.parametrize(("owner", "second"), [(*OPTIONS,), (*reversed(OPTIONS),)])
OBJECTS = ("/etc/sysctl.d/90-kubenode-rp-filter.conf", "protocol 75", "table inet kubenodeReturnPath")
ALONE: dict[str, dict[str, Any]] = {
    "policy_routes": {"rules": [], "routes": []},
    "nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]},
    "rp_filter": {"interfaces": ["eth0"], "mode": "loose"},
}


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node = lab.node("node1")
    node.ip(
        ["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up", "address add 10.0.1.10/24 dev eth1"]
    )
    return node


class Profile:
    def __init__(self, node: NamespaceNode, name: str) -> None:
        self._steps = Steps(node, "profile")
        self._name, self._options = name, OPTIONS[name]

    def options(self, **more: Any) -> dict[str, Any]:
        return {"name": self._name, "options": {"mode": "runtime", **self._options, **more}}

    def run(self, check: bool = False, **more: Any) -> dict[str, Any]:
        return self._steps.run(check, **self.options(**more))

    def refused(self, **more: Any) -> str:
        return self._steps.refused(**self.options(**more))

    def four(self, **more: Any) -> dict[str, Any]:
        return self._steps.four(**self.options(**more))


def forget(node: NamespaceNode, profile: str) -> None:
    """Leave the node as a version without records set it up."""
    node.remove(f"/etc/kubenode/owned-by-{profile}")


@ORDERS
@pytest.mark.parametrize(
    "has_record",
    sampled([True, False], lambda has_record: has_record),
    ids=["of this version", "of a former version"],
)
def test_the_second_profile_is_refused_and_its_absent_leaves_what_the_first_owns(
    node: NamespaceNode, owner: str, second: str, has_record: bool
) -> None:
    first, other, clean = Profile(node, owner), Profile(node, second), node.snapshot()
    first.four()
    node_state = node.snapshot()
    if not has_record:
        forget(node, owner)
    said = other.refused()
    for name in OBJECTS:
        assert name in said
    assert f"belong to the profile {owner} on this node" in said and f"Apply {owner} with state absent first" in said

    before = node.snapshot()
    for check in (True, False):
        undone = other.run(check, state="absent")
        assert not undone["changed"] and f"protocol 75 stays, because it belongs to the profile {owner}" in str(warnings(undone))
        assert node.snapshot() == before

    assert first.run()["changed"] is not has_record  # writes the record, and nothing else
    assert node.snapshot() == node_state
    if not has_record:
        forget(node, owner)
    first.run(state="absent")
    assert node.snapshot() == clean
    other.four()
    other.run(state="absent")
    assert node.snapshot() == clean


@pytest.mark.parametrize("owner", OPTIONS)
def test_a_module_that_is_used_alone_does_not_replace_what_a_profile_owns(node: NamespaceNode, owner: str) -> None:
    profile, clean = Profile(node, owner), node.snapshot()
    profile.run()
    for module, options in ALONE.items():
        said = Steps(node, module, options).refused()
        assert f" belongs to the profile {owner} on this node, and {module} would replace" in said, said
        listed = Steps(node, "profile", {"modules": [{module: options}], "mode": "runtime"}).refused()
        assert f" belongs to the profile {owner} on this node, and this list of modules would replace" in listed, listed
    rules = [{"priority": 700, "from": "10.0.1.10", "table": 1003}]
    other = Steps(node, "policy_routes", {"rules": rules, "routes": [], "protocol": 76})
    other.run()
    assert not profile.run()["changed"]
    other.run(state="absent")
    for module in ALONE:
        Steps(node, module, {"state": "absent"}).run()
    profile.run(state="absent")
    assert node.snapshot() == clean


def test_a_list_of_modules_that_no_profile_owns_is_applied_again(node: NamespaceNode) -> None:
    modules, clean = [{"policy_routes": OPTIONS["symmetric_routing"]}], node.snapshot()
    Steps(node, "profile", {"modules": modules, "mode": "runtime"}).four()
    Steps(node, "policy_routes", {"state": "absent"}).run()
    assert node.snapshot() == clean


def test_settings_of_daemons_stay_until_the_last_profile_that_needs_them_is_absent(node: NamespaceNode) -> None:
    routing, daemons, clean = Profile(node, "symmetric_routing"), Profile(node, "eni_policy_routing"), node.snapshot()
    routing.run()
    node_state = node.snapshot()
    daemons.four(manage=["daemons"])
    both = node.snapshot()
    daemons.run(manage=["daemons"], state="absent")
    assert node.snapshot() == node_state
    daemons.run(manage=["daemons"])
    assert node.snapshot() == both
    routing.run(state="absent")
    assert node.snapshot() != clean
    daemons.run(manage=["daemons"], state="absent")
    assert node.snapshot() == clean


def test_a_profile_owns_what_it_no_longer_manages_until_it_is_absent(node: NamespaceNode) -> None:
    enis, clean = Profile(node, "eni_policy_routing"), node.snapshot()
    enis.run()
    enis.run(manage=["daemons"])
    assert "protocol 75" in Profile(node, "symmetric_routing").refused()
    enis.run(state="absent")
    assert node.snapshot() == clean
