# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run reads a table with many chains as text, and what kube-proxy generates for each Service where a packet may meet it.

It says of the node what it says of a snapshot, which has nft's JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import nfnetlink
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import generated, nft_blocks, nft_json, nft_text
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.ruleset import ByName
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend, snapshot_backend
from lab import Eni, EniLab, kube_proxy

SERVICES = kube_proxy.services(200)
SMALL = """
table inet small {
  set blocked { type ipv4_addr; flags interval; elements = { 192.0.2.0/25 comment "a, b", 192.0.2.200 } }
  map verdicts { type inet_service : verdict; elements = { 80 : jump counting, 81 : drop, 82 : goto counting } }
  chain counting { counter comment "jump counting; drop"; }
  chain forward {
    type filter hook forward priority 5; policy accept;
    tcp dport vmap { 90 : jump counting, 91 : accept }
    tcp dport vmap @verdicts
    ip saddr @blocked ct state { established, related } log prefix "goto counting " drop
  }
}
"""
KUBE_PROXY = ("ip", "kube-proxy")


@pytest.fixture(scope="module")
def lab() -> Iterator[EniLab]:
    with EniLab("large", [Eni(f"eth{number}", pods=[f"pod{number}"], has_address=True) for number in (1, 2)]) as built:
        node: Any = built.node("node1")
        node.filter_reverse_path(1)
        kube_proxy.load(node, "nftables", SERVICES)
        node.run_from_host(["nft", "-f", "-"], SMALL)
        yield built


def noted(subset: str, reason: str) -> None:
    raise AssertionError(f"{subset}: {reason}")


def compact(node: Any) -> dict[str, Any]:
    whole: dict[str, Any] = node.in_network(
        lambda: snapshot_backend.read(process.run, netfilter_backend.RULESETS, is_compact=True)
    )
    return whole


def test_a_large_table_alone_is_text(lab: EniLab) -> None:
    read = compact(lab.node("node1"))
    assert [(table.family, table.name) for table in nft_text.tables(read["nftables_text"])] == [KUBE_PROXY]
    assert [(table.family, table.name) for table in nft_json.tables(read["nftables"])] == [("inet", "small")]
    assert read["unread"] == []


def test_a_text_has_no_part_for_each_service(lab: EniLab) -> None:
    read = compact(lab.node("node1"))
    (table,) = nft_text.tables(read["nftables_text"])
    assert "nat-prerouting" in table.chains and "mark-for-masquerade" in table.chains
    assert not any("svc" in name for name in (*table.chains, *table.sets))
    assert "svc" not in read["nftables_text"]


def test_a_text_is_counted_as_the_json_of_its_table(lab: EniLab) -> None:
    node: Any = lab.node("node1")
    objects = node.in_network(lambda: netfilter_backend.nftables(process.run, noted))
    text = "".join(listed(node, place) for place in (KUBE_PROXY, ("inet", "small")))
    assert nft_text.counted(text) == nft_json.counted(objects)
    assert nft_text.sizes(text) == nft_json.sizes(objects)
    assert nft_text.counted(text, [KUBE_PROXY]).keys() == {("inet", "small")}
    assert {name[:2] for name in nft_text.sizes(text, [KUBE_PROXY])} == {("inet", "small")}


def listed(node: Any, place: tuple[str, str]) -> str:
    text: str = node.run_from_host(["nft", "list", "table", *place])
    return text


def test_what_is_read_from_the_kernel_is_what_nft_lists(lab: EniLab) -> None:
    node: Any = lab.node("node1")
    (by_nft,) = nft_text.tables(listed(node, KUBE_PROXY))

    def compared() -> None:
        text, lacking = netfilter_backend.nftables_text(process.run, noted, [KUBE_PROXY])
        (table,) = map(lacking.completed, nft_text.tables(text))
        assert isinstance(table.chains, ByName) and isinstance(table.sets, ByName)
        assert {*table.chains, *table.chains.further} == by_nft.chains.keys()
        assert {*table.sets, *table.sets.further} == by_nft.sets.keys()
        for name, chain in by_nft.chains.items():
            found = table.chains[name]
            assert found._replace(rules=()) == chain._replace(rules=())
            assert [rule._replace(line="") for rule in found.rules] == [rule._replace(line="") for rule in chain.rules], name
        for name, elements in by_nft.sets.items():
            assert sorted(map(str, table.sets[name])) == sorted(map(str, elements)), name

    node.in_network(compared)


def test_what_is_read_from_the_kernel_makes_the_same_table(lab: EniLab) -> None:
    """Loaded into the same node again, nft lists it as before."""
    node: Any = lab.node("node1")

    def whole() -> str:
        text, lacking = netfilter_backend.nftables_text(process.run, noted, [KUBE_PROXY])
        return nft_blocks.find(text).completed({KUBE_PROXY: lacking.lines(KUBE_PROXY, lacking.blocks[KUBE_PROXY])})

    (before,) = nft_text.tables(listed(node, KUBE_PROXY))
    node.run_from_host(["nft", "-f", "-"], f"delete table {' '.join(KUBE_PROXY)}\n{node.in_network(whole)}")
    (after,) = nft_text.tables(listed(node, KUBE_PROXY))
    assert after == before


def _with_the_rest(node: Any, change: str, name: str) -> list[str]:
    """The rules of a chain that is read after a change of its table."""

    def read() -> list[str]:
        text, lacking = netfilter_backend.nftables_text(process.run, noted, [KUBE_PROXY])
        (table,) = map(lacking.completed, nft_text.tables(text))
        node.run_from_host(["nft", "-f", "-"], change)
        return [rule.line for rule in table.chains[name].rules]

    lines: list[str] = node.in_network(read)
    return lines


