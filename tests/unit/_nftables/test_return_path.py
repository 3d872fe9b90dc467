# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The return path as a value: options in, nft text out, and nft's listings recognised or not."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_table
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.return_path_table import (
    ReturnPath,
    sysctl_path,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import rule as policy_rule
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path import DesiredFilter
from unit.listings import check_cases

OPTIONS: dict[str, t.Any] = {
    "table": "kubenodeReturnPath",
    "primary_interface": "eth0",
    "pod_interfaces": ["eni*"],
    "mark": "0x80",
    "mask": None,
    "strict": False,
}
Body = dict[str, t.Any]


def desired(**changes: t.Any) -> ReturnPath:
    return ReturnPath.from_options({**OPTIONS, **changes})


def equals(left: Body, right: t.Any) -> Body:
    return {"match": {"op": "==", "left": left, "right": right}}


CT_MARK: Body = {"ct": {"key": "mark"}}
META_MARK: Body = {"meta": {"key": "mark"}}
ACCEPT: Body = {"accept": None}


def link(name: str) -> Body:
    return equals({"meta": {"key": "iifname"}}, name)


def local() -> Body:
    return equals({"fib": {"result": "type", "flags": ["daddr", "iif"]}}, "local")


def original() -> Body:
    return equals({"ct": {"key": "direction"}}, "original")


def marked(number: int = 128) -> Body:
    return equals({"&": [CT_MARK, number]}, number)


def marking(key: Body) -> Body:
    return {"mangle": {"key": key, "value": {"|": [key, 128]}}}


def rule(chain: str, *expr: Body) -> Body:
    return {"rule": {"family": "inet", "table": "kubenodeReturnPath", "chain": chain, "handle": 9, "expr": list(expr)}}


def goto(name: str) -> Body:
    return {"goto": {"target": name}}


def chain(name: str, kind: str = "") -> Body:
    hook = {"type": kind, "hook": name, "prio": -149, "policy": "accept"} if kind else {}
    return {"chain": {"family": "inet", "table": "kubenodeReturnPath", "name": name, "handle": 1, **hook}}


def listing() -> list[Body]:
    """What nft 1.0.6 prints of the default table; each rule has a place by which a test alters it."""
    unicast = equals({"fib": {"result": "type", "flags": ["saddr"]}}, "unicast")
    return [
        {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "kubenodeReturnPath", "handle": 3}},
        chain("prerouting", "filter"),
        chain("output", "route"),
        chain("entering"),
        chain("leaving"),
        chain("proxied"),
        rule("prerouting", link("eth0"), goto("entering")),
        rule("prerouting", marked(), goto("leaving")),
        rule("output", marked(), goto("proxied")),
        rule("entering", marked(), ACCEPT),
        rule("entering", original(), local(), marking(CT_MARK)),
        rule("leaving", link("eni*"), marking(META_MARK), ACCEPT),
        rule("leaving", link("lo"), marking(META_MARK), ACCEPT),
        rule("proxied", unicast, marking(META_MARK)),
    ]


PRIMARY, MARKED_ALREADY, SENT, KNOWN, REQUEST, POD, LO, PROXY = range(7, 15)


def expr(seen: list[Body], place: int) -> list[Body]:
    found: list[Body] = seen[place]["rule"]["expr"]
    return found


