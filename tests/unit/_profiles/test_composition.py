# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A playbook's list of modules: its possible contents and its order."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import composition

LOOSE: dict[str, t.Any] = {"rp_filter": {"mode": "loose"}}
STRICT: dict[str, t.Any] = {"rp_filter": {"mode": "strict"}}
ROUTES: dict[str, t.Any] = {"policy_routes": {}}
MARKS: dict[str, t.Any] = {"nftables_connmark": {"state": "present"}}
GONE: dict[str, t.Any] = {"state": "absent"}


def order(*modules: dict[str, t.Any], undo: bool = False) -> list[str]:
    steps = composition.steps(modules)
    return [module for module, _options in composition.ordered(composition.undoing(steps) if undo else steps)]


@pytest.mark.parametrize(
    ("given", "option", "message"),
    [
        ([], "modules", "a list of at least one module"),
        (["rp_filter"], "modules[0]", "a dictionary with one key"),
        ([{"rp_filter": {}, "policy_routes": {}}], "modules[0]", "a dictionary with one key"),
        ([LOOSE, {"cni_info": {}}], "modules[1]", "one of azure_vnet_bridge, ebtables_cleanup"),
        ([LOOSE, {"kubenode.datapath.rp_filter": {}}], "modules[1]", "at most once"),
        ([{"rp_filter": ["loose"]}], "modules[0].rp_filter", "a dictionary of the module's options"),
        ([{"rp_filter": {"checkpoint": 5}}], "modules[0].rp_filter.checkpoint", "left out: set the profile's checkpoint"),
    ],
)
def test_an_entry_that_is_no_module_is_an_error_that_names_it(given: list[t.Any], option: str, message: str) -> None:
    with pytest.raises(Invalid) as error:
        composition.steps(given)
    assert error.value.option == option and message in str(error.value)


def test_a_module_may_be_named_in_full_or_without_options_and_an_entry_may_be_omitted() -> None:
    steps = composition.steps([{"kubenode.datapath.rp_filter": None}, {}, ROUTES])
    assert steps == [("rp_filter", {}), ("policy_routes", {})]


@pytest.mark.parametrize("modules", list(itertools.permutations([LOOSE, ROUTES, MARKS])))
def test_a_filter_is_loosened_before_and_tightened_after_whatever_order_is_given(
    modules: tuple[dict[str, t.Any], ...],
) -> None:
    assert order(*modules) == ["rp_filter", "policy_routes", "nftables_connmark"]
    strictly = [STRICT if one is LOOSE else one for one in modules]
    assert order(*strictly) == ["policy_routes", "nftables_connmark", "rp_filter"]
    assert order(*modules, undo=True) == ["nftables_connmark", "policy_routes", "rp_filter"]
    assert order(*strictly, undo=True) == ["rp_filter", "nftables_connmark", "policy_routes"]


def test_modules_with_state_absent_come_last_in_reverse_order() -> None:
    given = [{"rp_filter": GONE}, {"link_addresses": GONE}, ROUTES, {"network_daemons": {}}]
    assert order(*given) == ["network_daemons", "policy_routes", "link_addresses", "rp_filter"]


def test_undoing_ignores_each_state() -> None:
    given = [{"nftables_probe_snat": {"state": "present", "table": "mine"}}, {"ebtables_cleanup": {"backup": "/srv"}}]
    assert composition.undoing(composition.steps(given)) == [
        ("nftables_probe_snat", {"table": "mine", **GONE}),
        ("ebtables_cleanup", {"backup": "/srv", "state": "restored"}),
    ]


def test_a_module_without_a_way_back_is_refused_in_absent() -> None:
    with pytest.raises(Invalid, match="left out if state is absent"):
        composition.undoing(composition.steps([{"azure_vnet_bridge": {}}]))
