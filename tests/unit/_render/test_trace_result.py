# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A result of datapath_trace as values: what was translated, which step is the culprit, and what is no result."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import passage, trace_result
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import VERDICTS, Change, Culprit
from unit.answers import DNAT, DROP, FILTER, FILTERED, IN, LEFT, MASQUERADE, ROUTE, SERVICE, Result, arrived, lost, rule


@pytest.mark.parametrize(
    ("packet", "shown"),
    [
        ({**LEFT, "mark": 128}, "tcp 10.0.0.10:40000 > 10.244.1.2:8080, mark 0x80"),
        ({**LEFT, "mark": 0}, "tcp 10.0.0.10:40000 > 10.244.1.2:8080"),
        ({"source": "fe80::1", "destination": "fd00::2", "protocol": "ipv6-icmp"}, "ipv6-icmp fe80::1 > fd00::2"),
        ({**LEFT, "source": "fd00::1", "destination": "fd00::2"}, "tcp [fd00::1]:40000 > [fd00::2]:8080"),
    ],
)
def test_a_packet_is_written_as_tcpdump_does(packet: Result, shown: str) -> None:
    assert passage.packet(trace_result.read(arrived(packet=packet)).way.packet or {}) == shown


def test_each_translation_is_a_change_of_the_step_that_made_it() -> None:
    steps = trace_result.read(arrived(rule(), DNAT, ROUTE, MASQUERADE)).way.steps
    destination = Change("destination", "10.96.0.10:80", "10.244.1.2:8080")
    source = Change("source", "192.0.2.7:40000", "10.0.0.10:40000")
    assert [step.changes for step in steps] == [(), (), (destination,), (), (source,), ()]


def test_a_translation_by_no_rule_is_a_change_of_the_departure() -> None:
    *_steps, out = trace_result.read(arrived(rule(), ROUTE)).way.steps
    assert [change.end for change in out.changes] == ["source", "destination"]


def test_the_source_that_the_node_chooses_is_not_translated() -> None:
    sent = {**IN, "where": "the node", "text": "tcp the node > 10.244.1.2:8080"}
    steps = trace_result.read({**arrived(ROUTE), "steps": [sent, ROUTE, arrived()["steps"][-1]]}).way.steps
    assert [step.changes for step in steps] == [(), (), ()]


NEIGHBOR = {"kind": "neighbor", "where": "link veth1", "text": "10.244.1.2", "verdict": "no answer"}
POLICY = {"kind": "policy", "where": "ip filter FORWARD", "text": "", "verdict": "policy drop"}
ACCEPTED = {**POLICY, "where": "ip mangle PREROUTING", "verdict": "policy accept"}


@pytest.mark.parametrize("guilty", [rule("ip filter FORWARD", DROP, "drop"), POLICY, NEIGHBOR, ROUTE])
def test_the_step_that_stopped_the_packet_is_marked(guilty: Result) -> None:
    way = trace_result.read(lost({"kind": "rule", "text": "in other words"}, ACCEPTED, rule(), guilty, culprit_step=3)).way
    assert [step.is_culprit for step in way.steps] == [False, False, False, True] and way.missed_culprit is None


@pytest.mark.parametrize("number", [None, 17, -1])
def test_a_culprit_that_is_no_step_is_kept(number: int | None) -> None:
    culprit = Culprit("a kind of a later version", SERVICE, number)
    way = trace_result.read(lost(culprit.plain(), rule(), ROUTE, culprit_step=number)).way
    assert way.missed_culprit == culprit and not any(step.is_culprit for step in way.steps)


def test_the_culprit_of_a_reply_is_not_marked_on_the_packets_path() -> None:
    way = trace_result.read(
        arrived(rule(), ROUTE, reply=lost(FILTER, ROUTE, FILTERED, culprit_step=1), culprit=FILTER, culprit_step=1)
    ).way
    assert way.missed_culprit is None and not any(step.is_culprit for step in way.steps)
    assert way.reply and [step.is_culprit for step in way.reply.steps] == [False, True, False]


@pytest.mark.parametrize("tells_reply", [False, True])
def test_the_reason_of_the_reply_is_not_repeated(tells_reply: bool) -> None:
    way = trace_result.read(arrived(reason="It leaves.", tells_reply=tells_reply, reply=lost(FILTER, reason="Filtered."))).way
    assert way.reasons == ["It leaves.", "Reply: Filtered."][: 1 if tells_reply else 2]


def test_what_one_output_would_show_is_asked_for_once() -> None:
    facts = (
        ("table:ip raw", "iptables-save"),
        ("cut:ip nat", "iptables-save -t nat"),
        ("nft", "nft list ruleset"),
        ("line:1", ""),
    )
    value = trace_result.read(
        lost(None, depends_on=[{"fact": fact, "what": f"{fact}.", "ask": ask, "outcomes": []} for fact, ask in facts])
    )
    assert [fact.fact for fact in passage.doubts(value)] == ["line:1"] and passage.questions(value) == []
    assert passage.missing(value) == {"iptables-save": ["table:ip raw", "cut:ip nat"], "nft list ruleset": ["nft"]}


@pytest.mark.parametrize(("verdict", "quality"), list(zip(VERDICTS, ["good", "good", "bad", "bad", "open"])))
def test_each_verdict_has_a_quality(verdict: str, quality: str) -> None:
    assert passage.quality(verdict) == quality


def test_letters_of_all_languages_are_printable() -> None:
    assert trace_result.read(arrived(reason="größe 网络 …")).way.reason == "größe 网络 …"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"failed": True, "msg": "the kernel refused"},
            "result is without verdict, and says 'the kernel refused'; expected is one with it",
        ),
        ({}, "result is without verdict, and says 'nothing'"),
        ({"verdict": "arrived"}, "result.verdict is 'arrived'; expected is one of delivered, forwarded, "),
        ("delivered", "result is 'delivered'; expected is a dictionary"),
        (arrived(steps=["rule"]), "result.steps[0] is 'rule'"),
        (arrived(branches=[arrived(steps=[1], share=1)]), "result.branches[0].steps[0] is int"),
    ],
)
def test_what_is_no_trace_is_refused(value: t.Any, message: str) -> None:
    with pytest.raises(Refused) as error:
        trace_result.read(value)
    assert message in str(error.value) and "kubenode.datapath.datapath_trace" in str(error.value)
