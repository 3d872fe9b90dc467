# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a snapshot has of settings, firewalls and saved rules, and how it is composed and accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import (
    firewalls,
    saved,
    settings,
    snapshot,
    snapshot_backend,
    software_backend,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import Unread

GALAXY = Path(__file__).resolve().parents[3] / "galaxy.yml"


def test_each_subset_has_a_reader() -> None:
    assert (*snapshot_backend.READERS, *software_backend.READERS) == snapshot.SUBSETS


def test_subsets_are_read_once_and_in_one_order() -> None:
    assert snapshot.subsets(["routes", "links", "routes"]) == ["links", "routes"]
    with pytest.raises(Invalid, match=r"gather must be a list of at least one of links, .*; \[\] was given"):
        snapshot.subsets([])


def test_what_could_not_be_read_is_named_beside_the_rest() -> None:
    composed = snapshot.compose({"links": [], "nftables": None}, [Unread("nftables", "", "nft is not installed.")])
    assert composed == {
        "format": 1,
        "links": [],
        "nftables": None,
        "unread": [{"subset": "nftables", "object": "", "reason": "nft is not installed."}],
    }


def test_the_version_of_the_collection_is_that_of_galaxy() -> None:
    assert re.search(r"^version: (\S+)$", GALAXY.read_text(), re.MULTILINE)[1] == version.COLLECTION  # type: ignore[index]


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


NAT = """*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m comment --comment "not the end: COMMIT" -j ACCEPT
COMMIT
"""
FILTER = "*filter\n:INPUT DROP [1:2]\nCOMMIT\n"
SAVED = f"""# Generated by iptables-nft-save v1.8.9 on Mon Nov 23 15:00:00 2026
{NAT}# Completed on Mon Nov 23 15:00:00 2026
# Table `mangle' is incompatible, use 'nft' tool.
# Generated by iptables-nft-save v1.8.9 on Mon Nov 23 15:00:01 2026
{FILTER}# Completed on Mon Nov 23 15:00:01 2026
"""
BLOCKED = "create blocked hash:ip family inet hashsize 1024 maxelem 65536\nadd blocked 192.0.2.1\nadd blocked 192.0.2.2\n"
BLANK = "create blocked by us hash:net family inet6\n"
# As net/netfilter/ipvs/ip_vs_ctl.c prints them.
SERVERS = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60000A:0035 rr persistent 10800 FFFFFFFF
  -> 0AF40005:14E9      Masq    1      0          3
  -> 0AF40006:14E9      Route   0      0          0
UDP  [2001:0db8:0000:0000:0000:0000:0000:0010]:0035 sh
  -> [2001:0db8:0000:0000:0000:0000:0000:0005]:14E9      Masq    2      0          0
UDP  0A60000B:0035 rr ops
FWM  00000080 wlc
"""


def test_tables_have_their_text_without_dates() -> None:
    assert saved.tables(SAVED) == {"nat": NAT, "filter": FILTER}
    assert saved.tables("*nat\n:PREROUTING ACCEPT [0:0]\n") == {}  # cut off
    assert saved.incompatible(SAVED) == ["mangle"]


def test_sets_have_their_lines_and_a_name_may_have_blanks() -> None:
    sets = saved.sets(BLANK + BLOCKED, ["blocked", "blocked by us"])
    assert sets == [{"name": "blocked by us", "save": BLANK}, {"name": "blocked", "save": BLOCKED}]


def test_virtual_servers_have_their_destinations() -> None:
    tcp, udp, ops, mark = saved.virtual_servers(SERVERS)
    assert tcp == {
        "protocol": "tcp", "address": "10.96.0.10", "port": 53, "scheduler": "rr", "flags": "persistent 10800 FFFFFFFF",
        "destinations": [
            {"address": "10.244.0.5", "port": 5353, "method": "Masq", "weight": 1},
            {"address": "10.244.0.6", "port": 5353, "method": "Route", "weight": 0},
        ],
    }  # fmt: skip
    assert (udp["address"], udp["flags"], udp["destinations"][0]["address"]) == ("2001:db8::10", "", "2001:db8::5")
    assert (ops["flags"], ops["destinations"]) == ("ops", [])
    assert mark == {"protocol": "fwm", "fwmark": "0x80", "scheduler": "wlc", "flags": "", "destinations": []}


def test_a_table_that_its_own_program_prints_is_not_in_the_ruleset() -> None:
    tables = saved.printed(
        [{"family": "ip", "backend": "nft", "table": "nat"}, {"family": "ip6", "backend": "legacy", "table": "nat"}],
        [{"backend": "nft", "table": "filter"}, {"backend": "legacy", "table": "nat"}],
    )
    assert tables == {("ip", "nat"), ("bridge", "filter")}
    kept: list[saved.Entry] = [
        {"table": {"family": "ip6", "name": "nat", "handle": 1}},
        {"rule": {"family": "bridge", "table": "nat", "chain": "c", "expr": []}},
    ]
    gone: list[saved.Entry] = [
        {"table": {"family": "ip", "name": "nat", "handle": 2}},
        {"chain": {"family": "ip", "table": "nat", "name": "c"}},
        {"rule": {"family": "bridge", "table": "filter", "chain": "c", "expr": []}},
    ]
    assert saved.without([*gone, *kept], tables) == kept
