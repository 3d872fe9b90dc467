# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The meaning of a rule and a route, in options, in text and in a file."""

from __future__ import annotations

import functools
import json
import re
import struct
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import LONGEST, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import (
    known_programs,
    policy,
    route,
    rt_names,
    rt_tables_backend,
    rule,
)
from unit import strategies

TABLES = {**rt_names.TABLES, "pods": 1003, "unspec": 0}


def of(rules: t.Any = None, routes: t.Any = None, protocol: object = 75) -> policy.Policy:
    return policy.from_options(protocol, rules, routes, TABLES)


def rule_of(**options: t.Any) -> rule.Rule:
    """``from`` and ``not`` are keywords of Python, so they are given as ``from_`` and ``not_``."""
    plain = {key.rstrip("_"): value for key, value in options.items()}
    (one,) = of(rules=[{"priority": 700, "table": "main", **plain}]).rules or ()
    return one


def route_of(**options: t.Any) -> route.Route:
    (one,) = of(routes=[{"table": 1003, "to": "default", **options}]).routes or ()
    return one


# Meaning


SAME_RULES = [
    ({"table": "main"}, {"table": 254}),
    ({"table": "0xfe"}, {"table": "254"}),
    ({"table": "pods"}, {"table": "1003"}),
    ({"from_": "10.0.1.5"}, {"from_": "10.0.1.5/32"}),
    ({"from_": "2001:DB8::5"}, {"from_": "2001:db8:0::5/128", "family": "ipv6"}),
    ({"from_": "0.0.0.0/0"}, {"from_": "all"}),
    ({"fwmark": "0x80"}, {"fwmark": "128/0xffffffff"}),
    ({"ipproto": "tcp"}, {"ipproto": 6}),
    ({"dport": 80}, {"dport": "80-80"}),
    ({"tos": 0}, {}),
    ({"not_": "no"}, {}),
    ({"action": "lookup"}, {}),
    ({"priority": "0x2bc"}, {"priority": "700"}),
]


@pytest.mark.parametrize(("one", "other"), SAME_RULES, ids=str)
def test_two_ways_to_say_a_rule_are_one_rule(one: dict[str, t.Any], other: dict[str, t.Any]) -> None:
    assert rule_of(**one) == rule_of(**other)