Alter = t.Callable[[list[Body]], t.Any]
SAME_MEANING: dict[str, Alter] = {
    "as it is": lambda seen: None,
    "other handles": lambda seen: seen[REQUEST]["rule"].update(handle=77),
    "flags of fib in a list of one or bare (nft 1.1)": lambda seen: expr(seen, PROXY)[0]["match"]["left"]["fib"].update(
        flags="saddr"
    ),
    "a comment": lambda seen: seen[POD]["rule"].update(comment="mine"),
    "the output chain first": lambda seen: seen.insert(2, seen.pop(3)),
    "the priority as a text": lambda seen: seen[2]["chain"].update(prio="-149"),
}
OTHER_MEANING: dict[str, Alter] = {
    "another primary": lambda seen: expr(seen, PRIMARY)[0]["match"].update(right="eth1"),
    "another pattern": lambda seen: expr(seen, POD)[0]["match"].update(right="eni1"),
    "not the primary": lambda seen: expr(seen, PRIMARY)[0]["match"].update(op="!="),
    "not for a local address": lambda seen: expr(seen, REQUEST).pop(1),
    "for an address of any link": lambda seen: expr(seen, REQUEST)[1]["match"]["left"]["fib"].update(flags=["daddr"]),
    "of both directions": lambda seen: expr(seen, REQUEST).pop(0),
    "of new connections": lambda seen: expr(seen, REQUEST).insert(2, equals({"ct": {"key": "state"}}, "new")),
    "another mark": lambda seen: expr(seen, REQUEST)[2]["mangle"]["value"].update({"|": [CT_MARK, 64]}),
    "a mark that clears others": lambda seen: expr(seen, REQUEST)[2]["mangle"].update(value=128),
    "the packet's mark": lambda seen: expr(seen, REQUEST)[2].update(marking(META_MARK)),
    "another mark asked for": lambda seen: expr(seen, MARKED_ALREADY).__setitem__(0, marked(64)),
    "no mark asked for": lambda seen: expr(seen, MARKED_ALREADY).pop(0),
    "the mark restored whole": lambda seen: expr(seen, POD)[1]["mangle"].update(value=CT_MARK),
    "the proxy's of any source": lambda seen: expr(seen, PROXY).pop(0),
    "another chain": lambda seen: expr(seen, PRIMARY).__setitem__(1, goto("leaving")),
    "a chain that is called": lambda seen: expr(seen, PRIMARY).__setitem__(1, {"jump": {"target": "entering"}}),
    "a lookup for each packet": lambda seen: seen.pop(KNOWN),
    "lo left out": lambda seen: seen.pop(LO),
    "a rule more": lambda seen: seen.append(rule("prerouting", {"accept": None})),
    "a counter in a rule": lambda seen: expr(seen, POD).append({"counter": {"packets": 1, "bytes": 1}}),
    "no rerouting": lambda seen: seen[3]["chain"].update(type="filter"),
    "another priority": lambda seen: seen[2]["chain"].update(prio=-150),
    "after destination NAT": lambda seen: seen[2]["chain"].update(prio="filter"),
    "a policy": lambda seen: seen[2]["chain"].update(policy="drop"),
    "a set": lambda seen: seen.append({"set": {"family": "inet", "name": "mine", "table": "kubenodeReturnPath"}}),
    "asleep": lambda seen: seen[1]["table"].update(flags="dormant"),
    "another family": lambda seen: seen[1]["table"].update(family="ip"),
}


@pytest.mark.parametrize("alter", SAME_MEANING.values(), ids=SAME_MEANING.keys())
def test_a_listing_that_means_the_same_is_equal(alter: Alter) -> None:
    seen = listing()
    alter(seen)
    assert nft_table.from_listing({"nftables": seen}) == desired().table()


def test_each_case_alters_a_listing_of_its_own() -> None:
    check_cases(listing, {**SAME_MEANING, **OTHER_MEANING})


@pytest.mark.parametrize("alter", OTHER_MEANING.values(), ids=OTHER_MEANING.keys())
def test_a_listing_that_means_something_else_is_not_equal(alter: Alter) -> None:
    seen = listing()
    alter(seen)
    assert nft_table.from_listing({"nftables": seen}) != desired().table()


def test_a_name_that_no_line_of_sysctl_d_can_hold_is_refused_only_where_it_needs_one() -> None:
    assert desired(primary_interface="a=b").sysctl_text() is None
    with pytest.raises(Invalid, match="primary_interface must be a link's name without = .*'a=b' was given"):
        desired(primary_interface="a=b", strict=True)


def test_strict_also_marks_each_packet_that_enters() -> None:
    seen = listing()
    seen[KNOWN] = rule("entering", marked(), marking(META_MARK), ACCEPT)
    seen[REQUEST] = rule("entering", local(), marking(META_MARK), original(), marking(CT_MARK))
    assert nft_table.from_listing({"nftables": seen}) == desired(strict=True).table() != desired().table()


SERVICES = ["198.51.100.0/25", "203.0.113.80", "198.51.100.128/26", "2001:db8::/64", "203.0.113.81"]


def prefix(address: str, length: int) -> Body:
    return {"prefix": {"addr": address, "len": length}}


