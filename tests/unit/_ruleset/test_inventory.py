# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listings are compared with what the kernel counts."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import inventory
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.inventory import Chain

SAVE = """*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OWN - [0:0]
-A FORWARD -m comment --comment "-j OWN" -j OWN
-A OWN -s 10.0.0.1/32 -g OWN
-A OWN -j ACCEPT
COMMIT
"""
IPTABLES = [{"family": "ip", "table": "filter", "backend": "nft", "save": SAVE}]
EBTABLES = [
    {"table": "nat", "chain": "OWN", "backend": "nft", "policy": "DROP", "rules": ["-p IPv4 -j ACCEPT"]},
    {"table": "nat", "chain": "PREROUTING", "backend": "nft", "policy": "ACCEPT", "rules": ["-j OWN"]},
]
ELEMENTS = [["10.0.0.1", {"jump": {"target": "svc"}}], [{"elem": {"val": "10.0.0.2"}}, {"goto": {"target": "svc"}}]]
OBJECTS: list[dict[str, Any]] = [
    {"table": {"family": "inet", "name": "t"}},
    {"chain": {"family": "inet", "table": "t", "name": "f", "hook": "forward", "policy": "accept"}},
    {"chain": {"family": "inet", "table": "t", "name": "svc"}},
    {"map": {"family": "inet", "table": "t", "name": "m", "map": "verdict", "elem": ELEMENTS}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [{"vmap": {"key": {}, "data": "@m"}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [{"vmap": {"key": {}, "data": {"set": ELEMENTS}}}]}},
    {"rule": {"family": "inet", "table": "t", "chain": "svc", "expr": [{"accept": None}]}},
]


def base(family: str, table: str, name: str, use: int, policy: str = "accept") -> Chain:
    return Chain(family, table, name, True, policy, use)


def inner(family: str, table: str, name: str, use: int) -> Chain:
    return Chain(family, table, name, False, "", use)


KERNEL = [
    base("ip", "filter", "FORWARD", 1, "drop"),
    inner("ip", "filter", "OWN", 4),
    base("bridge", "nat", "PREROUTING", 1),
    inner("bridge", "nat", "OWN", 3),
    base("inet", "t", "f", 2),
    inner("inet", "t", "svc", 5),
    base("arp", "t", "x", 9),
]


def differences(*kernel: Chain, size: int = 2) -> list[tuple[str, str]]:
    return [*inventory.differences(kernel, {("inet", "t", "m"): size}, IPTABLES, EBTABLES, OBJECTS)]


def test_a_whole_listing_has_what_the_kernel_counts() -> None:
    assert differences(*KERNEL) == []


@pytest.mark.parametrize(
    ("changed", "table", "sentence"),
    [
        (
            base("ip", "filter", "FORWARD", 2, "drop"),
            "ip filter",
            "The kernel has 2 rules in the chain FORWARD, and 1 are listed.",
        ),
        (
            base("ip", "filter", "FORWARD", 1),
            "ip filter",
            "The kernel has the policy accept in the chain FORWARD, and drop is listed.",
        ),
        (inner("ip", "filter", "OWN", 5), "ip filter", "The kernel has 6 rules and jumps, and 5 are listed."),
        (inner("ip", "filter", "HIDDEN", 0), "ip filter", "No program lists the chain HIDDEN."),
        (inner("inet", "t", "svc", 6), "inet t", "The kernel has 8 rules and jumps, and 7 are listed."),
        (base("ip6", "t", "f", 1), "ip6 t", "No program lists the chain f."),
    ],
)
def test_a_table_of_which_the_kernel_has_more_is_named(changed: Chain, table: str, sentence: str) -> None:
    other_listings = [
        chain for chain in KERNEL if (chain.family, chain.table, chain.name) != (changed.family, changed.table, changed.name)
    ]
    assert differences(*other_listings, changed) == [(table, sentence)]


def test_a_set_that_has_other_elements_is_named() -> None:
    sentence = "The kernel has 3 elements in the set m, and 2 are listed."
    assert differences(*KERNEL, size=3) == [("inet t", sentence)]


def test_a_table_that_the_kernel_lacks_is_named() -> None:
    without = [chain for chain in KERNEL if chain.family != "inet"]
    assert differences(*without) == [("inet t", "The kernel has no chain of it.")]