SAME_ROUTES = [
    ({"dev": "eth1"}, {"dev": "eth1", "scope": "link"}),
    ({"dev": "eth1", "via": "10.0.0.1"}, {"dev": "eth1", "via": "10.0.0.1", "scope": "global", "metric": 0}),
    ({"dev": "eth1", "via": "fe80::1"}, {"dev": "eth1", "via": "fe80::1", "metric": 1024, "family": "ipv6"}),
    ({"to": "10.0.0.1", "dev": "eth1"}, {"to": "10.0.0.1/32", "dev": "eth1", "onlink": False}),
    (
        {"to": "10.0.0.1", "dev": "eth1"},
        {"to": "10.0.0.1", "dev": "eth1", "onlink": "no", "metric": "0", "table": "pods"},
    ),
    ({"to": "::/0", "dev": "eth1"}, {"to": "default", "dev": "eth1", "family": "ipv6"}),
    (
        {"to": "10.0.0.0/8", "type": "local", "dev": "lo"},
        {"to": "10.0.0.0/8", "type": "local", "dev": "lo", "scope": "host"},
    ),
    (
        {"nexthops": [{"dev": "eth1", "via": "10.0.0.1"}, {"dev": "eth2", "via": "10.0.0.2", "weight": 2}]},
        {
            "nexthops": [
                {"dev": "eth2", "via": "10.0.0.2", "weight": 2},
                {"dev": "eth1", "via": "10.0.0.1", "weight": 1},
            ]
        },
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME_ROUTES, ids=str)
def test_two_ways_to_say_a_route_are_one_route(one: dict[str, t.Any], other: dict[str, t.Any]) -> None:
    assert route_of(**one) == route_of(**other)


Make = t.Callable[..., t.Any]
# Each is made only inside its test: by then, `make mutants` has changed the code.
TEXTS: list[tuple[Make, dict[str, t.Any], str]] = [
    (rule_of, {"from_": "10.0.1.5", "table": 1003}, "ip rule 700: from 10.0.1.5 lookup 1003"),
    (rule_of, {"to": "10.0.0.0/8"}, "ip rule 700: from all to 10.0.0.0/8 lookup main"),
    (
        rule_of,
        {"from_": "fd00::/8", "to": "fd00::1", "not_": True},
        "ip -6 rule 700: not from fd00::/8 to fd00::1 lookup main",
    ),
    (
        rule_of,
        {"fwmark": "0x80/0x81", "family": "ipv6"},
        "ip -6 rule 700: from all fwmark 0x80/0x81 lookup main",
    ),
    (rule_of, {"fwmark": "0/1"}, "ip rule 700: from all fwmark 0x0/0x1 lookup main"),
    (rule_of, {"iif": "a", "oif": "b", "tos": 16}, "ip rule 700: from all tos 0x10 iif a oif b lookup main"),
    (
        rule_of,
        {"uidrange": 5, "ipproto": "udp", "sport": "1-2", "dport": 53},
        "ip rule 700: from all uidrange 5-5 ipproto udp sport 1-2 dport 53 lookup main",
    ),
    (
        rule_of,
        {"uidrange": "5-9", "ipproto": 99, "sport": 7, "dport": "53-54"},
        "ip rule 700: from all uidrange 5-9 ipproto 99 sport 7 dport 53-54 lookup main",
    ),
    (rule_of, {"suppress_prefixlength": 0}, "ip rule 700: from all lookup main suppress_prefixlength 0"),
    (rule_of, {"suppress_prefixlength": 32}, "ip rule 700: from all lookup main suppress_prefixlength 32"),
    (
        rule_of,
        {"from_": "10.0.0.0/8", "to": "10.0.1.5", "goto": 800, "table": None},
        "ip rule 700: from 10.0.0.0/8 to 10.0.1.5 goto 800",
    ),
    (rule_of, {"action": "prohibit", "table": None}, "ip rule 700: from all prohibit"),
    (rule_of, {"l3mdev": True, "table": None}, "ip rule 700: from all lookup [l3mdev-table]"),
    (rule_of, {"l3mdev": True, "action": "prohibit", "table": None}, "ip rule 700: from all l3mdev prohibit"),
    (route_of, {"via": "10.0.1.1", "dev": "eth1"}, "ip route default via 10.0.1.1 dev eth1 table 1003"),
    (route_of, {"to": "10.0.1.1", "dev": "eth1", "table": "main"}, "ip route 10.0.1.1 dev eth1 table main scope link"),
    (
        route_of,
        {"to": "10.0.1.1", "type": "local", "dev": "lo", "table": "local"},
        "ip route local 10.0.1.1 dev lo table local scope host",
    ),
    (
        route_of,
        {"via": "10.0.1.1", "dev": "eth1", "onlink": True, "metric": 5, "mtu": 1400, "src": "10.0.1.2"},
        "ip route default via 10.0.1.1 dev eth1 onlink table 1003 src 10.0.1.2 metric 5 mtu 1400",
    ),
    (route_of, {"to": "fd00::/8", "type": "blackhole"}, "ip -6 route blackhole fd00::/8 table 1003 metric 1024"),
    (route_of, {"via": "10.0.1.1", "scope": "site"}, "ip route default via 10.0.1.1 table 1003 scope site"),
    (
        route_of,
        {
            "nexthops": [
                {"dev": "a", "via": "10.0.0.1", "weight": 3, "onlink": True},
                {"dev": "b", "via": "10.0.0.2", "weight": 2},
                {"dev": "c"},
            ]
        },
        "ip route default table 1003 nexthop via 10.0.0.1 dev a weight 3 onlink nexthop via 10.0.0.2 dev b weight 2"
        " nexthop dev c",
    ),
    (
        route_of,
        {"nexthops": [{"dev": "a", "via": "fe80::1"}, {"dev": "b", "via": "fe80::1"}]},
        "ip -6 route default table 1003 metric 1024 nexthop via fe80::1 dev a nexthop via fe80::1 dev b",
    ),
]


@pytest.mark.parametrize(("make", "options", "text"), TEXTS, ids=[text for _make, _options, text in TEXTS])
def test_an_object_reads_as_ip_prints_it_and_comes_back_from_a_file(make: Make, options: dict[str, t.Any], text: str) -> None:
    item = make(**options)
    assert str(item) == text
    name = "rules" if make is rule_of else "routes"
    lists: t.Any = {name: (item,)}
    assert getattr(policy.from_text(policy.Policy(**lists).text(), {}), name) == (item,)


AS_THE_KERNEL_HAS_THEM: list[tuple[Make, dict[str, t.Any], t.Any]] = [
    (rule_of, {}, rule.Rule(2, 700, table=254)),
    (rule_of, {"iif": "a"}, rule.Rule(2, 700, iif="a", table=254)),
    (rule_of, {"action": "prohibit", "table": None}, rule.Rule(2, 700, action=rule.PROHIBIT)),
    (rule_of, {"goto": 800, "table": None}, rule.Rule(2, 700, action=rule.GOTO, goto=800)),
    (route_of, {"dev": "a"}, route.Route(2, 1003, scope=route.LINK, hops=(route.Hop("a"),))),
    (route_of, {"via": "10.0.0.1"}, route.Route(2, 1003, hops=(route.Hop("", bytes([10, 0, 0, 1])),))),
    (route_of, {"type": "throw"}, route.Route(2, 1003, type=route.THROW)),
    (route_of, {"type": "throw", "family": "ipv6"}, route.Route(10, 1003, metric=1024, type=route.THROW)),
]


@pytest.mark.parametrize(
    ("make", "options", "item"),
    AS_THE_KERNEL_HAS_THEM,
    ids=[str(item) for _make, _options, item in AS_THE_KERNEL_HAS_THEM],
)
def test_a_field_that_is_not_given_has_the_kernels_default(make: Make, options: dict[str, t.Any], item: t.Any) -> None:
    found = make(**options)
    assert tuple(found) == tuple(item)


FOREIGN = [
    (rule.Rule(2, 7, action=5), "ip rule 7: from all 5"),
    (
        rule.Rule(2, 7, table=9, opaque=rule.HEADER.pack(*[0] * 7) + struct.pack("=HHIHHI", 8, 26, 1, 8, 25, 1)),
        "ip rule 7: from all lookup 9 with attributes that this collection cannot read: dscp, flowlabel",
    ),
]


@pytest.mark.parametrize(("item", "text"), FOREIGN, ids=[text for _item, text in FOREIGN])
def test_a_rule_of_others_that_no_option_can_say_is_shown(item: rule.Rule, text: str) -> None:
    assert str(item) == text


# Bad input


BAD_RULES = [
    ("rules[0].priority must be given", {"priority": None}),
    ("rules[0].priority must be a number from 1", {"priority": 0}),
    ("rules[0].priority must be a number from 1", {"priority": 2**32}),
    ("rules[0].table must be a number from 1 to 4294967295, or the name of a table", {"table": "nosuch"}),
    ("rules[0].table must be", {"table": 2**32}),
    ("rules[0].table must be given if action is lookup and l3mdev is false", {"table": None}),
    ("rules[0].table must be given if action is lookup and l3mdev is false", {"action": "blackhole"}),
    ("rules[0].action must be one of lookup, goto", {"action": "drop"}),
    ("rules[0].from must be an IP address, a prefix", {"from": "eth0"}),
    ("rules[0].from must be an IP address, a prefix", {"from": "10.0.0.0/33"}),
    (
        "rules[0].from must be a prefix without host bits, as 10.0.1.0/24; '10.0.1.5/24' was given",
        {"from": "10.0.1.5/24"},
    ),
    ("rules[0].to must be a prefix without host bits, as fd00::/8", {"to": "fd00::1/8"}),
    ("rules[0].to must be of the same family", {"from": "10.0.0.1", "to": "fd00::1"}),
    ("rules[0].from must be of the same family", {"from": "10.0.0.1", "family": "ipv6"}),
    ("rules[0].family must be one of ipv4, ipv6", {"family": "inet"}),
    ("rules[0].fwmark must be MARK or MARK/MASK", {"fwmark": "0x80/"}),
    ("rules[0].fwmark must be MARK or MARK/MASK", {"fwmark": 2**32}),
    ("rules[0].fwmark must be a mark within its mask; 0x100 is outside 0x80", {"fwmark": "0x180/0x80"}),
    ("rules[0].fwmark must be a mark other than 0", {"fwmark": "0"}),
    ("rules[0].tos must be a type of service", {"tos": 1}),
    ("rules[0].tos must be a type of service", {"tos": 32}),
    ("rules[0].tos must be a number from 0 to 255", {"tos": 256}),
    ("rules[0].ipproto must be a number from 1 to 255, or the name of an IP protocol", {"ipproto": "nosuch"}),
    ("rules[0].dport must be a number or a range", {"dport": "90-80"}),
    ("rules[0].dport must be a number or a range", {"dport": 65535}),
    ("rules[0].sport must be a port", {"sport": "0-9"}),
    ("rules[0].dport must be a port or a range N-M from 1 to 65534, as the kernel requires;", {"dport": 0}),
    ("rules[0].uidrange must be a number or a range", {"uidrange": "-1"}),
    ("rules[0].iif must be a link's name", {"iif": "averylonglinkname"}),
    ("rules[0].iif must be a link's name", {"iif": ["eth0"]}),
    ("rules[0].iif must be a link's name", {"iif": "eth0\0"}),
    ("rules[0].iif must be a link's name", {"iif": "é" * 8}),
    ("rules[0].oif must be a link's name", {"oif": "\ud800"}),
    ("rules[0].from must be an IP address", {"from": "10.0.0.1\0"}),
    ("rules[0].to must be an IP address", {"to": {"a": 1}}),
    ("rules[0].table must be a number", {"table": ["main"]}),
    ("rules[0].table must be a number", {"table": "unspec"}),
    ("rules[0].action must be one of", {"action": ["lookup"]}),
    ("rules[0].fwmark must be MARK", {"fwmark": [1]}),
    ("rules[0].priority must be a number", {"priority": True}),
    ("rules[0].priority must be a number", {"priority": "9" * 5000}),
    ("rules[0].not must be true or false", {"not": "maybe"}),
    ("rules[0].suppress_prefixlength must be 0 to 32", {"suppress_prefixlength": 33}),
    (
        "rules[0].suppress_prefixlength must be 0 to 32, and left out unless action is lookup",
        {"action": "prohibit", "table": None, "suppress_prefixlength": 0},
    ),
    ("rules[0].goto must be a priority above the rule's own, 700", {"goto": 700, "table": None}),
    ("rules[0].goto must be given if action is goto", {"action": "goto", "table": None}),
    ("rules[0].goto must be given if action is goto, and left out otherwise", {"action": "lookup", "goto": 800}),
    (
        "rules[0].dst must be left out; a rule has action, dport, family, from, fwmark, goto, iif, ipproto, l3mdev, not, oif,"
        " priority, sport, suppress_prefixlength, table, to, tos, uidrange;",
        {"dst": "10.0.0.1"},
    ),
]


def value_of(error: Invalid, entry: t.Any) -> object:
    """The value of an entry at the place that an error names, such as ``routes[0].nexthops[1].dev``."""
    for word in re.findall(r"\w+", error.option)[2:]:
        entry = entry[int(word)] if isinstance(entry, list) else entry.get(word)
    return entry


@pytest.mark.parametrize(("message", "options"), BAD_RULES, ids=str)
def test_a_rule_that_cannot_be_is_named_with_what_was_given(message: str, options: dict[str, t.Any]) -> None:
    entry = {"priority": 700, "table": "main", **options}
    with pytest.raises(Invalid) as error:
        of(rules=[entry])
    assert str(error.value).startswith(message)
    shown = repr(value_of(error.value, entry))
    assert str(error.value).endswith(f"; {shown if len(shown) <= LONGEST else f'{shown[:LONGEST]}...'} was given")


BAD_ROUTES = [
    ("routes[0].to must be given", {"to": None}),
    ("routes[0].to must be a prefix without host bits", {"to": "10.0.0.1/8"}),
    ("routes[0].table must be a number", {"table": None}),
    (
        "routes[0].table must be a number from 1 to 4294967295, or the name of a table that the node knows: default, main",
        {"table": 2**32},
    ),
    ("routes[0].type must be unicast or local", {"dev": None, "type": "blackhole", "via": "10.0.0.1"}),
    ("routes[0].type must be unicast or local", {"dev": None, "type": "blackhole", "onlink": False}),
    *(
        ("routes[0].nexthops must be left out", {"dev": None, "nexthops": [{"dev": "a"}, {"dev": "b"}], **other})
        for other in ({"via": "10.0.0.1"}, {"onlink": False}, {"type": "throw"})
    ),
    ("routes[0].dev must be given", {"dev": None}),
    ("routes[0].via must be an IP address", {"via": "10.0.0.0/8"}),
    ("routes[0].via must be an IP address", {"via": "10.0.0.1\0"}),
    ("routes[0].nexthops must be a list of next hops", {"nexthops": {"dev": "eth0"}}),
    ("routes[0].nexthops[0] must be a dictionary with dev, onlink, via, weight;", {"nexthops": ["eth0"]}),
    ("routes[0].via must be of the same family", {"to": "10.0.0.0/8", "via": "fe80::1"}),
    ("routes[0].src must be of the same family", {"via": "10.0.0.1", "src": "fe80::1"}),
    ("routes[0].onlink must be left out", {"onlink": True}),
    ("routes[0].type must be unicast or local", {"type": "blackhole"}),
    ("routes[0].type must be one of unicast, local", {"type": "nat"}),
    ("routes[0].scope must be one of", {"scope": "nowhere"}),
    ("routes[0].scope must be left out: IPv6", {"to": "fd00::/8", "scope": "link"}),
    ("routes[0].mtu must be a number from 68", {"mtu": 60}),
    ("routes[0].metric must be a number from 0", {"metric": -1}),
    ("routes[0].nexthops must be left out", {"nexthops": [{"dev": "a"}, {"dev": "b"}]}),
    ("routes[0].nexthops must be two or more next hops", {"dev": None, "nexthops": [{"dev": "a"}]}),
    ("routes[0].nexthops[1].dev must be given", {"dev": None, "nexthops": [{"dev": "a"}, {"weight": 2}]}),
    ("routes[0].dev must be given", {"dev": None, "via": "10.0.0.1", "onlink": True}),
    ("routes[0].dev must be given", {"dev": None, "via": "10.0.0.1", "type": "local"}),
    ("routes[0].via must be given with dev: each link", {"dev": None, "via": "fe80::1"}),
    (
        "routes[0].nexthops[1].via must be given with dev: each link",
        {"dev": None, "nexthops": [{"dev": "a"}, {"via": "fe80::1"}]},
    ),
    (
        "routes[0].nexthops[0].weight must be a number from 1 to 256",
        {"dev": None, "nexthops": [{"dev": "a", "weight": 0}, {"dev": "b"}]},
    ),
    (
        "routes[0].nexthops[1].via must be of the same family",
        {"dev": None, "nexthops": [{"dev": "a", "via": "10.0.0.1"}, {"dev": "b", "via": "fe80::1"}]},
    ),
    (
        "routes[0].nexthops[1].via must be given: IPv6",
        {"dev": None, "to": "fd00::/8", "nexthops": [{"dev": "a", "via": "fe80::1"}, {"dev": "b"}]},
    ),
    (
        "routes[0].nexthops must be next hops with different gateways or links",
        {"dev": None, "nexthops": [{"dev": "a", "via": "fe80::1", "weight": weight} for weight in (1, 2)]},
    ),
    (
        "routes[0].gateway must be left out; known here are dev, family, metric, mtu, nexthops, onlink, scope, src, table, to,"
        " type, via;",
        {"gateway": "10.0.0.1"},
    ),
    (
        "routes[0].nexthops[0].gateway must be left out; known here are dev, onlink, via, weight;",
        {"dev": None, "nexthops": [{"gateway": "10.0.0.1"}, {"dev": "b"}]},
    ),
]


@pytest.mark.parametrize(("message", "options"), BAD_ROUTES, ids=str)
def test_a_route_that_cannot_be_is_named_with_what_was_given(message: str, options: dict[str, t.Any]) -> None:
    entry = {"table": 1003, "to": "default", "dev": "eth1", **options}
    with pytest.raises(Invalid) as error:
        of(routes=[entry])
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(f"; {value_of(error.value, entry)!r} was given")


BAD_SETS: list[tuple[str, t.Callable[[], object]]] = [
    (
        "rules[1] must be unique; rules[0] has the same priority and selector but another meaning;"
        " 'ip rule 7: from all lookup 1003' was given",
        lambda: of(rules=[{"priority": 7, "table": "main"}, {"priority": 7, "table": 1003}]),
    ),
    (
        "routes[2] must be unique; routes[1] has the same table, prefix and metric but another meaning;"
        " 'ip route default dev b table 7 scope link' was given",
        lambda: of(routes=[{"table": 7, "to": to, "dev": dev} for to, dev in (("10.0.0.1", "a"), ("all", "a"), ("all", "b"))]),
    ),
    ("protocol must be one that no other program uses; 2 belongs to kernel; 2 was given", lambda: of(protocol=2)),
    (
        "protocol must be one that no other program uses; 186 belongs to bgp; '186' was given",
        lambda: of(protocol="186"),
    ),
    ("protocol must be a number from 1 to 255; 256 was given", lambda: of(protocol=256)),
    ("rules must be a list; 7 was given", lambda: of(rules=7)),
    ("rules[0] must be a dictionary; 'from all' was given", lambda: of(rules=["from all"])),
    (
        "path must be a file with JSON text: Expecting value: line 2 column 1 (char 1); '...\\nnot JSON' was given",
        lambda: policy.from_text("# heading\nnot JSON", TABLES),
    ),
    *(
        (
            f"path must be a file with protocol, rules and routes; {text!r} was given",
            functools.partial(policy.from_text, text, TABLES),
        )
        for text in ("[]", '{"protocol": 75, "enis": [], "rules": []}')
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "make"), BAD_SETS, ids=[message for message, _make in BAD_SETS])
def test_a_set_that_cannot_be_is_named(message: str, make: t.Callable[[], object]) -> None:
    with pytest.raises(Invalid) as error:
        make()
    assert str(error.value) == message


def test_a_rule_that_is_listed_twice_is_desired_once() -> None:
    assert len(of(rules=[{"priority": 7, "table": "main"}, {"priority": 7, "table": 254}]).rules or ()) == 1


# Files


@given(st.lists(strategies.rules, max_size=4), st.lists(strategies.desired_routes, max_size=4))
def test_a_file_keeps_the_desired_state(rules: list[dict[str, t.Any]], routes: list[dict[str, t.Any]]) -> None:
    try:
        desired = of(rules, routes)
    except Invalid:
        return  # two of them contradict each other
    text = desired.text()
    for written in (
        policy.from_text("# heading\n" + text, TABLES),
        policy.from_text(text, {}),  # numbers, because the meaning of a name may change
    ):
        assert (written.rules, written.routes) == (desired.rules, desired.routes)


WRITTEN = """{
"protocol": 98,
"enis": {"layout": "custom"},
"rules": [
  {"priority": 7, "family": "ipv4", "table": "9"},
  {"priority": 8, "family": "ipv6", "table": "9"}
],
"routes": []
}
"""


def test_a_file_has_an_entry_per_line_and_is_read_as_far_as_is_asked() -> None:
    rules = [{"priority": 7, "table": 9}, {"priority": 8, "table": 9, "family": "ipv6"}]
    whole = of(rules, [], 98)._replace(query=policy.Query("enis", {"layout": "custom"}))
    assert whole.text() == WRITTEN and WRITTEN.startswith(whole.beginning)
    for lists in ((), ("rules",), ("routes",), ("rules", "routes")):
        read = policy.from_text("# heading\n" + WRITTEN, TABLES, lists)
        assert (read.protocol, read.query) == (98, ("enis", {"layout": "custom"}))
        assert (read.rules, read.routes) == (
            whole.rules if "rules" in lists else None,
            () if "routes" in lists else None,
        )
    alone = policy.from_text('{"protocol": 98, "rules": []}', TABLES, ("routes",))
    assert alone == policy.Policy(98, places=([], []))


def test_the_next_boot_discovers_by_itself_what_enis_give() -> None:
    given = of([{"priority": 7, "table": 9}], [])
    discovered = given._replace(query=policy.Query("enis", {"layout": "custom"}))
    assert given.for_boot() == given
    boots = discovered.for_boot()
    assert (boots.rules, boots.routes, boots.query) == (None, None, discovered.query)
    assert (given.is_known, discovered.is_known, boots.is_known, boots.is_empty) == (True, True, False, False)


def test_a_list_that_is_not_managed_is_that_of_the_former_policy() -> None:
    former = of([{"priority": 7, "table": 9}], [{"table": 9, "to": "default", "dev": "a"}])
    desired = of([{"priority": 8, "table": 9}], [{"table": 9, "to": "default", "dev": "b"}])
    for rules in (desired.rules, None):
        for routes in (desired.routes, None):
            both = desired._replace(rules=rules, routes=routes).over(former)
            assert (both.rules, both.routes) == (rules or former.rules, routes or former.routes)
    assert of(protocol=98).without(of(protocol=98)) == policy.Policy(98)


def test_a_list_that_is_not_managed_stays_in_the_file() -> None:
    former = of(rules=[{"priority": 7, "table": 9}], routes=[{"table": 9, "to": "default", "dev": "a"}])
    desired = of(rules=[])
    rest = former._replace(rules=()).text()
    assert desired.over(former).text() == rest
    assert former.without(of(rules=[{"priority": 7, "table": 9}])).text() == rest
    assert former.without(of()).is_empty


@pytest.mark.parametrize("links", [("eth1", ""), ("", "eth1"), ("", "")])
def test_a_route_is_taken_from_the_file_by_its_gateway_alone(links: tuple[str, str]) -> None:
    """As an operator reads the file, in which a comment names the link."""
    written, going = ({"table": 9, "to": "default", "via": "10.0.0.1", **({"dev": link} if link else {})} for link in links)
    other = {"table": 9, "to": "10.8.0.0/16", "via": "10.0.0.1"}
    rest = of(routes=[written, other]).without(of(routes=[going]))
    assert [str(one) for one in rest.routes or ()] == ["ip route 10.8.0.0/16 via 10.0.0.1 table 9"]


LIKE = {"via": "10.0.0.1", "mtu": 1400}
UNLIKE = [
    ({**LIKE, "dev": "eth0"}, {**LIKE, "dev": "eth1"}),
    (LIKE, {**LIKE, "mtu": 1300, "dev": "eth0"}),
    (LIKE, {**LIKE, "via": "10.0.0.2", "dev": "eth0"}),
    (LIKE, {"mtu": 1400, "nexthops": [{"via": "10.0.0.1", "dev": "eth0"}, {"via": "10.0.0.2", "dev": "eth0"}]}),
]


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=str)
def test_another_route_is_not_like_it(one: dict[str, t.Any], other: dict[str, t.Any]) -> None:
    assert not route_of(**one).is_like(route_of(**other)) and not route_of(**other).is_like(route_of(**one))


