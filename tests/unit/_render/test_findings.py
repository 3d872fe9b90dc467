# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings on a terminal: losses come first, and a task and variables can be pasted."""

from __future__ import annotations

import typing as t
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, fleet_text, terminal
from unit.audits import OPERATOR, PROFILE, TASK, Result, audit, present, unclear


def lines(result: Result) -> list[str]:
    return terminal.audit(result).splitlines()


def test_a_finding_has_its_evidence_packet_remedy_and_source() -> None:
    assert lines(audit(present(), profile=PROFILE))[:16] == [
        "1 error, 1 check passed",
        "",
        "error rp-strict-asymmetric eth0",
        "  Strict filtering drops replies.",
        "  Evidence net.ipv4.conf.eth0.rp_filter = 1",
        "           2048: from 10.0.1.11 lookup 1001",
        "  Packet   tcp 198.51.100.7:40000 > 10.0.0.10:32765",
        "  Remedy   kubenode.datapath.rp_filter",
        *(f"    {line}" for line in TASK.splitlines()),
        "  Source   https://github.com/aws/amazon-vpc-cni-k8s/issues/231",
        "",
        "Profile: eni_policy_routing",
        "# Replies leave by eth1.",
    ]


ROLE = {"operator": "eni_policy_routing: {remedy: loose}", "commands": [], "task": "- name: x\n", "profile": "eni_policy_routing"}
SERVICE = "No Service of the node leads to 10.0.1.11."


def test_a_thing_is_said_once() -> None:
    """One trouble took 45 lines: its task for each finding and once more as the profile, and sentences twice."""
    findings = [present(remedy=ROLE, added=[SERVICE]), present("risk", "reply", "eth1", remedy=ROLE, added=[SERVICE], what="B.")]
    result = audit(*findings, profile={**PROFILE, "reasons": ["Strict filtering drops replies.", "B.", "C."]})
    printed = lines(result)
    assert len(printed) == 25 and printed.count(f"  {SERVICE}") == 1 and "- name: x" not in "".join(printed)
    assert printed.count("  Remedy   the profile eni_policy_routing, below") == 2
    assert [line for line in printed if line.startswith("#")] == ["# C."]
    wide = terminal.audit(result, is_wide=True)
    assert wide.count("- name: x") == 2 and "\nPassed\n  both-backends\n" in wide


def test_a_remedy_of_several_findings_is_printed_with_the_first_one() -> None:
    printed = lines(audit(present(), present(subject="eth1"), present(subject="eth2", remedy=OPERATOR)))
    assert printed.count("    - name: Mend it by rp_filter") == 1
    assert printed.count("  Remedy   that of rp-strict-asymmetric eth0") == 1


def test_open_checks_that_lack_the_same_ask_for_it_once() -> None:
    printed = lines(audit(unclear("a"), unclear("b"), unclear("c", ask="ip route")))
    assert printed[printed.index("Cannot tell") + 1 :][:3] == [
        "  a, b: The subset rules was not read.",
        "    ask for: ip rule",
        "  c: The subset rules was not read.",
    ]


def test_sentences_are_wrapped_and_commands_are_not() -> None:
    long = " ".join(["word"] * 40)
    remedy = {**OPERATOR, "commands": [long]}
    printed = terminal.audit(audit(present(what=long, evidence=[long], remedy=remedy)), columns=80).splitlines()
    assert [line for line in printed if len(line) > 80] == [f"  Evidence {long}", f"    {long}"]
    assert printed[3:6] == [f"  {' '.join(['word'] * count)}" for count in (15, 15, 10)]


def test_a_fleet_has_its_findings_by_check_the_worst_first() -> None:
    nodes: dict[str, Any] = {f"node{number}": audit(present("risk", "b", "eth1")) for number in range(1, 21)}
    nodes |= {"node21": audit(present(), unclear()), "node22": audit(profile=PROFILE), "node23": {"msg": "no root"}}
    printed = fleet_text.text(findings.fleet(nodes)).splitlines()
    assert printed[:5] == ["Cannot tell", "  base-rule-missing: node21", "    ask for: ip rule", "", "Not audited"]
    assert printed[-6:] == [
        "On which nodes",
        "  error rp-strict-asymmetric eth0: node21",
        "  risk b eth1: 20 nodes: node1, node2, node3, node4, node5, node6, node7, node8 and 12 more",
        "",
        "21 findings (1 error, 20 risks) in 2 groups on 21 of 22 audited nodes",
        "On 1 node some checks cannot tell; 1 node was not audited.",
    ]
    assert "  eni_policy_routing: node22" in printed and "  node23: no root" in printed


