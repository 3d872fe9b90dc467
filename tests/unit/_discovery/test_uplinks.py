# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The uplinks of a node, and the leases that name their gateways."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery import uplinks, uplinks_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._discovery.uplinks import Link, NodeState
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy

DHCLIENT = """\
lease {
  interface "eth1";
  fixed-address 10.9.2.7;
  option routers 10.9.2.1;
}
lease {
  interface "eth0";
  fixed-address 10.9.1.49;
  option routers 10.9.1.1;
}
lease {
  interface "eth1";
  fixed-address 10.9.2.7;
  option subnet-mask 255.255.255.0;
  option routers 10.9.2.2, 10.9.2.3;
}
"""
NETWORK = """\
[Match]
Name=eth1

[Network]
Address=10.9.2.7/24
Gateway=_dhcp4
Gateway=fe80::1

[Route]
Destination=10.0.0.0/8
Gateway=10.9.2.9

[Route]
Gateway=10.9.2.1
Table=200
"""
KEYFILE = """\
[connection]
id=second
interface-name=eth1

[ipv4]
address1=10.9.2.7/24,10.9.2.1
method=manual

[ipv6]
address1=FD09:0:2:0::7/64
gateway=fd09:0:2::1
"""


ADDRESSES = ("10.9.2.7", "fd09:0:2::7")
BOTH = {"ipv4": "10.9.2.1", "ipv6": "fd09:0:2::1"}
FORMER = ("192.168.122.9",)


