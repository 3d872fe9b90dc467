# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign parts of a listing are kept, shown, compared and never misread. Names of tables in options, the oddest included."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_table, table_names
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_table import Chain, Foreign, Table

Body = dict[str, t.Any]
CT_MARK: Body = {"ct": {"key": "mark"}}
SADDR: Body = {"payload": {"protocol": "ip6", "field": "saddr"}}


def listing(*statements: Body, handle: int = 3, **chain: t.Any) -> Body:
    place = {"family": "ip6", "table": "one"}
    return {
        "nftables": [
            {"table": {"family": "ip6", "name": "one", "handle": handle}},
            {"chain": {**place, "name": "input", "type": "filter", "hook": "input", "prio": 0, **chain}},
            {"rule": {**place, "chain": "input", "handle": handle + 1, "expr": list(statements)}},
        ]
    }


def read(*statements: Body, **chain: t.Any) -> Chain:
    (one,) = nft_table.from_listing(listing(*statements, **chain)).chains
    return one


def match(left: t.Any, right: t.Any, op: str = "==") -> Body:
    return {"match": {"op": op, "left": left, "right": right}}


FOREIGN: dict[str, Body] = {
    "a mark of one direction": match({"ct": {"key": "mark", "dir": "original"}}, 1),
    "a connection's state": match({"ct": "state"}, "new"),
    "bytes at a place": match({"payload": {"base": "nh", "offset": 8, "len": 16}}, 1),
    "a header as a word": match({"payload": "ip6 saddr"}, 1),
    "a number as a header": match({"payload": 7}, 1),
    "a field of a tunnel's packet": match({"payload": {"tunnel": "vxlan", "protocol": "ip6", "field": "saddr"}}, "fe80::1"),
    "meta in two words": match({"meta": {"key": "iifname", "more": 1}}, "eth0"),
    "a socket's key": match({"socket": {"key": "mark"}}, 1),
    "a route's protocol and field": match({"rt": {"protocol": "ip6", "field": "nexthop"}}, "fe80::1"),
    "fib of more": match({"fib": {"result": "type", "flags": ["daddr"], "more": 1}}, "local"),
    "a mask by a set": match({"&": [CT_MARK, {"set": [1, 2]}]}, 1),
    "a mask of something foreign": match({"&": [{"osf": {"key": "name"}}, 1]}, 1),
    "a mask of a mask that is foreign": match({"&": [{"&": [{"osf": {"key": "name"}}, 3]}, 1]}, 1),
    "a list on the left": match([CT_MARK], 1),
    "two keys on the left": match({**CT_MARK, **SADDR}, 1),
    "a prefix in a set": match(SADDR, {"set": ["fe80::1", {"prefix": {"addr": "fe80::", "len": 10}}]}),
    "a prefix on a foreign left": match({"osf": {"key": "name"}}, {"prefix": {"addr": 1, "len": 32}}),
    "a range": match(SADDR, {"range": ["fe80::1", "fe80::2"]}),
    "a set with a range": match(SADDR, {"set": ["fe80::1", {"range": ["fe80::3", "fe80::4"]}]}),
    "an empty set": match(SADDR, {"set": []}),
    "greater than": match(CT_MARK, 1, op=">"),
    "one of two values": {"mangle": {"key": SADDR, "value": {"set": ["fe80::1", "fe80::2"]}}},
    "a value by a map": {"mangle": {"key": CT_MARK, "value": {"map": {"key": SADDR, "data": "@marks"}}}},
    "something foreign that is set": {"mangle": {"key": {"osf": {"key": "name"}}, "value": 1}},
    "a named counter": {"counter": "seen"},
    "a jump": {"jump": {"target": "other"}},
    "a statement without a body": {"masquerade": None},
}


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_no_table_of_ours_has_is_foreign_and_shown(statement: Body) -> None:
    ((one,),) = read(statement).rules
    assert isinstance(one, Foreign)
    assert one.text().startswith('# {"' + next(iter(statement))) and one == Foreign(one.json)


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_statements_are_told_apart(statement: Body) -> None:
    others = [read(one) for one in FOREIGN.values() if one is not statement]
    assert read(statement) not in others and read(statement) == read(statement)


