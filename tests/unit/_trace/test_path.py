# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An assumption is in the answer if the packet or its reply met an object that it is about."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec, fields
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import assumption
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import Assumption, Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import path
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import VALUES, Answer, Branch, Met, Way

DEFAULT = route.Route(fields.IPV4, 254, hops=(route.Hop("eth0", bytes([192, 0, 2, 1])),))
REPLY = Way("forwarded", "veth1", None, "", None, met=Met(chains=("ip filter REPLIES",), addresses=("192.0.2.4",)))
CHANCE = Met(chains=("ip nat SERVICES", "ip nat OTHER"), jumps=(("ip nat SERVICES", "ip nat OTHER"),))
MET = Met(
    route=DEFAULT,
    bridge="cbr0",
    links=("cbr0", "eth0", "veth1"),
    searched=("7", "254"),
    addresses=("10.1.0.9",),
    chains=("ip nat PREROUTING", "ip nat SERVICES", "ip filter FORWARD", "ip filter OUTPUT", "ip filter ANSWERS"),
    ended=("ip filter FORWARD",),
    jumps=(("ip nat PREROUTING", "ip nat SERVICES"), ("ip filter OUTPUT", "ip filter ANSWERS")),
    sets=("own",),
)
WAY = Way("forwarded", "eth0", None, "", None, came_in_by="veth1", reply=REPLY, met=MET)
ANSWER = Answer(WAY, branches=(Branch(1.0, WAY._replace(reply=None, met=CHANCE)),))


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
        (
            assumption.SETTING,
            ["net.ipv4.conf.cbr0.forwarding"],
            ["net.ipv4.conf.eth1.forwarding", "net.ipv6.conf.all.forwarding"],
        ),
    ],
)
def test_an_assumption_matters_if_the_packet_met_its_object(kind: str, yes: list[str], no: list[str]) -> None:
    met = path.met(ANSWER, "ipv4")
    assert [assumption.about("", kind, name).matters(met) for name in yes + no] == [True] * len(yes) + [False] * len(no)
    assert assumption.about("", kind, no[0], yes[0]).matters(met) and Assumption("").matters(frozenset())


def test_forwarding_does_not_matter_to_a_packet_for_the_node_or_of_it() -> None:
    local = MET._replace(route=route.Route(DEFAULT.family, 255, type=route.LOCAL))
    for way in (WAY._replace(met=local), WAY._replace(came_in_by="")):
        way = way._replace(reply=None)
        assert not any(concern.kind == assumption.SETTING for concern in path.met(Answer(way), "ipv4"))


def test_another_process_gets_the_same_assumption() -> None:
    given = Assumption("It is so.", frozenset({Concern(assumption.LINK, "eth0"), Concern(assumption.SET, "x")}))
    assert Assumption.from_plain(given.plain()) == given
    assert Assumption.from_plain({**given.plain(), "fact": "line", "ask": "a command of the node"}) == given
    whole = ANSWER._replace(assumed=(given._replace(fact="line", ask="nft list ruleset"),))
    known = codec.vocabulary(*VALUES)
    assert codec.decode(codec.encode(whole, known), known) == whole
