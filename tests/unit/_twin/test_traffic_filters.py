# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of traffic control and BPF programs: what they do to a packet, and what stands for them in a twin."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import rtnetlink
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import inventory
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Filter, Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import (
    blueprint,
    build_backend,
    traffic_filters,
    translating_programs,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.traffic_filters import Decision

# Filters of traffic control: from the kernel's messages and from text, and what they do to a packet


GENERAL = struct.pack("=IIiii", 1, 0, 2, 1, 1)  # a gact that drops
DROPPING = pack({1: pack({1: b"gact\0", 2: pack({2: GENERAL})})})
LEADING = pack({1: pack({1: b"mirred\0", 2: pack({2: struct.pack("=IIiiiiI", 1, 0, 4, 1, 1, 1, 9)})})})
ANY, SOME = (struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0) + struct.pack("=IIii", mask, 0, 0, 0) for mask in (0, 255))


def message(kind: str, protocol: int, options: dict[int, bytes]) -> bytes:
    head = rtnetlink.TRAFFIC.pack(0, 3, 1, rtnetlink.CLSACT_INGRESS, 49152 << 16 | socket.htons(protocol))
    return head + pack({1: kind.encode() + b"\0", 2: pack(options)})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (message("u32", 3, {5: ANY, 7: LEADING}), [(3, True, "redirect", 9)]),
        (message("u32", 0x800, {5: SOME, 7: LEADING}), [(0x800, False, "redirect", 9)]),
        (message("u32", 3, {5: ANY, 8: b"eth0", 7: DROPPING}), [(3, False, "drop", 0)]),
        (message("u32", 3, {4: bytes(4)}), []),  # a table of filters
        (message("matchall", 3, {2: DROPPING}), [(3, True, "drop", 0)]),
        (message("matchall", 3, {2: pack({1: b"", 2: b""})}), [(3, True, "", 0)]),  # two actions
        (message("flower", 0x86DD, {3: DROPPING, 8: b"\x86\xdd"}), [(0x86DD, True, "drop", 0)]),
        (message("flower", 0x86DD, {3: DROPPING, 9: b"\x11"}), [(0x86DD, False, "drop", 0)]),
        (message("basic", 3, {3: DROPPING}), [(3, False, "", 0)]),
    ],
)
def test_a_filter_is_read_as_far_as_it_is_simple(
    monkeypatch: pytest.MonkeyPatch, body: bytes, expected: list[tuple[int, bool, str, int]]
) -> None:
    def answers(_question: bytes) -> Iterator[bytes]:
        yield body

    monkeypatch.setattr(rtnetlink, "_ask", answers)
    found = rtnetlink.filters(3, rtnetlink.CLSACT_INGRESS)
    assert [(each.protocol, each.takes_all, each.action, each.device) for each in found] == expected


def filter_of(match: str, action: str, protocol: str = "all") -> Filter:
    return Filter("v1", "ingress", "u32", protocol, match, action)


@pytest.mark.parametrize(
    ("filters", "decides", "is_unread"),
    [
        ([filter_of("all", "redirect ifb0")], 0, False),
        ([filter_of("all", "redirect v2")], 0, True),
        ([filter_of("all", "mirror v2"), filter_of("all", "drop")], 1, False),
        ([filter_of("all", "pass"), filter_of("all", "drop")], None, False),
        ([filter_of("", "pass"), filter_of("all", "drop")], 0, True),
        ([filter_of("all", "")], 0, True),
        ([filter_of("", "", "ipv6"), filter_of("all", "drop", "ip")], 1, False),
        ([filter_of("", "", "0x0806")], None, False),
    ],
)
def test_the_first_filter_of_a_packet_decides(filters: list[Filter], decides: int | None, is_unread: bool) -> None:
    found = traffic_filters.decide(filters, False, {"ifb0": "ifb", "v2": "veth"})
    by = None if decides is None else filters[decides]
    assert found == (Decision(unread=by) if is_unread else Decision(by))


TEXT = """filter protocol all pref 49152 u32 chain 0
filter protocol all pref 49152 u32 chain 0 fh 800: ht divisor 1
filter protocol all pref 49152 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 terminal flowid not_in_hw
  match 00000000/00000000 at 0
\taction order 1: mirred (Egress Redirect to device ifb0) stolen
 \tindex 1 ref 1 bind 1
filter protocol ip pref 49153 matchall chain 0
filter protocol ip pref 49153 matchall chain 0 handle 0x1
\taction order 1: gact action drop
filter protocol ip pref 9 flower chain 0 handle 0x1
  ip_proto udp
\taction order 1: gact action drop
"""


@pytest.mark.parametrize("command", ["tc filter show dev v1 ingress", "tc filter show dev v1 parent ffff:"])
def test_an_output_of_tc_shows_the_same(command: str) -> None:
    text = TEXT if "ingress" in command else TEXT.replace("filter protocol", "filter parent ffff: protocol")
    found = Snapshot.of(pastes.read({command: text, "ip link": "3: v1: <UP> mtu 1500\n"}).snapshot)
    assert found.filters == [
        Filter("v1", "ingress", "u32", "all", "all", "redirect ifb0"),
        Filter("v1", "ingress", "matchall", "ip", "all", "drop"),
        Filter("v1", "ingress", "flower", "ip", "", "drop"),
    ]


