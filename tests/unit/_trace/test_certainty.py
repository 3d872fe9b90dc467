# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which open facts an answer depends, and which assumptions the packet and its reply meet."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec, fields
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import assumption, open_facts
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import Assumption, Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import certainty, path
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import (
    VALUES,
    Answer,
    Branch,
    Culprit,
    Dependency,
    Met,
    Step,
    Way,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.substitutions import LINK_KIND, gap, replaced
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.worlds import Open, Value

same = Snapshot._replace  # a change without a difference
FILTER = Open(
    open_facts.rp_filter("eth0"),
    tuple(Value(str(number), f"rp_filter of eth0 is {number}", same) for number in range(3)),
)
CHAIN = Open(open_facts.chain("ip", "filter", "OWN"), (Value("returns", "it returns"), Value("drops", "it drops", same)))
NFT = Open(open_facts.NFT_OPEN)
RULES = "iptables-save; nft list ruleset"


def answer(verdict: str = "forwarded", assumed: tuple[Assumption, ...] = (), came_in_by: str = "eth0", **met: Any) -> Answer:
    """met: fields of what the packet met."""
    links = ("eth0", "eth1")
    return Answer(
        Way(verdict, "eth1", None, "It leaves.", None, came_in_by=came_in_by, met=Met(links=links, **met)), assumed=assumed
    )


def explored(first: Answer, *opened: Open, **verdicts: str) -> tuple[certainty.Exploration, dict[str, Open]]:
    """verdicts: in the worlds in which a fact of a kind has another value than the first."""
    facts = {one.fact.fact: one for one in opened}

    def ask(world: certainty.World) -> Answer:
        others = [f"{name.partition(':')[0]}_{place}" for name, place in world]
        verdict = next((verdicts[name] for name in others if name in verdicts), first.way.verdict)
        return first._replace(way=first.way._replace(verdict=verdict))

    return certainty.explore(first, facts, ask, lambda: True), facts


def test_what_is_the_same_in_every_world_is_certain() -> None:
    found, facts = explored(answer(), FILTER)
    assert [*found.answers] == [(), (("rp_filter:eth0", 1),), (("rp_filter:eth0", 2),)]
    assert certainty.conclusion(found, facts, "ipv4") == answer()._replace(certain=True)


def test_a_value_that_changes_the_verdict_makes_it_unknown_and_is_named() -> None:
    found, facts = explored(answer(), FILTER, rp_filter_1="dropped")
    result = certainty.conclusion(found, facts, "ipv4")
    assert (result.way.verdict, result.certain, result.way.culprit) == ("unknown", False, None)
    assert result.way.reason == (
        "The reverse-path filter of eth0 is open. If rp_filter of eth0 is 0 or rp_filter of eth0 is 2, the packet is forwarded."
        " If rp_filter of eth0 is 1, the packet is dropped."
    )
    assert [fact.fact for fact in result.depends_on] == ["rp_filter:eth0"]
    assert [outcome.verdict for outcome in result.depends_on[0].outcomes] == ["forwarded", "dropped", "forwarded"]


ROUTED, STOPPED = Step("route", "routing", "default dev eth1"), Step("rule", "ip6 filter FORWARD", "-j REJECT")


@pytest.mark.parametrize(
    ("steps", "depends_on"), [((ROUTED, STOPPED), ["net.ipv6.conf.all.forwarding"]), ((STOPPED, ROUTED), [])]
)
def test_whether_the_node_forwards_matters_to_a_packet_that_is_stopped_behind_routing(
    steps: tuple[Step, ...], depends_on: list[str]
) -> None:
    first = answer("rejected")
    lost = first.way._replace(interface="", steps=steps, culprit=Culprit("rule", "-j REJECT", steps.index(STOPPED)))
    found, facts = explored(first._replace(way=lost), Open(open_facts.forwarding("ipv6", "eth0")))
    assert [each.fact for each in certainty.conclusion(found, facts, "ipv6").depends_on] == depends_on


def test_a_fact_that_the_packet_does_not_meet_is_not_tried() -> None:
    found, facts = explored(answer(came_in_by="eth7"), FILTER, CHAIN, rp_filter_1="dropped", chain_1="dropped")
    assert [*found.answers] == [()] and certainty.conclusion(found, facts, "ipv4").certain
    jumps = (("ip filter FORWARD", "ip filter OWN"),)
    found, facts = explored(answer(came_in_by="eth7", jumps=jumps), FILTER, CHAIN, chain_1="dropped")
    assert certainty.conclusion(found, facts, "ipv4").depends_on[0].fact == "chain:ip filter OWN"


def test_of_what_no_twin_can_be_built_the_verdict_stays_and_is_not_certain() -> None:
    found, facts = explored(answer(), NFT)
    result = certainty.conclusion(found, facts, "ipv4")
    assert result.way.verdict == "forwarded" and not result.certain
    assert result.depends_on == (Dependency(*open_facts.NFT_OPEN),)


def test_a_neighbour_that_does_not_answer_leaves_the_neighbours_open() -> None:
    """It may keep the error of a rule that rejects from coming back, and is no culprit then."""
    neighbours = Open(open_facts.NEIGHBORS_OPEN)
    for is_unanswered, is_certain in ((True, False), (False, True)):
        exploration, facts = explored(answer("dropped", is_unanswered=is_unanswered), neighbours)
        assert certainty.conclusion(exploration, facts, "ipv6").certain is is_certain


def test_the_facts_that_decide_come_first_and_then_those_that_one_command_shows_together() -> None:
    tables = [Open(open_facts.table("ip", name)) for name in ("raw", "nat")]
    first = answer(assumed=(gap("A line is lacking."),))
    found, facts = explored(first, tables[0], NFT, tables[1], FILTER, rp_filter_1="dropped")
    result = certainty.conclusion(found, facts, "ipv4")
    assert [(fact.fact, fact.ask) for fact in result.depends_on] == [
        ("rp_filter:eth0", FILTER.fact.ask), ("line:1", ""), ("table:ip raw", RULES), ("table:ip nat", RULES), ("nft", RULES),
    ]  # fmt: skip


def test_one_paste_is_asked_for_where_facts_are_of_one_kind() -> None:
    cut = Open(open_facts.cut("ip", "nat"))
    routing = [Open(open_facts.ADDRESSES_OPEN), Open(open_facts.RULES_OPEN)]
    found, facts = explored(answer(), *routing, cut, Open(open_facts.table("ip", "raw")), NFT)
    asks = {fact.fact: fact.ask for fact in certainty.conclusion(found, facts, "ipv4").depends_on}
    assert set(asks.values()) == {"ip addr; ip rule; ip -6 rule", RULES} and asks["cut:ip nat"] == RULES
    found, facts = explored(answer(), cut)
    assert [fact.ask for fact in certainty.conclusion(found, facts, "ipv4").depends_on] == ["iptables-save -t nat"]


def test_a_substitution_leaves_the_answer_open_until_the_operator_says_that_the_node_has_the_same() -> None:
    found, facts = explored(answer(assumed=(replaced(LINK_KIND, "eth0.5 is a vlan.", subject="eth0.5"),)))
    open_result = certainty.conclusion(found, facts, "ipv4")
    assert not open_result.certain
    assert open_result.depends_on == (Dependency("link-kind:eth0.5", "eth0.5 is a vlan.", "ip -d link show dev eth0.5"),)
    accepted = certainty.conclusion(found, facts, "ipv4", accepted=["link-kind:eth0.5"])
    assert accepted.certain and not accepted.depends_on


def test_a_line_that_the_twin_lacks_leaves_the_answer_open() -> None:
    sentence = "iptables-nft-restore: a line is not in the twin. It must be ...: -A FORWARD -m geoip"
    found, facts = explored(answer(assumed=(Assumption("The routes are not known."), gap(sentence))))
    result = certainty.conclusion(found, facts, "ipv4")
    assert not result.certain and result.depends_on[0].what == sentence


def test_there_is_an_end_to_the_worlds() -> None:
    many = [Open(open_facts.chain("ip", "filter", f"C{number}"), CHAIN.values) for number in range(40)]
    jumps = tuple(("ip filter FORWARD", f"ip filter C{number}") for number in range(40))
    found, facts = explored(answer(jumps=jumps), *many)
    assert len(found.answers) == certainty.MOST_WORLDS and not found.is_whole
    assert {fact.fact for fact in certainty.conclusion(found, facts, "ipv4").depends_on} == {*facts}, "each may still decide"
    assert not certainty.conclusion(found, facts, "ipv4").certain


# An assumption is in the answer if the packet or its reply met an object that it is about


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
