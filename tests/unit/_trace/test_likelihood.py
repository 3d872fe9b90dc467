# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence fits outcomes or contradicts them, and makes none certain."""

from __future__ import annotations

import pytest

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
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import likelihood
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer, Culprit, Met, Outcome, Way
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.culprit import ChainRule
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.frame import Frame
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.likelihood import Flow
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import Packet

ENDS = ("tcp", "198.51.100.1", "10.1.0.9", 80)


def outcome(verdict: str, reply: str = "", line: str = "") -> Outcome:
    culprit = Culprit.of(ChainRule("inet", "own", "in", line, 7)) if line else None
    return Outcome(verdict, verdict, reply, culprit)


BOTH, LOST, NO_REPLY, OPEN = (
    outcome("forwarded", "delivered"),
    outcome("dropped"),
    outcome("forwarded", "dropped"),
    outcome("unknown"),
)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [(ASSURED, (1, -1, -1, 0)), (UNREPLIED, (-1, 1, 1, 0)), (SYN, (-1, 1, 1, 0)), (SYN_ACK, (-1, -1, 1, 0))],
)
def test_a_connection_fits_an_outcome(kind: str, fits: tuple[int, ...]) -> None:
    entry = Evidence(kind, "", *ENDS, (3,))
    assert tuple(likelihood.fit(entry, each) for each in (BOTH, LOST, NO_REPLY, OPEN)) == fits
    assert likelihood.fit(entry, outcome("forwarded")) == likelihood.NEUTRAL  # no reply was asked for
    assert "198.51.100.1 to 10.1.0.9 port 80" in likelihood.sentence(entry)


def test_a_segment_that_a_capture_shows_leave_is_not_lost_on_the_node() -> None:
    entry = Evidence(SYN, "", *ENDS, (3,), link="ens9")
    assert [likelihood.fit(entry, each) for each in (BOTH, LOST, NO_REPLY, OPEN)] == [-1, -1, 1, 0]
    assert "leave by ens9 3 times, and no answer" in likelihood.sentence(entry)


def test_a_counter_fits_the_outcome_whose_culprit_it_is() -> None:
    entry = Evidence(COUNTER, "inet own in: tcp dport 80 counter drop", counts=(30, 9))
    dropped = outcome("dropped", "", "tcp dport 80 counter packets 1 bytes 40 drop")
    assert [likelihood.fit(entry, each) for each in (dropped, LOST, BOTH)] == [1, 0, 0]
    assert likelihood.sentence(entry) == "inet own in: tcp dport 80 counter drop went from 9 to 30 packets"
    assert likelihood.sentence(entry._replace(counts=(9,))).endswith("has 9 packets")


def test_evidence_about_other_connections_is_left_out() -> None:
    own, other = Evidence(SYN, "", *ENDS, (2,)), Evidence(SYN, "", "tcp", "198.51.100.2", "10.1.0.9", 80, (2,))
    left = Frame(Packet(bytes([192, 0, 2, 4]), bytes([10, 1, 0, 8]), destination_port=8080), b"", b"")
    way = Way("forwarded", "eth0", None, "", None, met=Met(left))
    translated = Evidence(UNREPLIED, "", "tcp", "192.0.2.4", "10.1.0.8", 8080)
    flows = likelihood.flows(Flow(*ENDS), [Answer(way), None, Answer(way._replace(met=Met()))])
    assert likelihood.about([own, other, translated], flows) == [own, translated]
    assert likelihood.about([other], [Flow("tcp", "", "10.1.0.9", 80)]) == [other]  # the node chooses the source


def test_the_outcome_with_most_evidence_is_the_likeliest_and_of_equals_none() -> None:
    assert likelihood.likeliest([BOTH, LOST]) == []
    assert likelihood.likeliest([BOTH._replace(contradicted_by=("x",)), LOST]) == [LOST]
    assert likelihood.likeliest([BOTH, LOST._replace(evidence=("x",))])[0].verdict == "dropped"


@pytest.mark.parametrize(
    ("entry", "words", "ask"),
    [
        (Evidence(LOGGED, "INPUT Guard:"), "a rule in INPUT that no output has stops the packet", "iptables-save"),
        (Evidence(TRACED, "inet own in: drop"), "inet own in: drop stops the packet", "nft list ruleset"),
        (
            Evidence(REFUSED, "tun9.5 Invalid cross-device link"),
            "reverse-path filtering drops the packet (net.ipv4.conf.tun9.5.rp_filter)",
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tun9/5.rp_filter",
        ),
        (
            Evidence(REFUSED, "lo Network is unreachable", destination="fd00::9"),
            "no route leads to fd00::9",
            "ip -6 route show table all",
        ),
        (Evidence(REFUSED, "ping Operation not permitted"), "a rule in OUTPUT stops the packet", "iptables-save"),
        (Evidence(REFUSED, "lo File exists"), "", ""),
        (Evidence(REPORTED, "lo unknown to us"), "", ""),
        (
            Evidence(REPORTED, "tun9.5 martian source"),
            "reverse-path filtering drops the packet (net.ipv4.conf.tun9.5.rp_filter)",
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tun9/5.rp_filter",
        ),
        (
            Evidence(REPORTED, "wg7 unallowed src IP", source="10.66.0.9"),
            "WireGuard drops the packet: 10.66.0.9 is not among the allowed IPs of the peer that sends it",
            "wg show wg7 allowed-ips",
        ),
    ],
)
def test_evidence_that_tells_what_stops_a_packet_has_one_command(entry: Evidence, words: str, ask: str) -> None:
    assert likelihood.stopping(entry) == (words, ask)
    assert likelihood.fit(entry, LOST) == likelihood.fit(entry, BOTH) == likelihood.NEUTRAL


def test_a_counter_for_invalid_packets_counts_in_the_chain_whose_other_rule_counted_none() -> None:
    def by(rule: str) -> Answer:
        return Answer(Way("dropped", "", None, "", Culprit.of(ChainRule("ip", "filter", "guard", f"-A guard {rule}", 7))))

    invalid = Evidence(COUNTER, "ip filter: -A guard -m conntrack --ctstate INVALID -j DROP", counts=(20,))
    last = Evidence(COUNTER, "ip filter: -A guard -j DROP", counts=(3,))
    elsewhere = invalid._replace(rule=invalid.rule.replace("guard", "other"))
    assert likelihood.invalid_by(by("-j DROP"), [invalid]) == invalid
    assert likelihood.stopping(invalid)[0].startswith("connection tracking takes the packet for invalid")
    assert likelihood.invalid_by(by("-j DROP"), [invalid, last]) is likelihood.invalid_by(by("-j DROP"), [elsewhere]) is None