LISTED: dict[str, list[t.Any]] = {
    "prefixes": [prefix("198.51.100.0", 25), prefix("198.51.100.128", 26), prefix("203.0.113.80", 31)],
    "a range of neighbours": [prefix("203.0.113.80", 31), {"range": ["198.51.100.0", "198.51.100.191"]}],
    "addresses": [{"range": ["198.51.100.0", "198.51.100.191"]}, "203.0.113.80", "203.0.113.81"],
}
OTHERS: dict[str, list[t.Any]] = {
    "one less": [prefix("198.51.100.0", 25), prefix("198.51.100.128", 26), "203.0.113.80"],
    "one more": [{"range": ["198.51.100.0", "198.51.100.192"]}, prefix("203.0.113.80", 31)],
    "of the other family": [prefix("2001:db8::", 32)],
    "of both families": [prefix("198.51.100.0", 25), prefix("2001:db8::", 32)],
    "no address": ["@mine"],
    "a number": [1],
}


def with_services(ipv4: list[t.Any]) -> nft_table.Table:
    daddr = {name: {"payload": {"protocol": name, "field": "daddr"}} for name in ("ip", "ip6")}
    sides = [(daddr["ip"], {"set": ipv4}), (daddr["ip6"], prefix("2001:db8::", 64))]
    rules = [rule("entering", original(), equals(*side), marking(CT_MARK), ACCEPT) for side in sides]
    seen = listing()
    return nft_table.from_listing({"nftables": [*seen[:REQUEST], *rules, *seen[REQUEST:]]})


@pytest.mark.parametrize("listed", LISTED.values(), ids=LISTED.keys())
def test_prefixes_of_services_are_recognised_however_they_are_listed(listed: list[t.Any]) -> None:
    assert with_services(listed) == desired(service_addresses=SERVICES).table()


@pytest.mark.parametrize("listed", OTHERS.values(), ids=OTHERS.keys())
def test_other_prefixes_are_not_equal(listed: list[t.Any]) -> None:
    assert with_services(listed) != desired(service_addresses=SERVICES).table()


def test_a_mask_of_leading_ones_is_recognised_as_a_prefix_too() -> None:
    """As nft before 1.1 lists it."""
    seen = listing()
    leading = equals(CT_MARK, {"prefix": {"addr": 0x80000000, "len": 1}})
    for place in (MARKED_ALREADY, SENT, KNOWN):
        expr(seen, place)[0] = leading
    for place, index in ((POD, 1), (LO, 1), (PROXY, 1)):
        expr(seen, place)[index] = {"mangle": {"key": META_MARK, "value": {"|": [META_MARK, 0x80000000]}}}
    expr(seen, REQUEST)[2] = {"mangle": {"key": CT_MARK, "value": {"|": [CT_MARK, 0x80000000]}}}
    assert nft_table.from_listing({"nftables": seen}) == desired(mark="0x80000000").table()


def test_the_text_is_laid_out_as_nft_lists_it() -> None:
    assert desired(strict=True, mask="0xff").table().text() == (
        "table inet kubenodeReturnPath {\n"
        "\tchain prerouting {\n"
        "\t\ttype filter hook prerouting priority -149; policy accept;\n"
        '\t\tiifname "eth0" goto entering\n'
        "\t\tct mark & 0x000000ff == 0x00000080 goto leaving\n"
        "\t}\n"
        "\n"
        "\tchain output {\n"
        "\t\ttype route hook output priority -149; policy accept;\n"
        "\t\tct mark & 0x000000ff == 0x00000080 goto proxied\n"
        "\t}\n"
        "\n"
        "\tchain entering {\n"
        "\t\tct mark & 0x000000ff == 0x00000080 meta mark set meta mark & 0xffffff80 | 0x00000080 accept\n"
        "\t\tfib daddr . iif type local meta mark set meta mark & 0xffffff80 | 0x00000080"
        " ct direction original ct mark set ct mark & 0xffffff80 | 0x00000080\n"
        "\t}\n"
        "\n"
        "\tchain leaving {\n"
        '\t\tiifname "eni*" meta mark set meta mark & 0xffffff80 | 0x00000080 accept\n'
        '\t\tiifname "lo" meta mark set meta mark & 0xffffff80 | 0x00000080 accept\n'
        "\t}\n"
        "\n"
        "\tchain proxied {\n"
        "\t\tfib saddr type unicast meta mark set meta mark & 0xffffff80 | 0x00000080\n"
        "\t}\n"
        "}\n"
    )


WAYS: list[Body] = [{"name": "eth2", "mark": "0x300"}, {"name": "eth1", "mark": "0x100"}]


