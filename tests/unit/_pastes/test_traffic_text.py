# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of links in outputs, and counters, connections and captured segments, the evidence of packets that passed the node."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import values
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.evidence import (
    ASSURED,
    COUNTER,
    LOGGED,
    REFUSED,
    REPORTED,
    SYN,
    SYN_ACK,
    TRACED,
    UNREPLIED,
    Evidence,
)

LINKS = "2: eth0: <UP,LOWER_UP> mtu 1500\n3: lxc1: <UP,LOWER_UP> mtu 1500\n"
FILTER = (
    "filter protocol all pref 1 bpf chain 0 \n"
    "filter protocol all pref 1 bpf chain 0 handle 0x1 cil_from_netdev-eth0 direct-action not_in_hw id 123 tag 0a jited \n"
)
BPFTOOL = "xdp:\n\ntc:\neth0(2) clsact/egress cil_to_netdev-eth0 id 9\nlxc1(3) tcx/ingress cil_from_container prog_id 7\n\n"
OF_BOTH = {("eth0", "egress", "cil_to_netdev-eth0"), ("lxc1", "ingress", "cil_from_container")}
OF_ETH0 = ("eth0", "ingress", "cil_from_netdev-eth0")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("report", f"$ tc filter show dev eth0 ingress\n{FILTER}", {OF_ETH0}),
        ("tc filter show dev eth0 ingress", FILTER, {OF_ETH0}),
        ("report", f"$ tc filter show dev lxc1 egress\n$ tc -s filter show dev eth0 ingress\n{FILTER}", {OF_ETH0}),
        ("report", FILTER, {(link, way, OF_ETH0[2]) for link in ("eth0", "lxc1") for way in ("ingress", "egress")}),
        ("report", f"$ bpftool net show\n{BPFTOOL}", OF_BOTH),
        ("bpftool-net-show.md", BPFTOOL, OF_BOTH),
        ("report", "$ tc filter show dev eth0 ingress\nfilter protocol ip pref 1 u32 chain 0\n", set()),
    ],
    ids=["prompt", "name", "two commands", "no command", "bpftool", "a bugtool", "another filter"],
)  # fmt: skip
def test_programs_are_read_with_their_links(name: str, text: str, expected: set[tuple[str, str, str]]) -> None:
    programs = pastes.read({"ip link": LINKS, name: text}).snapshot["bpf"] or ()
    assert {(program["link"], program["direction"], program["name"]) for program in programs} == expected


ROUTE = "$ ip route\ndefault via 192.0.2.1 dev eth0\n"
LISTED = """\
Chain FORWARD (policy DROP {0} packets, 540 bytes)
 pkts bytes target     prot opt in     out     source               destination
   {1}  1200 DROP       all  --  eth0   *       0.0.0.0/0            0.0.0.0/0
   12M    9G ACCEPT     all  --  eth1   *       0.0.0.0/0            0.0.0.0/0
"""
SAVED = "*filter\n:FORWARD DROP [0:0]\n[7:420] -A FORWARD -i eth0 -j REJECT\n[2:80] -A FORWARD -i eth0 -j REJECT\nCOMMIT\n"
NFT = "table inet own {\n\tchain in {\n\t\ttcp dport 80 counter packets 3 bytes 540 drop\n\t}\n}\n"
SEGMENT = "12:00:0{0} eth0  {1} IP 198.51.100.1.40000 > 10.1.0.9.80: Flags [S], seq 1, win 64240, length 0\n"
ANSWER = "12:00:0{0} IP 10.1.0.9.80 > 198.51.100.1.40000: Flags [S.], seq 5, ack 2, win 65160, length 0\n"
ENDS = ("tcp", "198.51.100.1", "10.1.0.9", 80)


def evidence(**dump: str) -> list[Evidence]:
    snapshot = pastes.read({name.replace("_", "-"): text for name, text in dump.items()}).snapshot
    return values.read(snapshot, "evidence")


def counter(rule: str, *counts: int) -> Evidence:
    return Evidence(COUNTER, rule, counts=counts)


def test_counters_of_rules_and_policies_that_drop_are_evidence() -> None:
    rule, policy = "ip filter: -A FORWARD -i eth0 -j DROP", "ip filter: -P FORWARD DROP"
    assert evidence(iptables_nvL=LISTED.format(9, "20K")) == [counter(policy, 9), counter(rule, 20000)]
    assert evidence(iptables_nvL=LISTED.format(0, 0)) == []
    assert evidence(iptables_save_c=SAVED) == [counter("ip filter: -A FORWARD -i eth0 -j REJECT", 9)]
    assert evidence(nft_list_ruleset=NFT) == [counter("inet own in: tcp dport 80 counter drop", 3)]


def test_two_readings_show_that_a_counter_moved() -> None:
    two = {"iptables_nvL_before": LISTED.format(0, 1), "iptables_nvL_after": LISTED.format(0, 5)}
    assert sorted(evidence(**two)[0].counts) == [1, 5]


