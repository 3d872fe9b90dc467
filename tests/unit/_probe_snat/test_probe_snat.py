# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe table as a value: options in, nft text out, and nft's listings recognised or not."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_table
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat.probe_table import ProbeSnat
from unit.listings import check_cases

OPTIONS: dict[str, t.Any] = {
    "table": "azureSLBProbe",
    "interface": "eth0",
    "priority": -300,
    "comment": "",
    "probes": [{"source": "fe80::1234:5678:9abc", "translated": "2603:1062:0:1:fe80:1234:5678:9abc"}],
}


def payload(protocol: str, field: str) -> dict[str, t.Any]:
    return {"payload": {"protocol": protocol, "field": field}}


def equals(left: t.Any, right: t.Any, op: str = "==") -> dict[str, t.Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def no_probe(address: str, length: int) -> dict[str, t.Any]:
    return equals(payload("ip6", "daddr"), {"prefix": {"addr": address, "len": length}}, "!=")


def link(direction: str) -> dict[str, t.Any]:
    return equals({"meta": {"key": direction}}, "eth0")


SOURCE, TRANSLATED = "fe80::1234:5678:9abc", "2603:1062:0:1:fe80:1234:5678:9abc"


def counter() -> dict[str, t.Any]:
    return {"counter": {"packets": 7, "bytes": 560}}


def rule(chain: str, handle: int, *expr: dict[str, t.Any]) -> dict[str, t.Any]:
    return {"rule": {"family": "ip6", "table": "azureSLBProbe", "chain": chain, "handle": handle, "expr": list(expr)}}


def chain(name: str, handle: int) -> dict[str, t.Any]:
    hook = {"type": "filter", "hook": name, "prio": -300, "policy": "accept"}
    return {"chain": {"family": "ip6", "table": "azureSLBProbe", "name": name, "handle": handle, **hook}}


NOT_PROBED = (no_probe("fe80::", 10), no_probe("ff00::", 8))


def listing(*not_probed: dict[str, t.Any]) -> dict[str, t.Any]:
    """What nft 1.0.6 prints of AgentBaker's table; or of the collection's, with the further matches of the first translation."""
    rewrite_in = {"mangle": {"key": payload("ip6", "saddr"), "value": TRANSLATED}}
    rewrite_out = {"mangle": {"key": payload("ip6", "daddr"), "value": SOURCE}}
    types = {"set": ["nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert"]}
    discovery = equals(payload("icmpv6", "type"), types)
    probe_source = equals(payload("ip6", "saddr"), SOURCE)
    return {
        "nftables": [
            {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
            {"table": {"family": "ip6", "name": "azureSLBProbe", "handle": 3}},
            chain("prerouting", 1),
            chain("postrouting", 2),
            rule("prerouting", 4, link("iifname"), discovery, counter(), {"accept": None}),
            rule("prerouting", 5, link("iifname"), probe_source, *not_probed, rewrite_in, counter()),
            rule("postrouting", 6, link("oifname"), equals(payload("ip6", "daddr"), TRANSLATED), rewrite_out, counter()),
        ]
    }


def bodies(listing: dict[str, t.Any], kind: str) -> list[dict[str, t.Any]]:
    return [entry[kind] for entry in listing["nftables"] if kind in entry]


def move(listing: dict[str, t.Any], old: int, new: int) -> None:
    listing["nftables"].insert(new, listing["nftables"].pop(old))


SAME_MEANING: dict[str, t.Callable[[dict[str, t.Any]], t.Any]] = {
    "as it is": lambda one: None,
    "counters have counted": lambda one: bodies(one, "rule")[1]["expr"][-1]["counter"].update(packets=9, bytes=9),
    "counters without values": lambda one: bodies(one, "rule")[1]["expr"][-1].update(counter=None),
    "other handles": lambda one: [body.update(handle=99) for body in bodies(one, "rule") + bodies(one, "chain")],
    "the set in another order": lambda one: bodies(one, "rule")[0]["expr"][1]["match"]["right"]["set"].reverse(),
    "the set by number": lambda one: bodies(one, "rule")[0]["expr"][1]["match"]["right"].update(set=[134, 136, 135]),
    "in instead of ==": lambda one: bodies(one, "rule")[0]["expr"][1]["match"].update(op="in"),
    "chains in another order": lambda one: move(one, 3, 2),
    "chain, its rules, chain, its rules (nft 0.9.8)": lambda one: move(one, 3, 5),
    "a priority by name": lambda one: bodies(one, "chain")[0].update(prio="raw"),
    "an address in long form": lambda one: bodies(one, "rule")[1]["expr"][1]["match"].update(
        right="fe80:0000:0:0:0:1234:5678:9ABC"
    ),
    "comments": lambda one: [body.update(comment="hello") for body in bodies(one, "rule") + bodies(one, "table")],
}

OTHER_MEANING: dict[str, t.Callable[[dict[str, t.Any]], t.Any]] = {
    "a rule is missing": lambda one: one["nftables"].pop(4),
    "a rule is added": lambda one: one["nftables"].append(rule("postrouting", 7, {"drop": None})),
    "rules in another order": lambda one: move(one, 5, 4),
    "statements in another order": lambda one: bodies(one, "rule")[0]["expr"].reverse(),
    "another verdict": lambda one: bodies(one, "rule")[0]["expr"].__setitem__(3, {"drop": None}),
    "no counter": lambda one: bodies(one, "rule")[1]["expr"].pop(),
    "a named counter": lambda one: bodies(one, "rule")[1]["expr"][-1].update(counter="seen"),
    "another interface": lambda one: bodies(one, "rule")[1]["expr"][0]["match"].update(right="eth1"),
    "any interface but": lambda one: bodies(one, "rule")[1]["expr"][0]["match"].update(op="!="),
    "another address": lambda one: bodies(one, "rule")[1]["expr"][1]["match"].update(right="fe80::1"),
    "a prefix": lambda one: bodies(one, "rule")[1]["expr"][1]["match"].update(right={"prefix": {"addr": "fe80::", "len": 10}}),
    "a named set": lambda one: bodies(one, "rule")[1]["expr"][1]["match"].update(right="@probes"),
    "a type less": lambda one: bodies(one, "rule")[0]["expr"][1]["match"]["right"]["set"].pop(),
    "a range of types": lambda one: bodies(one, "rule")[0]["expr"][1]["match"].update(right={"range": [134, 136]}),
    "a chain is added": lambda one: one["nftables"].append(chain("forward", 8)),
    "a chain is missing": lambda one: one["nftables"].pop(3),
    "another hook": lambda one: bodies(one, "chain")[0].update(hook="input"),
    "another priority": lambda one: bodies(one, "chain")[0].update(prio=-299),
    "another type": lambda one: bodies(one, "chain")[0].update(type="nat"),
    "another policy": lambda one: bodies(one, "chain")[0].update(policy="drop"),
    "no hook": lambda one: [bodies(one, "chain")[0].pop(key) for key in ("type", "hook", "prio", "policy")],
    "a set is added": lambda one: one["nftables"].append({"set": {"name": "s", "type": "ipv6_addr", "handle": 9}}),
    "a map is added": lambda one: one["nftables"].append({"map": {"name": "m", "type": "mark", "handle": 9}}),
    "a rule of xtables": lambda one: bodies(one, "rule")[0]["expr"].append({"xt": {"type": "target", "name": "LOG"}}),
    "the table sleeps (nft 1.1)": lambda one: bodies(one, "table")[0].update(flags="dormant"),
    "the table sleeps (nft 1.0 prints stray memory)": lambda one: bodies(one, "table")[0].update(flags="E.D.S."),
    "another name": lambda one: bodies(one, "table")[0].update(name="other"),
    "another family": lambda one: bodies(one, "table")[0].update(family="inet"),
    "multicast is translated": lambda one: bodies(one, "rule")[1]["expr"].pop(3),
    "only multicast is translated": lambda one: bodies(one, "rule")[1]["expr"][3]["match"].update(op="=="),
    "another prefix": lambda one: bodies(one, "rule")[1]["expr"][2]["match"]["right"]["prefix"].update(len=64),
    "an address of the prefix": lambda one: bodies(one, "rule")[1]["expr"][2]["match"].update(right="fe80::"),
}


def own_table() -> dict[str, t.Any]:
    return listing(*copy.deepcopy(NOT_PROBED))


@pytest.mark.parametrize("alter", SAME_MEANING.values(), ids=SAME_MEANING.keys())
def test_a_listing_that_means_the_same_is_equal(alter: t.Callable[[dict[str, t.Any]], t.Any]) -> None:
    seen = own_table()
    alter(seen)
    assert nft_table.from_listing(seen) == ProbeSnat().table()


def test_each_case_alters_a_listing_of_its_own() -> None:
    check_cases(own_table, {**SAME_MEANING, **OTHER_MEANING})


@pytest.mark.parametrize("alter", OTHER_MEANING.values(), ids=OTHER_MEANING.keys())
def test_a_listing_that_means_something_else_is_not_equal(alter: t.Callable[[dict[str, t.Any]], t.Any]) -> None:
    seen = own_table()
    alter(seen)
    assert nft_table.from_listing(seen) != ProbeSnat().table()


def test_agentbakers_table_translates_to_every_destination_and_so_differs() -> None:
    theirs = nft_table.from_listing(listing())
    assert theirs == ProbeSnat().table(not_probed=())
    assert theirs != ProbeSnat().table()


def test_the_default_table_is_that_of_the_default_options() -> None:
    assert ProbeSnat.from_options(OPTIONS) == ProbeSnat()


def test_the_text_is_laid_out_as_nft_lists_it() -> None:
    assert ProbeSnat().table().text() == (
        "table ip6 azureSLBProbe {\n"
        "\tchain prerouting {\n"
        "\t\ttype filter hook prerouting priority raw; policy accept;\n"
        '\t\tiifname "eth0" icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } counter accept\n'
        f'\t\tiifname "eth0" ip6 saddr {SOURCE} ip6 daddr != fe80::/10 ip6 daddr != ff00::/8 ip6 saddr set {TRANSLATED} counter\n'
        "\t}\n"
        "\n"
        "\tchain postrouting {\n"
        "\t\ttype filter hook postrouting priority raw; policy accept;\n"
        f'\t\toifname "eth0" ip6 daddr {TRANSLATED} ip6 daddr set {SOURCE} counter\n'
        "\t}\n"
        "}\n"
    )


def test_the_order_of_probes_means_nothing() -> None:
    probes = [{"source": f"fe80::{n}", "translated": f"2001:db8::{n}"} for n in range(1, 4)]
    desired = {ProbeSnat.from_options({**OPTIONS, "probes": order}) for order in (probes, probes[::-1], probes * 2)}
    assert len(desired) == 1


def probe(source: t.Any = SOURCE, translated: t.Any = TRANSLATED) -> dict[str, t.Any]:
    return {"source": source, "translated": translated}


INVALID: list[tuple[str, dict[str, t.Any]]] = [
    ("table", {"table": "1st"}),
    ("interface", {"interface": "eth*"}),
    ("interface", {"interface": "lo"}),
    ("priority", {"priority": 2**31}),
    ("priority", {"priority": -(2**31) - 1}),
    ("comment", {"comment": 'a "quote"'}),
    ("comment", {"comment": "two\nlines"}),
    ("comment", {"comment": "x" * 128}),
    ("probes[0].source", {"probes": [probe(source="")]}),
    ("probes[0].source", {"probes": [probe(source="192.0.2.1")]}),
    ("probes[0].source", {"probes": [probe(source="::ffff:192.0.2.1")]}),
    ("probes[0].source", {"probes": [probe(source="fe80::1%eth0")]}),
    ("probes[0].source", {"probes": [probe(source="fe80::/64")]}),
    ("probes[0].source", {"probes": [probe(source="ff02::1")]}),
    ("probes[0].source", {"probes": [probe(source="::")]}),
    ("probes[0].translated", {"probes": [probe(translated="::1")]}),
    ("probes[0].translated", {"probes": [probe(translated="168.63.129.16")]}),
    ("probes[0].translated", {"probes": [probe(translated=SOURCE)]}),
    ("probes[1].source", {"probes": [probe(), probe(translated="2001:db8::1")]}),
    ("probes[1].source", {"probes": [probe(), probe(source="FE80:0::1234:5678:9abc", translated="2001:db8::1")]}),
    ("probes[1].translated", {"probes": [probe(), probe(source="fe80::1")]}),
    ("probes[1].source", {"probes": [probe(), probe(source=TRANSLATED, translated="2001:db8::1")]}),
]


@pytest.mark.parametrize(("option", "change"), INVALID, ids=str)
def test_bad_input_names_the_option_and_what_was_given(option: str, change: dict[str, t.Any]) -> None:
    with pytest.raises(Invalid, match="must be .* was given") as caught:
        ProbeSnat.from_options({**OPTIONS, **change})
    assert caught.value.option == option
    assert str(caught.value).startswith(f"{option} must be ")


ADDRESS = "an IPv6 unicast address without prefix length and zone"
SENTENCES: list[tuple[dict[str, t.Any], str]] = [
    ({"priority": True}, "priority must be an integer from -2147483648 to 2147483647; True was given"),
    ({"probes": []}, "probes must be a list of at least one probe with source and translated; [] was given"),
    ({"probes": [probe(source="eth0")]}, f"probes[0].source must be {ADDRESS}; 'eth0' was given"),
    ({"probes": [probe(translated="::")]}, f"probes[0].translated must be {ADDRESS}; '::' was given"),
    (
        {"probes": [probe(translated="fe80::2")]},
        "probes[0].translated must be an address that routers forward, not link-local; 'fe80::2' was given",
    ),
    (
        {"probes": [probe(), probe(source="fe80::1", translated="2001:db8::1"), probe(source="fe80::1")]},
        "probes[2].source must be an address that no other entry uses, or replies could not be translated;"
        " probes[1].source has it; 'fe80::1' was given",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), SENTENCES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_refusal_says_what_would_have_been_right_and_what_was_given(change: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        ProbeSnat.from_options({**OPTIONS, **change})
    assert str(caught.value) == sentence


def test_a_comment_is_a_part_of_the_table_and_comes_first_in_its_text() -> None:
    commented = ProbeSnat.from_options({**OPTIONS, "comment": "x" * 127}).table()
    assert commented != ProbeSnat().table() and commented._replace(comment="") == ProbeSnat().table()
    assert commented.text().startswith(f'table ip6 azureSLBProbe {{\n\tcomment "{"x" * 127}"\n\n\tchain prerouting {{\n')


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1])
def test_a_priority_may_be_as_far_as_the_kernel_takes_it(priority: int) -> None:
    assert ProbeSnat.from_options({**OPTIONS, "priority": priority}).priority == priority


def test_the_summary_names_all_that_may_differ() -> None:
    one = ProbeSnat.from_options(
        {**OPTIONS, "interface": "eth1", "probes": [probe(), probe(source="fe80::1", translated="2001:db8::1")]}
    )
    pairs = f"fe80::1 as 2001:db8::1, {SOURCE} as {TRANSLATED}"
    assert one.summary() == f"table azureSLBProbe (interface eth1, priority -300, {pairs})"
