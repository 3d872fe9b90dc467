# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A packet as a line of text, and the link by which it comes in where the line does not say it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, packet, packet_text

SYN = "Flags [S], seq 1, win 64240, options [mss 1460], length 0"


@pytest.mark.parametrize(
    ("line", "shown", "interface"),
    [
        ("tcp 10.0.0.1:40001 > 10.96.0.1:443 in eth0", "tcp 10.0.0.1:40001 > 10.96.0.1:443", "eth0"),
        ("udp 10.0.0.1 -> 10.96.0.10:53 in eth0 length 1500 df", "udp 10.0.0.1:40000 > 10.96.0.10:53", "eth0"),
        ("udp 10.0.0.1 -> 10.96.0.10:53", "udp 10.0.0.1:40000 > 10.96.0.10:53", packet.AUTO),
        ("tcp [fd00::1]:4 > [fd00::2]:443 in veth1", "tcp [fd00::1]:4 > [fd00::2]:443", "veth1"),
        ("icmp 10.0.0.1 > 10.0.0.2 in eth0", "icmp 10.0.0.1 > 10.0.0.2", "eth0"),
        ("tcp > 10.96.0.1:443", "tcp the node > 10.96.0.1:443", ""),
        ("ICMP > 10.96.0.1", "icmp the node > 10.96.0.1", ""),
        ("udp > [fd00::2]:53", "udp the node > [fd00::2]:53", ""),
        ("10.0.0.1->10.96.0.10:53", "tcp 10.0.0.1:40000 > 10.96.0.10:53", packet.AUTO),
        ("icmpv6 fe80::1 > fd00::2 in eth0", "ipv6-icmp fe80::1 > fd00::2", "eth0"),
        (f"IP 10.244.1.7.40000 > 10.96.0.1.443: {SYN}", "tcp 10.244.1.7:40000 > 10.96.0.1:443", packet.AUTO),
        (f"IP 10.244.1.7.40000 > 10.96.0.1.https: {SYN}", "tcp 10.244.1.7:40000 > 10.96.0.1:443", packet.AUTO),
        (f"12:34:56.789012 IP6 fd00::1.4 > fd00::2.443: {SYN}", "tcp [fd00::1]:4 > [fd00::2]:443", packet.AUTO),
        (f"12:34:56.789012 veth1@if2 In  IP 10.0.0.1.4 > 10.0.0.2.80: {SYN}", "tcp 10.0.0.1:4 > 10.0.0.2:80", "veth1"),
        (f"2026-11-26 12:34:56.7 eth0  Out IP 10.0.0.1.4 > 10.0.0.2.80: {SYN}", "tcp 10.0.0.1:4 > 10.0.0.2:80", packet.AUTO),
        (
            "12:34:56.7 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 74:"
            f" 10.0.0.1.4 > 10.0.0.2.80: {SYN}",
            "tcp 10.0.0.1:4 > 10.0.0.2:80",
            packet.AUTO,
        ),
        (
            "12:34:56.7 IP (tos 0x0, ttl 64, id 1, offset 0, flags [DF], proto TCP (6), length 60)\n"
            f"    10.0.0.1.4 > 10.0.0.2.80: {SYN}",
            "tcp 10.0.0.1:4 > 10.0.0.2:80",
            packet.AUTO,
        ),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: Flags [SEW], seq 1, length 0", "tcp 10.0.0.1:4 > 10.0.0.2:80", packet.AUTO),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: tcp 0", "tcp 10.0.0.1:4 > 10.0.0.2:80", packet.AUTO),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: sctp (1) [INIT] [init tag: 1] [rwnd: 9]", "sctp 10.0.0.1:4 > 10.0.0.2:80", packet.AUTO),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: UDP, length 29", "udp 10.0.0.1:4 > 10.0.0.2:80", packet.AUTO),
        (
            "IP6 (hlim 64, next-header ICMPv6 (58) payload length: 64) fd00::1 > fd00::2:"
            " [icmp6 sum ok] ICMP6, echo request, id 1, seq 1",
            "ipv6-icmp fd00::1 > fd00::2",
            packet.AUTO,
        ),
        (
            "IP 10.0.0.4.41000 > 10.0.0.5.8472: OTV, flags [I] (0x08), overlay 0, instance 1\n"
            f"IP 10.1.0.5.4 > 10.1.1.5.80: {SYN}",
            "udp 10.0.0.4:41000 > 10.0.0.5:8472",
            packet.AUTO,
        ),
        ("IP 10.0.0.1.4 > 10.0.0.10.53: 1234+ A? example.com. (29)", "udp 10.0.0.1:4 > 10.0.0.10:53", packet.AUTO),
        ("IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 1, length 64", "icmp 10.0.0.1 > 10.0.0.2", packet.AUTO),
        (
            "tcp      6 117 SYN_SENT src=10.0.0.1 dst=10.96.0.1 sport=4 dport=443 [UNREPLIED]"
            " src=10.1.0.5 dst=10.0.0.1 sport=8443 dport=4 mark=0 use=1",
            "tcp 10.0.0.1:4 > 10.96.0.1:443",
            packet.AUTO,
        ),
        (
            "ipv4     2 udp      17 29 src=10.0.0.1 dst=10.96.0.10 sport=4 dport=53"
            " src=10.1.0.5 dst=10.0.0.1 sport=53 dport=4 mark=0",
            "udp 10.0.0.1:4 > 10.96.0.10:53",
            packet.AUTO,
        ),
        ("icmp 1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=7 src=10.0.0.2", "icmp 10.0.0.1 > 10.0.0.2", packet.AUTO),
        (
            "[ 12.3] ACK IN=eth0 OUT=veth1 MAC=02:00 SRC=10.0.0.1 DST=10.1.0.5 LEN=60 TTL=63 PROTO=TCP SPT=4 DPT=80 SYN MARK=0x1",
            "tcp 10.0.0.1:4 > 10.1.0.5:80",
            "eth0",
        ),
        ("IN=eth0 OUT= SRC=fd00::1 DST=fd00::2 PROTO=ICMPv6 TYPE=128 CODE=0", "ipv6-icmp fd00::1 > fd00::2", "eth0"),
        ("IN= OUT=eth0 SRC=10.0.0.4 DST=10.0.0.1 LEN=84 PROTO=UDP SPT=4 DPT=53 LEN=64", "udp 10.0.0.4:4 > 10.0.0.1:53", ""),
        (
            "IN=cni0 OUT=eth0 PHYSIN=veth1 SRC=10.1.0.5 DST=10.0.0.1 LEN=60 PROTO=TCP SPT=4 DPT=80 WINDOW=1 SYN",
            "tcp 10.1.0.5:4 > 10.0.0.1:80",
            "veth1",
        ),
    ],
)
def test_lines_that_people_have_are_packets(line: str, shown: str, interface: str) -> None:
    sent = packet.from_options(packet_text.options(line))
    assert (str(sent), sent.interface) == (shown, interface)