# A twin has a table in the place of a BPF program whose instructions are known, and nothing in that of another


PROBES = [
    {"source": "fe80::1234:5678:9abc", "translated": "2603:1062:0:1:fe80:1234:5678:9abc"},
    {"source": "fe80::10", "translated": "2001:db8:ffff::10"},
]
ETH0 = {"name": "eth0", "index": 2, "kind": "", "flags": ["UP", "LOWER_UP"]}
BRIDGE = {"name": "br0", "index": 3, "kind": "bridge", "flags": ["UP", "LOWER_UP"]}


def program(direction: str = "ingress", kernel: int = 1, **fields: Any) -> dict[str, Any]:
    """An entry of a snapshot. kernel: 0 for one older than Linux 6.18."""
    tag = instructions.tags(probe_programs.program(direction, len(PROBES)))[kernel]
    place = {"link": "eth0", "hook": "tcx", "direction": direction, "name": f"kubenode_foax_{direction[0]}"}
    return {**place, "tag": tag, "probes": PROBES, **fields}


def drawn(*programs: dict[str, Any], **link: Any) -> blueprint.Blueprint:
    return blueprint.draw(Snapshot.of({"links": [{**ETH0, **link}, BRIDGE], "bpf": [*programs]}))


def ruleset(*programs: dict[str, Any], **link: Any) -> str:
    return drawn(*programs, **link).ruleset_text.strip()


@pytest.mark.parametrize("kernel", [0, 1])
@pytest.mark.parametrize("hook", ["tcx", "tc"])
def test_each_program_is_a_chain_before_all_others_or_after_them(kernel: int, hook: str) -> None:
    text = ruleset(program("egress", kernel, hook=hook), program("ingress", kernel, hook=hook))
    outward, inward = text.split("table ip6 ")[1:]
    assert "hook prerouting priority -2147483648;" in inward and "postrouting" not in inward
    assert "hook postrouting priority 2147483647;" in outward and "prerouting" not in outward
    for probe in PROBES:
        source, translated = probe["source"], probe["translated"]
        assert f'iifname "eth0" ip6 saddr {source} ' in inward and f"ip6 saddr set {translated} " in inward
        assert f'oifname "eth0" ip6 daddr {translated} ip6 daddr set {source} ' in outward


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "0123456789abcdef"},
        {"tag": ""},
        {"probes": PROBES[:1]},
        {"probes": []},
        {"probes": PROBES * 600},
        {"probes": [PROBES[0], {**PROBES[1], "source": PROBES[0]["source"]}]},
        {"probes": [PROBES[0], {**PROBES[1], "translated": "192.0.2.1"}]},
        {"name": "cil_from_netdev"},
        {"hook": "XDP"},
        {"direction": "egress"},
        {"direction": ""},
        {"link": "eth1"},
    ],
)
def test_another_program_or_one_elsewhere_has_no_table(fields: dict[str, Any]) -> None:
    assert ruleset({**program(), **fields}) == ""


def test_a_program_of_a_bridges_port_has_no_table() -> None:
    """nftables sees its packets at the bridge, together with those of the other ports."""
    assert ruleset(program(), master="br0") == ""


def test_a_links_name_adds_no_statement() -> None:
    assert ruleset(program(link='e";drop;"'), name='e";drop;"') == ""


def test_the_nodes_tables_are_compared_beside_those_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    own = inventory.Chain("ip6", translating_programs.TABLE.format(0), "prerouting", True, "accept", 2)
    chain = inventory.Chain("inet", "t", "c", True, "accept", 1)
    monkeypatch.setattr(netfilter_backend, "kernel_chains", lambda: [own, chain])
    place = {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}
    objects: list[dict[str, Any]] = [{"table": {"family": "inet", "name": "t"}}, {"chain": place}]
    (note,) = build_backend._differences({}, objects, drawn(program()))
    assert "inet t is another one in the twin" in note.sentence


def test_a_table_to_which_a_world_adds_a_chain_as_text_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = [inventory.Chain("inet", "t", name, True, "accept", 1) for name in ("c", "further")]
    monkeypatch.setattr(netfilter_backend, "kernel_chains", lambda: kernel)
    place = {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}
    rule = {"family": "inet", "table": "t", "chain": "c", "expr": [{"drop": None}]}
    objects: list[dict[str, Any]] = [{"table": {"family": "inet", "name": "t"}}, {"chain": place}, {"rule": rule}]
    added = "table inet t {\nchain further {\ntype filter hook forward priority 0;\ndrop\n}\n}\n"
    both = drawn(program())._replace(ruleset_text=added)
    assert [*build_backend._differences({}, objects, both)] == []
