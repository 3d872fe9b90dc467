# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profile eni_policy_routing: the facts that follow from a node's ENIs, and the plan that follows from both."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni.marks import Marks
from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import eni_policy_routing as profile
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.composition import Step
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.eni_policy_routing import Enis, Observation

PRIMARY: dict[str, t.Any] = {"name": "ens5", "primary": True, "ipv4": ["10.0.0.10"]}
SECOND: dict[str, t.Any] = {
    "name": "ens6",
    "ipv4": ["10.0.1.10"],
    "gateway": {"ipv4": "10.0.1.1"},
    "device_number": 1,
}
NODE = Observation(False, [PRIMARY, SECOND])
IMAGE = Observation(True)
OF_AWS = Marks("amazon-vpc-cni", "table ip mangle (nft)", "ens5", 0x80, 0x80)


def marking(mark: int, mask: int) -> Observation:
    return NODE._replace(marks=[OF_AWS._replace(mark=mark, mask=mask)])


def options(**given: t.Any) -> dict[str, t.Any]:
    values, errors = option.read(profile.OPTIONS, {"layout": "aws_vpc_cni", **given}, profile.UNDO)
    assert not errors, errors
    return values


def enis(observed: Observation = NODE, **given: t.Any) -> Enis:
    found = profile.facts(options(**given), observed).enis
    assert found
    return found


def plan(observed: Observation = NODE, **given: t.Any) -> list[Step]:
    values = options(**given)
    assert [*profile.conflicts(values, observed.is_image)] == []
    return profile.plan(values, profile.facts(values, observed))


def test_on_a_node_all_follows_from_the_metadata_and_each_boot_asks_again() -> None:
    found = enis()
    assert (found.primary_interface, found.pod_interfaces) == ("ens5", ["eni*", "vlan*"])
    assert (found.mark, found.mask, found.marks_itself, found.lacks_marks) == ("0x80", "0x80", False, True)
    assert found.marking == "No rule of amazon-vpc-cni marks connections that come in by ens5."
    assert found.addresses == [{"dev": "ens6", "address": "10.0.1.10"}]
    assert [rule["priority"] for rule in found.rules or ()] == [1024, 32765] and len(found.routes or ()) == 2
    assert found.query == {"layout": "aws_vpc_cni", "cloud": "auto"}


@pytest.mark.parametrize(("part", "priorities"), [("mark_rule", [1024]), ("tables", [32765])])
def test_of_a_managed_part_the_run_knows_the_rules_and_each_boot_asks_for_them(part: str, priorities: list[int]) -> None:
    found = enis(manage=[part])
    assert [rule["priority"] for rule in found.rules or ()] == priorities
    assert bool(found.routes) is (part == "tables")
    assert found.query == {"layout": "aws_vpc_cni", "cloud": "auto", "manage": [part]}


def test_the_cnis_mark_is_read_from_its_rules_and_each_boot_gets_it() -> None:
    found = enis(marking(0x100, 0x300))
    assert (found.mark, found.mask, found.marks_itself, found.lacks_marks) == ("0x100", "0x300", True, False)
    assert found.rules and found.rules[0]["fwmark"] == "0x100/0x300"
    assert found.query == {"layout": "aws_vpc_cni", "cloud": "auto", "mark": "0x100/0x300"}
    assert found.marking == "Rules of amazon-vpc-cni in table ip mangle (nft) mark connections with 0x100/0x300."


def test_marks_of_enis_need_the_table_although_the_cni_marks_and_leave_its_own_mark_alone() -> None:
    marks = [{"name": "ens6", "mark": "0x20"}]
    found = enis(marking(0x100, 0x100), interface_marks=marks)
    assert (found.mark, found.mask, found.marks_itself, found.lacks_marks) == ("0x100", "0x120", True, True)
    assert [rule.get("fwmark") for rule in found.rules or ()] == ["0x100/0x100", "0x20/0x120", None]
    assert found.interfaces == marks == (found.query or {})["interface_marks"]
    assert found.request_interfaces == ["ens5", "ens6"]
    assert profile.links(options(interface_marks=marks)) == {"interface_marks[0].name": "ens6"}


