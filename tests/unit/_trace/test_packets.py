# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A packet as options, as a frame, and looked up in rules and routes."""

from __future__ import annotations

import socket
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route, rt_names, rule
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import proc_net
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import changes_backend, frame, kernel_events, packet
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.lookup import Query, Tables
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import Packet

A, B = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")
A6, B6 = (socket.inet_pton(socket.AF_INET6, text) for text in ("fd00::1", "fd00::2"))
MAC, OTHER = bytes(range(6)), bytes(range(2, 8))


def given(**options: Any) -> Packet:
    return packet.from_options(
        {"destination": "10.0.0.2", "source": "10.0.0.1", "protocol": "tcp", "destination_port": 80, **options}
    )


def test_a_packet_has_defaults_and_its_reply_the_other_ends() -> None:
    sent = given(interface="eth0", mark="0x80")
    assert sent == Packet(A, B, 6, packet.SOURCE_PORT, 80, "eth0", 0x80)
    assert sent.replied("eth1") == Packet(B, A, 6, 80, packet.SOURCE_PORT, "eth1", 0, True, acknowledged=sent.sequence + 1)
    assert str(sent) == "tcp 10.0.0.1:40000 > 10.0.0.2:80"
    assert str(packet.from_options({"destination": "fd00::2", "protocol": "icmp"})) == "ipv6-icmp the node > fd00::2"


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"destination_port": None}, "packet.destination_port"),
        ({"destination_port": 70000}, "packet.destination_port"),
        ({"protocol": "icmp"}, "packet.destination_port"),
        ({"protocol": "quic"}, "packet.protocol"),
        ({"source": "fd00::1"}, "packet.source"),
        ({"source": None, "interface": "eth0"}, "packet.source"),
        ({"interface": "a/b"}, "packet.interface"),
        ({"mark": "x"}, "packet.mark"),
        ({"destination": "0.0.0.0"}, "packet.destination"),
        ({"destination": "224.0.0.1"}, "packet.destination"),
        ({"source": "255.255.255.255"}, "packet.source"),
        ({"length": 39, "interface": "eth0"}, "packet.length"),
        ({"length": 65536, "interface": "eth0"}, "packet.length"),
        ({"length": 1500}, "packet.length"),
    ],
)
def test_a_wrong_packet_is_named(options: dict[str, Any], option: str) -> None:
    with pytest.raises(Invalid) as error:
        given(**options)
    assert error.value.option == option


@hypothesis.given(
    st.sampled_from([(A, B), (A6, B6)]),
    st.sampled_from([6, 17, 132]),
    st.integers(1, 65535),
    st.integers(1, 65535),
    st.booleans(),
)
def test_a_frame_is_read_as_it_was_built(
    ends: tuple[bytes, bytes], protocol: int, source: int, destination: int, is_reply: bool
) -> None:
    sent = Packet(*ends, protocol, source, destination, is_reply=is_reply and protocol == 6)
    found = frame.read(frame.build(sent, MAC, OTHER))
    assert isinstance(found, frame.Frame)
    assert (found.packet, found.source_mac, found.destination_mac, found.reject) == (sent, MAC, OTHER, "")


@pytest.mark.parametrize("ends", [(A, B), (A6, B6)])
@pytest.mark.parametrize("protocol", [6, 17, 132, 1, 58, 47])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_packet_is_as_long_as_it_says(ends: tuple[bytes, bytes], protocol: int, is_whole: bool) -> None:
    if (protocol, len(ends[0])) in ((1, 16), (58, 4)):
        return
    sent = Packet(*ends, protocol, 5, 5, length=1400, is_whole=is_whole)
    data = frame.build(sent, MAC, OTHER)
    found = frame.read(data)
    assert isinstance(found, frame.Frame) and found.packet.flow[:3] == sent.flow[:3]
    assert len(data) == frame.ETHERNET.size + 1400
    if len(ends[0]) == 4:
        assert bool(data[20] & 0x40) == is_whole
        assert frame.read(data[:20] + b"\x00\x10" + data[22:]) is None  # a fragment behind the first


def test_an_answer_to_an_echo_request_repeats_its_length_and_others_are_small() -> None:
    sent = Packet(A, B, 1, length=1400, is_whole=True)
    assert (sent.replied("eth1").length, sent.replied("eth1").is_whole) == (1400, False)
    assert sent._replace(protocol=17).replied("eth1").length == 0
    assert sent.report() == {"source": "10.0.0.1", "destination": "10.0.0.2", "protocol": "icmp", "length": 1400, "df": True}


