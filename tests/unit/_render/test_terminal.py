# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer on a terminal: what decides comes first, at most 25 lines before the steps, and lines that can be copied."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line
from ansible_collections.kubenode.datapath.plugins.module_utils._render import passage, terminal
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import VERDICTS
from unit.answers import DNAT, FILTER, FILTERED, MASQUERADE, ROUTE, SERVICE, Result, arrived, cure, everywhere, lost, rule

COLOURS = {"good": "32", "bad": "31", "open": "33"}


def lines(value: Result) -> list[str]:
    return terminal.trace(value).splitlines()


def before_steps(value: Result) -> list[str]:
    printed = lines(value)
    return printed[: next(number for number, line in enumerate(printed) if line.startswith("Packet: "))]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_first_line_has_the_verdict_and_the_deciding_sentence(verdict: str) -> None:
    value = lost(None, verdict=verdict)
    assert lines(value)[0] == f"{verdict}: The packet is lost."
    coloured = terminal.trace(value, colours=True)
    assert coloured.startswith(f"\x1b[{COLOURS[passage.quality(verdict)]}m{verdict}:\x1b[0m The packet")
    assert "\x1b" not in terminal.trace(value)


def test_a_verdict_that_depends_on_missing_outputs_is_not_certain() -> None:
    assert lines(lost(None, certain=False))[0] == "dropped, not certain: The packet is lost."
    assert lines(lost(None, certain=False, verdict="unknown"))[0] == "unknown: The packet is lost."


def test_the_first_line_has_each_outcome_that_chance_may_bring() -> None:
    branches = [{**arrived(), "share": 2 / 3}, {**lost(FILTER), "share": 1 / 3}]
    assert (
        lines(arrived(branches=branches))[0] == "delivered or dropped, by chance: The packet leaves by veth1, to the pod there."
    )
    assert terminal.trace(arrived(branches=branches), colours=True).startswith(f"\x1b[{COLOURS['bad']}m")
    same = [{**arrived(interface=f"veth{number}"), "share": 0.5} for number in (1, 2)]
    assert lines(arrived(branches=same))[0].startswith("delivered by veth1: ")


def test_of_many_ways_each_outcome_behind_the_first_twenty_is_one_entry() -> None:
    one = {**arrived(), "share": 0.01}
    listed = lines(arrived(branches=[*[one] * 60, {**lost(FILTER), "share": 0.01}, *[one] * 38, {**one, "count": 2}]))
    shares = [line for line in listed if line.lstrip().startswith(("1 %", "79 %"))]
    assert len(shares) == 22 and "79 % (80 ways, one of them:) delivered by veth1" in shares[20] and "dropped" in shares[21]


def test_packet_and_culprit_follow_the_sentence() -> None:
    reply = lost(FILTER, reason="Strict filtering drops it.")
    reason = "The packet leaves. Its reply is lost: Strict filtering drops it."
    assert lines(arrived(rule(), reply=reply, culprit=FILTER, tells_reply=True, reason=reason))[:4] == [
        f"delivered by veth1, reply dropped: {reason}",
        "Packet   tcp 192.0.2.7:40000 > 10.96.0.10:80, from link eth0",
        "Culprit  sysctl: net.ipv4.conf.eth0.rp_filter = 1",
        "",
    ]


def test_the_path_has_each_step_and_what_it_translated() -> None:
    printed = lines(arrived(rule(), DNAT, ROUTE, MASQUERADE))
    assert printed[printed.index("Packet: delivered by veth1") + 1 :] == [
        "  in       link eth0                    tcp 192.0.2.7:40000 > 10.96.0.10:80",
        f"  rule     ip nat KUBE-SERVICES         {SERVICE}  -> jump KUBE-SVC-X",
        f"  rule     ip nat KUBE-SEP              {DNAT['text']}  -> accept",
        "           destination 10.96.0.10:80 -> 10.244.1.2:8080",
        f"  route    routing                      {ROUTE['text']}",
        f"  rule     ip nat KUBE-POSTROUTING      {MASQUERADE['text']}  -> accept",
        "           source 192.0.2.7:40000 -> 10.0.0.10:40000",
        "  out      link veth1                   tcp 10.0.0.10:40000 > 10.244.1.2:8080",
        "  Left as tcp 10.0.0.10:40000 > 10.244.1.2:8080, MAC 02:00:00:00:00:01 > 06:00:00:00:00:01, mark 0x80",
    ]


def test_a_culprit_that_is_no_step_ends_its_path() -> None:
    printed = lines(arrived(rule(), reply=lost(FILTER, ROUTE, FILTERED), culprit=FILTER))
    assert printed[-1] == f"! sysctl: {FILTER['text']}" and "Reply: dropped" in printed


