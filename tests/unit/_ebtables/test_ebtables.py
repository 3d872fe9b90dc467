# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables rules: what the tools print, what a line means, and which of the kernel's rules it shows."""

from __future__ import annotations

import fcntl
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables import ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables import ebtables_backend as backend
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables import Owned
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, Place

# A rule as azure-vnet writes it, and as tools list it: ebtables-nft 1.8.7 to 1.8.11, ebtables-legacy 2.0.11 with --Lmac2 and
# without, and what azure-cnimonitor looked for.
LISTED = {
    "-s unicast -o eth0 -j snat --to-src 00:0d:3a:01:02:03 --snat-arp --snat-target ACCEPT": [
        "-s Unicast -o eth0 -j snat --to-src 00:0d:3a:01:02:03 --snat-arp --snat-target ACCEPT",
        "-s Unicast -o eth0 -j snat --to-src 0:d:3a:1:2:3 --snat-arp --snat-target ACCEPT",
        "-s 00:00:00:00:00:00/01:00:00:00:00:00 -o eth0 -j snat --to-src 00:0D:3A:01:02:03 --snat-arp",
    ],
    "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03 --arpreply-target DROP": [
        "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03",
        "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 0:d:3a:1:2:3",
        "-p 0806 --arp-opcode 1 --arp-ip-dst 10.240.0.4/255.255.255.255 -j arpreply --arpreply-mac 0:d:3a:1:2:3 ",
    ],
    "-p ARP -i eth0 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff --dnat-target ACCEPT": [
        "-p ARP -i eth0 --arp-op Reply -j dnat --to-destination ff:ff:ff:ff:ff:ff",
        "--in-interface eth0 -p arp --arp-op 2 -j dnat --dnat-target accept --to-dst ff:ff:ff:ff:ff:ff",
    ],
    "-p IPv6 -i eth0 --ip6-dst fd00::20 -j dnat --to-dst a2:96:88:20:cb:c6 --dnat-target ACCEPT": [
        "-p IPv6 -i eth0 --ip6-dst fd00:0::20/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        " -j dnat --to-dst a2:96:88:20:cb:c6 --dnat-target ACCEPT",
        "-p 0x86dd -i eth0 --ip6-destination fd00::20/128 -j dnat --to-dst a2:96:88:20:cb:c6",
    ],
    "--ip-dst 169.254.20.10 -p IPv4 -j redirect --redirect-target ACCEPT": [
        "-p IPv4 --ip-dst 169.254.20.10 -j redirect ",
        "-p 800 --ip-dst 169.254.20.10/32 -j redirect",
    ],
    "-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o eth0 -j DROP": [
        "-p IPv6 -o eth0 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -j DROP",
        "-p IPv6 -o eth0 --ip6-proto 58 --ip6-icmp-type 135/0:0 -j DROP ",
    ],
    "-p ARP -o azSnatbr --arp-op Request --arp-ip-dst 10.0.0.0/8 -j DROP": [
        "-p ARP -o azSnatbr --arp-op Request --arp-ip-dst 10.0.0.0/255.0.0.0 -j DROP ",
    ],
    "-p IPv6 --ip6-dst ff02::1:ff00:0/104 -j ACCEPT": [
        "-p IPv6 --ip6-dst ff02::1:ff00:0/ffff:ffff:ffff:ffff:ffff:ffff:ff00:0 -j ACCEPT",
    ],
    "-i az+ -j dnat --to-dst 12:34:56:78:9a:bc --dnat-target ACCEPT": ["-i az+ -j dnat --to-dst 12:34:56:78:9A:BC"],
    "-p IPv4 --ip-src ! 10.0.0.1 -i eth0 -j DROP": ["-p IPv4 ! --ip-src 10.0.0.1 -i eth0 -j DROP"],
    "--log-prefix - -j CONTINUE !": ["--log-prefix  - -j CONTINUE  !"],
    "! -p IPv4 -j CONTINUE": ["-p ! IPv4 -j CONTINUE ", "-p ! ip -j CONTINUE"],
}  # fmt: skip


@pytest.mark.parametrize(("written", "listed"), [(written, listed) for written, forms in LISTED.items() for listed in forms])
def test_a_rule_means_the_same_however_it_is_listed(written: str, listed: str) -> None:
    assert ebtables.meaning(listed) == ebtables.meaning(written)