TO, BACK = "src=198.51.100.1 dst=10.1.0.9", "src=10.1.0.9 dst=198.51.100.1"
WAIT = f"{TO} sport=40000 dport=80 [UNREPLIED] {BACK} sport=80 dport=40000"


@pytest.mark.parametrize(
    ("line", "kind", "protocol", "port"),
    [
        (f"tcp      6 118 SYN_SENT {WAIT} mark=0 use=1", UNREPLIED, "tcp", 80),
        (f"ipv4     2 tcp      6 86399 ESTABLISHED {WAIT.replace(' [UNREPLIED]', '')} [ASSURED] use=1", ASSURED, "tcp", 80),
        (f"udp      17 29 {WAIT}", UNREPLIED, "udp", 80),
        (f"icmp     1 29 {TO} type=8 code=0 id=7 [UNREPLIED] {BACK} type=0 code=0 id=7 use=1", UNREPLIED, "icmp", 0),
    ],
)
def test_a_tracked_connection_is_evidence(line: str, kind: str, protocol: str, port: int) -> None:
    text = f"{ROUTE}$ conntrack -L\n{line}\n"
    found = pastes.read({"report": text})
    expected = Evidence(kind, "", protocol, "198.51.100.1", "10.1.0.9", port, (), "198.51.100.1", "10.1.0.9", port)
    assert evidence(report=text) == [expected] and not found.ignored and not expected.new_source


@pytest.mark.parametrize(
    ("reply", "source", "destination"),
    [
        (f"{BACK} sport=80 dport=40000", "", ("", 0)),
        ("src=10.1.0.9 dst=192.0.2.4 sport=80 dport=1024", "192.0.2.4", ("", 0)),
        ("src=10.244.1.5 dst=198.51.100.1 sport=8080 dport=40000", "", ("10.244.1.5", 8080)),
        ("src=10.244.1.5 dst=192.0.2.4 sport=80 dport=1", "192.0.2.4", ("10.244.1.5", 80)),
    ],
)
def test_the_reply_that_a_connection_expects_shows_its_translation(reply: str, source: str, destination: tuple[str, int]) -> None:
    line = f"tcp      6 117 TIME_WAIT {TO} sport=40000 dport=80 packets=4 bytes=90 {reply} [ASSURED] mark=0 use=1"
    (entry,) = evidence(report=f"{ROUTE}$ conntrack -L\n{line}\n")
    assert (entry.new_source, entry.new_destination) == (source, destination)


def test_a_line_without_end_is_read_in_a_moment() -> None:
    started = time.monotonic()
    for text in ("a:" * 500_000, "/*" * 500_000, "src=" * 200_000, '"' * 999_999, "12:00:00.1 IP " + "1." * 300_000):
        pastes.read({"report": f"{ROUTE}$ conntrack -L\n{text}\n"})
    assert time.monotonic() - started < 5


def test_a_segment_that_comes_again_is_evidence_and_its_copy_on_another_link_is_not() -> None:
    capture = f"{ROUTE}# tcpdump -nni any tcp\n"
    again = SEGMENT.format("1.000001", "In") + SEGMENT.format("2.000001", "In")
    copies = SEGMENT.format("1.000001", "In") + SEGMENT.format("1.000041", "In")
    answers = ANSWER.format("1.2") + ANSWER.format("2.2") + ANSWER.format("4.2")
    assert evidence(report=capture + again) == [Evidence(SYN, "", *ENDS, (2,))]
    assert evidence(report=capture + copies) == []
    assert evidence(report=capture + again + answers) == [Evidence(SYN_ACK, "", *ENDS, (3,))]


def test_the_link_by_which_a_repeated_segment_leaves_is_evidence() -> None:
    lines = [SEGMENT.format(f"{second}.{link}", end) for second in (1, 2) for link, end in enumerate(("In", "Out"))]
    captured = "".join(line.replace("eth0  Out", "ens9  Out") for line in lines)
    assert evidence(report=f"{ROUTE}# tcpdump -ni any tcp\n{captured}") == [Evidence(SYN, "", *ENDS, (2,), link="ens9")]


def test_two_lines_of_a_detailed_capture_are_one_segment() -> None:
    head = "IP (tos 0x0, ttl 63, id 1, offset 0, flags [DF], proto TCP (6), length 60)\n    "
    lines = [
        SEGMENT.format("1.1", "In"),
        SEGMENT.format("2.1", "In"),
        ANSWER.format("1.2"),
        ANSWER.format("2.2"),
        ANSWER.format("4.2"),
    ]
    for count, kind in ((2, SYN), (5, SYN_ACK)):
        text = f"{ROUTE}# tcpdump -nvi any tcp\n" + "".join(lines[:count]).replace("IP ", head)
        assert [entry.kind for entry in evidence(report=text)] == [kind] and not pastes.read({"report": text}).ignored


