# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of the profile symmetric_routing, and the nodes that it refuses."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import uplinks
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery.uplinks import Link, NodeState
from ansible_collections.kubenode.datapath.plugins.module_utils._parts import policy_routes
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import symmetric_routing as profile
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.symmetric_routing import Facts, Observation
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy

LINKS = {"eth0": Link(2, ("10.9.1.49",), {"ipv4": "10.9.1.1"}), "eth1": Link(3, ("10.9.2.7",), {"ipv4": "10.9.2.1"})}
NODE = NodeState(LINKS, ())
LISTED = [{"name": "eth1", "mark": "0x40"}, {"name": "eth0"}]


def options(**changes: t.Any) -> dict[str, t.Any]:
    values, errors = option.read(profile.OPTIONS, changes, profile.UNDO)
    assert not errors
    return values


def facts_of(node: NodeState | None = NODE, is_image: bool = False, **changes: t.Any) -> Facts:
    return profile.facts(options(**changes), Observation(is_image, node))


def modules(facts: Facts, **changes: t.Any) -> list[str]:
    return [module for module, _options in profile.plan(options(**changes), facts)]


def test_replies_are_marked_after_they_are_routed_and_absent_is_the_reverse() -> None:
    applied = ["network_daemons", "nftables_package", "rp_filter", "policy_routes", "nftables_connmark"]
    assert modules(facts_of(), nftables=True) == applied
    undone: dict[str, t.Any] = {"state": "absent", "nftables": True}
    assert modules(facts_of(None, **undone), **undone) == [
        *("nftables_connmark", "policy_routes", "rp_filter", "nftables_package", "network_daemons"),
    ]


def test_the_modules_agree_on_names_and_marks() -> None:
    for listed, names, marks in ((None, ["eth0", "eth1"], ["0x2", "0x4"]), (LISTED, ["eth1", "eth0"], ["0x40", "0x2"])):
        steps = dict(profile.plan(options(), facts_of(uplinks=listed)))
        assert steps["rp_filter"]["interfaces"] == names
        assert [(way["name"], way["mark"]) for way in steps["nftables_connmark"]["interfaces"]] == [*zip(names, marks)]
        assert [(entry["name"], entry["mark"]) for entry in steps["policy_routes"]["uplinks"]] == [*zip(names, marks)]
        rules = policy.from_options(75, steps["policy_routes"]["rules"], None, {"main": 254}).rules or ()
        assert {f"{rule.fwmark:#x}" for rule in rules if rule.fwmask} == {*marks}


def test_a_list_of_uplinks_is_read_once() -> None:
    """From the role's variable to the options of policy_routes it is one value."""
    values = options(uplinks=LISTED)
    steps = dict(profile.plan(values, profile.facts(values, Observation(False, NODE))))
    request = option.of_module({"uplinks": policy_routes.OPTIONS["uplinks"]}, {"uplinks": steps["policy_routes"]["uplinks"]})
    assert request["uplinks"] is values["uplinks"] is uplinks.from_option(request["uplinks"])


def test_an_image_has_no_rules_of_its_own() -> None:
    steps = dict(profile.plan(options(uplinks=LISTED), facts_of(None, True, uplinks=LISTED)))
    assert (steps["policy_routes"]["rules"], steps["policy_routes"]["routes"]) == (None, None)
    assert steps["network_daemons"]["restart"] is False
    (sentence,) = profile.conflicts(options(), True)
    assert sentence.startswith("symmetric_routing_uplinks must be given for an image")
    assert [*profile.conflicts(options(uplinks=LISTED), True)] == [*profile.conflicts(options(state="absent"), True)] == []


def test_a_single_uplink_and_a_family_without_a_gateway_are_warned_of() -> None:
    links = {"eth0": Link(2, ("10.9.1.49", "fd09:0:1::49"), {"ipv4": "10.9.1.1"})}
    first, second = facts_of(NodeState(links, ())).warnings()
    assert first.startswith("eth0 has the address fd09:0:1::49 and no known IPv6 gateway")
    assert second == "eth0 is the only uplink, so all replies leave by it anyway."


def test_a_listed_uplink_without_a_gateway_is_an_error() -> None:
    links = {**LINKS, "eth2": Link(4, ("10.9.3.7",))}
    with pytest.raises(Invalid, match=r"^uplinks\[1\]\.gateway must be given, because no default route"):
        facts_of(NodeState(links, ()), uplinks=[{"name": "eth0"}, {"name": "eth2"}])
    assert [entry["name"] for entry in facts_of(NodeState(links, ())).uplinks] == ["eth0", "eth1"]


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"name": "eth2"}, r"uplinks\[0\]\.name must be a link in no bridge, bond or VRF; it is in br0,"),
        ({"name": "eth1", "gateway": "224.0.0.1"}, r"uplinks\[0\]\.gateway must be a unicast address"),
        ({"name": "eth1", "gateway": "10.9.2.7"}, r"uplinks\[0\]\.gateway must be an address of another node"),
    ],
)
def test_an_uplink_that_the_node_cannot_have_is_an_error(entry: dict[str, str], error: str) -> None:
    own = policy.from_options(75, None, [{"table": 255, "to": "10.9.2.7/32", "dev": "eth1", "type": "local"}], {}).routes or ()
    with pytest.raises(Invalid, match=f"^{error}"):
        facts_of(NodeState({**LINKS, "eth2": Link(4, master="br0")}, own), uplinks=[entry])


def test_a_node_on_which_cilium_decides_before_netfilter_is_refused() -> None:
    observed = Observation(False, NODE, {"eth1": ["cil_from_netdev"], "eth9": ["cil_from_netdev"]}, replaces_kube_proxy=True)
    with pytest.raises(Refusal, match=r"^eth1 carries Cilium's BPF programs cil_from_netdev, and Cilium replaces kube-proxy"):
        profile.facts(options(), observed)
    profile.facts(options(uplinks=[{"name": "eth0"}]), observed)
    (doubt,) = profile.facts(options(), observed._replace(replaces_kube_proxy=False)).warnings()
    assert doubt.startswith("eth1 carries Cilium's BPF programs cil_from_netdev, and the agent's options were not found.")
    profile.facts(options(state="absent"), Observation(False))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"uplinks": [{"name": "a=b"}]}, r"uplinks\[0\]\.name must be a link's name without ="),
        ({"uplinks": [{"name": "a", "mark": "0x100000000"}]}, r"uplinks\[0\]\.mark must be a number"),
        ({"uplinks": [{"gateway": "10.0.0.1"}]}, r"uplinks\[0\]\.name must be given"),
    ],
)
def test_wrong_uplinks_are_named(changes: dict[str, t.Any], error: str) -> None:
    values, errors = option.read(profile.OPTIONS, changes, profile.UNDO)
    with pytest.raises(Invalid, match=f"^{error}"):
        if errors:
            raise errors[0]
        list(profile.conflicts(values, False))