DIFFERENT = [
    *LISTED,
    "-p IPv4 -j CONTINUE",
    "-p ARP --arp-op Request --arp-ip-dst 10.240.0.40 -j arpreply --arpreply-mac 00:0d:3a:01:02:03",
    "-p ARP --arp-op Request --arp-ip-dst ! 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03",
    "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4/24 -j arpreply --arpreply-mac 00:0d:3a:01:02:03",
    "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:04",
    "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03 --arpreply-target ACCEPT",
    "-p ARP -i eth1 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff --dnat-target ACCEPT",
    "-s Unicast -o eth0 -j snat --to-src 00:0d:3a:01:02:03 --snat-target ACCEPT",
    "-p IPv4 -j redirect",
]


def test_rules_that_a_packet_can_tell_apart_mean_different_things() -> None:
    assert len({ebtables.meaning(text) for text in DIFFERENT}) == len(DIFFERENT)


NFT_SAVE = """\
# Generated by ebtables-nft-save v1.8.9 (nf_tables) on Fri Nov 20 13:35:50 2026
*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
:AKS-DEDUP-PROMISC ACCEPT
[3:252] -A FORWARD --log-level notice --log-prefix "hello -c 1 2" -j CONTINUE
[0:0] -A AKS-DEDUP-PROMISC -p IPv4 -s 01:02:03:04:05:06 -o veth+ --ip-src 10.0.0.1 -j ACCEPT
# Completed on Fri Nov 20 13:35:50 2026
*nat
:PREROUTING ACCEPT
[7:8] -A PREROUTING -p IPv4 --ip-dst 169.254.20.10 -j redirect 
"""  # noqa: W291
LEGACY_LIST = """\
Bridge table: nat

Bridge chain: PREROUTING, entries: 2, policy: ACCEPT
-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03, pcnt = 5 -- bcnt = 6
-p IPv4 --ip-dst 169.254.20.10 -j redirect , pcnt = 0 -- bcnt = 0

Bridge chain: OUTPUT, entries: 0, policy: DROP
"""
LEGACY_SAVE = """\
# Generated by ebtables-save v1.0 (legacy) on Fri Nov 20 13:35:50 UTC 2026
*nat
:PREROUTING ACCEPT
:OUTPUT ACCEPT
-A PREROUTING -p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03-c 5 6
-A PREROUTING -p IPv4 --ip-dst 169.254.20.10 -j redirect -c 0 0
"""


def test_each_chain_has_its_policy() -> None:
    nft = {str(place): policy for place, policy in ebtables.policies("nft", NFT_SAVE).items()}
    assert nft == {
        "nft filter INPUT": "ACCEPT",
        "nft filter FORWARD": "DROP",
        "nft filter OUTPUT": "ACCEPT",
        "nft filter AKS-DEDUP-PROMISC": "ACCEPT",
        "nft nat PREROUTING": "ACCEPT",
    }
    legacy = {str(place): policy for place, policy in ebtables.policies("legacy", LEGACY_LIST).items()}
    assert legacy == {"legacy nat PREROUTING": "ACCEPT", "legacy nat OUTPUT": "DROP"}


def test_a_save_of_the_nft_backend_is_read() -> None:
    chains = ebtables.from_save("nft", NFT_SAVE)
    assert {str(place): len(rules) for place, rules in chains.items()} == {
        "nft filter INPUT": 0,
        "nft filter FORWARD": 1,
        "nft filter OUTPUT": 0,
        "nft filter AKS-DEDUP-PROMISC": 1,
        "nft nat PREROUTING": 1,
    }
    assert chains[Place("nft", "filter", "FORWARD")][0] == ListedRule(
        '--log-level notice --log-prefix "hello -c 1 2" -j CONTINUE', (3, 252)
    )
    assert chains[Place("nft", "nat", "PREROUTING")] == (ListedRule("-p IPv4 --ip-dst 169.254.20.10 -j redirect", (7, 8)),)


@pytest.mark.parametrize("text", [LEGACY_LIST, LEGACY_SAVE], ids=["listed", "saved"])
def test_what_the_legacy_tools_print_is_read(text: str) -> None:
    arp = "-p ARP --arp-op Request --arp-ip-dst 10.240.0.4 -j arpreply --arpreply-mac 00:0d:3a:01:02:03"
    assert ebtables.from_save("legacy", text) == {
        Place("legacy", "nat", "PREROUTING"): (ListedRule(arp, (5, 6)), ListedRule("-p IPv4 --ip-dst 169.254.20.10 -j redirect")),
        Place("legacy", "nat", "OUTPUT"): (),
    }


# Which of the kernel's rules a listed rule is