def test_several_interfaces_are_looked_up_at_once() -> None:
    assert desired(interfaces=WAYS).table().text() == (
        "table inet kubenodeReturnPath {\n"
        "\tchain prerouting {\n"
        "\t\ttype filter hook prerouting priority -149; policy accept;\n"
        '\t\tiifname "eth0" goto entering\n\t\tiifname "eni*" goto leaving\n\t\tiifname "lo" goto leaving\n'
        '\t\tiifname vmap { "eth1" : goto entering_0x100, "eth2" : goto entering_0x300 }\n'
        "\t\tct mark & 0x00000380 vmap { 0x00000100 : goto replies_0x100, 0x00000300 : goto replies_0x300 }\n"
        "\t}\n"
        "\n"
        "\tchain output {\n"
        "\t\ttype route hook output priority -149; policy accept;\n"
        "\t\tct mark & 0x00000380 vmap { 0x00000080 : goto proxied, 0x00000100 : goto replies_0x100,"
        " 0x00000300 : goto replies_0x300 }\n"
        "\t}\n"
        "\n"
        "\tchain entering {\n"
        "\t\tct mark & 0x00000380 == 0x00000080 accept\n"
        "\t\tct direction original fib daddr . iif type local ct mark set ct mark & 0xfffffcff | 0x00000080\n"
        "\t\tct mark & 0x00000380 vmap { 0x00000100 : goto replies_0x100, 0x00000300 : goto replies_0x300 }\n"
        "\t}\n"
        + "".join(
            f"\n\tchain entering_{mark} {{\n"
            f"\t\tmeta mark & 0x00000380 == 0x00000{mark[2:]} ct direction original meta mark set meta mark & 0xfffffc7f\n"
            f"\t\tct direction original ct mark set ct mark & {kept} | 0x00000{mark[2:]} accept\n"
            "\t\tct mark & 0x00000380 vmap { 0x00000100 : goto replies_0x100, 0x00000300 : goto replies_0x300 }\n"
            "\t}\n"
            for mark, kept in EACH_OTHER_MARK
        )
        + "\n\tchain leaving {\n"
        + "\t\tct mark & 0x00000380 == 0x00000080 meta mark set meta mark & 0xfffffcff | 0x00000080 accept\n"
        + "\t\tct mark & 0x00000380 vmap { 0x00000100 : goto replies_0x100, 0x00000300 : goto replies_0x300 }\n"
        + "\t}\n\n\tchain proxied {\n\t\tfib saddr type unicast meta mark set meta mark & 0xfffffcff | 0x00000080\n\t}\n"
        + "".join(
            f"\n\tchain replies_{mark} {{\n"
            "\t\tip6 daddr fe80::/10 accept\n"
            f"\t\tct direction reply meta mark set meta mark & {kept} | 0x00000{mark[2:]}\n"
            "\t}\n"
            for mark, kept in EACH_OTHER_MARK
        )
        + "}\n"
    )


EACH_OTHER_MARK = (("0x100", "0xfffffd7f"), ("0x300", "0xffffff7f"))


def test_without_a_primary_interface_all_are_alike() -> None:
    alike = desired(primary_interface=None, pod_interfaces=None, interfaces=WAYS)
    text = alike.table().text()
    assert [line.split()[1] for line in text.splitlines() if line.startswith("\tchain")] == [
        *("prerouting", "output", "entering_0x100", "entering_0x300", "replies_0x100", "replies_0x300"),
    ]
    assert (alike.mask, [way.name for way in alike.marked_links]) == (0x300, ["eth1", "eth2"])
    assert {*alike.bits()} == {(0x100, 0x100), (0x300, 0x300)}


def test_strict_gives_no_reply_on_the_primary_interface_the_mark_of_another() -> None:
    """The reverse-path filter of the primary interface would look up the source by this mark."""
    text = desired(interfaces=WAYS, strict=True).table().text()
    (entering,) = re.findall(r"\tchain entering \{.*?\}", text, re.DOTALL)
    assert "replies_" not in entering


def vmap(key: Body, *elements: tuple[str | int, Body]) -> Body:
    return {"vmap": {"key": key, "data": {"set": [list(element) for element in elements]}}}


