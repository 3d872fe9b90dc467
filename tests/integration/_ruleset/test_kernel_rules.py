# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rule that is read from the kernel is the rule: loaded again, nft lists it as before. What is not read is told."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import nfnetlink
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import nft_blocks, nft_expressions
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import kernel_rules_backend
from lab import Lab, Node

IN_EACH_FAMILY = (
    "accept", "drop", "return", "jump other", "goto other", 'accept comment "why, and since when"',
    "tcp dport 80 accept", "udp sport != 53 drop", "th dport 53 accept", "meta l4proto udp accept", "meta l4proto != 50 drop",
    "tcp dport { 80, 443 } accept", "tcp dport != { 80, 443 } drop", "tcp dport { 80, 8000-8080, 65535 } accept",
    "tcp dport vmap { 80 : accept, 81 : jump other }", "meta l4proto . th dport { tcp . 80 } accept",
    "meta l4proto { tcp, udp } accept", "ct state new accept", "ct state established,related accept", "ct state != new drop",
    "ct state { new, untracked } accept", "ct state vmap { new : accept, invalid : drop }", "ct status dnat accept",
    "ct mark 0x80 accept", "ct mark != 0x80 accept", "ct mark & 0x30 == 0x20 accept", "meta mark & 0x4000 != 0x4000 return",
    "ct mark and 0x80 != 0 accept", "meta mark { 1, 2 } accept", "meta mark set 0x1", "meta mark set meta mark or 0x4000",
    "meta mark set meta mark and 0xff", "meta mark set meta mark xor 0xff", "meta mark set meta mark and 0xffffffcf or 0x20",
    "meta mark set ct mark", "ct mark set meta mark", "ct mark set ct mark or 0x80", "meta mark set ct mark and 0xf0",
    'iifname "eth0" accept', 'iifname "eth*" accept', 'oifname != "lo" drop', 'iifname { "a", "b" } accept', "iif lo accept",
    "fib daddr type local accept", "fib saddr type { local, unicast } accept", "fib daddr . iif type local accept",
    "fib saddr . iif oif 0 drop", "numgen random mod 2 vmap { 0 : accept, 1 : drop }",
    "numgen inc mod 3 offset 5 vmap { 5 : accept, 6 : jump other, 7 : drop }",
    "numgen random mod 4 vmap { 1 : accept, 3 : drop }", "numgen random mod 2 0 drop",
    "jhash ip saddr mod 2 vmap { 0 : accept, 1 : drop }", "counter packets 3 bytes 180 accept", "reject", "reject with tcp reset",
    "reject with icmpx type admin-prohibited", "log prefix \"seen \" accept", "limit rate 10/second accept", "queue num 1",
    "ct direction original accept", "ct original ip saddr 10.0.0.1 accept", "tcp flags syn accept", "meta length > 1400 drop",
    "tcp dport set 81", "notrack", "meta nftrace set 1", "tcp dport 8000-8080 accept", "meta skuid 0 accept",
    "meta cgroup 1 accept", "rt classid 1 accept", "meta mark set numgen inc mod 4", "meta mark set 1 ct mark set meta mark",
)  # fmt: skip
OF_IP = (
    "ip saddr 10.0.0.0/8 accept", "ip saddr 10.244.0.0/16 drop", "ip daddr != 10.0.0.0/13 return", "ip daddr 10.1.2.3 accept",
    "ip daddr & 255.0.0.255 == 10.0.0.1 accept", "ip saddr 10.0.0.1-10.0.0.9 accept", "ip saddr { 10.0.0.0/8, 192.0.2.1 } drop",
    "ip saddr != { 203.0.113.0/24 } drop", "ip saddr { 0.0.0.0/1, 255.255.255.255 } drop", "ip protocol tcp accept",
    "ip ttl < 2 drop", "ip daddr . meta l4proto . th dport @targets accept", "ip daddr . meta l4proto . th dport vmap @services",
    "ip saddr @clients accept", "ip saddr != @clients drop", "update @seen { ip saddr }", "add @seen { ip saddr timeout 5s }",
    "add @seen { ip saddr limit rate 1/second }", "ip saddr . ip daddr { 10.0.0.1 . 10.0.0.2 } accept",
    "reject with icmp type host-unreachable", "ip daddr set 10.0.0.7", "ip saddr @clients ip daddr @clients drop",
    "ip saddr vmap { 10.0.0.1 : accept, 10.0.0.2 : drop }", "ip saddr vmap { 10.0.0.0/8 : accept, 11.0.0.0/8 : drop }",
)  # fmt: skip
OF_IP6 = (
    "ip6 saddr fe80::/10 drop", "ip6 daddr fd00::1 accept", "ip6 saddr fd00::/64 accept", "ip6 daddr { fd00::1, fd01::/16 } drop",
    "ip6 nexthdr tcp accept", "icmpv6 type nd-neighbor-solicit accept",
)  # fmt: skip
OF_NAT = (
    "dnat to 10.0.0.1", "meta l4proto tcp dnat to 10.0.0.1:8080", "snat to 10.0.0.1", "snat to 10.0.0.1-10.0.0.9",
    "snat to 10.0.0.1 fully-random", "masquerade", "masquerade fully-random", "masquerade random,persistent", "redirect",
    "meta l4proto tcp redirect to :8080", "meta l4proto tcp masquerade to :1024-2000",
    "dnat to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }",
)  # fmt: skip
OF_NAT6 = ("dnat to fd00::1", "meta l4proto tcp dnat to [fd00::1]:8080", "masquerade")
SETS = """
set clients { type ipv4_addr; elements = { 10.0.0.9 }; }
set seen { type ipv4_addr; size 100; flags dynamic,timeout; timeout 1m; }
set targets { type ipv4_addr . inet_proto . inet_service; elements = { 10.0.0.1 . tcp . 80 }; }
map services { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.0.0.1 . tcp . 80 : goto other }; }
"""
# Family, what the table has besides, the rules, and the fewest that are read.
TABLES = {
    "ip": ("ip", SETS, (*IN_EACH_FAMILY, *OF_IP), 60),
    "ip6": ("ip6", "", (*IN_EACH_FAMILY, *OF_IP6), 50),
    "inet": ("inet", "", IN_EACH_FAMILY, 48),
    "ip nat": ("ip", "", OF_NAT, 9),
    "ip6 nat": ("ip6", "", OF_NAT6, 3),
}