OF_A_PACKET = "MAC=02:00 SRC=10.66.0.9 DST=198.51.100.53 LEN=60 TTL=63 ID=1 DF PROTO=TCP SPT=40001 DPT=443 SYN URGP=0"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (f"[ 77.100001] [UFW BLOCK] IN=br9 OUT=ens9 {OF_A_PACKET}", "FORWARD [UFW BLOCK]"),
        (f"Nov  3 10:00:01 node7 kernel: [77.1] guard: IN=br9 OUT= {OF_A_PACKET}", "INPUT guard:"),
        (f"IN= OUT=ens9 {OF_A_PACKET}", "OUTPUT"),
        (f"[ 77.1] TRACE: filter:FORWARD:rule:1 IN=br9 OUT=ens9 {OF_A_PACKET}", ""),  # of each rule that the packet meets
    ],
)
def test_a_packet_in_the_kernels_log_is_evidence_with_its_hook_and_prefix(line: str, rule: str) -> None:
    report = f"# ip route\ndefault via 192.0.2.1 dev ens9\n# dmesg\n{line}\n"
    assert evidence(report=report) == [Evidence(LOGGED, rule, "tcp", "10.66.0.9", "198.51.100.53", 443)] * bool(rule)


TRACE = (
    'trace id 7a0b11ff inet gate pass packet: iif "lan0" oif "wan0" ip saddr 10.66.0.9 ip daddr 198.51.100.53 ip ttl 63'
    " ip protocol tcp ip length 60 tcp sport 40001 tcp dport 443 tcp flags == syn\n"
    "trace id 7a0b11ff inet gate pass rule counter packets 3 bytes 9 (verdict continue)\n"
)


@pytest.mark.parametrize(
    ("end", "rule"),
    [("rule tcp dport 443 drop (verdict drop)", "tcp dport 443 drop"), ("policy drop", "policy drop"), ("policy accept", "")],
)
def test_what_drops_a_packet_in_a_trace_of_nft_is_evidence(end: str, rule: str) -> None:
    report = f"# nft monitor trace\n{TRACE}trace id 7a0b11ff inet gate pass {end}\n"
    expected = Evidence(TRACED, f"inet gate pass: {rule}", "tcp", "10.66.0.9", "198.51.100.53", 443)
    assert evidence(report=f"# ip route\ndefault via 192.0.2.1 dev ens9\n{report}") == [expected] * bool(rule)


@pytest.mark.parametrize(
    ("command", "error", "expected"),
    [
        (
            "ip route get 127.0.0.9 from 10.66.0.9 iif tun9",
            "RTNETLINK answers: Invalid cross-device link",
            Evidence(REFUSED, "tun9 Invalid cross-device link", source="10.66.0.9", destination="127.0.0.9"),
        ),
        (
            "ip r get 10.66.0.9",
            "RTNETLINK answers: Network is unreachable",
            Evidence(REFUSED, "lo Network is unreachable", destination="10.66.0.9"),
        ),
        (
            "ping -c 3 10.66.0.9",
            "PING 10.66.0.9 (10.66.0.9) 56(84) bytes of data.\nping: sendmsg: Operation not permitted",
            Evidence(REFUSED, "ping Operation not permitted", destination="10.66.0.9"),
        ),
        ("kubectl exec shop -- ping 10.66.0.9", "connect: Network is unreachable", None),
        ("ip route get shop", "RTNETLINK answers: Network is unreachable", None),
    ],
)
def test_a_route_that_the_kernel_refuses_is_evidence(command: str, error: str, expected: Evidence | None) -> None:
    report = f"# ip route\ndefault via 192.0.2.1 dev ens9\n# {command}\n{error}\n"
    assert evidence(report=report) == [expected] * bool(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[ 77.1] IPv4: martian source 10.66.0.9 from 198.51.100.53, on dev ens9.5",
            Evidence(REPORTED, "ens9.5 martian source", source="198.51.100.53", destination="10.66.0.9"),
        ),
        (
            "wireguard: wg7: Packet has unallowed src IP (fd00::9) from peer 3 ([fd00::1]:51820)",
            Evidence(REPORTED, "wg7 unallowed src IP", source="fd00::9"),
        ),
        (
            "Nov  3 10:00:01 node7 kernel: nf_conntrack: nf_conntrack: table full, dropping packet",
            Evidence(REPORTED, "- table full"),
        ),
        ("neighbour: arp_cache: neighbor table overflow!", Evidence(REPORTED, "- neighbor table overflow")),
        ("neighbour: the table is full", None),
    ],
)
def test_a_loss_that_the_kernel_reports_is_evidence(line: str, expected: Evidence | None) -> None:
    assert evidence(report=f"# ip route\ndefault via 192.0.2.1 dev ens9\n# dmesg\n{line}\n") == [expected] * bool(expected)
    assert not expected or evidence(report=line) == [expected]
