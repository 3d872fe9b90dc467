# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A profile's list of modules: its possible contents, the values of its references, and its order."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._profile import profile

LOOSE: dict[str, t.Any] = {"rp_filter": {"mode": "loose"}}
STRICT: dict[str, t.Any] = {"rp_filter": {"mode": "strict"}}
ROUTES: dict[str, t.Any] = {"policy_routes": {}}
MARKS: dict[str, t.Any] = {"nftables_connmark": {"state": "present"}}
GONE: dict[str, t.Any] = {"state": "absent"}


def order(*modules: dict[str, t.Any], undo: bool = False) -> list[str]:
    entries = profile.entries(modules)
    return [entry.module for entry in profile.ordered(profile.undoing(entries) if undo else entries)]


@pytest.mark.parametrize(
    ("given", "option", "told"),
    [
        ([], "modules", "a list of at least one module"),
        (["rp_filter"], "modules[0]", "a dictionary with one key"),
        ([{"rp_filter": {}, "policy_routes": {}}], "modules[0]", "a dictionary with one key"),
        ([LOOSE, {"cni_info": {}}], "modules[1]", "one of azure_vnet_bridge, ebtables_cleanup"),
        ([LOOSE, {"kubenode.datapath.rp_filter": {}}], "modules[1]", "at most once"),
        ([{"rp_filter": ["loose"]}], "modules[0].rp_filter", "a dictionary of the module's options"),
    ],
)
def test_what_is_no_list_of_modules_is_an_error_that_names_the_entry(given: list[t.Any], option: str, told: str) -> None:
    with pytest.raises(Invalid) as error:
        profile.entries(given)
    assert error.value.option == option and told in str(error.value)


def test_a_module_may_be_named_in_full_or_without_options_and_an_entry_may_be_omitted() -> None:
    found = profile.entries([{"kubenode.datapath.rp_filter": None}, {}, ROUTES])
    assert [(entry.option, entry.module, entry.options) for entry in found] == [
        ("modules[0]", "rp_filter", {}),
        ("modules[2]", "policy_routes", {}),
    ]


@pytest.mark.parametrize("modules", list(itertools.permutations([LOOSE, ROUTES, MARKS])))
def test_a_filter_is_loosened_before_and_tightened_after_whatever_order_is_given(
    modules: tuple[dict[str, t.Any], ...],
) -> None:
    assert order(*modules) == ["rp_filter", "policy_routes", "nftables_connmark"]
    strictly = [STRICT if one is LOOSE else one for one in modules]
    assert order(*strictly) == ["policy_routes", "nftables_connmark", "rp_filter"]
    assert order(*modules, undo=True) == ["nftables_connmark", "policy_routes", "rp_filter"]
    assert order(*strictly, undo=True) == ["rp_filter", "nftables_connmark", "policy_routes"]


@pytest.mark.parametrize(
    ("module", "loosens"),
    [
        (LOOSE, True),
        ({"rp_filter": GONE}, True),
        ({"rp_filter": {"mode": "strict", **GONE}}, True),
        (STRICT, False),
        (MARKS, False),
    ],
)
def test_a_filter_is_no_longer_strict_if_another_mode_is_set_or_it_is_undone(module: dict[str, t.Any], loosens: bool) -> None:
    (entry,) = profile.entries([module])
    assert entry.loosens is loosens


def test_what_is_undone_comes_last_in_reverse_order() -> None:
    given = [{"rp_filter": GONE}, {"link_addresses": GONE}, ROUTES, {"network_daemons": {}}]
    assert order(*given) == ["network_daemons", "policy_routes", "link_addresses", "rp_filter"]


def test_undoing_ignores_each_state_and_what_only_a_run_would_learn() -> None:
    given = [
        {"nftables_probe_snat": {"state": {"node": "has_ipv6"}, "table": "mine"}},
        {"policy_routes": {"rules": {"node": "rules"}, "protocol": 76}},
        {"rp_filter": {"interfaces": [{"node": "primary_interface"}], "mode": "loose"}},
        {"ebtables_cleanup": {"backup": "/srv"}},
    ]
    assert [entry.options for entry in profile.undoing(profile.entries(given))] == [
        {"table": "mine", **GONE},
        {"protocol": 76, **GONE},
        {"mode": "loose", **GONE},
        {"backup": "/srv", "state": "restored"},
    ]


def test_what_has_no_way_back_cannot_be_undone() -> None:
    with pytest.raises(Invalid, match="left out if state is absent"):
        profile.undoing(profile.entries([{"azure_vnet_bridge": {}}]))


def test_references_are_replaced_at_any_depth() -> None:
    known = {"has_ipv6": False, "links": ["eth0"], "nothing": None, "is_running": True}
    given = {
        "state": {"node": "has_ipv6"},
        "interfaces": {"node": "links"},
        "deep": [{"a": {"node": "is_running"}}],
        "left_out": {"node": "nothing"},
        "plain": {"node": 1, "other": 2},
    }
    (entry,) = profile.learned(profile.entries([{"rp_filter": given}]), known)
    assert entry.options == {
        "state": "absent",
        "interfaces": ["eth0"],
        "deep": [{"a": True}],
        "plain": {"node": 1, "other": 2},
    }
    assert entry.undoes


def test_a_reference_to_nothing_that_is_learned_names_what_there_is() -> None:
    with pytest.raises(Invalid) as error:
        profile.learned(profile.entries([{"rp_filter": {"interfaces": [{"node": "primary"}]}}]), {"is_image": False})
    assert str(error.value) == "modules[0].rp_filter.interfaces[0].node must be one of is_image; 'primary' was given"
