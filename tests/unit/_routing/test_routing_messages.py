# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes of the kernel's messages about rules and routes: each sets its own field of the model, and no other one."""

from __future__ import annotations

import socket
import struct
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import ANY
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import (
    neighbour,
    route,
    routing_backend,
    rule,
    rule_order,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import Hop, Route
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from unit.netlink_messages import packed, u32

V4, V6 = int(socket.AF_INET), int(socket.AF_INET6)
Attributes = dict[int, bytes]


def v4(text: str) -> bytes:
    return socket.inet_aton(text)


def v6(text: str) -> bytes:
    return socket.inet_pton(V6, text)


# Rules


def rule_body(attributes: Attributes, **header: int) -> bytes:
    usual = {"family": V4, "dst_len": 0, "src_len": 0, "tos": 0, "table": 254, "action": 1, "flags": 0}
    return rule.HEADER.pack(*{**usual, **header}.values()) + packed({rule.FRA_PRIORITY: u32(700), **attributes})


def read_rule(attributes: Attributes, **header: int) -> Rule:
    found = rule.from_message(rule_body({**attributes, rule.FRA_PROTOCOL: bytes([75])}, **header))
    assert found and found[1] == 75
    return found[0]


PLAIN = Rule(V4, 700, table=254)
RULES: dict[str, tuple[Attributes, dict[str, int], dict[str, t.Any]]] = {
    "nothing": ({}, {}, {}),
    "a priority": ({rule.FRA_PRIORITY: u32(2**32 - 1)}, {}, {"priority": 2**32 - 1}),
    "a source": ({rule.FRA_SRC: v4("10.0.1.0")}, {"src_len": 24}, {"src": (v4("10.0.1.0"), 24)}),
    "a destination": ({rule.FRA_DST: v4("10.0.1.5")}, {"dst_len": 32}, {"dst": (v4("10.0.1.5"), 32)}),
    "addresses of IPv6": (
        {rule.FRA_SRC: v6("fd00::"), rule.FRA_DST: v6("fd01::1")},
        {"family": V6, "src_len": 8, "dst_len": 128},
        {"family": V6, "src": (v6("fd00::"), 8), "dst": (v6("fd01::1"), 128)},
    ),
    "a link in": ({rule.FRA_IIFNAME: b"eth0.100\0"}, {}, {"iif": "eth0.100"}),
    "a link out": ({rule.FRA_OIFNAME: b"eth1\0"}, {}, {"oif": "eth1"}),
    "a mark": (
        {rule.FRA_FWMARK: u32(0x80000001), rule.FRA_FWMASK: u32(0x80000003)},
        {},
        {"fwmark": 0x80000001, "fwmask": 0x80000003},
    ),
    "a whole mark": (
        {rule.FRA_FWMARK: u32(128), rule.FRA_FWMASK: b"\xff" * 4},
        {},
        {"fwmark": 128, "fwmask": 2**32 - 1},
    ),
    "no mark": ({rule.FRA_FWMARK: u32(0), rule.FRA_FWMASK: u32(0x80)}, {}, {"fwmark": 0, "fwmask": 0x80}),
    "a type of service": ({}, {"tos": 16}, {"tos": 16}),
    "an l3mdev": ({rule.FRA_L3MDEV: b"\1"}, {"table": 0}, {"l3mdev": True, "table": 0}),
    "no l3mdev": ({rule.FRA_L3MDEV: b"\0"}, {}, {}),
    "users": ({rule.FRA_UID_RANGE: struct.pack("=II", 5, 2**31)}, {}, {"uidrange": (5, 2**31)}),
    "a protocol": ({rule.FRA_IP_PROTO: b"\x11"}, {}, {"ipproto": 17}),
    "a source port": ({rule.FRA_SPORT_RANGE: struct.pack("=HH", 1, 65534)}, {}, {"sport": (1, 65534)}),
    "a destination port": ({rule.FRA_DPORT_RANGE: struct.pack("=HH", 80, 90)}, {}, {"dport": (80, 90)}),
    "a whole port": ({rule.FRA_DPORT_RANGE: struct.pack("=HH", 80, 80), 29: b"\xff\xff"}, {}, {"dport": (80, 80)}),
    "inverted": ({}, {"flags": 0x2}, {"invert": True}),
    "another flag": ({}, {"flags": 0x1 | 0x4 | 0x10000}, {}),
    "a table of the header": ({}, {"table": 7}, {"table": 7}),
    "a table beyond the header": ({rule.FRA_TABLE: u32(1003)}, {"table": 252}, {"table": 1003}),
    "a table in both": ({rule.FRA_TABLE: u32(7)}, {"table": 7}, {"table": 7}),
    "a table that is not looked up": ({rule.FRA_TABLE: u32(7)}, {"table": 7, "action": 8}, {"action": 8, "table": 0}),
    "a goto": ({rule.FRA_GOTO: u32(2**31)}, {"table": 0, "action": 2}, {"action": 2, "goto": 2**31, "table": 0}),
    "a goto of another action": ({rule.FRA_GOTO: u32(9)}, {"table": 0, "action": 6}, {"action": 6, "table": 0}),
    "a suppressor": ({rule.FRA_SUPPRESS_PREFIXLEN: u32(0)}, {}, {"suppress_prefixlength": 0}),
    "a suppressor of half": ({rule.FRA_SUPPRESS_PREFIXLEN: u32(64)}, {}, {"suppress_prefixlength": 64}),
    "no suppressor": ({rule.FRA_SUPPRESS_PREFIXLEN: b"\xff" * 4}, {}, {}),
    "no interface group": ({13: b"\xff" * 4}, {}, {}),
    "no realm": ({11: bytes(4)}, {}, {}),
    "padding": ({rule.FRA_PAD: b""}, {}, {}),
}


@pytest.mark.parametrize(("attributes", "header", "expected"), RULES.values(), ids=RULES.keys())
def test_an_attribute_of_a_rule_is_one_field(attributes: Attributes, header: dict[str, int], expected: dict[str, t.Any]) -> None:
    assert read_rule(attributes, **header) == PLAIN._replace(**expected)


UNREAD_OF_RULES = {
    "dscp": (25, b"\x0a", "dscp"),
    "flowlabel": (26, b"\0\0\0\1", "flowlabel"),
    "part of a port": (28, b"\x0f\xff", "attribute 28"),
    "tunnel": (12, bytes(8), "tun_id"),
}


@pytest.mark.parametrize(("kind", "data", "name"), UNREAD_OF_RULES.values(), ids=UNREAD_OF_RULES.keys())
def test_a_rule_with_attributes_that_we_do_not_know_keeps_key_and_owner_and_equals_none(
    kind: int, data: bytes, name: str
) -> None:
    (plain, owner), (current, its_owner) = (rule.from_message(rule_body(one)) for one in ({}, {kind: data}))
    assert (current.key, its_owner) == (plain.key, owner) and current != plain
    assert str(current) == f"{plain} with attributes that this collection cannot read: {name}"


def test_a_rule_that_cannot_be_read_is_sent_without_what_the_kernel_only_tells() -> None:
    (current, _owner) = rule.from_message(rule_body({25: b"\x0a"}, flags=rule.INVERT | 0x8))
    assert current.opaque == rule_body({25: b"\x0a"}, flags=rule.INVERT)


def test_a_rule_of_no_protocol_is_of_protocol_0() -> None:
    assert rule.from_message(rule.HEADER.pack(V4, 0, 0, 0, 254, 1, 0)) == (Rule(V4, 0, table=254), 0)


def test_a_rule_that_is_written_reads_back() -> None:
    addresses = {
        V4: [(b"", 0), (v4("10.0.0.1"), 32), (v4("10.0.0.2"), 32), (v4("10.0.0.4"), 30)],
        V6: [(b"", 0), (v6("fd00::1"), 128), (v6("fd00::2"), 128), (v6("fd00::"), 8)],
    }
    items = [
        Rule(family, 7, src, dst, iif=link, table=1003, sport=sport)
        for family, prefixes in addresses.items()
        for src in prefixes
        for dst in prefixes
        for link, sport in (("", ()), ("eth0", (5, 9)))
    ]
    encoder = routing_backend._Encoder(75, {})
    for verb in (routing_backend.ADD, routing_backend.DELETE):
        messages = [encoder.message(routing_backend.Change(verb, item), 3) for item in items]
        bodies = [message[16:] for message in messages]
        assert [*map(rule.from_message, bodies)] == rule.from_messages(bodies) == [(item, 75) for item in items]


def test_rules_are_told_apart_where_only_the_ends_of_their_messages_differ() -> None:
    ends: dict[str, list[Attributes]] = {
        "a source": [{rule.FRA_SRC: v4(f"10.0.0.{number}")} for number in (1, 2, 2)],
        "a destination": [{rule.FRA_DST: v4(f"10.0.0.{number}")} for number in (1, 2)],
        "both": [{rule.FRA_SRC: v4(f"10.0.1.{number}"), rule.FRA_DST: v4(f"10.0.0.{number}")} for number in (1, 2)],
        "realms behind an address": [{rule.FRA_DST: v4("10.0.0.1"), 11: u32(number)} for number in (0, 5, 0)],
        "an attribute that cannot be read": [{25: b"\x0a", rule.FRA_DST: v4(f"10.0.0.{number}")} for number in (1, 2)],
        "a mark": [{rule.FRA_FWMARK: u32(number)} for number in (1, 2)],
        "a table": [{rule.FRA_SRC: v4("10.0.0.1"), rule.FRA_TABLE: u32(number)} for number in (1000, 1001)],
        "an address of IPv6": [{rule.FRA_DST: v6(f"2001:db8::{number}")} for number in (1, 2)],
    }
    bodies = []
    for attributes in (one for those in ends.values() for one in those):
        source, destination = attributes.get(rule.FRA_SRC, b""), attributes.get(rule.FRA_DST, b"")
        for shorter in (0, 2):
            lengths = (max(len(address) * 8 - shorter, 0) for address in (destination, source))
            header = rule.HEADER.pack(V6 if len(destination) == 16 else V4, *lengths, 0, 254, 1, 0)
            for protocol in (75, 76):
                bodies.append(header + packed({rule.FRA_PROTOCOL: bytes([protocol]), rule.FRA_PRIORITY: u32(7), **attributes}))
    assert rule.from_messages(bodies) == [*map(rule.from_message, bodies)]
    assert rule.from_messages(bodies[::-1]) == [*map(rule.from_message, bodies[::-1])]


BARE = Rule(V4, 700)
NAMED: dict[str, tuple[t.Any, t.Any]] = {
    "src": ((v4("10.0.0.0"), 8), (v4("10.0.0.0"), 16)),
    "dst": ((v4("10.0.0.0"), 8), (v4("11.0.0.0"), 8)),
    "iif": ("eth0", "eth1"),
    "oif": ("eth0", "eth1"),
    "fwmark": (1, 2),
    "fwmask": (1, 2),
    "tos": (8, 16),
    "uidrange": ((1, 2), (1, 3)),
    "ipproto": (6, 17),
    "sport": ((1, 2), (1, 3)),
    "dport": ((1, 2), (2, 2)),
    "table": (254, 1003),
    "suppress_prefixlength": (0, 1),
}


def catches(told: Rule, other: Rule) -> bool:
    """Whether the kernel, told to delete a rule, deletes another one that stands before it."""
    return rule_order._Hits([other, told]).first(1) == 0


@pytest.mark.parametrize("field", NAMED)
def test_the_kernel_takes_for_the_rule_to_delete_whatever_has_all_that_is_named(field: str) -> None:
    """net/core/fib_rules.c, rule_find."""
    one, other = (BARE._replace(**{field: value}) for value in NAMED[field])
    assert catches(BARE, one) and not catches(one, BARE)
    assert catches(one, one) and not catches(one, other)


def test_the_kernel_takes_no_rule_of_another_place_or_action_for_the_one_to_delete() -> None:
    differing = [BARE._replace(family=V6), BARE._replace(priority=701), BARE._replace(action=rule.BLACKHOLE)]
    assert not any(catches(BARE, other) or catches(other, BARE) for other in differing)
    l3mdev = BARE._replace(l3mdev=True)
    assert catches(BARE, l3mdev) and not catches(l3mdev, BARE)


@pytest.mark.parametrize("change", [{"invert": True}, {"goto": 900}], ids=str)
def test_the_kernel_does_not_look_at_invert_and_goto_of_the_rule_to_delete(change: dict[str, t.Any]) -> None:
    other = BARE._replace(**change)
    assert catches(BARE, other) and catches(other, BARE)


# Routes


def route_body(attributes: Attributes, **header: int) -> bytes:
    of_ways = {"family": V4, "dst_len": 0, "src_len": 0, "tos": 0, "table": 254}
    usual = {**of_ways, "protocol": 75, "scope": 0, "type": 1, "flags": 0}
    return route.HEADER.pack(*{**usual, **header}.values()) + packed(attributes)


def read_route(attributes: Attributes, **header: int) -> Route:
    found = route.from_message(route_body({route.RTA_OIF: u32(2), **attributes}, **header), {2: "eth1", 3: "eth2"})
    assert found and found[1] == 75
    return found[0]


def nexthop(index: int, weight: int = 0, flags: int = 0, via: bytes = b"", further: Attributes | None = None) -> bytes:
    data = packed({**({route.RTA_GATEWAY: via} if via else {}), **(further or {})})
    return route.NEXTHOP.pack(route.NEXTHOP.size + len(data), flags, weight, index) + data


WAY = Route(V4, 254, hops=(Hop("eth1"),))
ROUTES: dict[str, tuple[Attributes, dict[str, int], dict[str, t.Any]]] = {
    "nothing": ({}, {}, {}),
    "a prefix": ({route.RTA_DST: v4("10.8.0.0")}, {"dst_len": 16}, {"dst": (v4("10.8.0.0"), 16)}),
    "IPv6": (
        {route.RTA_DST: v6("fd00::1"), route.RTA_GATEWAY: v6("fe80::1"), route.RTA_PREF: b"\0"},
        {"family": V6, "dst_len": 128},
        {"family": V6, "dst": (v6("fd00::1"), 128), "hops": (Hop("eth1", v6("fe80::1")),)},
    ),
    "a table of the header": ({}, {"table": 7}, {"table": 7}),
    "a table beyond the header": ({route.RTA_TABLE: u32(1003)}, {"table": 252}, {"table": 1003}),
    "a metric": ({route.RTA_PRIORITY: u32(2**32 - 1)}, {}, {"metric": 2**32 - 1}),
    "a scope": ({}, {"scope": 253}, {"scope": 253}),
    "a source": ({route.RTA_PREFSRC: v4("10.0.0.9")}, {}, {"src": v4("10.0.0.9")}),
    "an MTU": ({route.RTA_METRICS: packed({route.RTAX_MTU: u32(1400)})}, {}, {"mtu": 1400}),
    "an MTU that is not locked": (
        {route.RTA_METRICS: packed({route.RTAX_LOCK: u32(0), route.RTAX_MTU: u32(1400), 8: u32(0)})},
        {},
        {"mtu": 1400},
    ),
    "a gateway": ({route.RTA_GATEWAY: v4("10.0.0.1")}, {}, {"hops": (Hop("eth1", v4("10.0.0.1")),)}),
    "on the link": (
        {route.RTA_GATEWAY: v4("10.0.0.1")},
        {"flags": route.RTNH_F_ONLINK},
        {"hops": (Hop("eth1", v4("10.0.0.1"), onlink=True),)},
    ),
    "other flags": ({}, {"flags": 0x1 | 0x8 | 0x10 | 0x400}, {}),
    "another link": ({route.RTA_OIF: u32(3)}, {}, {"hops": (Hop("eth2"),)}),
    "a link that has gone": ({route.RTA_OIF: u32(9)}, {}, {"hops": (Hop("if9"),)}),
    "a local address": ({}, {"type": 2, "scope": 254}, {"type": 2, "scope": 254}),
    **{
        name: ({}, {"type": number}, {"type": number, "hops": ()})
        for name, number in (("blackhole", 6), ("unreachable", 7), ("prohibit", 8), ("throw", 9))
    },
    "no end": ({route.RTA_CACHEINFO: struct.pack("=IIiIIIII", 1, 2, 0, 4, 5, 6, 7, 8)}, {}, {}),
    "several ways": (
        {
            route.RTA_MULTIPATH: nexthop(3, 255, route.RTNH_F_ONLINK, v4("10.0.0.3"))
            + nexthop(2, 0, 0x10, v4("10.0.0.2"))
            + nexthop(9, 1)
        },
        {},
        {
            "hops": (
                Hop("eth1", v4("10.0.0.2")),
                Hop("eth2", v4("10.0.0.3"), onlink=True, weight=256),
                Hop("if9", weight=2),
            )
        },
    ),
}


@pytest.mark.parametrize(("attributes", "header", "expected"), ROUTES.values(), ids=ROUTES.keys())
def test_an_attribute_of_a_route_is_one_field(attributes: Attributes, header: dict[str, int], expected: dict[str, t.Any]) -> None:
    assert read_route(attributes, **header) == WAY._replace(**expected)


HOP = {route.RTA_OIF: u32(2), route.RTA_GATEWAY: v4("10.0.0.1")}
ENCAP, PLAIN_HOP = nexthop(2, via=u32(1), further={22: u32(0)}), nexthop(2, via=v4("10.0.0.1"))
END = {route.RTA_CACHEINFO: struct.pack("=8xi20x", 600)}
UNREAD: dict[str, tuple[Attributes, dict[str, int], str]] = {
    "an attribute that we do not know": ({**HOP, 99: b"\1"}, {}, "attribute 99"),
    "a metric that we do not know": (
        {**HOP, route.RTA_METRICS: packed({40: u32(1300), route.RTAX_MTU: u32(1300)})},
        {},
        "metric 40",
    ),
    "an attribute of a next hop that we do not know": (
        {route.RTA_MULTIPATH: nexthop(2, further={99: bytes(4)}) + PLAIN_HOP},
        {},
        "attribute 99",
    ),
    "several": (
        {route.RTA_MULTIPATH: ENCAP + PLAIN_HOP, route.RTA_METRICS: packed({3: u32(1300)}), **END},
        {"tos": 16},
        "encap, expires, tos, window",
    ),
    "a broadcast": (HOP, {"type": 3}, "its type"),
    "a next hop object": ({**HOP, 30: bytes(4)}, {}, "nhid"),
    "a gateway of the other family": ({route.RTA_OIF: u32(2), 18: bytes(18)}, {}, "via inet6"),
    "a window": ({**HOP, route.RTA_METRICS: packed({3: u32(9)})}, {}, "window"),
    "a locked MTU": ({**HOP, route.RTA_METRICS: packed({1: u32(4), 2: u32(1300)})}, {}, "a lock"),
    "a preference": ({**HOP, route.RTA_PREF: b"\1"}, {}, "pref"),
    "an end": ({**HOP, **END}, {}, "expires"),
    "an encapsulation of one of several": ({route.RTA_MULTIPATH: ENCAP}, {}, "encap"),
}


@pytest.mark.parametrize(("attributes", "header", "name"), UNREAD.values(), ids=UNREAD.keys())
def test_a_route_that_we_could_not_say_keeps_key_and_owner_and_equals_none(
    attributes: Attributes, header: dict[str, int], name: str
) -> None:
    plain, found = (route.from_message(one, {2: "eth1"}) for one in (route_body(HOP), route_body(attributes, **header)))
    assert plain and found
    (one, owner), (other, its_owner) = plain, found
    assert (one.key[: route.KEY], owner) == (other.key[: route.KEY], its_owner) and one != other
    assert (len(other.key) == len(one.key)) == ("tos" not in name)
    assert other.unread == tuple(name.split(", ")) and str(other).endswith(
        f" with attributes that this collection cannot read: {name}"
    )


def test_a_route_for_a_type_of_service_has_another_key() -> None:
    plain, found = read_route(HOP), read_route(HOP, tos=16)
    assert plain.key != found.key and found.unread == ("tos",)


def test_a_route_for_some_sources_has_another_key_for_each() -> None:
    found = [read_route(HOP), *(read_route({**HOP, route.RTA_SRC: v4(f"10.0.0.{last}")}) for last in (1, 2))]
    assert len({one.key for one in found}) == 3
    assert [one.unread for one in found] == [(), ("from",), ("from",)]


def test_a_cached_route_is_none() -> None:
    assert route.from_message(route_body(HOP, flags=route.RTM_F_CLONED), {2: "eth1"}) is None


CONNECTED: list[tuple[Route, bool]] = [
    (WAY._replace(scope=route.LINK), True),
    (WAY._replace(scope=route.HOST), True),
    (WAY._replace(scope=200), False),
    (WAY, False),
    (WAY._replace(family=V6), True),
    (WAY._replace(family=V6, hops=(Hop("eth1", v6("fe80::1")),)), False),
    (WAY._replace(family=V6, hops=(Hop("eth1", v6("fe80::1")), Hop("eth2"))), True),
    (WAY._replace(family=V6, type=route.LOCAL), False),
    (WAY._replace(family=V6, hops=()), False),
]


@pytest.mark.parametrize(("one", "expected"), CONNECTED)
def test_the_addresses_of_a_connected_route_are_neighbours(one: Route, expected: bool) -> None:
    assert one.is_connected == expected


ADDRESSES: list[tuple[Route, str]] = [
    (WAY, ""),
    (WAY._replace(dst=(v4("10.0.0.1"), 32)), "10.0.0.1"),
    (WAY._replace(dst=(v4("10.0.0.0"), 31)), ""),
    (WAY._replace(family=V6, dst=(v6("fd00::1"), 128)), "fd00::1"),
    (WAY._replace(family=V6, dst=(v6("fd00::"), 32)), ""),
    (WAY._replace(dst=(v4("10.0.0.1"), 32), type=route.BLACKHOLE, hops=()), ""),
]


@pytest.mark.parametrize(("one", "address"), ADDRESSES)
def test_a_route_to_one_address_names_it(one: Route, address: str) -> None:
    assert one.address == address and (one.dst == ANY or one.dst[0])


def test_a_route_names_the_links_that_it_leads_over() -> None:
    assert WAY._replace(hops=(Hop("a"), Hop("b"), Hop("b", v4("10.0.0.1")))).links == {"a", "b"}


# Neighbours

LLADDR = bytes.fromhex("a29688 20cbc6")
READ_NEIGHBOURS: list[tuple[int, int, Attributes, str]] = [
    (2, 0x80, {1: v4("10.0.0.1"), 2: LLADDR}, "10.0.0.1 dev eth1 lladdr a2:96:88:20:cb:c6 PERMANENT"),
    (2, 0x04, {1: v6("fe80::1"), 2: LLADDR}, "fe80::1 dev eth1 lladdr a2:96:88:20:cb:c6 STALE"),
    (7, 0x20, {1: v4("10.0.0.1"), 2: LLADDR}, "10.0.0.1 dev if7 FAILED"),  # its former MAC may now be another host's
    (2, 0x80, {1: v4("10.0.0.1")}, "10.0.0.1 dev eth1 PERMANENT"),
    (2, 0x06, {1: v4("10.0.0.1"), 2: LLADDR}, "10.0.0.1 dev eth1 lladdr a2:96:88:20:cb:c6 6"),
    *((2, state, {1: v4("10.0.0.1"), 2: LLADDR}, "None") for state in (0, 0x01, 0x40)),
    (2, 0x80, {2: LLADDR}, "None"),
]


@pytest.mark.parametrize(("link", "state", "attributes", "text"), READ_NEIGHBOURS)
def test_a_neighbour_reads_as_ip_prints_it(link: int, state: int, attributes: Attributes, text: str) -> None:
    body = neighbour.HEADER.pack(socket.AF_INET, link, state, 0, 1) + packed(attributes)
    found = neighbour.from_message(body, {2: "eth1"})
    assert str(found) == text
    assert found is None or found.is_permanent == (state == 0x80)


def nexthop_object(number: int, attributes: Attributes, flags: int = 0) -> bytes:
    return route.NEXTHOP_OBJECT.pack(V4, 0, 0, 0, flags) + packed({1: u32(number), **attributes})


NEXTHOPS = [
    nexthop_object(7, {2: route.GROUP_ENTRY.pack(1, 0) + route.GROUP_ENTRY.pack(2, 4)}),  # before its members
    nexthop_object(1, {5: u32(2), 6: v4("10.0.0.1")}, route.RTNH_F_ONLINK),
    nexthop_object(2, {5: u32(3)}),
    nexthop_object(3, {4: b""}),
    nexthop_object(4, {5: u32(2), 7: b"\1\0", 8: b"\0\0\0\0"}),
    nexthop_object(8, {2: route.GROUP_ENTRY.pack(3, 0)}),
    nexthop_object(9, {2: route.GROUP_ENTRY.pack(1, 0) + route.GROUP_ENTRY.pack(99, 0)}),
]


@pytest.mark.parametrize(
    ("number", "hops", "kind", "unread"),
    [
        (1, (Hop("eth1", v4("10.0.0.1"), True),), route.UNICAST, ("nhid",)),
        (7, (Hop("eth1", v4("10.0.0.1"), True), Hop("eth2", weight=5)), route.UNICAST, ("nhid",)),
        (3, (), route.BLACKHOLE, ("nhid",)),
        (8, (), route.BLACKHOLE, ("nhid",)),
        (4, (Hop("eth1"),), route.UNICAST, ("encap", "nhid")),
        (9, (Hop("eth1", v4("10.0.0.1"), True),), route.UNICAST, ("its next hops", "nhid")),
        (55, (), route.UNICAST, ("its next hops", "nhid")),
    ],
)
def test_a_route_has_the_next_hops_of_its_object(number: int, hops: tuple[Hop, ...], kind: int, unread: tuple[str, ...]) -> None:
    objects = route.nexthop_objects(NEXTHOPS, {2: "eth1", 3: "eth2"})
    found = route.from_message(route_body({route.RTA_NH_ID: u32(number)}), {2: "eth1", 3: "eth2"}, objects.get)
    assert found and (found[0].hops, found[0].type, found[0].unread) == (hops, kind, unread)