def of(number: int) -> ListedRule:
    return ListedRule(f"-p IPv4 -i eth0 --ip-dst 10.0.0.{number} -j dnat --to-dst a2:00:00:00:00:{number:02x}")


def current(handle: int, number: int) -> Owned:
    return Owned(handle, b"eth0\0..ip" + bytes((10, 0, 0, number)) + b"..dnat" + bytes((0xA2, 0, 0, 0, 0, number)))


PAIRS = {
    "no other process is about": ([1, 2, 3], [(7, 1), (8, 2), (9, 3)], [7, 8, 9]),
    "one was listed that has gone": ([1, 4, 2, 3], [(7, 1), (8, 2), (9, 3)], [7, None, 8, 9]),
    "equal rules": ([1, 1, 2], [(7, 1), (8, 1), (9, 2)], [7, 8, 9]),
    "one of three equal rules has gone": ([1, 1, 1, 2], [(7, 1), (8, 1), (9, 2)], [None, None, None, 9]),
    "one of two equal rules has gone": ([1, 2, 1], [(7, 1), (9, 2)], [7, 9, None]),
    "a rule of the kernel is not listed": ([1, 2], [(7, 1), (8, 2), (9, 3)], [None, None]),
    "nothing is listed": ([], [(7, 1)], []),
    "nothing is held": ([1], [], [None]),
}


@pytest.mark.parametrize(("listed", "kernel", "handles"), PAIRS.values(), ids=PAIRS.keys())
def test_a_listed_rule_is_paired_where_it_is_certain(
    listed: list[int], kernel: list[tuple[int, int]], handles: list[int | None]
) -> None:
    assert ebtables.pair([of(one) for one in listed], [current(*one) for one in kernel]) == handles


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), max_size=12), st.integers(0, 2**32))
def test_whatever_comes_and_goes_meanwhile_no_rule_is_taken_for_another(numbers: list[int], seed: int) -> None:
    """The listing is of a moment between two observations; rules come and go before and after that moment."""
    chance = random.Random(seed)
    first = dict(enumerate(numbers))  # by handle, in order

    def disturbed(rules: list[tuple[int, int]], handle: int) -> list[tuple[int, int]]:
        for _time in range(chance.randrange(3)):
            if rules and chance.random() < 0.5:
                rules.pop(chance.randrange(len(rules)))
            else:
                rules.insert(chance.randrange(len(rules) + 1), (handle, chance.randrange(1, 7)))
                handle += 1
        return rules

    listed = disturbed(list(first.items()), 100)
    after = disturbed(list(listed), 200)
    stable = [current(handle, number) for handle, number in after if handle in first]
    handles = ebtables.pair([of(number) for _handle, number in listed], stable)
    told = {place: handle for place, handle in enumerate(handles) if handle is not None}
    assert told == {place: listed[place][0] for place in told} and len(handles) == len(listed)
    if listed == list(first.items()) == after:
        assert None not in handles


LISTINGS = {  # the kernel had rules 4, 5 and 6 before and after
    "whole": ((4, 5, 6), True),
    "with another rule": ((4, 9, 5, 6), True),
    "with a rule twice": ((4, 5, 5, 6), False),
    "with a rule twice, and without another": ((4, 4, 6), False),
    "without a rule": ((4, 6), False),
    "without a rule, and with another": ((4, 9, 6), False),
    "empty": ((), False),
}


@pytest.mark.parametrize(("listed", "is_whole"), LISTINGS.values(), ids=LISTINGS)
def test_a_listing_is_whole_if_it_has_each_rule_once(listed: tuple[int, ...], is_whole: bool) -> None:
    kernel = [current(number, number) for number in (4, 5, 6)]
    assert ebtables.has_each_once([of(number) for number in listed], kernel) == is_whole


def test_the_lock_of_another_program_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(backend, "LOCK", str(path))
    monkeypatch.setattr(backend, "PATIENCE", 0.1)
    with path.open("w") as current:
        fcntl.flock(current, fcntl.LOCK_EX)
        with pytest.raises(Failure, match=f"{path}, the lock of ebtables-legacy, was held"), backend._lock():
            pytest.fail("two hold it")
    with backend._lock():
        pass


def test_a_rule_is_put_at_its_position_with_its_counters() -> None:
    assert ebtables.inserted("FORWARD", 7, ListedRule("-p ARP -j DROP", (3, 252))) == "-I FORWARD 7 -p ARP -j DROP -c 3 252"


