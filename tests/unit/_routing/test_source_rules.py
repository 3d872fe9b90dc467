# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules by source, their exceptions, and the networks that these are for."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, source_rules


def shown(*entries: dict[str, t.Any]) -> list[str]:
    return [str(rule) for rule in policy.from_options(75, entries, None, {"main": 254}).rules or ()]


def test_only_networks_of_the_sources_family_are_exceptions() -> None:
    assert shown(*source_rules.rules("fd00:1::10", 7, 1400, ["10.0.0.0/24", "fd00::/64", "::/0"])) == [
        "ip -6 rule 1397: from fd00:1::10 to fd00::/64 lookup main suppress_prefixlength 64",
        "ip -6 rule 1398: from fd00:1::10 to fd00::/64 lookup 7",
        "ip -6 rule 1399: from fd00:1::10 lookup main suppress_prefixlength 0",
        "ip -6 rule 1400: from fd00:1::10 lookup 7",
    ]


def test_the_networks_of_links_are_those_of_table_main() -> None:
    routes: list[dict[str, t.Any]] = [
        {"table": 254, "to": "10.0.0.0/24", "dev": "eth0"},
        {"table": 254, "to": "10.0.9.0/24", "dev": "eth0", "via": "10.0.0.9"},
        {"table": 254, "to": "10.0.0.5/32", "dev": "veth1"},
        {"table": 254, "to": "default", "dev": "ppp0"},
        {"table": 1001, "to": "10.0.1.0/24", "dev": "eth1"},
        {"table": 254, "to": "fd00::/64", "dev": "eth0"},
        {"table": 254, "to": "fe80::/64", "dev": "eth0"},
    ]
    read = policy.from_options(75, None, routes, {}).routes
    assert source_rules.networks(read or ()) == {"eth0": ["10.0.0.0/24", "fd00::/64"]}
