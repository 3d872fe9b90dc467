# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of two states of a node are not read as one node."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, states

FIRST, SECOND = "default via 192.0.2.1 dev eth0\n", "default via 192.0.2.2 dev eth0\n"


@pytest.mark.parametrize(
    ("name", "command", "state"),
    [
        ("ip-rule-before.txt", "ip-rule", "before"),
        ("iptables-nvL-FORWARD_AFTER.log", "iptables-nvL-FORWARD", "after"),
        ("before ip rule", "ip rule", "before"),
        ("iptables-save.old", "iptables-save", "old"),
        ("iptables-save-2026-11-03T10:12:59.txt", "iptables-save", "2026-11-03t10:12:59"),
        ("ip-route-20261103-101259", "ip-route", "20261103-101259"),
        ("ip-route-2.txt", "ip-route-2", "2"),
        ("ip-route-show-table-7.txt", "ip-route-show-table-7", ""),
        ("ip-route-show-table-1003-after.txt", "ip-route-show-table-1003", "after"),
        ("ip-6-rule.txt", "ip-6-rule", ""),
        ("renewal-beforehand", "renewal-beforehand", ""),
        ("ip netns exec cni-2345-1234-12 ip rule", "ip netns exec cni-2345-1234-12 ip rule", ""),
        ("ip netns exec old ip rule-before", "ip netns exec old ip rule", "before"),
    ],
)
def test_a_name_has_a_command_and_a_state(name: str, command: str, state: str) -> None:
    assert states.output_name(name) == (command, state)


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("ip-route-before.txt", "ip-route-after.txt", "after: ip-route-after.txt; before: ip-route-before.txt"),
        ("ip-route.txt", "ip-route.old", "no state in the name: ip-route.txt; old: ip-route.old"),
        ("ip-route-1.txt", "ip-route-2.txt", "1: ip-route-1.txt; 2: ip-route-2.txt"),
        ("ip-route-20261103.txt", "ip-route-20261104.txt", "20261103: ip-route-20261103.txt"),
    ],
)
def test_two_states_are_named_with_their_files(first: str, second: str, shown: str) -> None:
    with pytest.raises(Invalid, match="dump must be outputs of one state. Put the files of each state into a folder") as error:
        pastes.read({first: FIRST, second: SECOND})
    assert shown in str(error.value)


def test_all_files_of_a_state_are_named() -> None:
    dump = {"ip-route-before": FIRST, "ip-route-after": SECOND, "ip-rule-before": "0: from all lookup local\n"}
    with pytest.raises(Invalid, match="before: ip-route-before, ip-rule-before"):
        pastes.read(dump)


LINK = "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
COUNTED = "*filter\n:FORWARD DROP [{0}:{1}]\n[{0}:{1}] -A FORWARD -i eth0 -j DROP\nCOMMIT\n"
LISTED = (
    "Chain FORWARD (policy DROP {0} packets, {1} bytes)\n"
    " pkts bytes target     prot opt in     out     source               destination\n"
    "    {0}   {1} DROP       all  --  eth0   *       0.0.0.0/0            0.0.0.0/0\n"
)


@pytest.mark.parametrize(
    "dump",
    [
        {f"ip-addr-{number}": f"{LINK}       valid_lft {number}sec preferred_lft 9sec\n" for number in (1, 2)},
        {"ip-route-before": FIRST, "ip-route-after": FIRST},
        {"ip-route-before": FIRST, "ip-rule-after": "0: from all lookup local\n"},
        {"ip-route-show-table-7": FIRST, "ip-route-show-table-8": SECOND},
        {"ip-addr-pod-1": "3: eth0@if8: <UP> mtu 1500\n", "ip-addr-pod-2": "3: eth0@if9: <UP> mtu 1500\n", "ip-route": FIRST},
        {"iptables-save-c-before": COUNTED.format(1, 60), "iptables-save-c-after": COUNTED.format(20, 1200)},
        {"iptables-nvL-1": LISTED.format(1, 60), "iptables-nvL-2": LISTED.format("20K", "12M")},
    ],
    ids=["lifetimes", "identical", "other commands", "tables", "pods", "counters", "columns of counters"],
)
def test_one_state_is_read(dump: dict[str, str]) -> None:
    assert not pastes.read(dump).ignored
