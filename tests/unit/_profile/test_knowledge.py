# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of a node that a profile uses: those from its ENIs and its addresses, on a node and for an image."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni.marks import Marks
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._profile import knowledge
from ansible_collections.kubenode.datapath.plugins.module_utils._profile.knowledge import SeenMarks

PRIMARY: dict[str, t.Any] = {"name": "ens5", "primary": True, "ipv4": ["10.0.0.10"]}
SECOND: dict[str, t.Any] = {
    "name": "ens6",
    "ipv4": ["10.0.1.10"],
    "gateway": {"ipv4": "10.0.1.1"},
    "device_number": 1,
}
LEFT_OUT = dict.fromkeys(("interfaces", "primary_interface", "pod_interfaces", "manage", "mark", "priorities", "interface_marks"))
AWS: dict[str, t.Any] = {**LEFT_OUT, "layout": "aws_vpc_cni", "cloud": "auto"}


def test_on_a_node_all_follows_from_the_metadata_and_each_boot_asks_again() -> None:
    assert knowledge.asks_for_enis(AWS, is_image=False)
    values = knowledge.of_enis(AWS, False, [PRIMARY, SECOND])
    assert (values["primary_interface"], values["pod_interfaces"]) == ("ens5", ["eni*", "vlan*"])
    assert (values["mark"], values["mask"], values["marks_itself"], values["lacks_marks"]) == (
        "0x80",
        "0x80",
        False,
        True,
    )
    assert values["marking"] == "No rule of amazon-vpc-cni marks connections that come in by ens5."
    assert values["addresses"] == [{"dev": "ens6", "address": "10.0.1.10"}]
    assert [rule["priority"] for rule in values["rules"]] == [1024, 32765] and len(values["routes"]) == 2
    assert values["query"] == {"layout": "aws_vpc_cni", "cloud": "auto"}


@pytest.mark.parametrize(("part", "priorities"), [("mark_rule", [1024]), ("tables", [32765])])
def test_of_a_managed_part_the_run_knows_the_rules_and_each_boot_asks_for_them(part: str, priorities: list[int]) -> None:
    values = knowledge.of_enis({**AWS, "manage": [part]}, False, [PRIMARY, SECOND])
    assert [rule["priority"] for rule in values["rules"]] == priorities
    assert bool(values["routes"]) is (part == "tables")
    assert values["query"] == {"layout": "aws_vpc_cni", "cloud": "auto", "manage": [part]}


def test_the_cnis_mark_is_read_from_its_rules_and_each_boot_gets_it() -> None:
    found = SeenMarks([Marks("amazon-vpc-cni", "table ip mangle (nft)", "ens5", 0x100, 0x300)])
    values = knowledge.of_enis(AWS, False, [PRIMARY, SECOND], found)
    assert (values["mark"], values["mask"], values["marks_itself"], values["lacks_marks"]) == ("0x100", "0x300", True, False)
    assert values["rules"][0]["fwmark"] == "0x100/0x300"
    assert values["query"] == {"layout": "aws_vpc_cni", "cloud": "auto", "mark": "0x100/0x300"}
    assert values["marking"] == "Rules of amazon-vpc-cni in table ip mangle (nft) mark connections with 0x100/0x300."


def test_marks_of_enis_need_the_table_although_the_cni_marks_and_leave_its_own_mark_alone() -> None:
    found = SeenMarks([Marks("amazon-vpc-cni", "table ip mangle (nft)", "ens5", 0x100, 0x100)])
    option = {**AWS, "interface_marks": [{"name": "ens6", "mark": "0x20"}]}
    values = knowledge.of_enis(option, False, [PRIMARY, SECOND], found)
    assert (values["mark"], values["mask"], values["marks_itself"], values["lacks_marks"]) == ("0x100", "0x120", True, True)
    assert [rule.get("fwmark") for rule in values["rules"]] == ["0x100/0x100", "0x20/0x120", None]
    assert values["interfaces"] == option["interface_marks"] == values["query"]["interface_marks"]
    assert values["request_interfaces"] == ["ens5", "ens6"]
    assert knowledge.named_interfaces(option) == {"enis.interface_marks[0].name": "ens6"}


