# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a profile learns of the node: what follows from its ENIs and from its addresses, on a node and for an image."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._profile import knowledge

PRIMARY: dict[str, t.Any] = {"name": "ens5", "primary": True, "ipv4": ["10.0.0.10"]}
SECOND: dict[str, t.Any] = {
    "name": "ens6",
    "ipv4": ["10.0.1.10"],
    "gateway": {"ipv4": "10.0.1.1"},
    "device_number": 1,
}
LEFT_OUT = dict.fromkeys(("interfaces", "primary_interface", "pod_interfaces", "mark", "priorities"))
AWS: dict[str, t.Any] = {**LEFT_OUT, "layout": "aws_vpc_cni", "cloud": "auto"}


def test_on_a_node_all_follows_from_the_metadata_and_each_boot_asks_again() -> None:
    assert knowledge.asks_for_enis(AWS, is_image=False)
    values = knowledge.of_enis(AWS, False, [PRIMARY, SECOND])
    assert (values["primary_interface"], values["pod_interfaces"]) == ("ens5", ["eni*", "vlan*"])
    assert (values["mark"], values["mask"], values["marks_itself"], values["lacks_marks"]) == (
        "0x80",
        "0x80",
        True,
        False,
    )
    assert values["addresses"] == [{"dev": "ens6", "address": "10.0.1.10"}]
    assert [rule["priority"] for rule in values["rules"]] == [1024, 32765] and len(values["routes"]) == 2
    assert values["query"] == {"layout": "aws_vpc_cni", "cloud": "auto"}


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
        ({"interfaces": [PRIMARY], "mark": "0x80"}, "enis.mark"),
        ({"interfaces": [PRIMARY], "cloud": "azure"}, "enis.cloud"),
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