IIFNAME: Body = {"meta": {"key": "iifname"}}
ETH1, ETH2 = ("eth1", goto("entering_0x100")), ("eth2", goto("entering_0x300"))
LISTED_MAPS: dict[str, Body] = {"as nft lists it": vmap(IIFNAME, ETH1, ETH2), "another order": vmap(IIFNAME, ETH2, ETH1)}
OTHER_MAPS: dict[str, Body] = {
    "an entry less": vmap(IIFNAME, ETH1),
    "an entry more": vmap(IIFNAME, ETH1, ETH2, ("eth3", goto("entering_0x300"))),
    "another link": vmap(IIFNAME, ETH1, ("eth3", goto("entering_0x300"))),
    "the chains swapped": vmap(IIFNAME, ("eth2", goto("entering_0x100")), ("eth1", goto("entering_0x300"))),
    "another key": vmap({"meta": {"key": "oifname"}}, ETH1, ETH2),
    "another verdict": vmap(IIFNAME, ETH1, ("eth2", {"drop": None})),
    "a verdict of another kind": vmap(IIFNAME, ETH1, ("eth2", {"jump": {"target": "entering_0x300"}})),
    "a named map": {"vmap": {"key": IIFNAME, "data": "@mine"}},
}


def with_map(of_links: Body) -> nft_table.Table:
    connection, replies = {"&": [CT_MARK, 0x380]}, [(mark, goto(f"replies_{mark:#x}")) for mark in (0x100, 0x300)]

    def setting(key: Body, mark: int) -> Body:
        return {"mangle": {"key": key, "value": {"|": [{"&": [key, 0xFFFFFC7F | mark]}, mark]}}}

    marked, replied = equals(connection, 0x80), vmap(connection, *replies)
    seen = [one for one in listing() if "rule" not in one]
    seen += [rule("prerouting", link("eth0"), goto("entering"))]
    seen += [rule("prerouting", link(name), goto("leaving")) for name in ("eni*", "lo")]
    seen += [rule("prerouting", of_links), rule("prerouting", replied)]
    seen += [rule("output", vmap(connection, *replies, (0x80, goto("proxied"))))]
    seen += [rule("entering", marked, ACCEPT), rule("entering", original(), local(), setting(CT_MARK, 0x80))]
    seen += [rule("entering", replied), rule("leaving", marked, setting(META_MARK, 0x80), ACCEPT), rule("leaving", replied)]
    unicast = equals({"fib": {"result": "type", "flags": ["saddr"]}}, "unicast")
    seen += [rule("proxied", unicast, setting(META_MARK, 0x80))]
    link_local = equals({"payload": {"protocol": "ip6", "field": "daddr"}}, {"prefix": {"addr": "fe80::", "len": 10}})
    reply = equals({"ct": {"key": "direction"}}, "reply")
    cleared = {"mangle": {"key": META_MARK, "value": {"&": [META_MARK, 0xFFFFFC7F]}}}
    for mark in (0x100, 0x300):
        opened, replying = f"entering_{mark:#x}", f"replies_{mark:#x}"
        seen += [chain(opened), chain(replying)]
        seen += [rule(opened, equals({"&": [META_MARK, 0x380]}, mark), original(), cleared)]
        seen += [rule(opened, original(), setting(CT_MARK, mark), ACCEPT), rule(opened, replied)]
        seen += [rule(replying, link_local, ACCEPT), rule(replying, reply, setting(META_MARK, mark))]
    return nft_table.from_listing({"nftables": seen})


@pytest.mark.parametrize("listed", LISTED_MAPS.values(), ids=LISTED_MAPS.keys())
def test_a_map_of_interfaces_is_recognised(listed: Body) -> None:
    assert with_map(listed) == desired(interfaces=WAYS).table()


@pytest.mark.parametrize("listed", OTHER_MAPS.values(), ids=OTHER_MAPS.keys())
def test_another_map_is_not_equal(listed: Body) -> None:
    assert with_map(listed) != desired(interfaces=WAYS).table()


def test_each_mark_has_its_bits_and_the_primary_what_else_the_mask_has() -> None:
    assert list(desired(interfaces=WAYS).bits()) == [(0x80, 0x80), (0x100, 0x100), (0x300, 0x300)]
    assert next(desired(interfaces=WAYS, mask="0xfff").bits()) == (0x80, 0xCFF)
    assert next(desired(interfaces=WAYS, mask="0xffffffff").bits()) == (0x80, 0xFFFFFFFF), "told as the full mask"


def test_spellings_and_order_mean_nothing() -> None:
    assert desired(mark="128", mask="0X80") == desired()
    assert desired(interfaces=WAYS) == desired(interfaces=[{"name": "eth1", "mark": 256}, WAYS[0]], mask="0x380")
    assert desired(pod_interfaces=["b", "a*", "b"]) == desired(pod_interfaces=["a*", "b"])