def test_handles_and_the_order_of_keys_mean_nothing_in_what_is_foreign_either() -> None:
    def one(handle: int, reverse: bool) -> Table:
        seen = listing({"jump": {"target": "other"}}, handle=handle)
        elements = [{"elem": {"val": "fe80::1", "handle": handle}}, "fe80::2"]
        body = {"family": "ip6", "name": "s", "table": "one", "handle": handle, "elem": elements}
        seen["nftables"].append({"set": dict(reversed(body.items())) if reverse else body})
        return nft_table.from_listing(seen)

    assert one(3, False) == one(77, True)


def test_elements_of_a_foreign_set_mean_something() -> None:
    def one(*elements: t.Any) -> Table:
        seen = listing()
        seen["nftables"].append({"set": {"family": "ip6", "name": "s", "table": "one", "elem": list(elements)}})
        return nft_table.from_listing(seen)

    assert len({one(), one("fe80::1"), one("fe80::1", "fe80::2"), one({"elem": {"val": "fe80::1"}})}) == 4


def test_a_chain_says_what_nft_left_out() -> None:
    one = read()
    assert (one.policy, one.rules) == ("accept", ((),))
    seen = listing()
    del seen["nftables"][2]["rule"]["expr"]
    assert nft_table.from_listing(seen) == nft_table.from_listing(listing())


PRIORITIES = [(-300, "raw"), (-299, "-299"), (-1, "-1"), (0, "filter"), (1, "1"), (100, "srcnat"), ("-299", "-299")]


@pytest.mark.parametrize(("listed", "shown"), [*PRIORITIES, ("raw", "raw"), ("filter", "filter")])
def test_a_priority_is_shown_as_nft_lists_it(listed: t.Any, shown: str) -> None:
    text = read({"drop": None}, prio=listed, policy="drop").text()
    assert text == f"\tchain input {{\n\t\ttype filter hook input priority {shown}; policy drop;\n\t\tdrop\n\t}}\n"


@pytest.mark.parametrize("count", [0, 2])
def test_a_listing_of_no_table_or_of_two_is_an_error_that_counts_them(count: int) -> None:
    seen = listing()
    seen["nftables"][:1] = seen["nftables"][:1] * count
    with pytest.raises(ValueError, match=f"has {count} tables"):
        nft_table.from_listing(seen)


def test_a_chain_that_no_hook_calls_is_shown_without_one_after_those_that_are_called() -> None:
    seen = listing()
    seen["nftables"].append({"chain": {"family": "ip6", "table": "one", "name": "a"}})
    assert nft_table.from_listing(seen).text().endswith("\t}\n\n\tchain a {\n\t}\n}\n")


@pytest.mark.parametrize(
    "name", ["azureSLBProbe", "kubenodeReturnPath", "Accept", "accept1", "_", "a.b-c", "filter", "a" * 128, "a", "A9_.-"]
)
def test_a_table_may_have_any_free_name(name: str) -> None:
    assert table_names.table("table", name) == name


@pytest.mark.parametrize(
    "name", ["accept", "counter", "ip6", "table", "chain", "gc-interval", "all", "th", "xt", "secmark", "dnat"]
)
def test_a_word_of_nfts_language_is_no_name_for_a_table(name: str) -> None:
    with pytest.raises(Invalid, match=f"^table must be a word that no nft from version .* reserves.*'{name}' was given"):
        table_names.table("table", name)
    # state absent removes a table of an nft that does not reserve the word
    assert table_names.table("table", name, is_new=False) == name


@pytest.mark.parametrize("name", ["", "1a", "a b", 'a"', "a\n", "a;b", "a{", "a}", "a/b", "\u00e4", "a" * 129, ".a", "-a"])
def test_a_table_is_named_by_a_word(name: str) -> None:
    with pytest.raises(
        Invalid, match="^table must be a word of 1 to 128 letters, digits and _.- that starts with a letter or _; .* was given"
    ):
        table_names.table("table", name)
