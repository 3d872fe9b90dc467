# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a packet cannot reach is left out of a twin. What is not understood, and what that may lead to, stays."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, reachable
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.blueprint import Blueprint
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.reachable import Flow, packed

TCP = Flow(frozenset(map(packed, ("192.0.2.9", "10.96.0.1", "10.0.0.4"))), frozenset(["tcp"]), frozenset(("80", "40000")))
UDP = TCP._replace(protocols=frozenset(["udp"]))
ANY_PORT = TCP._replace(ports=None)


def reachable_part(flow: Flow = TCP, **of_node: Any) -> Blueprint:
    return reachable.reduced(blueprint.draw(Snapshot.of(of_node)), flow)


def ruleset(base: str, *more: str, hook: str = "nat hook prerouting priority -100") -> str:
    """A table as nft lists it, with two maps, and a chain for each name in them."""
    chains = "".join(f"\tchain {name} {{\n\t\tcounter\n\t}}\n" for name in ("own", "other", "http", "https"))
    return (
        "table ip t {\n"
        "\tmap addresses {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n"
        '\t\telements = { 10.96.0.1 . tcp . 80 comment "a, b : c" : goto own,\n\t\t\t10.96.0.2 . tcp . 80 : goto other }\n\t}\n'
        "\tmap ports {\n\t\ttype inet_proto . inet_service : verdict\n"
        "\t\telements = { tcp . 80 : goto http, udp . 80 : goto http,\n"
        "\t\t\ttcp . 443 : goto https, udp . 443 : goto https }\n\t}\n"
        f"{chains}{''.join(more)}"
        f"\tchain base {{\n\t\ttype {hook}; policy accept;\n\t\t{base}\n\t}}\n}}\n"
    )


def chains(text: str) -> set[str]:
    return {*re.findall(r"^chain (\S+) \{", text, re.MULTILINE)} - {"base"}


ADDRESSES, PORTS = "ip daddr . meta l4proto . th dport vmap @addresses", "meta l4proto . th dport vmap @ports"
FILTER = "filter hook forward priority 0"
LATER = "\tchain later {\n\t\tmeta l4proto tcp dnat to 10.96.0.2:443\n\t}\n"
UNTRACKED = "\tchain raw {\n\t\ttype filter hook prerouting priority -300;\n\t\tnotrack\n\t}\n"
EVERY = {"own", "other", "http", "https"}


@pytest.mark.parametrize(
    ("flow", "text", "expected"),
    [
        (TCP, ruleset(ADDRESSES), {"own"}),
        (UDP, ruleset(ADDRESSES), set()),
        (TCP, ruleset(f"ct mark 1 jump later\n\t\t{ADDRESSES}", LATER), {"own", "other", "later"}),
        (TCP, ruleset(f"{PORTS}\n\t\tjump later", LATER), {"http", "https", "later"}),
        (TCP, ruleset("ip daddr vmap { 10.9.9.9 : goto other }"), {"other"}),
        (TCP, ruleset(f"ct original {ADDRESSES}"), {"own", "other"}),
        (TCP, ruleset(f"iifname . {ADDRESSES}"), {"own", "other"}),
        (TCP, ruleset("th dport . ip daddr vmap @addresses"), {"own", "other"}),
        (TCP, ruleset(PORTS), {"http"}),
        (ANY_PORT, ruleset(PORTS), {"http", "https"}),
        (TCP, ruleset(PORTS, hook=FILTER), {"http", "https"}),  # of replies, whose ports masquerading chooses
        (TCP, ruleset(f"ct state new {PORTS}", hook=FILTER), {"http"}),
        (TCP, ruleset(f"ct state new,established {PORTS}", hook=FILTER), {"http", "https"}),
        (UDP, ruleset(PORTS, UNTRACKED), {"http", "https", "raw"}),
        (TCP, ruleset(PORTS, UNTRACKED), {"http", "raw"}),
        (TCP, ruleset(f"dnat to ip saddr map {{ 192.0.2.9 : 10.9.9.9 }}\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"dnat to 10.96.0.1-10.96.0.9\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"dnat ip prefix to ip daddr map {{ 10.96.0.1 : 10.96.0.2/32 }}\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"snat ip interval to ip saddr map @sources\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"dnat ip addr . port to ip daddr . tcp dport map @targets\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"tcp dport 80 dnat to :443\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"dnat 10.96.0.2\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"tcp dport 80 redirect to :80-90\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"ip daddr set ip saddr\n\t\t{ADDRESSES}"), EVERY),
        (TCP, ruleset(f"ip daddr set 10.96.0.2\n\t\t{ADDRESSES}"), {"own", "other"}),
        (TCP, ruleset(f"icmp type redirect ct status dnat accept\n\t\t{ADDRESSES}"), {"own"}),
        (TCP, ruleset(f"ct status snat,dnat accept\n\t\tct status != dnat drop\n\t\t{ADDRESSES}"), {"own"}),
        (TCP, ruleset(f"icmp type {{ redirect, echo-request }} accept\n\t\tjump redirect\n\t\t{ADDRESSES}"), {"own"}),
        (TCP, ruleset(f"{ADDRESSES}; counter"), EVERY),  # in another form than nft's
    ],
)
def test_chains_of_nft(flow: Flow, text: str, expected: set[str]) -> None:
    assert chains(reachable_part(flow, nftables_text=text).ruleset_text) == expected