FROM_POD: Body = {"priority": 1536, "from": "10.0.1.11", "table": 1001}
MARKED: Body = {"priority": 1024, "fwmark": "0x80/0x80", "table": "main"}
ROUTING: dict[str, tuple[list[Body], str]] = {
    "none": ([], ""),
    "by the mark": ([MARKED], "marked"),
    "by the mark first": ([MARKED, FROM_POD], "marked"),
    "the pod's alone": ([FROM_POD], "earlier"),
    "the pod's first": ([{**FROM_POD, "priority": 512}, MARKED], "marked earlier"),
    "the pod's link first": ([{"priority": 10, "iif": "eni7", "table": 101}, MARKED], "marked earlier"),
    "another link first": ([{"priority": 10, "iif": "vlan7", "table": 101}, MARKED], "marked"),
    "to the pod first": ([{"priority": 512, "to": "10.0.1.11", "table": "main"}, MARKED], "marked"),
    "from a pod to main first": ([{**FROM_POD, "priority": 512, "table": "main"}, MARKED], "marked"),
    "by bits that others set": ([{**MARKED, "fwmark": "0x80"}], ""),
    "by another mark": ([{**MARKED, "fwmark": "0x40/0x40"}], ""),
    "by no mark": ([{**MARKED, "fwmark": "0/0x80"}], ""),
    "by anything but the mark": ([{**MARKED, "not": True}], ""),
    "by the mark, but nowhere": ([{"priority": 1024, "fwmark": "0x80/0x80", "action": "blackhole"}], ""),
    "by the mark, further down": ([{"priority": 1024, "fwmark": "0x80/0x80", "goto": 2000}], "marked"),
}


@pytest.mark.parametrize(
    ("fwmark", "mark", "is_found"),
    [("0x80/0x80", 0x100, False), ("0x80/0x80", 0x180, True), ("0x100/0x180", 0x100, True), ("0x100/0x180", 0x180, False)],
)
def test_the_rule_of_an_interface_is_found_by_its_mark(fwmark: str, mark: int, is_found: bool) -> None:
    ways = [{"name": "eth1", "mark": mark}]
    parsed = [policy_rule.from_options("rules", {**MARKED, "fwmark": fwmark}, {"main": 254})]
    assert (desired(interfaces=ways).routing(parsed, mark).marked is not None) == is_found


@pytest.mark.parametrize(("rules", "found"), ROUTING.values(), ids=ROUTING.keys())
def test_rules_by_which_marked_packets_are_routed(rules: list[Body], found: str) -> None:
    tables = {"main": 254, "1001": 1001, "101": 101}
    parsed = [policy_rule.from_options("rules", one, tables) for one in rules]
    routing = desired().routing(parsed, 0x80)
    assert " ".join(name for name, one in routing._asdict().items() if one) == found


def test_strict_alone_asks_for_valid_marks() -> None:
    assert desired().validation() is None and desired().sysctl_text() is None
    validation = desired(strict=True, primary_interface="eth0.100").validation()
    assert validation and validation.covers("eth0.100") and not validation.covers("eni1")
    text = desired(strict=True, primary_interface="eth0.100").sysctl_text()
    assert text and text.endswith("\nnet/ipv4/conf/eth0.100/src_valid_mark = 1\n")


