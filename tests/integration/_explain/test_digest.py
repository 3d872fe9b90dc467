# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's state has the same digest after packets, time and rules that were written anew, and another one after each change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._explain.digest import digest
from lab import network
from lab.machine import Machine

from .._audit import mutations
from .._audit.layouts import LAYOUTS
from .._audit.mutation_trials import snapshot_of
from . import histories

CHANGES = 8
COUNTING = (
    "table inet own { set s { type ipv4_addr; flags timeout; elements = { 192.0.2.77 timeout 1h } };"
    " chain c { type filter hook forward priority 0; counter; quota over 9000 mbytes drop; ip saddr @s drop; }; }"
)


def _rewritten(machine: Machine) -> None:
    """Write the rules and sets of a node anew, with other counters and handles."""
    saved: Any = machine.run(["iptables-nft-save"]).stdout
    machine.run(["iptables-nft-restore"], saved)
    machine.run(["nft", f"delete table inet own; {COUNTING}"])
    machine.run(["ipset", "-exist", "add", "own", "192.0.2.78", "timeout", "900"])


@pytest.mark.parametrize("name", ["veth routes", "bridge, kube-proxy nftables"])
def test_a_state_has_one_digest_whatever_counts_and_ages(name: str) -> None:
    layout, chance = LAYOUTS[name](), random.Random(name)
    with network.built(layout) as machines, network.listening(machines) as listeners:
        node = machines["node"]
        node.run(["nft", COUNTING])
        node.run(["ipset", "create", "own", "hash:ip", "timeout", "3600", "counters"])
        node.run(["ipset", "add", "own", "192.0.2.78"])
        connections = [each for each in layout.connections() if not each.length and each.port]
        assert all(histories._passes(each, machines, listeners) for each in connections[:2])
        before = digest(snapshot_of(layout, machines))
        assert all(histories._passes(each, machines, listeners) for each in connections[:2])
        _rewritten(node)
        assert digest(snapshot_of(layout, machines)) == before
        for _change in range(CHANGES):
            change = mutations.drawn(layout, machines, chance)
            change.apply(machines)
            after = digest(snapshot_of(layout, machines))
            assert after != before, str(change)
            before = after


def test_a_table_that_is_text_has_one_digest_whatever_counts_and_ages() -> None:
    table = (
        "table ip t {{\n set s {{ elements = {{ 10.0.0.1 expires {} }} }}\n chain c {{ counter packets {} bytes {} {} }}\n}}\n"
    )
    first, counted, changed = (
        digest({"nftables_text": table.format(*words)})
        for words in (("2h59m3s", 1, 60, "drop"), ("1h", 2, 120, "drop"), ("1h", 2, 120, "accept"))
    )
    assert first == counted != changed
