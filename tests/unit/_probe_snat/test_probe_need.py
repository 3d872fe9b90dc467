# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node needs the probe table, by the CNI and the programs observed on it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_need import Cilium, NodeFacts, need, unknown

ADDRESSES = {"eth0": ["2001:db8::1"]}
NODE = NodeFacts("eth0", ADDRESSES, [], None, None)
TAKING = Cilium("the source", True, ("tc cil_from_netdev-eth0",))

VERDICTS: list[tuple[dict[str, t.Any], str, list[str]]] = [
    ({}, "possible", ["eth0 has a global IPv6 address.", "was not looked at"]),
    ({"owner": "a.service"}, "possible", ["eth0 has", "a.service of the node's image loads the table.", "was not looked at"]),
    ({"addresses": {"br-ex": ["2001:db8::2"]}}, "possible", ["eth0 has no global IPv6 address", "was not looked at"]),
    ({"addresses": {}}, "unneeded", ["No link of the node has a global IPv6 address"]),
    ({"translators": ["a sign"]}, "unneeded", ["known by a sign."]),
    ({"translators": ["a sign"], "cilium": TAKING}, "unneeded", ["known by a sign.", "the table has no effect."]),
    ({"cilium": TAKING}, "ineffective", ["eth0 carries Cilium's BPF programs tc cil_from_netdev-eth0, and by the source"]),
    ({"cilium": TAKING._replace(serves_ipv6_node_ports=False)}, "possible", ["eth0 has", "was not looked at"]),
    ({"cilium": Cilium("the source", True, ())}, "possible", ["eth0 has", "none of its BPF programs", "was not looked at"]),
    ({"cilium": Cilium("", None, ())}, "possible", ["eth0 has", "was not looked at"]),
    ({"cilium": Cilium("", None, ("tcx a",))}, "possible", ["eth0 has", "options were not found", "was not looked at"]),
]


@pytest.mark.parametrize(("seen", "verdict", "parts"), VERDICTS)
def test_the_verdict_and_its_reasons(seen: dict[str, t.Any], verdict: str, parts: list[str]) -> None:
    found = need(NODE._replace(**seen))
    assert found.verdict == verdict
    assert len(found.reasons) == len(parts) and all(part in reason for part, reason in zip(parts, found.reasons))


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    found = unknown("a reason")
    assert found.verdict == "unknown" and found.reasons == ["The node's addresses and BPF programs were not looked at: a reason."]