def test_a_given_mark_goes_before_that_of_the_cnis_rules() -> None:
    found = SeenMarks([Marks("amazon-vpc-cni", "table ip mangle (nft)", "ens5", 0x100, 0x100)])
    values = knowledge.of_enis({**AWS, "mark": "0x40"}, False, [PRIMARY], found)
    assert (values["mark"], values["lacks_marks"], values["query"]["mark"]) == ("0x40", True, "0x40")
    assert values["marking"].endswith("with 0x100/0x100, but that does not suffice: 0x40/0x40 was given.")
    assert knowledge.of_enis({**AWS, "mark": "256"}, False, [PRIMARY], found)["marks_itself"]


def test_the_default_mark_of_the_cni_changes_nothing_for_the_boots() -> None:
    found = SeenMarks([Marks("Cilium", "table ip mangle (nft)", "ens5", 0x80, 0x80)])
    values = knowledge.of_enis({**AWS, "layout": "cilium"}, False, [PRIMARY], found)
    assert values["marks_itself"] and values["query"] == {"layout": "cilium", "cloud": "auto"}


@pytest.mark.parametrize(
    ("layout", "marks_itself", "reason"),
    [
        ("aws_vpc_cni", True, "An image has no rules to look at; by default amazon-vpc-cni marks connections."),
        ("terway", False, "An image has no rules to look at; by default Terway does not mark connections."),
        ("custom", False, "The layout custom has no CNI that marks connections."),
    ],
)
def test_for_an_image_the_default_of_the_cni_counts(layout: str, marks_itself: bool, reason: str) -> None:
    values = knowledge.of_enis({**AWS, "layout": layout, "primary_interface": "ens5"}, True)
    assert (values["marks_itself"], values["lacks_marks"], values["marking"]) == (marks_itself, not marks_itself, reason)


def test_given_enis_are_not_asked_for_and_options_go_before_them() -> None:
    option = {**AWS, "interfaces": [PRIMARY, SECOND], "primary_interface": "bond0", "pod_interfaces": ["pod*"]}
    assert not knowledge.asks_for_enis(option, is_image=False) and not knowledge.asks_for_enis(option, is_image=True)
    values = knowledge.of_enis(option, True)
    assert (values["primary_interface"], values["pod_interfaces"], values["query"]) == ("bond0", ["pod*"], None)
    assert values["rules"] and values["routes"] and values["addresses"], "an image knows what was given"
    assert knowledge.named_interfaces(option) == {
        "enis.interfaces[0].name": "ens5",
        "enis.interfaces[1].name": "ens6",
        "enis.primary_interface": "bond0",
    }


def test_an_image_knows_the_primary_interface_alone() -> None:
    option = {**AWS, "primary_interface": "ens5"}
    assert not knowledge.asks_for_enis(option, is_image=True)
    values = knowledge.of_enis(option, True)
    assert values["primary_interface"] == "ens5"
    assert [values[name] for name in ("rules", "routes", "addresses")] == [None, None, None]
    with pytest.raises(Invalid, match="^enis.primary_interface must be given for an image"):
        knowledge.asks_for_enis(AWS, is_image=True)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"interfaces": [SECOND]}, "enis.interfaces[].primary"),
        ({"interfaces": [PRIMARY, {**SECOND, "table": 254}]}, "enis.interfaces[1].table"),
        ({"interfaces": [PRIMARY, {**SECOND, "name": "ens5"}]}, "enis.interfaces[1].name"),
        ({"interfaces": "ens5"}, "enis.interfaces"),
        ({"interfaces": [PRIMARY], "mark": "0"}, "enis.mark"),
        ({"interfaces": [PRIMARY], "cloud": "azure"}, "enis.cloud"),
        ({"interfaces": [PRIMARY], "interface_marks": [{"name": "ens6", "mark": "0"}]}, "enis.interface_marks[0].mark"),
        ({"interfaces": [PRIMARY], "primary_interface": "a/b"}, "enis.primary_interface"),
    ],
)
def test_an_error_names_the_option_of_the_profile(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(Invalid) as error:
        knowledge.of_enis({**AWS, **changes}, False)
    assert error.value.option == option


@pytest.mark.parametrize(
    ("source", "has_ipv6", "reason"),
    [
        ("imds", True, "Each boot decides whether the node has IPv6."),
        ("address", True, "Each boot decides whether the node has IPv6."),
        ("always", True, "The node has IPv6: ipv6.source says so."),
        ("never", False, "The node has no IPv6: ipv6.source says so."),
    ],
)
def test_the_boots_of_an_image_decide_about_ipv6_unless_the_option_does(source: str, has_ipv6: bool, reason: str) -> None:
    assert knowledge.of_an_image(source) == {"has_ipv6": has_ipv6, "ipv6_reason": reason}