@pytest.mark.parametrize(
    ("gateways", "expected"),
    [
        (uplinks_backend.networkd("# private\nADDRESS=10.9.2.7\nROUTER=10.9.2.1 10.9.2.2\n", ADDRESSES), {"ipv4": "10.9.2.1"}),
        (uplinks_backend.networkd("ADDRESS=10.9.2.7\n", ADDRESSES), {}),
        (uplinks_backend.networkd("ADDRESS=10.9.2.7\nROUTER=0.0.0.0\n", ADDRESSES), {}),
        (uplinks_backend.dhclient(DHCLIENT, "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (uplinks_backend.dhclient(DHCLIENT, "eth2", ADDRESSES), {}),
        (uplinks_backend.dhclient(DHCLIENT + DHCLIENT[:60], "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (uplinks_backend.dhclient("#" * uplinks_backend.MOST_OF_LEASES + DHCLIENT, "eth1", ADDRESSES), {"ipv4": "10.9.2.2"}),
        (uplinks_backend.dhclient(DHCLIENT + "#" * uplinks_backend.MOST_OF_LEASES, "eth1", ADDRESSES), {}),
        (uplinks_backend.keyfile(f"{KEYFILE}[wifi-security]\ninterface-name=eth0\n", "eth1", ADDRESSES), BOTH),
        (uplinks_backend.network_file(NETWORK), {"ipv4": "10.9.2.1", "ipv6": "fe80::1"}),
        (uplinks_backend.keyfile(KEYFILE, "eth1", ADDRESSES), BOTH),
        (uplinks_backend.keyfile(KEYFILE, "eth0", ADDRESSES), {}),
    ],
)
def test_the_gateway_of_the_link_is_read(gateways: dict[str, str], expected: dict[str, str]) -> None:
    assert gateways == expected


def test_a_lease_or_connection_whose_address_the_link_does_not_have_is_of_another_time() -> None:
    assert uplinks_backend.networkd("ADDRESS=10.9.2.7\nROUTER=10.9.2.1\n", FORMER) == {}
    assert uplinks_backend.networkd("ROUTER=10.9.2.1\n", ADDRESSES) == {}
    assert uplinks_backend.dhclient(DHCLIENT, "eth1", FORMER) == {}
    assert uplinks_backend.message(packet(b"\x03\x04\x0a\x09\x02\x01\xff"), FORMER) == {}
    assert uplinks_backend.keyfile(KEYFILE, "eth1", FORMER) == {}
    assert uplinks_backend.keyfile(KEYFILE, "eth1", ["10.9.2.7"]) == {"ipv4": "10.9.2.1"}


def packet(options: bytes) -> bytes:
    """A DHCP message that gives a client the address 10.9.2.7."""
    return bytes(16) + b"\x0a\x09\x02\x07" + bytes(216) + uplinks_backend.MAGIC + options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"\x01\x04\xff\xff\xff\x00\x00\x03\x08\x0a\x09\x02\x01\x0a\x09\x02\x02\xff", {"ipv4": "10.9.2.1"}),
        (b"\x01\x04\xff\xff\xff\x00\xff\x03\x04\x0a\x09\x02\x01", {}),
        (b"\x03\x04\x0a\x09", {}),
        (b"\x03", {}),
    ],
    ids=["an option after padding", "after the end", "cut in the address", "cut in the option"],
)
def test_a_message_is_read_to_its_end_and_no_further(options: bytes, expected: dict[str, str]) -> None:
    assert uplinks_backend.message(packet(options), ADDRESSES) == expected
    assert uplinks_backend.message(bytes(240) + options, ADDRESSES) == {}


Entry = dict[str, t.Any]
ROUTES: list[Entry] = [
    {"table": 254, "to": "default", "via": "10.9.1.1", "dev": "eth0"},
    {"table": 254, "to": "10.9.1.0/24", "dev": "eth0"},
    {"table": 254, "to": "10.9.2.0/24", "dev": "eth1"},
    {"table": 254, "to": "10.0.0.0/8", "via": "10.9.1.1", "dev": "eth0"},
    {"table": 254, "to": "172.30.6.0/24", "via": "10.9.1.50", "dev": "eth0"},
    {"table": 254, "to": "172.30.7.0/24", "via": "172.30.7.0", "dev": "flannel.1", "onlink": True},
    {"table": 254, "to": "172.30.5.20/32", "dev": "cali1"},
    {"table": 254, "to": "fe80::/64", "dev": "eth1"},
    {"table": 254, "to": "fd09:0:2::/64", "dev": "eth1"},
]
LINKS = {
    "lo": Link(1),
    "eth0": Link(2, ("10.9.1.49",)),
    "eth1": Link(3, ("10.9.2.7", "fd09:0:2::7"), {"ipv4": "10.9.2.1"}),
    "br0": Link(4, ("172.30.5.1",)),
}


def node(routes: t.Sequence[Entry] | None = None, links: t.Mapping[str, Link] | None = None) -> NodeState:
    parsed = policy.from_options(75, None, ROUTES if routes is None else routes, {}).routes
    return NodeState(LINKS if links is None else links, parsed or ())


def plan_lines(entries: t.Sequence[Entry], state: NodeState) -> tuple[list[str], list[str], dict[str, str]]:
    derived = uplinks.rules_and_routes(uplinks.from_option(entries), state)
    desired = policy.from_options(75, derived.rules, derived.routes, {"main": 254})
    return [str(rule) for rule in desired.rules or ()], [str(route) for route in desired.routes or ()], derived.unfit


def test_each_uplink_has_a_table_that_is_looked_up_by_mark_and_by_source() -> None:
    rules, routes, unfit = plan_lines([{"name": "eth0"}, {"name": "eth1", "table": 77}, {"name": "eth9"}], node())
    assert rules == [
        "ip rule 1200: from all fwmark 0x2/0x6 lookup 1002",
        "ip rule 1397: from 10.9.1.49 to 10.9.2.0/24 lookup main suppress_prefixlength 24",
        "ip rule 1398: from 10.9.1.49 to 10.9.2.0/24 lookup 1002",
        "ip rule 1399: from 10.9.1.49 lookup main suppress_prefixlength 0",
        "ip rule 1400: from 10.9.1.49 lookup 1002",
        "ip rule 1200: from all fwmark 0x4/0x6 lookup 77",
        "ip rule 1397: from 10.9.2.7 to 10.9.1.0/24 lookup main suppress_prefixlength 24",
        "ip rule 1398: from 10.9.2.7 to 10.9.1.0/24 lookup 77",
        "ip rule 1399: from 10.9.2.7 lookup main suppress_prefixlength 0",
        "ip rule 1400: from 10.9.2.7 lookup 77",
    ]
    assert routes == [
        "ip route default via 10.9.1.1 dev eth0 onlink table 1002",
        "ip route 10.9.1.0/24 dev eth0 table 1002 scope link",
        "ip route 10.0.0.0/8 via 10.9.1.1 dev eth0 onlink table 1002",
        "ip route 172.30.6.0/24 via 10.9.1.50 dev eth0 onlink table 1002",
        "ip route 172.30.7.0/24 via 172.30.7.0 dev flannel.1 onlink table 1002",
        "ip route default via 10.9.2.1 dev eth1 onlink table 77",
        "ip route 10.9.2.0/24 dev eth1 table 77 scope link",
        "ip route 172.30.6.0/24 via 10.9.1.50 dev eth0 onlink table 77",
        "ip route 172.30.7.0/24 via 172.30.7.0 dev flannel.1 onlink table 77",
    ]
    assert unfit == {
        "eth1": "eth1 has the address fd09:0:2::7 and no known IPv6 gateway, so replies from it leave by the default route. Give"
        " gateway6 in uplinks"
    }


@pytest.mark.parametrize(
    ("entry", "routes", "gateway"),
    [
        ({"gateway": "10.9.2.9"}, [{"table": 254, "to": "default", "via": "10.9.2.2", "dev": "eth1"}], "10.9.2.9"),
        ({}, [{"table": 200, "to": "default", "via": "10.9.2.2", "dev": "eth1"}], "10.9.2.2"),
        (
            {},
            [
                {"table": 200, "to": "default", "via": "10.9.2.3", "dev": "eth1"},
                {"table": 254, "to": "default", "via": "10.9.2.4", "dev": "eth1", "metric": 9},
                {"table": 254, "to": "default", "via": "10.9.2.5", "dev": "eth1", "metric": 5},
            ],
            "10.9.2.5",
        ),
        ({}, [{"table": 254, "to": "default", "dev": "eth1"}], "10.9.2.1"),
        ({}, [{"table": 254, "to": "default", "via": "224.0.0.1", "dev": "eth1", "onlink": True}], "10.9.2.1"),
    ],
    ids=["the option", "any table", "main, and the lowest metric", "the lease", "not what the kernel refuses"],
)
def test_the_gateway_is_that_of_the_option_of_a_route_or_of_a_lease(entry: Entry, routes: list[Entry], gateway: str) -> None:
    assert uplinks.gateways([{"name": "eth1", **entry}], node(routes)) == {"eth1": {"ipv4": gateway}}


def test_uplinks_are_links_with_an_address_and_a_gateway() -> None:
    links = {**LINKS, "cilium_host": Link(7, ("10.0.0.9",), {"ipv4": "10.0.0.1"}), "eth3": Link(8, (), {"ipv4": "10.0.0.1"})}
    assert [entry["name"] for entry in uplinks.candidates(node(links=links))] == ["eth0", "eth1"]


def test_a_link_in_a_bridge_is_no_uplink_and_a_lease_may_name_the_node_itself() -> None:
    own = policy.from_options(75, None, [{"table": 255, "to": "10.9.2.7/32", "dev": "eth1", "type": "local"}], {}).routes or ()
    links = {"eth0": Link(2, ("10.9.1.49",), {"ipv4": "10.9.1.1"}, "br0"), "eth1": Link(3, ("10.9.2.7",), {"ipv4": "10.9.2.7"})}
    assert uplinks.candidates(NodeState(links, own)) == []


def test_a_table_that_another_program_fills_is_not_taken() -> None:
    foreign = [{"table": 1003, "to": "10.0.0.0/8", "dev": "br0"}]
    cases: list[tuple[list[Entry], set[int]]] = [
        ([{"name": "eth0"}, {"name": "eth1"}], {1002, 1004}),
        ([{"name": "eth0", "table": 1004}, {"name": "eth1"}], {1004, 1005}),
        ([{"name": "eth0"}, {"name": "eth1", "table": 1002}], {1004, 1002}),
    ]
    for entries, tables in cases:
        routes = uplinks.rules_and_routes(uplinks.from_option(entries), node([*ROUTES, *foreign])).routes
        assert {route["table"] for route in routes} == tables


def test_a_route_by_an_address_of_the_node_is_not_copied() -> None:
    """As Cilium's to pods; the kernel takes no such gateway with onlink."""
    own: list[Entry] = [
        {"table": 255, "to": "10.244.0.99/32", "dev": "cilium_host", "type": "local"},
        {"table": 254, "to": "10.244.1.0/24", "via": "10.244.0.99", "dev": "cilium_host"},
    ]
    entries = uplinks.from_option([{"name": "eth0"}])
    assert uplinks.rules_and_routes(entries, node([*ROUTES, *own])) == uplinks.rules_and_routes(entries, node())


def test_a_gateway_in_another_network_is_doubted() -> None:
    entries = [{"name": "eth0", "gateway": "10.9.1.9"}, {"name": "eth1", "gateway": "10.9.1.1", "gateway6": "fe80::1"}]
    (sentence,) = uplinks.doubts(entries, node())
    assert sentence.startswith("The gateway 10.9.1.1 of eth1 is in no network of eth1.")
    links = {**LINKS, "eth2": Link(9, ("192.0.2.7",))}
    assert not [*uplinks.doubts([{"name": "eth2", "gateway": "198.51.100.1"}], node(links=links))]


def test_each_family_without_a_gateway_is_named() -> None:
    links = {"eth1": Link(3, ("10.9.2.7", "fd09:0:2::7"))}
    (sentence,) = uplinks.rules_and_routes(uplinks.from_option([{"name": "eth1"}]), NodeState(links, ())).unfit.values()
    assert "10.9.2.7 and no known IPv4 gateway" in sentence and "fd09:0:2::7 and no known IPv6 gateway" in sentence


def test_marks_take_the_fewest_bits_and_leave_out_those_that_are_given() -> None:
    entries: list[Entry] = [{"name": f"eth{number}"} for number in range(5)]
    entries[1]["mark"] = 2
    normal = uplinks.from_option(entries)
    assert [entry["mark"] for entry in normal] == ["0x4", "0x2", "0x6", "0x40", "0x42"]
    assert uplinks.mask(normal) == 0x46
    assert uplinks.from_option(normal) == normal


BAD: list[tuple[list[Entry], str]] = [
    ([], r"uplinks must be a list of at least one network interface; \[\] was given"),
    ([{"name": "a b"}], r"uplinks\[0\]\.name must be"),
    (
        [{"name": "eth0"}, {"name": "eth0"}],
        r"uplinks\[1\]\.name must be different from that of each other entry; 'eth0' was given",
    ),
    ([{"name": "a", "mark": "0x2"}, {"name": "b", "mark": 2}], r"uplinks\[1\]\.mark must be different"),
    ([{"name": "a", "table": 9}, {"name": "b", "table": 9}], r"uplinks\[1\]\.table must be different"),
    ([{"name": "a", "table": 254}], r"uplinks\[0\]\.table must be a table other than default, main and local"),
    ([{"name": "a", "mark": ""}], r"uplinks\[0\]\.mark must be a number from 1"),
    ([{"name": "a", "mark": "0"}], r"uplinks\[0\]\.mark must be a number from 1"),
    ([{"name": "a", "gateway": "fd00::1"}], r"uplinks\[0\]\.gateway must be the IPv4 address of the uplink's router; 'fd00::1'"),
    ([{"name": "a", "gateway6": "x"}], r"uplinks\[0\]\.gateway6 must be the IPv6 address of the uplink's router; 'x'"),
    ([{"name": f"eth{number}"} for number in range(16)], r"uplinks\[15\]\.mark must be given, because only 15 marks are free"),
]


@pytest.mark.parametrize(("entries", "error"), BAD)
def test_bad_input_is_named_with_what_is_allowed(entries: list[Entry], error: str) -> None:
    with pytest.raises(Invalid, match=f"^{error}"):
        uplinks.from_option(entries)