@pytest.mark.parametrize(
    "options",
    [
        {"source": "10.0.0.1", "destination": "10.0.0.2", "destination_port": 80, "interface": "eth0"},
        {"source": "fd00::1", "destination": "fd00::2", "protocol": "udp", "destination_port": 53, "interface": "eth0.5"},
        {"destination": "10.0.0.2", "destination_port": 80},
        {"destination": "fd00::2", "protocol": "icmp", "mark": "0x80"},
        {"source": "10.0.0.1", "destination": "10.0.0.2", "protocol": "gre", "interface": "eth0", "length": 1500, "df": True},
    ],
)
def test_the_line_of_a_packet_is_read_as_the_same_packet(options: dict[str, Any]) -> None:
    sent = packet.from_options(options)
    assert packet.from_options(packet_text.options(sent.line)) == sent


def test_a_mark_of_the_packet_is_kept_and_that_of_a_connection_is_not() -> None:
    assert packet.from_options(packet_text.options("tcp 10.0.0.1:4 > 10.0.0.2:80 in eth0 mark 0x80")).mark == 0x80
    tuples = "src=10.0.0.1 dst=10.0.0.2 sport=4 dport=80 src=10.0.0.2 dst=10.0.0.1 sport=80 dport=4"
    assert packet.from_options(packet_text.options(f"tcp 6 10 ESTABLISHED {tuples} [ASSURED] mark=128 use=1")).mark == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("what happens to my packet", "packet must be a line such as tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0"),
        ("tcp fd00::1 > 2001:db8::1:443", "an address of IPv6 in brackets"),
        ("IP 10.96.0.1.443 > 10.244.1.7.40000: Flags [S.], seq 1, ack 2, length 0", "the first packet of a connection"),
        *(
            (f"IP 10.0.0.1.4 > 10.0.0.2.80: Flags [{flags}], seq 1, length 0", "the first packet of a connection")
            for flags in ("P.", ".", "F.", "S.", "S.E", "R", "R.", "none")
        ),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: sctp (1) [INIT ACK] [init tag: 1]", "the first packet of a connection"),
        ("IP 10.0.0.2 > 10.0.0.1: ICMP echo reply, id 1, seq 1, length 64", "the first packet of a connection"),
        ("IP 10.0.0.2 > 10.0.0.1: ICMP 8.8.8.8 udp port 53 unreachable, length 36", "an ICMP error begins no connection"),
        (
            "IP (ttl 64) 10.0.0.2 > 10.0.0.1: ICMP 8.8.8.8 udp port 53 unreachable, length 36"
            " IP (ttl 63) 10.0.0.1.4 > 8.8.8.8.53: UDP, length 8",
            "an ICMP error begins no connection",
        ),
        (f"IP 10.0.0.1 > 10.0.0.2: GREv0, length 64: IP 10.1.0.1.4 > 10.1.0.2.80: {SYN}", "For another protocol, write a line"),
        ("IP 10.0.0.1 > 10.0.0.2: ESP(spi=0x1,seq=0x1), length 100", "For another protocol, write a line"),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: DCCP (CCVal 0, CsCov 0)", "For another protocol, write a line"),
        ("IP 10.0.0.1.4 > 10.0.0.2.80: [|tcp]", "For another protocol, write a line"),
        (
            "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.4 PROTO=ICMP TYPE=3 CODE=1"
            " [SRC=10.0.0.4 DST=8.8.8.8 PROTO=UDP SPT=4000 DPT=53 ]",
            "an ICMP error begins no connection",
        ),
        ("IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.4 PROTO=ICMP TYPE=0 CODE=0", "the first packet of a connection"),
        ("icmp 1 29 src=10.0.0.1 dst=10.0.0.2 type=13 code=0 id=7 src=10.0.0.2", "the first packet of a connection"),
        *(
            (f"SYN IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.4 PROTO=TCP SPT=4 DPT=80 {flags} URGP=0", "the first packet of a conn")
            for flags in ("ACK SYN", "ACK", "RST", "ACK PSH FIN")
        ),
        ("IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.4 PROTO=UDP SPT=abc DPT=80", "ports as numbers; 'SPT=abc'"),
        ("udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=4 dport=http src=10.0.0.2", "ports as numbers; 'dport=http'"),
        ("tcp 1.1.1.1:\u00b2 > 10.0.0.2:80 in eth0", "\u00b2 is no service of tcp"),
        ("IP 10.0.0.1.\u0663 > 10.0.0.2.53: UDP, length 8", "\u0663 is no service of udp"),
        *(
            (line.replace("?", sign), "printable characters")
            for sign in ("\0", "\ud800")
            for line in (
                "tcp 10.0.0.1:? > 10.0.0.2:80",
                "udp 17 29 src=10.0.0.1 dst=10.0.0.2 sport=?",
                f"IP 1.1.1.1.? > 2.2.2.2.8: {SYN}",
            )
        ),
        ("tcp 10.0.0.1:4 > 10.0.0.2:nosuchservice in eth0", "nosuchservice is no service of tcp"),
        ("IP " * 100000, "of at most 1000 characters; 'IP IP"),
    ],
)
def test_another_line_is_an_error_that_says_what_is_one(line: str, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)):
        packet_text.options(line)


