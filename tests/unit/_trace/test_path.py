# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An assumption is in the answer if the packet or its reply met an object that it is about."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import assumption
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import Assumption, Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import path


def way(*steps: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    keys = ("came_in_by", "bridge", "links", "searched", "addresses")
    named = [{"kind": kind, "where": where, "text": text, "verdict": text} for kind, where, text in steps]
    return {**{key: [] for key in keys}, "came_in_by": "", "bridge": "", "reply": None, **fields, "steps": named}


ANSWER = way(
    ("rule", "ip nat PREROUTING", "jump SERVICES"),
    ("policy", "ip filter FORWARD", "policy accept"),
    ("route", "routing", "ip route default via 192.0.2.1 dev eth0"),
    came_in_by="veth1",
    bridge="cbr0",
    links=["cbr0", "eth0", "veth1"],
    searched=["7", "254"],
    addresses=["10.1.0.9"],
    passed=[{"kind": "rule", "where": "ip filter OUTPUT", "verdict": "jump ANSWERS"}],
    reply=way(("rule", "ip filter REPLIES", "accept"), addresses=["192.0.2.4"]),
    branches=[way(("rule", "ip nat SERVICES", "jump OTHER"))],
    matching={"ip nat SERVICES": ["own"], "ip nat UNKNOWN": ["other"]},
)


@pytest.mark.parametrize(
    ("kind", "yes", "no"),
    [
        (assumption.LINK, ["veth1", "cbr0", "eth0"], ["eth1"]),
        (
            assumption.CHAIN,
            ["ip nat SERVICES", "ip filter REPLIES", "ip nat OTHER", "ip filter ANSWERS"],
            ["ip filter SERVICES", "ip6 nat SERVICES"],
        ),
        (assumption.JUMP, ["ip nat PREROUTING SERVICES"], ["ip nat OUTPUT SERVICES"]),
        (assumption.POLICY, ["ip filter FORWARD"], ["ip nat PREROUTING"]),
        (assumption.TABLE, ["ip nat", "ip filter"], ["ip raw"]),
        (assumption.SET, ["own"], ["other"]),
        (assumption.ROUTES, ["7"], ["8"]),
        (assumption.ADDRESS, ["10.1.0.9", "192.0.2.4"], ["10.1.0.8"]),
        (assumption.FAMILY, ["ipv4"], ["ipv6"]),
        (assumption.SETTING, ["net.ipv4.ip_forward"], ["net.ipv6.conf.all.forwarding"]),
    ],
)
def test_an_assumption_matters_if_the_packet_met_its_object(kind: str, yes: list[str], no: list[str]) -> None:
    met = path.met(ANSWER, "ipv4")
    assert [assumption.about("", kind, name).matters(met) for name in yes + no] == [True] * len(yes) + [False] * len(no)
    assert assumption.about("", kind, no[0], yes[0]).matters(met) and Assumption("").matters(frozenset())


def test_forwarding_does_not_matter_to_a_packet_for_the_node_or_of_it() -> None:
    own = {
        **ANSWER,
        "steps": [{"kind": "route", "where": "", "text": "ip route local 192.0.2.4 dev eth0 table local", "verdict": ""}],
    }
    for answer in (own, {**ANSWER, "came_in_by": ""}):
        assert Concern(assumption.SETTING, "net.ipv4.ip_forward") not in path.met(answer, "ipv4")


def test_another_process_gets_the_same_assumption() -> None:
    given = Assumption("It is so.", frozenset({Concern(assumption.LINK, "eth0"), Concern(assumption.SET, "x")}), True)
    assert Assumption.from_plain(given.plain()) == given