def test_a_map_that_no_packet_looks_up_has_no_elements() -> None:
    text = reachable_part(nftables_text=ruleset("ip daddr @addresses counter")).ruleset_text
    assert "map addresses" in text and not chains(text) and "elements" not in text


def test_statements_behind_the_elements_of_a_map_stay() -> None:
    text = ruleset(ADDRESSES).replace("other }\n", "other }\n\t\tflags timeout\n")
    assert "goto own }\nflags timeout\n}\n" in reachable_part(nftables_text=text).ruleset_text


def test_elements_and_sets_go_with_their_chains() -> None:
    sets = "\tset used {\n\t\ttype ipv4_addr\n\t}\n\tset unused {\n\t\ttype ipv4_addr\n\t}\n"
    text = reachable_part(nftables_text=ruleset(f"ip saddr @used counter\n\t\t{ADDRESSES}", sets)).ruleset_text
    assert "set used" in text and "unused" not in text and "map ports" not in text
    assert re.findall(r"10\.96\S+.*", text) == ['10.96.0.1 . tcp . 80 comment "a, b : c" : goto own }']
    last = TCP._replace(addresses=frozenset((packed("10.96.0.2"),)))
    text = reachable_part(last, nftables_text=ruleset(ADDRESSES)).ruleset_text
    assert re.findall(r"elements = [^}]*}\n}\n", text) == ["elements = {\n10.96.0.2 . tcp . 80 : goto other }\n}\n"]
    text = reachable_part(UDP, nftables_text=ruleset(ADDRESSES)).ruleset_text
    assert "map addresses" in text and "elements" not in text


def rule(chain: str, *expressions: Any) -> dict[str, Any]:
    return {"rule": {"family": "ip", "table": "t", "chain": chain, "expr": [*expressions]}}


def header(field: str, protocol: str = "ip") -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


def objects(*base: Any, **hook: str) -> list[dict[str, Any]]:
    """The ruleset as nft's JSON has it. base: expressions of a rule in the base chain."""
    of_table = {"family": "ip", "table": "t"}
    kinds = {"type": "nat", "hook": "prerouting", **hook}
    verdicts = [
        [{"elem": {"val": {"concat": ["10.96.0.1", "tcp", 80]}, "comment": "a"}}, {"goto": {"target": "own"}}],
        [{"concat": ["10.96.0.2", "tcp", 80]}, {"goto": {"target": "other"}}],
    ]
    return [
        {"table": {"family": "ip", "name": "t"}},
        {"map": {**of_table, "name": "addresses", "map": "verdict", "elem": verdicts}},
        {"set": {**of_table, "name": "unused", "type": "ipv4_addr"}},
        *({"chain": {**of_table, "name": name}} for name in ("own", "other")),
        {"chain": {**of_table, "name": "base", **kinds}},
        rule("own", {"counter": None}),
        rule("other", {"counter": None}),
        rule("base", *base),
    ]


def lookup(*parts: Any) -> dict[str, Any]:
    key = {"concat": [*parts]} if len(parts) > 1 else parts[0]
    return {"vmap": {"key": key, "data": "@addresses"}}


WHOLE_KEY = lookup(header("daddr"), {"meta": {"key": "l4proto"}}, header("dport", "th"))


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ((WHOLE_KEY,), {"own"}),
        ((lookup(header("daddr"), {"meta": {"key": "iif"}}, {"meta": {"key": "mark"}}),), {"own"}),
        ((lookup({"meta": {"key": "iif"}}, {"meta": {"key": "l4proto"}}, header("dport", "th")),), {"own", "other"}),
        ((lookup({"ct": {"key": "ip daddr", "dir": "original"}}),), {"own", "other"}),
        (({"mangle": {"key": header("daddr"), "value": "10.96.0.2"}}, WHOLE_KEY), {"own", "other"}),
        (({"dnat": {"addr": "10.96.0.2", "port": 80}}, WHOLE_KEY), {"own", "other"}),
        (({"dnat": {"addr": {"map": {}}}}, WHOLE_KEY), {"own", "other"}),
        (({"snat": {"addr": {"map": {}}, "family": "ip", "type_flags": "prefix"}}, WHOLE_KEY), {"own", "other"}),
        (({"dnat": {"addr": "@targets", "type_flags": "concat"}}, WHOLE_KEY), {"own", "other"}),
        (({"xt": {"type": "target", "name": "DNAT"}}, WHOLE_KEY), {"own", "other"}),
        (({"mangle": {"key": {"payload": {"base": "nh", "offset": 128, "len": 32}}, "value": 1}}, WHOLE_KEY), {"own", "other"}),
        (
            (
                {"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": {"rt": {"key": "mtu"}}}},
                WHOLE_KEY,
            ),
            {"own"},
        ),
        (({"map": {"op": "add", "map": "@addresses"}},), {"own", "other"}),
        (({"match": {"op": "==", "left": header("daddr"), "right": "@addresses"}},), set()),
        (({"masquerade": None}, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}, WHOLE_KEY), {"own"}),
    ],
)
def test_chains_of_nft_s_objects(base: tuple[Any, ...], expected: set[str]) -> None:
    found = reachable_part(nftables=objects(*base)).ruleset
    assert {entry["chain"]["name"] for entry in found if "chain" in entry} - {"base"} == expected
    assert {entry["rule"]["chain"] for entry in found if "rule" in entry} - {"base"} == expected


