# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run reads a table with many chains as text. It says of the node what it says of a snapshot, which has nft's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import nfnetlink
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import nft_json, nft_text
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


def test_a_text_is_counted_as_the_json_of_its_table(lab: EniLab) -> None:
    node: Any = lab.node("node1")
    objects = node.in_network(lambda: netfilter_backend.nftables(process.run, noted))
    text = node.in_network(lambda: netfilter_backend.nftables_text(process.run, noted, [KUBE_PROXY, ("inet", "small")]))
    assert nft_text.counted(text) == nft_json.counted(objects)
    assert nft_text.sizes(text) == nft_json.sizes(objects)


def test_rules_that_are_read_from_the_kernel_are_those_that_nft_lists(lab: EniLab) -> None:
    node: Any = lab.node("node1")
    ours = node.in_network(lambda: netfilter_backend.nftables_text(process.run, noted, [KUBE_PROXY]))
    theirs = node.run_from_host(["nft", "list", "table", *KUBE_PROXY])
    assert ours != theirs
    (read,), (by_nft,) = map(nft_text.tables, (ours, theirs))
    assert read.chains.keys() == by_nft.chains.keys() and read.sets.keys() == by_nft.sets.keys()
    for name, chain in by_nft.chains.items():
        found = read.chains[name]
        assert found._replace(rules=()) == chain._replace(rules=())
        assert [rule._replace(line="") for rule in found.rules] == [rule._replace(line="") for rule in chain.rules], name
    assert {name: [*each] for name, each in read.sets.items()} == {name: [*each] for name, each in by_nft.sets.items()}


@pytest.mark.parametrize(
    "flag, statement", [("flags dormant;", ""), ("", 'log prefix "seen "'), ("", "limit rate 10/second accept")]
)
def test_a_table_with_anything_that_is_not_read_from_the_kernel_is_listed_by_nft(lab: EniLab, flag: str, statement: str) -> None:
    node: Any = lab.node("node1")
    table = f"table ip other {{\n{flag}\nset s {{ type ipv4_addr; }}\nchain a {{ counter; {statement}; }}\n}}"
    node.run_from_host(["nft", "-f", "-"], table)
    try:
        ours = node.in_network(lambda: netfilter_backend.nftables_text(process.run, noted, [("ip", "other")]))
        assert ours == node.run_from_host(["nft", "list", "table", "ip", "other"])
    finally:
        node.run_from_host(["nft", "delete", "table", "ip", "other"])


@pytest.mark.parametrize(
    "lacking", ["masquerade fully-random", "ct state new jump firewall-check", "10.96.0.1 . tcp . 80 : goto "]
)
def test_a_text_that_lacks_something_is_told_from_the_kernel(lab: EniLab, lacking: str) -> None:
    node: Any = lab.node("node1")
    read = compact(node)
    lines = read["nftables_text"].splitlines()
    assert any(lacking in line for line in lines)
    cut = {**read, "nftables_text": "\n".join(_without(line, lacking) for line in lines)}
    assert {place for place, _sentence in node.in_network(lambda: netfilter_backend.differences(cut))} == {"ip kube-proxy"}


def _without(line: str, lacking: str) -> str:
    elements = line.split(", ")
    return ", ".join(element for element in elements if lacking not in element)


def test_a_table_that_nft_does_not_list_is_unread(lab: EniLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel ends nft for want of memory. The others are read."""
    real = process.run

    def run(argv: list[str], text: str | None = None) -> process.Completed:
        return real(argv, text) if "-j" in argv else process.Completed(-9, "", "")

    monkeypatch.setattr(process, "run", run)
    read = compact(lab.node("node1"))
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
    assert "nftables_text" not in snapshot
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
