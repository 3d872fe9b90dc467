# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effective value of a setting that exists for a link and for all links."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import settings

# Family, setting, its value for all links and for the link, the effective value.
CASES = [
    ("ipv4", "rp_filter", 0, 1, 1),
    ("ipv4", "rp_filter", 2, 1, 2),
    ("ipv4", "src_valid_mark", 1, 0, 1),
    ("ipv4", "accept_source_route", 1, 0, 0),
    ("ipv4", "bc_forwarding", 1, 1, 1),
    ("ipv6", "proxy_ndp", 1, 0, 1),
    ("ipv6", "seg6_enabled", 0, 1, 0),
    ("ipv6", "forwarding", 1, 0, 1),
    ("ipv6", "forwarding", 0, 1, 0),
]


@pytest.mark.parametrize(("family", "name", "every", "own", "effective"), CASES)
def test_one_of_both_settings_takes_effect(family: str, name: str, every: int, own: int, effective: int) -> None:
    found = {"all": {name: every}, "default": {name: 7}, "eth0": {name: own}}
    assert settings.effective(family, found)["eth0"][name] == effective
    assert settings.effective(family, found).keys() == {"eth0"}


@pytest.mark.parametrize(
    ("forwarding", "accept_ra", "accepts"), [(0, 0, 0), (0, 1, 1), (0, 2, 1), (1, 0, 0), (1, 1, 0), (1, 2, 1)]
)
def test_a_link_that_forwards_accepts_router_advertisements_if_told_twice(forwarding: int, accept_ra: int, accepts: int) -> None:
    found = {"all": {}, "eth0": {"forwarding": forwarding, "accept_ra": accept_ra}}
    assert settings.effective("ipv6", found)["eth0"]["accept_ra"] == accepts


def test_a_link_may_forward_although_the_node_does_not() -> None:
    found = {"all": {"forwarding": 0}, "eth0": {"forwarding": 0, "force_forwarding": 1}, "eth1": {"force_forwarding": 0}}
    assert [of_link["forwarding"] for of_link in settings.effective("ipv6", found).values()] == [1, 0]


def test_a_kernel_without_a_family_or_a_setting_has_none() -> None:
    assert settings.effective("ipv6", {}) == {}
    assert settings.effective("ipv4", {"all": {"rp_filter": 1}, "eth0": {"forwarding": 1}}) == {"eth0": {}}


def test_each_setting_that_takes_effect_is_read() -> None:
    for family in settings.FAMILIES:
        assert {*settings.LARGER[family], *settings.SMALLER[family]} <= {*settings.LINK[family]}