@pytest.mark.parametrize("ends", [(A, B), (A6, B6)])
def test_an_echo_and_its_reply_have_one_identifier(ends: tuple[bytes, bytes]) -> None:
    protocol = packet.ICMPV6 if len(ends[0]) == 16 else packet.ICMP
    sent = Packet(*ends, protocol, 7)
    for one in (sent, sent.replied("")):
        found = frame.read(frame.build(one, MAC, OTHER))
        assert isinstance(found, frame.Frame) and found.packet == one


def test_a_request_for_a_mac_is_answered() -> None:
    asked = frame.read(
        frame.ETHERNET.pack(b"\xff" * 6, MAC, frame.ARP) + frame.ARP_PACKET.pack(1, 0x800, 6, 4, 1, MAC, A, bytes(6), B)
    )
    assert asked == frame.Request(B, A, MAC)
    assert frame.read(frame.answer(asked, OTHER, MAC)) == frame.Resolution(B, OTHER, MAC)
    assert [frame.read(data) for data in frame.requests(asked, OTHER)] == [asked, asked]
    assert frame.answer(asked, OTHER, MAC)[:12] == MAC + OTHER


def test_who_asks_takes_an_answer_to_it_or_to_all() -> None:
    answers = [frame.Resolution(B, OTHER, to) for to in (MAC, OTHER, b"\xff" * 6)]
    assert [answer.is_for(MAC) for answer in answers] == [True, False, True]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 13, b"\0" * 12 + b"\x08\x00", b"\0" * 12 + b"\x08\x00" + b"E" * 10, b"\0" * 12 + b"\x86\xdd" + b"`" * 39],
)
def test_a_cut_frame_is_nothing(data: bytes) -> None:
    assert frame.read(data) is None


def tables(rules: list[dict[str, Any]], routes: list[dict[str, Any]]) -> Tables:
    parsed = [rule.from_options("rule", one, rt_names.TABLES) for one in rules]
    return Tables(parsed, [route.from_options("route", {"table": "main", **one}, rt_names.TABLES) for one in routes])


ROUTES: list[dict[str, Any]] = [
    {"to": "default", "dev": "eth0"},
    {"to": "10.0.0.0/24", "dev": "eth1", "metric": 5},
    {"to": "10.0.0.0/24", "dev": "eth2"},
    {"to": "default", "dev": "eth9", "table": "100"},
    {"to": "10.9.0.0/16", "type": "throw", "table": "100"},
]


LOOKUPS: list[tuple[list[dict[str, Any]], Query, str | None]] = [
    ([], Query(A, B), None),
    ([{"priority": 9, "table": "main"}], Query(A, B), "eth2"),
    ([{"priority": 1, "table": "100", "from": "10.0.0.1"}, {"priority": 9, "table": "main"}], Query(A, B), "eth9"),
    (
        [{"priority": 1, "table": "100", "from": "10.0.0.1", "not": True}, {"priority": 9, "table": "main"}],
        Query(A, B),
        "eth2",
    ),
    ([{"priority": 1, "table": "100", "iif": "pod"}, {"priority": 9, "table": "main"}], Query(A, B, "pod"), "eth9"),
    (
        [{"priority": 1, "table": "100", "fwmark": "0x80/0x80"}, {"priority": 9, "table": "main"}],
        Query(A, B, mark=0x81),
        "eth9",
    ),
    (
        [{"priority": 1, "table": "100", "ipproto": "tcp", "dport": "80-90"}],
        Query(A, B, protocol=6, destination_port=85),
        "eth9",
    ),
    ([{"priority": 1, "goto": 9}, {"priority": 5, "table": "100"}, {"priority": 9, "table": "main"}], Query(A, B), "eth2"),
    ([{"priority": 1, "table": "main", "suppress_prefixlength": 0}], Query(A, b"\x08\x08\x08\x08"), None),
    ([{"priority": 1, "table": "100"}, {"priority": 9, "table": "main"}], Query(A, b"\x0a\x09\x00\x01"), "eth0"),
    ([{"priority": 1, "table": "100", "to": "10.0.0.0/24"}, {"priority": 9, "table": "main"}], Query(A, B), "eth9"),
    (
        [{"priority": 1, "table": "main", "to": "10.0.0.2"}, {"priority": 1, "table": "100", "from": "10.0.0.1"}],
        Query(A, B),
        "eth2",
    ),
    (
        [{"priority": 1, "table": "100", "from": "10.0.0.0/8"}, {"priority": 1, "table": "main", "to": "10.0.0.2"}],
        Query(A, B),
        "eth9",
    ),
    ([{"priority": 1, "table": "100", "from": "10.0.0.1"}, {"priority": 9, "table": "main"}], Query(b"", B), "eth2"),
    ([{"priority": 1, "table": "100", "to": "10.0.0.2", "not": True}, {"priority": 9, "table": "main"}], Query(A, A), "eth9"),
    ([{"priority": 1, "action": "blackhole"}, {"priority": 9, "table": "main"}], Query(A, B), None),
]