def test_the_rest_from_the_profile_on_is_yaml_of_its_variables() -> None:
    printed = terminal.audit(audit(present(), profile=PROFILE))
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(printed.partition("Profile: eni_policy_routing\n")[2]) == PROFILE["variables"]


def test_variables_that_no_yaml_may_hold_are_a_remark() -> None:
    profile = {**PROFILE, "variables": {"eni_policy_routing_layout": "{{ lookup('pipe', 'reboot') }}"}}
    assert lines(audit(present(), profile=profile))[-1].startswith("# The variables cannot be written as YAML: ")


def test_commands_of_an_operator_and_a_finding_without_remedy() -> None:
    printed = lines(audit(present(remedy=OPERATOR), present("risk", remedy=None, packet="", evidence=[])))
    assert printed[printed.index("  Remedy   Remove the rule") + 1] == "    ip rule del priority 99"
    assert "  Remedy   none of those that were tried helps" in printed


def test_what_cannot_be_told_has_what_to_ask_for_and_lines_that_were_not_understood_follow() -> None:
    assert lines(audit(unclear(), unclear("rp-strict-at-boot", ask=""), ignored=["iprule.txt: line 3"]))[:10] == [
        "no findings, 2 checks cannot tell, 1 check passed",
        "",
        "Cannot tell",
        "  base-rule-missing: The subset rules was not read.",
        "    ask for: ip rule",
        "  rp-strict-at-boot: The subset rules was not read.",
        "",
        "Not understood",
        "  iprule.txt: line 3",
        "",
    ]


@pytest.mark.parametrize(
    ("result", "counted", "colour"),
    [
        (audit(), "no findings, 1 check passed", "32"),
        (audit(present("note")), "1 note, 1 check passed", "2"),
        (audit(unclear()), "no findings, 1 check cannot tell, 1 check passed", "33"),
        (audit(present(), present(), present("risk"), unclear()), "2 errors, 1 risk, 1 check cannot tell, 1 check passed", "31"),
    ],
)
def test_the_first_line_counts_and_has_the_colour_of_the_worst(result: Result, counted: str, colour: str) -> None:
    assert lines(result)[0] == counted and "\x1b" not in terminal.audit(result)
    assert terminal.audit(result, colours=True).startswith(f"\x1b[{colour}m{counted}\x1b[0m\n")


def test_no_text_of_a_node_changes_the_terminal_or_begins_a_line() -> None:
    hostile = "eth0\x1b[2J\nerror fake\u202e"
    finding = present(**dict.fromkeys(("subject", "what", "packet", "source"), hostile), evidence=[hostile])
    printed = terminal.audit(audit(finding, unclear(what=hostile, ask=hostile), passed=[hostile], ignored=[hostile]))
    assert "\x1b" not in printed and "\u202e" not in printed and "\nerror fake" not in printed


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("clean", "result is 'clean'; expected is a dictionary"),
        (
            {"msg": "datapath_audit: no"},
            "result is without findings, and says 'datapath_audit: no'; expected is one with it, as kubenode.datapath.",
        ),
        (audit(present("fatal")), r"result.findings\[0\].severity is 'fatal'; expected is one of error, risk, note"),
        (audit({**present(), "state": 7}), r"result.findings\[0\].state is int; expected is one of present, cannot_tell"),
        ({"findings": ["x"]}, r"result.findings\[0\] is 'x'; expected is a dictionary"),
        ({"findings": [], "passed": 5}, "result.passed is int; expected is a list"),
        (audit(present(evidence="a line")), r"result.findings\[0\].evidence is 'a line'; expected is a list"),
    ],
)
def test_what_is_no_audit_is_an_error(value: t.Any, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        terminal.audit(value)


@pytest.mark.parametrize(
    ("result", "severity", "line"),
    [
        (audit(), "error", "no error found"),
        (audit(present("risk")), "error", "no error found"),
        (audit(unclear()), "error", "1 check cannot tell"),
        (audit(present(), present(subject="eth1"), unclear()), "error", "rp-strict-asymmetric eth0; rp-strict-asymmetric eth1"),
    ],
)
def test_a_monitor_gets_a_line_about_one_severity(result: Result, severity: str, line: str) -> None:
    assert findings.read(result).line(severity) == line


def test_the_line_of_a_monitor_is_short() -> None:
    many = audit(*(present(subject=f"eth{number}\n") for number in range(9)))
    line = findings.read(many).line("error")
    assert (
        len(line) == 80 and line.startswith("9 errors: rp-strict-asymmetric eth0") and line.endswith("...") and "\n" not in line
    )