INVALID: list[tuple[str, dict[str, t.Any]]] = [
    ("table", {"table": 'a"b'}),
    ("primary_interface", {"primary_interface": None}),
    ("primary_interface", {"primary_interface": ""}),
    ("primary_interface", {"primary_interface": "eth*"}),
    ("pod_interfaces", {"pod_interfaces": []}),
    ("pod_interfaces[0]", {"pod_interfaces": ["eth0"]}),
    ("pod_interfaces[0]", {"pod_interfaces": ["e*"]}),
    ("pod_interfaces[0]", {"pod_interfaces": ["eth0*"]}),
    ("pod_interfaces[1]", {"pod_interfaces": ["eni*", "eth*"]}),
    ("pod_interfaces[1]", {"pod_interfaces": ["eni*", "e*i"]}),
    ("pod_interfaces[0]", {"pod_interfaces": ["eni1, eni2"]}),
    ("service_addresses[0]", {"service_addresses": ["203.0.113.1/24"]}),
    ("service_addresses[1]", {"service_addresses": ["203.0.113.1", "0.0.0.0/0"]}),
    ("service_addresses[0]", {"service_addresses": ["::/0"]}),
    ("service_addresses[0]", {"service_addresses": ["default"]}),
    ("interfaces[0].name", {"interfaces": [{"name": "lo", "mark": "1"}]}),
    ("interfaces[0].name", {"interfaces": [{"name": "eth*", "mark": "1"}]}),
    ("interfaces[1].name", {"interfaces": [{"name": "eth1", "mark": "1"}, {"name": "eth1", "mark": "2"}]}),
    ("interfaces[0].mark", {"interfaces": [{"name": "eth1", "mark": "0"}]}),
    ("interfaces[0].mark", {"interfaces": [{"name": "eth1", "mark": "128"}]}),
    ("interfaces[1].mark", {"interfaces": [{"name": "eth1", "mark": "1"}, {"name": "eth2", "mark": "0x1"}]}),
    ("interfaces[0].mark", {"interfaces": [{"name": "eth1", "mark": "0x100"}], "mask": "0xff"}),
    ("mark", {"mark": "0"}),
    ("mark", {"mark": "0x0"}),
    ("mark", {"mark": "0x100000000"}),
    ("mark", {"mark": "4294967296"}),
    ("mark", {"mark": "080"}),
    ("mark", {"mark": "1_0"}),
    ("mark", {"mark": " 1"}),
    ("mark", {"mark": "0x80/0x80"}),
    ("mark", {"mark": ""}),
    ("mark", {"mark": "0x80", "mask": "0x40"}),
    ("mask", {"mask": "0"}),
    ("mask", {"mask": "0x1ffffffff"}),
    ("mask", {"mask": "all"}),
]


@pytest.mark.parametrize(("option", "change"), INVALID, ids=str)
def test_bad_input_names_the_option_and_what_was_given(option: str, change: dict[str, t.Any]) -> None:
    with pytest.raises(Invalid, match="must be .* was given") as caught:
        desired(**change)
    assert caught.value.option == option


SENTENCES: list[tuple[dict[str, t.Any], str]] = [
    (
        {"primary_interface": "lo"},
        "primary_interface must be the name of one network interface that leads to other machines, as eth0; 'lo' was given",
    ),
    ({"mark": "-1"}, "mark must be a number from 1 to 0xffffffff, for example 128 or 0x80; '-1' was given"),
    (
        {"mask": "0x100000000"},
        "mask must be a number from 1 to 0xffffffff, for example 128 or 0x80; '0x100000000' was given",
    ),
    (
        {"mark": "0x81", "mask": "0x80"},
        "mark must be within mask 0x00000080, as the table keeps all other bits; '0x81' was given",
    ),
    (
        {"pod_interfaces": None},
        "pod_interfaces must be a list of at least one link name or pattern, for example eni*; [] was given",
    ),
    (
        {"pod_interfaces": ["eni*", "e*"]},
        "pod_interfaces[1] must be a pattern that primary_interface eth0 does not match; 'e*' was given",
    ),
    (
        {"pod_interfaces": ["eni+"]},
        "pod_interfaces[0] must be a name, or eni* for all names with that prefix; 'eni+' was given",
    ),
    (
        {"interfaces": [{"name": "eth0", "mark": "1"}]},
        "interfaces[0].name must be another link than that of primary_interface, whose mark is the option mark; 'eth0' was given",
    ),
    (
        {"interfaces": [{"name": "eth1", "mark": "0x80"}]},
        "interfaces[0].mark must be another mark than that of eth0; '0x80' was given",
    ),
    (
        {"interfaces": [{"name": "eni1", "mark": "0x100"}]},
        "pod_interfaces[0] must be a pattern that eni1, one of interfaces, does not match; 'eni*' was given",
    ),
    (
        {"primary_interface": None, "interfaces": WAYS, "strict": True},
        "strict must be left out, unless primary_interface is given; True was given",
    ),
    (
        {"primary_interface": None, "interfaces": WAYS, "service_addresses": ["203.0.113.0/24"]},
        "service_addresses must be left out, unless primary_interface is given; ['203.0.113.0/24'] was given",
    ),
    ({"pod_interfaces": ["lo"]}, "pod_interfaces[0] must be a link of pods; lo is always included; 'lo' was given"),
]