OUTCOMES = [
    {
        "if": "it is 0",
        "verdict": "forwarded",
        "reply_verdict": "delivered",
        "evidence": [],
        "contradicted_by": ["It met packets"],
    },
    {"if": "it is 1", "verdict": "dropped", "reply_verdict": "", "evidence": ["It met packets"], "contradicted_by": []},
]
OPEN: list[Result] = [
    {"fact": "x:y", "what": "It is open.", "ask": "ip x", "outcomes": OUTCOMES},
    {"fact": "nft", "what": "There may be rules.", "ask": "nft list ruleset", "outcomes": []},
    {"fact": "line:1", "what": "The twin lacks a line.", "ask": "", "outcomes": []},
]


def test_what_to_ask_for_comes_before_what_helps() -> None:
    assert before_steps(lost(None, depends_on=OPEN, cures=[cure("x", 2, takes_along="All packets.")]))[3:] == [
        "Ask for, because it decides",
        "  ip x  # x:y",
        "    if it is 0: forwarded, reply delivered",
        "      does not fit: It met packets",
        "    if it is 1: dropped",
        "      fits: It met packets",
        "",
        "Not certain, because",
        "  The twin lacks a line.",
        "",
        "Ask for, to be certain",
        "  nft list ruleset  # nft",
        "",
        "What helps",
        "  x -> delivered, reply forwarded",
        "    All packets.",
        "    - line: 0",
        "    - line: 1",
        "",
    ]


def test_a_remedy_that_does_not_work_in_each_world_is_not_certain() -> None:
    assert "  x -> delivered, reply forwarded, not certain" in lines(lost(None, cures=[cure("x", 1, certain=False)]))
    tried = [{"change": "x", "reason": "No gateway is known."}]
    assert "  x: No gateway is known." in lines(lost(None, tried=tried))
    assert "  x: No gateway is known." not in lines(lost(None, tried=tried, cures=[cure("y", 1)]))


def test_what_has_no_room_before_the_steps_is_whole_below_them() -> None:
    branches = [{**lost(None), "share": share} for share in (0.75, 0.25)]
    value = lost(None, cures=[cure("first", 10), cure("second", 20), cure("third", 1)], branches=branches)
    above, printed = before_steps(value), lines(value)
    assert above[-2] == "Below the steps: What helps, continued (23 lines)"
    assert "  first -> delivered, reply forwarded" in above and "  75 % dropped" in above
    below = printed[printed.index("Packet: dropped") :]
    place = below.index("  second -> delivered, reply forwarded")
    assert below[place - 1] == "What helps, continued" and below[place + 1 : place + 21] == [
        f"    - line: {number}" for number in range(20)
    ]


@pytest.mark.parametrize("count", range(40))
def test_at_most_25_lines_are_before_the_steps(count: int) -> None:
    cures = [cure("x", count % 7 + 1) for _each in range(count)]
    value = lost(FILTER, depends_on=OPEN * (count % 5), cures=cures, branches=[{**lost(None), "share": 0.1}] * count)
    assert len(before_steps(value)) <= terminal.MOST_LINES + 1  # the empty line belongs to the steps
    assert lines(value).count("  x -> delivered, reply forwarded") == count


def test_before_and_remarks_are_there_only_with_content() -> None:
    reply = {"verdict": "dropped", "reason": "Filtered.", "culprit": FILTER}
    before = {"verdict": "forwarded", "interface": "eth1", "reason": "It leaves.", "culprit": None, "reply": reply}
    printed = lines(arrived(before=before, unknown=["A."], assumed=["B."], ignored=["C."]))
    assert printed[printed.index("Before the changes") + 1 :][:4] == [
        "  forwarded by eth1, reply dropped",
        "  It leaves.",
        "  Reply: Filtered.",
        f"  Culprit  sysctl: {FILTER['text']}",
    ]
    assert printed[-8:] == ["", "Unknown", "  A.", "", "Assumed", "  B.", "", "Not understood", "  C."][1:]
    assert not {"Before the changes", "Unknown", "Assumed", "Not understood", "Chance decides"} & {*lines(arrived())}


@pytest.mark.parametrize("name", ["\x1b[2Jgone", "a\nPacket: delivered", "a\rb", "\u202etxt", "\x00", "\x9b31m", "\udc80"])
def test_a_hostile_name_cannot_change_the_terminal(name: str) -> None:
    printed: t.Any = in_one_line(name)
    assert printed.isprintable() and printed.isascii()
    text = terminal.trace(everywhere(name))
    assert text.replace("\n", "").isprintable() and printed in text
    assert text.count("\n") == terminal.trace(everywhere("name")).count("\n")
