# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import firewalls


@pytest.mark.parametrize(
    ("text", "flushes"),
    [
        ("#!/usr/sbin/nft -f\n\nflush ruleset\n\ntable inet filter {\n}\n", True),
        ("# flush ruleset\ntable inet filter {\n}\n", False),
        ("flush ruleset ip6 # of one family\n", True),
        ("flush table inet filter\n", False),
        ("", False),
    ],
)
def test_a_ruleset_that_flushes_all_tables_says_so(text: str, flushes: bool) -> None:
    assert firewalls.flushes(text) is flushes


def test_settings_of_firewalld_that_are_left_out_have_their_defaults() -> None:
    text = "# FlushAllOnReload=yes\nFlushAllOnReload = no\nFirewallBackend=iptables\nDefaultZone=public\nIPv6_rpfilter=\n"
    settings = {"FirewallBackend": "iptables", "FlushAllOnReload": "no", "IPv6_rpfilter": "yes"}
    assert firewalls.of_firewalld(text) == settings
    assert firewalls.of_firewalld("") == firewalls.DEFAULTS


def test_settings_of_firewalld_are_words_in_any_case() -> None:
    settings = {"FirewallBackend": "nftables", "FlushAllOnReload": "no", "IPv6_rpfilter": "yes"}
    assert firewalls.of_firewalld("FirewallBackend=NFTables\nFlushAllOnReload=False\nIPv6_rpfilter=True\n") == settings