SHOWN = {
    "default dev if7 table main": route.Route(2, 254, hops=(route.Hop("if7"),)),
    "broadcast default table main": route.Route(2, 254, type=route.BROADCAST),
    "type 77 default table main": route.Route(2, 254, type=77),
    "default table main scope 7": route.Route(2, 254, scope=7),
}


@pytest.mark.parametrize("text", SHOWN)
def test_a_route_of_others_is_named_by_numbers_where_there_is_no_word(text: str) -> None:
    assert str(SHOWN[text]) == f"ip route {text}"


# Names


def test_an_owner_is_named_by_iproute2s_word_or_by_its_number() -> None:
    assert rt_names.owner({186, 75}) == "protocol 75, protocol bgp"


def test_names_of_tables_are_read_as_iproute2_does() -> None:
    assert rt_names.parse("# reserved\n254 main\n0x3eb pods # a comment\nnonsense\n1 two words\n") == {
        "main": 254,
        "pods": 1003,
    }


def test_every_node_knows_main(monkeypatch: pytest.MonkeyPatch, tmp_path: t.Any) -> None:
    (tmp_path / "rt_tables.d").mkdir()
    (tmp_path / "rt_tables").write_text("7 main\n8 mine\n")
    (tmp_path / "rt_tables.d" / "pods.conf").write_text("1003 pods\n")
    monkeypatch.setattr(rt_tables_backend, "FOLDERS", ("/nowhere", str(tmp_path)))
    assert rt_tables_backend.tables() == {"main": 254, "local": 255, "default": 253, "mine": 8, "pods": 1003}