LINKS: list[dict[str, Any]] = [
    {"name": "eth0", "kind": "", "addresses": [{"address": "10.0.0.4/24"}]},
    {"name": "veth1", "kind": "veth", "addresses": [], "peer": {"addresses": ["10.1.0.5"]}},
    {"name": "cni0", "kind": "bridge", "addresses": [{"address": "10.2.0.1/24"}]},
    {"name": "veth2", "kind": "veth", "addresses": [], "master": "cni0"},
]
ROUTES = [
    {"table": "254", "family": "ipv4", "to": "default", "via": "10.0.0.1", "dev": "eth0"},
    {"table": "254", "family": "ipv4", "to": "10.2.0.0/24", "dev": "cni0", "scope": "link"},
]


@pytest.mark.parametrize(
    ("source", "link"),
    [("10.0.0.4", ""), ("127.0.0.1", ""), ("10.1.0.5", "veth1"), ("10.2.0.9", "veth2"), ("198.51.100.7", "eth0")],
)
def test_a_packet_comes_in_by_the_link_behind_which_its_source_is(source: str, link: str) -> None:
    snapshot: dict[str, Any] = {"links": LINKS, "routes": ROUTES}
    sent = packet.from_options(packet_text.options(f"tcp {source} > 10.96.0.1:443"))
    assert entrance.placed(sent, snapshot).interface == link


PORTS_OF_CNI0 = [
    {"name": "eth1", "kind": "", "addresses": [], "master": "cni0"},
    {"name": "veth3", "kind": "veth", "addresses": [], "master": "cni0", "peer": {"namespace": "n", "addresses": ["10.2.0.9"]}},
]