# The bytes that a rule of the kernel must contain to match a listed rule.
V6 = bytes.fromhex("fd00") + bytes(13) + b"\x20"
NEEDLES = {
    "-p IPv4 --ip-dst 10.240.0.4 -j DROP": {bytes((10, 240, 0, 4))},
    "-p IPv4 --ip-dst 10.240.0.4/255.255.255.255 -j DROP": {bytes((10, 240, 0, 4))},
    "-p IPv4 --ip-src 10.240.0.4/31 -j DROP": set(),
    "-p IPv4 --ip-src 10.0.0.0/8 --ip-dst 10.240.0.5 -j DROP": {bytes((10, 240, 0, 5))},
    "-p IPv6 --ip6-dst fd00::20 -j DROP": {V6},
    "-p IPv6 --ip6-src fd00::/32 -j DROP": set(),  # as long as an IPv4 address
    "-p ARP --arp-ip-dst ! 10.240.0.4 -j DROP": {bytes((10, 240, 0, 4))},
    "-s 0:d:3a:1:2:3 -j DROP": {bytes.fromhex("000d3a010203")},
    "-s Unicast -j DROP": set(),
    "-d 01:00:5e:00:00:00/ff:ff:ff:80:00:00 -j DROP": set(),
    "-j dnat --to-dst a2:96:88:20:cb:c6": {bytes.fromhex("a2968820cbc6")},
    "-i eth0 -o az+ -j ACCEPT": {b"eth0", b"az"},
    "-i ethX -j ACCEPT": {b"ethX"},
    "--log-prefix 10.240.0.4/32 -j CONTINUE": set(),
    "-p IPv4 --mark 0x1 --comment 00:0d:3a:01:02:03 -j ACCEPT": set(),
}


@pytest.mark.parametrize("text", NEEDLES)
def test_whole_addresses_and_names_of_links_tell_a_rule(text: str) -> None:
    assert set(ebtables.needles(text)) == NEEDLES[text]


def test_rules_that_differ_in_one_address_are_not_taken_for_each_other() -> None:
    rules = [ListedRule(f"-p IPv4 --ip-dst 10.240.0.{last} -j DROP") for last in (4, 5)]
    kernel = [Owned(7, b"\0" + bytes((10, 240, 0, 5)) + b"\0")]
    assert ebtables.pair(rules, kernel) == [None, 7]


PREFIXES = {
    "10.0.0.1": ("10.0.0.1/32", (bytes((10, 0, 0, 1)), 32)),
    "10.0.0.1/0": ("0.0.0.0/0", (b"", 0)),
    "10.0.0.1/8": ("10.0.0.0/8", (bytes((10, 0, 0, 0)), 8)),
    "10.0.0.0/255.128.0.0": ("10.0.0.0/9", (bytes((10, 0, 0, 0)), 9)),
    "FD00::20": ("fd00::20/128", (V6, 128)),
    "fd00::20/ffff::": ("fd00::/16", (bytes.fromhex("fd00") + bytes(14), 16)),
}


@pytest.mark.parametrize("given", PREFIXES)
def test_a_prefix_has_one_form_and_is_bytes_and_a_length(given: str) -> None:
    normal, parts = PREFIXES[given]
    assert ebtables.normal_prefix(given) == normal and ebtables.prefix(normal) == parts


@pytest.mark.parametrize("given", ["", "x", "10.0.0.0/255.0.255.0", "10.0.0.0/33", "10.0.0.0/ffff::"])
def test_a_word_that_is_no_prefix_stays_as_it_is(given: str) -> None:
    assert ebtables.normal_prefix(given) == given


def test_what_stands_around_the_rules_of_a_listing_is_no_rule() -> None:
    text = "# a comment\nBridge table: nat\n\nBridge chain: IN:OUT, entries: 1, policy: ACCEPT\n# another\n-j DROP  \n"
    assert ebtables.from_save("legacy", text) == {Place("legacy", "nat", "IN:OUT"): (ListedRule("-j DROP"),)}
    assert ebtables.from_save("nft", "rubbish\n*nat\nrubbish too\n:OUTPUT ACCEPT\n") == {Place("nft", "nat", "OUTPUT"): ()}


def test_a_rule_without_words_and_one_of_a_chain_that_is_not_listed_are_rules() -> None:
    place = Place("nft", "nat", "MINE")
    for text in ("*nat\n-A MINE\n-A MINE -j DROP -c 7 8\n", "*nat\n[0:0] -A MINE\n[7:8] -A MINE -j DROP\n"):
        assert ebtables.from_save("nft", text) == {place: (ListedRule(""), ListedRule("-j DROP", (7, 8)))}