# Layouts of CNIs


QUIET = [
    rule_of(priority=512, to="10.0.1.5"),
    rule_of(priority=1024, fwmark="0x80/0x80"),
    rule_of(priority=1536, from_="10.0.1.5", table=1003),
    rule_of(priority=5000, from_="10.0.1.5", table=1003),
]


@pytest.mark.parametrize("one", QUIET, ids=str)
def test_what_means_the_same_as_a_cnis_is_not_warned_of(one: rule.Rule) -> None:
    assert known_programs.warnings([one], []) == []


LOUD = [
    ("amazon-vpc-cni", rule_of(priority=1536, to="10.0.1.5")),
    ("Terway", rule_of(priority=2048, fwmark="1")),
    ("amazon-ec2-net-utils", rule_of(priority=10001, from_="10.0.1.5")),
    ("Cilium (IPsec)", rule_of(priority=5000, table=200)),
    ("kube-proxy", rule_of(priority=5000, fwmark="0x4000/0x4000")),
    ("amazon-vpc-cni and Cilium", rule_of(priority=5000, fwmark="0x80/0x80", table=1003)),
]


@pytest.mark.parametrize(("owner", "one"), LOUD, ids=str)
def test_what_means_something_else_is_warned_of_once(owner: str, one: rule.Rule) -> None:
    (warning,) = known_programs.warnings([one, one], [])
    assert owner in warning and "nodes that run this software" in warning