@pytest.fixture
def node() -> Iterator[Any]:
    with Lab("rules", nodes=[Node("node1")]) as lab:
        yield lab.node("node1")


def load(node: Any, family: str, sets: str, rules: dict[str, str]) -> dict[str, list[str]]:
    """Make a table anew with each rule in a chain of its own. Return the rules as nft lists them, by chain."""
    chains = "\n".join(f"chain {name} {{ {rule}; }}" for name, rule in rules.items())
    node.run_from_host(
        ["nft", "-f", "-"], f"table {family} x\ndelete table {family} x\ntable {family} x {{ chain other {{ }}; }}"
    )
    node.run_from_host(["nft", "-f", "-"], f"table {family} x {{\n{sets}\n{chains}\n}}")
    listing = nft_blocks.read(node.run_from_host(["nft", "list", "table", family, "x"]))
    return {
        block.name: listing.statements(block) for _place, blocks in listing.tables for block in blocks if block.kind == "chain"
    }


def read(family: str) -> dict[str, str]:
    members = functools.partial(kernel_rules_backend.without_name, family, "x")
    lines = dict[str, str]()
    for rule in nfnetlink.each_rule(family, "x"):
        try:
            lines[rule.chain] = nft_expressions.line(family, rule.encoding, rule.userdata, members)
        except nft_expressions.Unread:
            continue
    return lines


@pytest.mark.parametrize("name", TABLES)
def test_a_rule_that_is_read_is_listed_as_before(node: Any, name: str) -> None:
    family, sets, rules, least = TABLES[name]
    taken = {}
    for number, rule in enumerate(rules):
        try:
            load(node, family, sets, {f"c{number}": rule})
            taken[f"c{number}"] = rule
        except Exception as error:  # this version of nft, or this kernel, does not have it
            print("left out:", rule, str(error)[:200])
    before = load(node, family, sets, taken)
    lines = node.in_network(functools.partial(read, family))
    after = load(node, family, sets, lines)
    assert {chain: after[chain] for chain in lines} == {chain: before[chain] for chain in lines}
    print("not read:", [taken[chain] for chain in taken if chain not in lines])
    assert len(lines) >= least, [taken[chain] for chain in taken if chain not in lines]
