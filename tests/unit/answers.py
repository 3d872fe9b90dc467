# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of datapath_trace, for tests of what people read."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line

Result = dict[str, t.Any]

FRAME = {"source_mac": "02:00:00:00:00:01", "destination_mac": "06:00:00:00:00:01"}
LEFT = {"source": "10.0.0.10", "destination": "10.244.1.2", "protocol": "tcp", "source_port": 40000, "destination_port": 8080}
SERVICE = "-A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-X"
DROP = "-A FORWARD -d 10.244.1.2 -j DROP"
IN = {"kind": "in", "where": "link eth0", "text": "tcp 192.0.2.7:40000 > 10.96.0.10:80", "verdict": ""}
ROUTE = {"kind": "route", "where": "routing", "text": "ip route 10.244.1.2 dev veth1 table main (0: from all)", "verdict": ""}
OUT = {"kind": "out", "where": "link veth1", "text": "tcp 10.0.0.10:40000 > 10.244.1.2:8080", "verdict": ""}
FILTERED = {"kind": "counter", "where": "TcpExt.IPReversePathFilter", "text": "+1", "verdict": ""}
FILTER: Result = {"kind": "sysctl", "text": "net.ipv4.conf.eth0.rp_filter = 1"}
NOTHING: Result = {"before": None, "branches": [], "cures": [], "unknown": [], "assumed": [], "certain": True}


def rule(where: str = "ip nat KUBE-SERVICES", text: str = SERVICE, verdict: str = "jump KUBE-SVC-X", packet: str = "") -> Result:
    return {"kind": "rule", "where": where, "text": text, "verdict": verdict, "packet": packet}


DNAT = rule(
    "ip nat KUBE-SEP", "-A KUBE-SEP -j DNAT --to-destination 10.244.1.2:8080", "accept", "tcp 192.0.2.7:40000 > 10.244.1.2:8080"
)
MASQUERADE = rule(
    "ip nat KUBE-POSTROUTING", "-A KUBE-POSTROUTING -j MASQUERADE", "accept", "tcp 10.0.0.10:40000 > 10.244.1.2:8080"
)


def arrived(*steps: Result, **changes: t.Any) -> Result:
    result: Result = {
        "verdict": "delivered", "interface": "veth1", "packet": {**LEFT, **FRAME, "mark": "0x80"}, "culprit": None,
        "reason": "The packet leaves by veth1, to the pod there.", "steps": [IN, *steps, OUT], "reply": None,
    }  # fmt: skip
    return {**NOTHING, **result, **changes}


def lost(culprit: Result | None, *steps: Result, **changes: t.Any) -> Result:
    result: Result = {
        "verdict": "dropped", "interface": "", "packet": None, "culprit": culprit,
        "reason": "The packet is lost.", "steps": [IN, *steps], "reply": None,
    }  # fmt: skip
    return {**NOTHING, **result, **changes}


def cure(change: str, lines: int, **more: t.Any) -> Result:
    """Return a remedy whose task has a number of lines."""
    task = "".join(f"- line: {number}\n" for number in range(lines))
    return {"change": change, "verdict": "delivered", "reply_verdict": "forwarded", "task": task, "takes_along": "", **more}


def everywhere(name: str) -> Result:
    """Return a result with ``name`` in each of its texts."""
    step = dict.fromkeys(("kind", "where", "text", "verdict", "packet"), name)
    culprit = {"kind": name, "text": name}
    packet = dict.fromkeys(("source", "destination", "protocol", "source_port", "source_mac", "destination_mac", "mark"), name)
    way: Result = {
        "verdict": "dropped",
        "interface": name,
        "packet": packet,
        "reason": name,
        "culprit": culprit,
        "culprit_step": 1,
    }
    translating = {**step, "kind": "rule", "packet": f"tcp {name} > {name}"}
    steps = [
        {**IN, "where": name, "text": name},
        step,
        translating,
        {**step, "kind": "route"},
        {**OUT, "where": name, "text": name},
    ]
    way["steps"] = [{**IN, "where": name}, *steps]
    reply = {**way, "verdict": "unknown"}
    open_fact = {"fact": name, "what": name, "ask": name}
    outcome = {"if": name, "verdict": name, "reply_verdict": name, "evidence": [name], "contradicted_by": [name]}
    return {
        **way, "reply": reply, "before": {**way, "reply": reply}, "branches": [{**way, "share": 0.5, "reply": None}],
        "cures": [{"change": name, "verdict": name, "reply_verdict": name, "task": in_one_line(name), "takes_along": name}],
        "depends_on": [{**open_fact, "outcomes": [outcome]}, {**open_fact, "outcomes": []}],
        "unknown": [name], "assumed": [name], "ignored": [name],
    }  # fmt: skip