def test_what_was_in_force_over_a_link_stays_beside_another_answer() -> None:
    first, second = (
        [
            {"table": table, "to": "10.0.1.1", "dev": dev},
            {"table": table, "to": "default", "via": "10.0.1.1", "dev": dev},
        ]
        for table, dev in ((2, "eth1"), (3, "eth2"))
    )
    marked, one, two = (
        {"priority": 1024, "fwmark": "0x80/0x80", "table": "main", "family": "ipv4"},
        {"priority": 32765, "from": "10.0.1.10", "table": 2},
        {"priority": 32765, "from": "10.0.2.10", "table": 3},
    )
    former, told = of([marked, one, two], [*first, *second]), of([marked, one], first)
    assert told.besides(former.by({"eth2"})).text() == former.text()
    assert told.besides(former.by(())) == told
    assert told.besides(former.by({"eth1", "eth2"})).text() == former.text()  # routes given for a table take precedence


def test_rules_by_source_stay_with_their_exceptions() -> None:
    routes = [
        {"table": table, "to": "default", "via": via, "dev": dev, "onlink": True}
        for table, via, dev in ((2, "10.0.1.1", "eth1"), (3, "10.0.2.1", "eth2"))
    ]
    rules = [
        *policy.source_rules("10.0.1.10", 2, 1400, ["10.0.2.0/24"]),
        *policy.source_rules("10.0.2.10", 3, 1400, ["10.0.1.0/24"]),
    ]
    routes.append({"table": 3, "to": "10.9.0.0/16", "via": "10.0.1.9", "dev": "eth1", "onlink": True})  # pods of another node
    former, told = of(rules, routes), of(rules[:4], routes[:1])
    assert told.besides(former.by({"eth2"})).text() == former.text()
    assert former.besides(former.by({"eth2"})) == former


