# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._twin import legacy_half

NFT = """\
*filter
:FORWARD ACCEPT [0:0]
:OWN - [0:0]
-A FORWARD -j OWN
COMMIT
"""
LEGACY = """\
*filter
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:OWN - [0:0]
-A FORWARD -m comment --comment "a -j OWN" -g OWN
-A OWN -j ACCEPT
[7:420] -A OWN -j NFLOG
COMMIT
"""


def test_chains_of_the_legacy_half_stand_beside_the_others() -> None:
    text, hooks = legacy_half.merged("ip", "filter", NFT, LEGACY)
    assert text.splitlines() == [
        "*filter",
        ":FORWARD.legacy - [0:0]",
        ":OUTPUT.legacy - [0:0]",
        ":OWN.legacy - [0:0]",
        ":FORWARD ACCEPT [0:0]",
        ":OWN - [0:0]",
        "-A FORWARD -j OWN",
        '-A FORWARD.legacy -m comment --comment "a -j OWN" -g OWN.legacy',
        "-A OWN.legacy -j ACCEPT",
        "[7:420] -A OWN.legacy -j NFLOG",
        "COMMIT",
    ]
    assert [(hook.chain, hook.policy) for hook in hooks] == [("FORWARD", "DROP"), ("OUTPUT", "ACCEPT")]


@pytest.mark.parametrize(
    ("table", "chain", "kind", "priority"),
    [
        ("filter", "FORWARD", "filter", 0),
        ("mangle", "OUTPUT", "route", -150),
        ("mangle", "PREROUTING", "filter", -150),
        ("raw", "PREROUTING", "filter", -300),
        ("nat", "OUTPUT", "nat", -100),
        ("nat", "POSTROUTING", "nat", 100),
    ],
)
def test_a_hook_has_the_place_of_its_chain(table: str, chain: str, kind: str, priority: int) -> None:
    lines = legacy_half.Hook("ip6", table, chain, "DROP").lines
    assert f"type {kind} hook {chain.lower()} priority {priority}; policy drop;" in lines
    assert lines.endswith(f"add rule ip6 {table} {chain}.legacy-hook jump {chain}.legacy\n")


def test_a_long_name_is_cut_and_stays_unlike_others() -> None:
    chains = [f"cali-pri-_kJqfZpgUe7r2t4A-14{letter}" for letter in "abc"]
    names = [*map(legacy_half.of_legacy, chains)]
    assert len({*names}) == 3 and {len(name) for name in names} == {legacy_half.LONGEST}
    saved = "".join(f":{chain} - [0:0]\n" for chain in chains)
    assert [legacy_half.names([saved])[name] for name in names] == chains


def test_a_policy_is_that_of_the_chain() -> None:
    assert [*map(legacy_half.hooked_chain, ("FORWARD.legacy-hook", "FORWARD", "my-hook"))] == [
        "FORWARD.legacy",
        "FORWARD",
        "my-hook",
    ]