@pytest.mark.parametrize(
    ("source", "link"), [("10.2.0.9", "veth3"), ("10.2.0.77", "veth2"), ("198.51.100.7", "eth1"), ("10.1.0.5", "eth1")]
)
def test_a_packet_that_comes_in_by_a_bridge_comes_in_by_one_of_its_ports(source: str, link: str) -> None:
    sent = packet.from_options(packet_text.options(f"tcp {source} > 10.96.0.1:443 in cni0"))
    assert entrance.placed(sent, {"links": [*LINKS, *PORTS_OF_CNI0], "routes": ROUTES}).interface == link
    assert entrance.placed(sent, {"links": LINKS[:3], "routes": ROUTES}).interface == "cni0"  # whose ports no output shows


def test_a_source_without_a_way_back_needs_the_link() -> None:
    sent = packet.from_options(packet_text.options("tcp fd00::7 > [fd00::1]:443"))
    with pytest.raises(Invalid, match="the link by which the packet comes in: no route leads back to fd00::7"):
        entrance.placed(sent, {"links": LINKS, "routes": ROUTES})


SECOND = {"name": "eth1", "kind": "", "addresses": [{"address": "10.0.1.4/24"}]}
OF_SECOND = {"table": "1001", "family": "ipv4", "to": "default", "via": "10.0.1.1", "dev": "eth1"}
ON_LINK = {"table": "254", "family": "ipv4", "to": "10.0.0.0/24", "dev": "eth0", "scope": "link"}
TWO_UPLINKS: dict[str, Any] = {"links": [*LINKS, SECOND], "routes": [*ROUTES, ON_LINK, OF_SECOND]}


@pytest.mark.parametrize(
    ("source", "destination", "link"),
    [
        ("198.51.100.7", "10.0.0.4", "eth0"),
        ("198.51.100.7", "10.0.1.4", "eth1"),
        ("10.0.0.9", "10.0.0.4", "eth0"),
        ("10.0.0.9", "10.0.1.4", "eth1"),  # over the router of its network
        ("10.0.0.9", "10.96.0.1", "eth0"),
        ("10.0.0.4", "10.96.0.1", ""),
        ("10.1.0.5", "10.96.0.1", "veth1"),
        ("10.2.0.9", "10.96.0.1", "veth2"),
    ],
)
def test_of_several_uplinks_that_with_the_destination_is_the_entrance(source: str, destination: str, link: str) -> None:
    sent = packet.from_options(packet_text.options(f"tcp {source} > {destination}:443"))
    assert entrance.placed(sent, TWO_UPLINKS).interface == link


@pytest.mark.parametrize("addresses", [[], [{"address": "10.96.0.1/32"}]])
def test_a_packet_that_may_come_in_by_several_uplinks_needs_the_link(addresses: list[dict[str, str]]) -> None:
    links = [{**link, "addresses": [*link["addresses"], *addresses]} for link in TWO_UPLINKS["links"]]
    sent = packet.from_options(packet_text.options("tcp 198.51.100.7 > 10.96.0.1:443"))
    with pytest.raises(Invalid, match="such as `in eth0`: it may be each of the uplinks eth0, eth1;"):
        entrance.placed(sent, {**TWO_UPLINKS, "links": links})
    assert entrance.placed(sent, {**TWO_UPLINKS, "links": links}, is_guess=True).interface == "eth0"


def test_a_bridge_that_leads_outside_is_the_entrance_and_not_its_first_port() -> None:
    """The twin chooses the port, because it knows which ports lead to pods (Topology.entrance)."""
    bridge = {"name": "br0", "kind": "bridge", "addresses": [{"address": "10.0.0.4/24"}]}
    ports = [{"name": name, "kind": kind, "addresses": [], "master": "br0"} for name, kind in (("veth3", "veth"), ("eth0", ""))]
    sent = packet.from_options(packet_text.options("tcp 198.51.100.7 > 10.96.0.1:443"))
    assert entrance.placed(sent, {"links": [bridge, *ports], "routes": [{**ROUTES[0], "dev": "br0"}]}).interface == "br0"


def test_a_default_route_within_the_node_makes_no_uplink() -> None:
    proxy = {"name": "cilium_host", "kind": "veth", "addresses": [{"address": "10.3.0.1/32"}]}
    routes = [
        {"table": "2004", "family": "ipv4", "to": "default", "dev": "lo", "type": "local"},
        {"table": "2005", "family": "ipv4", "to": "default", "via": "10.3.0.1", "dev": "cilium_host"},
    ]
    sent = packet.from_options(packet_text.options("tcp 198.51.100.7 > 10.96.0.1:443"))
    assert entrance.placed(sent, {"links": [*LINKS, proxy], "routes": [*ROUTES, *routes]}).interface == "eth0"