def shown(*entries: dict[str, t.Any]) -> list[str]:
    return [str(rule) for rule in policy.from_options(75, entries, None, {"main": 254}).rules or ()]


def test_only_networks_of_the_sources_family_are_exceptions() -> None:
    assert shown(*policy.source_rules("fd00:1::10", 7, 1400, ["10.0.0.0/24", "fd00::/64", "::/0"])) == [
        "ip -6 rule 1397: from fd00:1::10 to fd00::/64 lookup main suppress_prefixlength 64",
        "ip -6 rule 1398: from fd00:1::10 to fd00::/64 lookup 7",
        "ip -6 rule 1399: from fd00:1::10 lookup main suppress_prefixlength 0",
        "ip -6 rule 1400: from fd00:1::10 lookup 7",
    ]


def test_the_networks_of_links_are_those_of_table_main() -> None:
    routes: list[dict[str, t.Any]] = [
        {"table": 254, "to": "10.0.0.0/24", "dev": "eth0"},
        {"table": 254, "to": "10.0.9.0/24", "dev": "eth0", "via": "10.0.0.9"},
        {"table": 254, "to": "10.0.0.5/32", "dev": "veth1"},
        {"table": 254, "to": "default", "dev": "ppp0"},
        {"table": 1001, "to": "10.0.1.0/24", "dev": "eth1"},
        {"table": 254, "to": "fd00::/64", "dev": "eth0"},
        {"table": 254, "to": "fe80::/64", "dev": "eth0"},
    ]
    read = policy.from_options(75, None, routes, {}).routes
    assert policy.networks_of_links(read or ()) == {"eth0": ["10.0.0.0/24", "fd00::/64"]}