def test_a_given_mark_goes_before_that_of_the_cnis_rules() -> None:
    found = enis(marking(0x100, 0x100), mark="0x40")
    assert (found.mark, found.lacks_marks, (found.query or {})["mark"]) == ("0x40", True, "0x40")
    assert found.marking.endswith("with 0x100/0x100, but that does not suffice: 0x40/0x40 was given.")
    assert enis(marking(0x100, 0x100), mark="256").marks_itself


def test_the_default_mark_of_the_cni_changes_nothing_for_the_boots() -> None:
    observed = NODE._replace(marks=[OF_AWS._replace(owner="Cilium")])
    found = enis(observed, layout="cilium")
    assert found.marks_itself and found.query == {"layout": "cilium", "cloud": "auto"}


@pytest.mark.parametrize(
    ("layout", "marks_itself", "reason"),
    [
        ("aws_vpc_cni", True, "An image has no rules to look at; by default amazon-vpc-cni marks connections."),
        ("terway", False, "An image has no rules to look at; by default Terway does not mark connections."),
        ("custom", False, "The layout custom has no CNI that marks connections."),
    ],
)
def test_for_an_image_the_default_of_the_cni_counts(layout: str, marks_itself: bool, reason: str) -> None:
    found = enis(IMAGE, layout=layout, primary_interface="ens5")
    assert (found.marks_itself, found.lacks_marks, found.marking) == (marks_itself, not marks_itself, reason)


def test_given_enis_are_not_asked_for_and_options_go_before_them() -> None:
    given: dict[str, t.Any] = {"enis": [PRIMARY, SECOND], "primary_interface": "bond0", "pod_interfaces": ["pod*"]}
    found = enis(IMAGE, **given)
    assert (found.primary_interface, found.pod_interfaces, found.query) == ("bond0", ["pod*"], None)
    assert found.rules and found.routes and found.addresses, "an image knows what was given"
    assert profile.links(options(**given)) == {
        "enis[0].name": "ens5",
        "enis[1].name": "ens6",
        "primary_interface": "bond0",
    }


def test_an_image_knows_the_primary_interface_alone() -> None:
    found = enis(IMAGE, primary_interface="ens5")
    assert found.primary_interface == "ens5"
    assert (found.rules, found.routes, found.addresses) == (None, None, None)
    (sentence,) = profile.conflicts(options(), True)
    assert sentence.startswith("eni_policy_routing_primary_interface must be given for an image")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"enis": [SECOND]}, "enis[].primary"),
        ({"enis": [PRIMARY, {**SECOND, "table": 254}]}, "enis[1].table"),
        ({"enis": [PRIMARY, {**SECOND, "name": "ens5"}]}, "enis[1].name"),
        ({"enis": []}, "enis"),
        ({"enis": [PRIMARY], "mark": "0"}, "mark"),
        ({"enis": [PRIMARY], "interface_marks": [{"name": "ens6", "mark": "0"}]}, "interface_marks[0].mark"),
        ({"cloud": "azure"}, "cloud"),
    ],
)
def test_an_error_names_the_option_of_the_profile(changes: dict[str, t.Any], place: str) -> None:
    with pytest.raises(Invalid) as error:
        [*profile.conflicts(options(**changes), False)]
    assert error.value.option == place
    with pytest.raises(Invalid) as error:
        profile.facts(options(**changes), NODE)
    assert error.value.option == place


def states(steps: list[Step]) -> list[str]:
    """Each module with its mode or its state."""
    return [f"{module} {one.get('mode') or one.get('state', 'present')}" for module, one in steps]