def test_a_map_without_an_element_that_can_match_has_none() -> None:
    found = reachable_part(UDP, nftables=objects(WHOLE_KEY)).ruleset
    assert [entry["map"] for entry in found if "map" in entry] == [
        {"family": "ip", "table": "t", "name": "addresses", "map": "verdict"}
    ]
    assert not any("set" in entry for entry in found)


@pytest.mark.parametrize(
    ("rule", "is_kept"),
    [
        ("-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j SVC", True),
        ("-d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j SVC", False),
        ("-s 10.96.0.2/32 -j SVC", False),
        ("-d 10.96.0.0/24 -j SVC", True),
        ("! -d 10.96.0.2/32 -j SVC", True),
        ('-m comment --comment "see -d 10.96.0.2/32 and -p udp " -j SVC', True),
        ("-p udp -m udp --dport 80 -j SVC", False),
        ("! -p udp -j SVC", True),
        ("-p tcp -m tcp --dport 443 -j SVC", False),
        ("-p tcp -m tcp ! --dport 443 -j SVC", True),
        ("-p tcp -m tcp --dport 440:450 -j SVC", True),
        ("-d 10.96.0.2/32 -m statistic --mode random --probability 0.5 -j SVC", True),
        ("-d 10.96.0.2/32 -m set --match-set S dst -j SVC", True),
        ("--jump SVC", True),
        ("-g SVC", True),
    ],
)
def test_rules_of_iptables(rule: str, is_kept: bool) -> None:
    save = f"*nat\n:PREROUTING ACCEPT [0:0]\n:SVC - [0:0]\n-A PREROUTING {rule}\n-A SVC -j MARK --set-mark 1\nCOMMIT\n"
    ((_program, text),) = reachable_part(iptables=[{"family": "ip", "table": "nat", "backend": "nft", "save": save}]).restores
    assert text == (save if is_kept else "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")


@pytest.mark.parametrize(
    ("translation", "is_kept"),
    [
        ("-j DNAT --to-destination 10.96.0.2:80", True),
        ("-j DNAT --to-destination 10.96.0.3", False),
        ("-j SNAT --to-source 10.96.0.2", True),
        ("-j DNAT --to-destination 10.96.0.1-10.96.0.9", True),
        ("-j NETMAP --to 10.96.0.0/24", True),
        ("-j REDIRECT --to-ports 443", False),
        ("-d 10.96.0.9/32 -j DNAT --to-destination 10.96.0.2", False),
    ],
)
def test_translations_of_iptables_lead_to_rules_of_other_tables(translation: str, is_kept: bool) -> None:
    nat = f"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {translation}\nCOMMIT\n"
    filtering = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -d 10.96.0.2/32 -j DROP\nCOMMIT\n"
    tables = [
        {"family": "ip", "backend": "nft", "table": name, "save": save} for name, save in (("nat", nat), ("filter", filtering))
    ]
    found = reachable_part(iptables=tables, nftables_text=ruleset(ADDRESSES))
    assert (any("-j DROP" in text for _program, text in found.restores), "other" in chains(found.ruleset_text)) == (
        is_kept,
        is_kept,
    )


@pytest.mark.parametrize(("hook", "is_kept"), [("PREROUTING", False), ("FORWARD", True)])
def test_ports_of_replies_count_where_replies_come(hook: str, is_kept: bool) -> None:
    table = "nat" if hook == "PREROUTING" else "filter"
    save = f"*{table}\n:{hook} ACCEPT [0:0]\n-A {hook} -p tcp -m tcp --dport 443 -j ACCEPT\nCOMMIT\n"
    ((_program, text),) = reachable_part(iptables=[{"family": "ip", "table": table, "backend": "nft", "save": save}]).restores
    assert ("--dport 443" in text) == is_kept