def parsed_or_refused(parse: t.Callable[[str, strategies.Entry], rule.Rule], entry: strategies.Entry) -> t.Any:
    try:
        return parse("rules[3]", entry)
    except Invalid as error:
        return str(error)


def test_entries_are_parsed_alike_whatever_came_before_them() -> None:
    """Entries that differ in an address alone are parsed once: none gets what another one may have and it may not."""
    plain = {"priority": 512, "table": "main"}
    entries = [
        *({**plain, way: address} for way in ("to", "from") for address in ("10.0.0.1", "10.0.0.2", "2001:db8::1", "::2")),
        *({**plain, "to": odd} for odd in ("", "10.0.0.0/8", "10.0.0.1/8", "default", "10.0.0.1 ", "::1%eth0", 7, None, ["::1"])),
        *({**plain, "to": "10.0.0.3", **odd} for odd in (
            {"from": ""}, {"from": "10.0.0.9"}, {"from": "::1"}, {"from": None}, {"priority": True}, {"priority": "512"},
            {"priority": 512.0}, {"priority": [512]}, {"priority": 0}, {"table": 254}, {"table": "254"}, {"table": None},
            {"table": "no such"}, {"family": "ipv4"}, {"family": "ipv6"}, {"family": ["ipv4"]}, {"family": None}, {"iif": "eth0"},
            {"iif": None}, {"not": True}, {"color": "red"},
        )),
        {"to": "10.0.0.4", "table": 9},
        {"priority": 9, "to": "10.0.0.4", "goto": 10},
    ]  # fmt: skip
    tables = {"main": 254}
    parse = rule.parser(tables)
    for entry in [*entries, *reversed(entries), *entries]:
        expected = parsed_or_refused(functools.partial(rule.from_options, tables=tables), entry)
        assert parsed_or_refused(parse, entry) == expected, entry


@given(st.lists(strategies.rules, max_size=6))
def test_the_text_of_rules_is_that_of_their_options(entries: list[strategies.Entry]) -> None:
    rules = [rule.from_options("rules", entry, TABLES) for entry in entries]
    zeros = [tuple((bytes(len(packed)), length) for packed, length in (one.src, one.dst)) for one in rules]
    sources = [one._replace(src=zero[0]) for one, zero in zip(rules, zeros)]
    destinations = [one._replace(dst=zero[1]) for one, zero in zip(rules, zeros)]
    alike = [*rules, *sources, *destinations]
    assert [*rule.texts(alike)] == [json.dumps(one.options()) for one in alike]