@pytest.mark.parametrize(
    ("given", "observed", "expected"),
    [
        ({}, NODE, ["rp_filter loose", "policy_routes present", "nftables_connmark present", "link_addresses absent"]),
        (
            {},
            marking(0x80, 0x80),
            ["rp_filter loose", "policy_routes present", "nftables_connmark absent", "link_addresses absent"],
        ),
        (
            {"service_addresses": ["203.0.113.1"]},
            marking(0x80, 0x80),
            ["rp_filter loose", "policy_routes present", "nftables_connmark present", "link_addresses absent"],
        ),
        (
            {"connmark": "never"},
            NODE,
            ["rp_filter loose", "policy_routes present", "nftables_connmark absent", "link_addresses absent"],
        ),
        (
            {"remedy": "strict"},
            marking(0x80, 0x80),
            ["policy_routes present", "nftables_connmark present", "rp_filter strict", "link_addresses absent"],
        ),
        (
            {"remedy": "symmetric"},
            NODE,
            ["link_addresses present", "policy_routes present", "nftables_connmark present", "rp_filter absent"],
        ),
    ],
)
def test_a_remedy_is_set_in_the_safe_order_and_what_another_one_set_is_undone_after_it(
    given: dict[str, t.Any], observed: Observation, expected: list[str]
) -> None:
    assert states(plan(observed, **given)) == ["network_daemons present", *expected]
    with_nft = plan(observed, **given, nftables=True)
    assert states(with_nft) == ["network_daemons present", "nftables_package present", *expected]


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("loose", ["nftables_connmark", "policy_routes", "link_addresses", "rp_filter", "network_daemons"]),
        ("strict", ["rp_filter", "nftables_connmark", "policy_routes", "link_addresses", "network_daemons"]),
    ],
)
def test_absent_is_the_reverse_order_and_a_strict_filter_goes_before_the_marks_that_it_needs(
    remedy: str, expected: list[str]
) -> None:
    undone = plan(Observation(False), state="absent", remedy=remedy)
    assert [module for module, _options in undone] == expected
    assert {one["state"] for _module, one in undone} == {"absent"}


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("managed", "modules"),
    [
        ("daemons", {"network_daemons"}),
        ("filters", {"rp_filter"}),
        ("own_addresses", {"link_addresses"}),
        ("mark_rule", {"policy_routes"}),
        ("tables", {"policy_routes"}),
        ("connmark", {"nftables_connmark", "nftables_package"}),
    ],
)
def test_only_the_modules_of_the_managed_parts_are_planned(managed: str, modules: set[str], state: str) -> None:
    steps = plan(NODE, manage=managed, state=state, nftables=True)
    assert {module for module, _options in steps} == modules


def test_the_filter_of_each_interface_by_which_requests_come_is_loosened_and_strict_is_for_the_primary() -> None:
    marks = [{"name": "ens6", "mark": "0x20"}]
    for remedy, expected in (("loose", ["ens5", "ens6"]), ("strict", ["ens5"])):
        filters = dict(plan(NODE, remedy=remedy, interface_marks=marks))["rp_filter"]
        assert filters == {"interfaces": expected, "mode": remedy, "raise_all": False}
        assert dict(plan(NODE, remedy=remedy))["nftables_connmark"]["strict"] is (remedy == "strict")


def test_a_networkd_is_restarted_on_a_running_node_only() -> None:
    assert plan(Observation(False), manage="daemons") == [("network_daemons", {"state": "present", "restart": True})]
    assert plan(IMAGE, manage="daemons") == [("network_daemons", {"state": "present", "restart": False})]


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("nftables_connmark.pod_interfaces[1]", "pod_interfaces[1]"),
        ("link_addresses.addresses[0].dev", "enis[0].dev"),
        ("rp_filter.interfaces[0]", "primary_interface"),
        ("before[1]", "before[1]"),
        ("rp_filter.path", None),
    ],
)
def test_an_error_of_a_module_names_the_option_whose_value_it_got(place: str, variable: str | None) -> None:
    source = option.source(profile.OPTIONS, Invalid(place, 1, "another"))
    assert (source.option if source else None) == variable
