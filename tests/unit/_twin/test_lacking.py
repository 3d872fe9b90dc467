# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What could not be read of a node is open for the packets that may meet it."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import FAMILY, SET, Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import Unread
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import lacking


@pytest.mark.parametrize(
    ("subset", "name", "fact", "concerns"),
    [
        ("nftables", "ip filter", "unread:nftables ip filter", [Concern(FAMILY, "ipv4")]),
        ("nftables", "ip6 own", "unread:nftables ip6 own", [Concern(FAMILY, "ipv6")]),
        ("nftables", "inet own", "unread:nftables inet own", []),
        ("nftables", "", "unread:nftables", []),
        ("iptables", "ip6 nat (legacy)", "unread:iptables ip6 nat (legacy)", [Concern(FAMILY, "ipv6")]),
        ("iptables", "arp filter (legacy)", "unread:iptables arp filter (legacy)", [Concern(FAMILY, "arp")]),
        ("iptables", "ip filter (nft)", "", []),  # nft lists it, or an entry of nftables says what it lacks
        ("ipsets", "own", "unread:ipsets own", [Concern(SET, "own")]),
        ("routes", "", "unread:routes", []),
        ("routes", "ip route 10.0.0.0/8 dev eth0", "", []),  # which the twin names
        ("links", "veth1", "", []),
        ("cni", "/etc/cni/net.d/10.conf", "", []),
    ],
)
def test_a_part_of_the_snapshot_that_was_not_read_is_a_fact(subset: str, name: str, fact: str, concerns: list[Concern]) -> None:
    found = lacking.by_unread(Unread(subset, name, "It failed."))
    assert (found.fact if found else "") == fact
    if found:
        assert found.concerns == frozenset(concerns) and found.sentence == f"{subset} {name}: It failed.".replace(" :", ":")
        assert found.ask