PLAIN = next(service for service in SERVICES if service.kind == "plain")
OF_PLAIN = f"service-{PLAIN.chain}"


@pytest.fixture
def again(lab: EniLab) -> Iterator[Any]:
    node: Any = lab.node("node1")
    yield node
    node.run_from_host(["nft", "delete", "table", *KUBE_PROXY])
    kube_proxy.load(node, "nftables", SERVICES)


def test_a_chain_is_read_as_it_is_when_a_packet_may_meet_it(again: Any) -> None:
    lines = _with_the_rest(again, f"insert rule ip kube-proxy {OF_PLAIN} meta l4proto udp drop", OF_PLAIN)
    assert lines[0] == "meta l4proto udp drop" and len(lines) > 1


def test_nft_lists_a_chain_with_a_rule_that_is_not_read(again: Any) -> None:
    lines = _with_the_rest(again, f'insert rule ip kube-proxy {OF_PLAIN} log prefix "seen " drop', OF_PLAIN)
    assert lines[0] == 'log prefix "seen " drop' and len(lines) > 1


def test_a_chain_that_was_emptied_since_is_no_empty_chain(again: Any) -> None:
    """kube-proxy empties a chain a second before it removes it: a packet of the snapshot does not go on behind it."""
    with pytest.raises(Failure, match=f"the chain {re.escape(OF_PLAIN)} of the table ip kube-proxy changed while"):
        _with_the_rest(again, f"flush chain ip kube-proxy {OF_PLAIN}", OF_PLAIN)


def test_a_chain_that_was_empty_is_read(again: Any) -> None:
    again.run_from_host(["nft", "flush", "chain", *KUBE_PROXY, OF_PLAIN])
    assert _with_the_rest(again, "", OF_PLAIN) == []


@pytest.mark.parametrize(
    "flag, statement", [("flags dormant;", ""), ("", 'log prefix "seen "'), ("", "limit rate 10/second accept")]
)
def test_a_table_with_anything_that_is_not_read_from_the_kernel_is_listed_by_nft(lab: EniLab, flag: str, statement: str) -> None:
    node: Any = lab.node("node1")
    table = f"table ip other {{\n{flag}\nset s {{ type ipv4_addr; }}\nchain a {{ counter; {statement}; }}\n}}"
    node.run_from_host(["nft", "-f", "-"], table)
    try:
        text, lacking = node.in_network(lambda: netfilter_backend.nftables_text(process.run, noted, [("ip", "other")]))
        assert text == listed(node, ("ip", "other")) and not lacking.blocks
    finally:
        node.run_from_host(["nft", "delete", "table", "ip", "other"])


@pytest.mark.parametrize(
    "lacking", ["masquerade fully-random", "ct state new jump firewall-check", "10.96.0.1 . tcp . 80 : goto "]
)
def test_a_text_that_lacks_something_is_told_from_the_kernel(lab: EniLab, lacking: str) -> None:
    node: Any = lab.node("node1")
    lines = listed(node, KUBE_PROXY).splitlines()
    assert any(lacking in line for line in lines)
    cut = {**compact(node), generated.KEY: None, "nftables_text": "\n".join(_without(line, lacking) for line in lines)}
    assert {place for place, _sentence in node.in_network(lambda: netfilter_backend.differences(cut))} == {"ip kube-proxy"}


def _without(line: str, lacking: str) -> str:
    elements = line.split(", ")
    return ", ".join(element for element in elements if lacking not in element)


def test_a_table_that_nft_does_not_list_is_unread(again: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel ends nft for want of memory. The others are read."""
    real = process.run
    again.run_from_host(["nft", "insert", "rule", *KUBE_PROXY, "nat-prerouting", "log"])

    def run(argv: list[str], text: str | None = None) -> process.Completed:
        return real(argv, text) if "-j" in argv else process.Completed(-9, "", "")

    monkeypatch.setattr(process, "run", run)
    read = compact(again)
    assert {(entry["subset"], entry["object"]) for entry in read["unread"]} == {("nftables", "ip kube-proxy")}
    assert [table.name for table in nft_json.tables(read["nftables"])] == ["small"]


def test_without_the_kernel_s_list_of_tables_the_ruleset_is_unread(lab: EniLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def tables() -> dict[tuple[str, str], int]:
        raise Failure("the tables cannot be listed")

    monkeypatch.setattr(nfnetlink, "tables", tables)
    read = compact(lab.node("node1"))
    assert {"subset": "nftables", "object": "", "reason": "the tables cannot be listed"} in read["unread"]
    assert read["nftables"] is None


def test_an_audit_and_a_trace_say_of_a_node_what_they_say_of_its_snapshot(lab: EniLab) -> None:
    node: Any = lab.node("node1")
    snapshot = node.module("datapath_info", diff=False)["snapshot"]
    assert {"nftables_text", generated.KEY}.isdisjoint(snapshot)
    audits = [node.module("datapath_audit", options, diff=False) for options in ({}, {"snapshot": snapshot})]
    for key in ("findings", "passed", "profile"):
        assert audits[0][key] == audits[1][key]
    assert audits[0]["findings"]
    service = next(service for service in SERVICES if len(service.endpoints) == 1)  # of several, one is taken by chance
    packet = {
        "source": "198.51.100.7",
        "destination": service.balancer or service.address,
        "destination_port": kube_proxy.PORT,
        "interface": "eth2",
    }
    traces = [node.module("datapath_trace", {"packet": packet, **more}, diff=False) for more in ({}, {"snapshot": snapshot})]
    assert traces[0]["certain"] and traces[0]["steps"]
    for key in ("verdict", "interface", "culprit", "certain", "reason", "steps", "reply"):
        assert traces[0][key] == traces[1][key], key