@pytest.mark.parametrize(("rules", "query", "dev"), LOOKUPS)
def test_a_lookup_finds_the_rule_and_the_route(rules: list[dict[str, Any]], query: Query, dev: str | None) -> None:
    found = tables(rules, ROUTES).decide(query)
    assert (found.route.hops[0].dev if found.route else None) == dev


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ((b"\x45" + bytes(11) + B + A, b"\0\x50\x9c\x40" + bytes(16)), "tcp 10.0.0.2:80 > 10.0.0.1:40000"),
        ((b"\x45" + bytes(11) + B + A, b""), "tcp 10.0.0.2:40000 > 10.0.0.1:80"),
        ((b"\x60" + bytes(7) + B6 + A6, b"\0\x50\x9c\x40"), "tcp [fd00::2]:80 > [fd00::1]:40000"),
    ],
)
def test_a_packet_at_a_place_has_the_addresses_and_ports_of_its_headers(headers: tuple[bytes, bytes], shown: str) -> None:
    assert kernel_events.is_ip(headers[0]) and str(kernel_events.packet_of(headers, given())) == shown


@pytest.mark.parametrize("header", [b"", b"\x45" + bytes(18), b"\x60" + bytes(38), b"\0\x01\x08\0" + bytes(36)])
def test_what_is_no_whole_ip_header_is_known(header: bytes) -> None:
    assert not kernel_events.is_ip(header)


def test_counters_that_moved() -> None:
    before = proc_net.counters("Ip: InNoRoutes InReceives\nIp: 1 2\n", "Ip6InReceives \t 4\n")
    after = proc_net.counters("Ip: InNoRoutes InReceives\nIp: 2 2\n", "Ip6InReceives \t 5\n")
    assert kernel_events.moved(before, after) == {"Ip.InNoRoutes": 1, "Ip6InReceives": 1}


@pytest.mark.parametrize(
    ("modules", "commands", "may_lead_elsewhere"),
    [
        (["rp_filter", "policy_routes", "nftables_connmark"], [], False),
        (["rp_filter", "link_addresses"], [], False),
        (["nftables_probe_snat"], [], True),
        (
            [],
            ["sysctl -w net.ipv4.ip_forward=1", "bridge link set dev veth1 hairpin on", "ip neigh del 10.0.0.9 dev eth0"],
            False,
        ),
        ([], ["iptables -P FORWARD ACCEPT"], False),
        ([], ["iptables -A FORWARD -j KUBE-SERVICES"], True),
        ([], ["ip addr add 10.96.0.9/32 dev eth0", "ip -6 route add default via fe80::1 dev eth0"], False),
        ([], ["nft delete element ip kube-proxy service-ips { 10.96.0.9 . tcp . 80 }"], True),
    ],
)
def test_changes_of_rules_and_unknown_addresses_may_lead_packets_elsewhere(
    modules: list[str], commands: list[str], may_lead_elsewhere: bool
) -> None:
    changes = changes_backend.read([{name: {}} for name in modules], commands)
    assert changes_backend.may_lead_elsewhere(changes) == may_lead_elsewhere


def test_the_addresses_that_changes_add_are_those_that_packets_may_reach_besides() -> None:
    added = {"addresses": [{"dev": "eth1", "address": "10.0.1.10/24"}]}
    changes = changes_backend.read([{"rp_filter": {}}, {"link_addresses": added}], ["ip -4 addr add 10.96.0.9/32 dev eth0"])
    addresses = changes_backend.addresses(changes)
    assert addresses[0] == "10.0.1.10" and "10.96.0.9" in addresses