@pytest.mark.parametrize(("change", "sentence"), SENTENCES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_refusal_says_what_would_have_been_right_and_what_was_given(change: dict[str, t.Any], sentence: str) -> None:
    with pytest.raises(Invalid) as caught:
        desired(**change)
    assert str(caught.value) == sentence


WIDEST: list[tuple[str, str | None, int, int]] = [
    ("1", None, 1, 1),
    ("0xffffffff", None, 2**32 - 1, 2**32 - 1),
    ("0x1", "0xffffffff", 1, 2**32 - 1),
    ("0x80", "0x81", 0x80, 0x81),
]


@pytest.mark.parametrize(("mark", "mask", "number", "bits"), WIDEST)
def test_marks_may_have_any_bits_of_32(mark: str, mask: str | None, number: int, bits: int) -> None:
    one = desired(mark=mark, mask=mask)
    assert (one.mark, one.mask) == (number, bits)


def test_a_mask_of_all_bits_is_no_mask() -> None:
    """As the kernel lists it: nothing of the mark is kept."""
    text = desired(mark="0x80", mask="0xffffffff").table().text()
    assert "ct mark 0x00000080 goto leaving\n" in text and 'iifname "eni*" meta mark set 0x00000080 accept\n' in text
    assert "fib daddr . iif type local ct mark set 0x00000080\n" in text


def test_a_mark_of_all_its_mask_clears_nothing_before() -> None:
    assert " ct mark set ct mark | 0x00000080\n" in desired().table().text()


@pytest.mark.parametrize(
    ("entry", "is_for_pods"),
    [
        ({"iif": "eni", "table": 101}, True),
        ({"iif": "eni77", "table": 101}, True),
        ({"iif": "en", "table": 101}, False),
        ({"iif": "xeni", "table": 101}, False),
        ({"iif": "veth1", "table": 101}, True),
        ({"iif": "veth11", "table": 101}, False),
        ({"from": "10.0.1.11", "table": 101, "fwmark": "0x40/0x40"}, False),
        ({"from": "10.0.1.11", "table": 101, "not": True}, False),
        ({"from": "10.0.1.11", "goto": 2000}, False),
        ({"from": "10.0.1.11", "action": "prohibit"}, False),
        ({"from": "10.0.1.11", "table": "local"}, False),
    ],
)
def test_rules_by_which_pods_leave_elsewhere(entry: Body, is_for_pods: bool) -> None:
    parsed = [policy_rule.from_options("rules", {"priority": 1000, **entry}, {"101": 101, "local": 255})]
    assert (desired(pod_interfaces=["eni*", "veth1"]).routing(parsed, 0x80).earlier is not None) == is_for_pods


def test_a_rule_of_the_run_is_the_marks_and_another_before_it_takes_its_replies() -> None:
    entries = [{**MARKED, "priority": 100, "table": 77}, {**MARKED, "priority": 1200, "table": 1001}]
    foreign, ours = (policy_rule.from_options("rules", entry, {}) for entry in entries)
    assert desired().routing([foreign, ours], 0x80, [ours]) == (ours, foreign)
    assert desired().routing([foreign, ours], 0x80) == (foreign, None)
    assert desired().routing([foreign._replace(table=1001), ours], 0x80, [ours]) == (ours, None)


def test_the_first_of_several_rules_is_named() -> None:
    entries: list[Body] = [
        {**FROM_POD, "priority": 10},
        {**FROM_POD, "priority": 11},
        MARKED,
        {**MARKED, "priority": 2000},
    ]
    parsed = [policy_rule.from_options("rules", one, {"main": 254, "1001": 1001}) for one in entries]
    assert desired().routing(parsed, 0x80) == (parsed[2], parsed[0])


def test_the_file_for_the_next_boot_is_named_after_the_table() -> None:
    text = desired(strict=True).sysctl_text()
    assert text == "# For table inet kubenodeReturnPath.\nnet/ipv4/conf/eth0/src_valid_mark = 1\n"
    assert sysctl_path("kubenodeReturnPath") == "/etc/sysctl.d/90-kubenode-nft-inet-kubenodeReturnPath.conf"


def test_a_rule_may_ask_for_some_of_the_bits() -> None:
    asked = {"0x80/0xc0": True, "0x40/0xc0": False, "0x80/0xff": True, "0x80/0x180": False}
    for mark, expected in asked.items():
        parsed = [policy_rule.from_options("rules", {**MARKED, "fwmark": mark}, {"main": 254})]
        assert (desired(mark="0x80", mask="0xff").routing(parsed, 0x80).marked is not None) == expected, mark


def test_strict_sets_valid_marks_to_1_on_the_primary_interface_alone() -> None:
    assert desired(strict=True).validation() == DesiredFilter(1, ("eth0",), (), raise_all=False)
