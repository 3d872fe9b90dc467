# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of datapath_audit, for tests of what people and programs read."""

from __future__ import annotations

import typing as t

Result = dict[str, t.Any]

SOURCE = "https://github.com/aws/amazon-vpc-cni-k8s/issues/231"
TASK = "- name: Mend it by rp_filter\n  kubenode.datapath.rp_filter:\n    interfaces: [eth0]\n    mode: loose\n"
MODULE: Result = {"module": "kubenode.datapath.rp_filter", "options": {"interfaces": ["eth0"], "mode": "loose"}, "task": TASK}
OPERATOR: Result = {"operator": "Remove the rule", "commands": ["ip rule del priority 99"], "task": ""}
TRACE: Result = {
    "verdict": "dropped",
    "interface": "",
    "packet": None,
    "reason": "Strict reverse-path filtering drops it.",
    "tells_reply": False,
    "culprit": {"kind": "sysctl", "text": "net.ipv4.conf.eth0.rp_filter = 1"},
    "culprit_step": None,
    "steps": [
        {"kind": "in", "where": "link eth0", "text": "tcp 198.51.100.7:40000 > 10.0.0.10:32765", "verdict": "", "packet": ""},
        {"kind": "counter", "where": "TcpExt.IPReversePathFilter", "text": "+1", "verdict": "", "packet": ""},
    ],
    "reply": None,
}
NO_PROFILE: Result = {"name": None, "variables": {}, "reasons": ["No check found what a profile mends."], "open": False}
PROFILE: Result = {
    "name": "eni_policy_routing",
    "variables": {
        "eni_policy_routing_layout": "aws",
        "eni_policy_routing_pod_interfaces": ["eni*"],
        "eni_policy_routing_enis": [{"name": "eth1", "table": 1001, "ipv4": ["10.0.1.10"]}],
    },
    "reasons": ["Replies leave by eth1."],
}


def present(severity: str = "error", id: str = "rp-strict-asymmetric", subject: str = "eth0", **changes: t.Any) -> Result:
    finding: Result = {
        "id": id, "subject": subject, "state": "present", "severity": severity, "what": "Strict filtering drops replies.",
        "evidence": ["net.ipv4.conf.eth0.rp_filter = 1", "2048: from 10.0.1.11 lookup 1001"], "proof": "twin",
        "packet": "tcp 198.51.100.7:40000 > 10.0.0.10:32765", "trace": TRACE, "remedy": MODULE, "ask": "", "source": SOURCE,
    }  # fmt: skip
    return {**finding, **changes}


def unclear(id: str = "base-rule-missing", **changes: t.Any) -> Result:
    lacks: Result = {
        "what": "The subset rules was not read.",
        "ask": "ip rule",
        "evidence": [],
        "proof": "",
        "packet": "",
        "trace": None,
        "remedy": None,
    }
    return present(id=id, subject="", state="cannot_tell", **{**lacks, **changes})


def audit(*findings: Result, passed: t.Sequence[str] = ("both-backends",), **changes: t.Any) -> Result:
    lists = {"findings": [*findings], "passed": [*passed], "passed_unless": [], "assumed": [], "ignored": []}
    return {**lists, "profile": NO_PROFILE, "node": {"name": "", "time": ""}, **changes}
