# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between two snapshots: each thing is one change with its command, and what follows from it is a part of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._explain.node_differences import Difference

Snapshot = dict[str, Any]
TABLE = "*filter\n:FORWARD {policy} [0:0]\n:OWN - [0:0]\n{rules}COMMIT\n"
MAIN = {"table": "254", "family": "ipv4", "dev": "eth0", "scope": "link", "protocol": "kernel"}
NETWORK = {**MAIN, "to": "10.0.0.0/24", "src": "10.0.0.5"}
DEFAULT = {**MAIN, "to": "default", "via": "10.0.0.1", "scope": "global", "protocol": "boot"}
ADDRESS = {"address": "10.0.0.5/24", "peer": "", "scope": "global", "flags": ["permanent"]}
UP, DOWN = ["UP", "BROADCAST", "LOWER_UP"], ["BROADCAST"]
POD = {"namespace": "process 7", "name": "eth0", "mac": "02:00:00:00:00:07", "mtu": 1500, "flags": UP, "addresses": ["10.9.0.2"]}
NEIGHBOR = {"address": "10.0.0.1", "dev": "eth0", "mac": "02:00:00:00:00:01", "state": "STALE"}
NEW_POD = {"name": "cali1", "index": 3, "flags": UP, "mtu": 1500, "addresses": [], "peer": POD}
LINK = {"name": "eth0", "index": 2, "flags": UP, "mtu": 1500, "addresses": [ADDRESS]}


def _rules(*texts: str) -> str:
    return "".join(f"-A {text}\n" for text in texts)


def _table(*rules: str, policy: str = "ACCEPT") -> Snapshot:
    save = TABLE.format(policy=policy, rules=_rules(*rules))
    return {"iptables": [{"family": "ip", "backend": "nft", "table": "filter", "save": save}]}


def _nft(*rules: Any, elements: tuple[Any, ...] = (), handle: int = 4) -> Snapshot:
    place = {"family": "inet", "table": "own"}
    objects: list[Any] = [{"table": {"family": "inet", "name": "own", "handle": 1}}]
    objects += [{"set": {**place, "name": "s", "type": "ipv4_addr", "handle": 2, "elem": [*elements]}}]
    objects += [{"chain": {**place, "name": "c", "handle": 3, "type": "filter", "hook": "forward", "policy": "accept"}}]
    rows = ({**place, "chain": "c", "handle": handle + number, "expr": rule} for number, rule in enumerate(rules))
    return {"nftables": [*objects, *({"rule": row} for row in rows)]}


def _rule(priority: int, **fields: Any) -> dict[str, Any]:
    return {"priority": priority, "family": "ipv4", "table": "254", "protocol": "boot", **fields}


def _links(*links: Any, **subsets: Any) -> Snapshot:
    return {"links": [*links], **subsets}


def _settings(forwarding: int, filtering: int) -> Snapshot:
    of_links = {"all": {"forwarding": forwarding}, "eth0": {"forwarding": forwarding, "rp_filter": filtering}}
    return {"settings": {"node": {"net.ipv4.ip_forward": forwarding}, "ipv4": of_links}}


DROP, COUNTED = [{"drop": None}], [{"counter": {"packets": 1, "bytes": 60}}, {"drop": None}]
CASES: dict[str, tuple[Snapshot, Snapshot, dict[str, str]]] = {
    "a policy rule": (
        {"rules": [_rule(100, to="10.9.0.2"), _rule(32766)]}, {"rules": [_rule(100, to="10.9.0.2")]},
        {"ip rule 32766: from all lookup main is gone": "ip rule add from all lookup main priority 32766"},
    ),
    "another table": (
        {"rules": [_rule(100, to="10.9.0.2"), _rule(32766)]}, {"rules": [_rule(100, to="10.9.0.2", table="7"), _rule(32766)]},
        {
            "ip rule 100: from all to 10.9.0.2 lookup 7 is in the place of 100: from all to 10.9.0.2 lookup main":
            "ip rule del from all to 10.9.0.2 lookup 7 priority 100 && ip rule add from all to 10.9.0.2 lookup main priority 100",
        },
    ),
    "a next hop": (
        {"routes": [NETWORK, DEFAULT]}, {"routes": [{**DEFAULT, "via": "10.0.0.2"}, NETWORK]},
        {
            "route default via 10.0.0.2 dev eth0 is in the place of default via 10.0.0.1 dev eth0":
            "ip route replace default via 10.0.0.1 dev eth0",
        },
    ),
    "another metric is another route": (
        {"routes": [DEFAULT]}, {"routes": [DEFAULT, {**DEFAULT, "metric": 50}]},
        {"route default via 10.0.0.1 dev eth0 metric 50 is new": "ip route del default via 10.0.0.1 dev eth0 metric 50"},
    ),
    "a neighbour that the kernel forgot": (
        {"neighbors": [NEIGHBOR]}, {"neighbors": []}, {},
    ),
    "a neighbour that an operator removed": (
        {"neighbors": [{**NEIGHBOR, "state": "PERMANENT"}]}, {"neighbors": []},
        {
            "neighbor 10.0.0.1 lladdr 02:00:00:00:00:01 dev eth0 is gone":
            "ip neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
        },
    ),
    "a link that is down takes its routes along": (
        _links(LINK, routes=[NETWORK, DEFAULT]), _links({**LINK, "flags": DOWN, "index": 9}, routes=[]),
        {"link eth0 is down": "ip link set dev eth0 up && ip route replace default via 10.0.0.1 dev eth0"},
    ),
    "the last address takes all routes along": (
        _links(LINK, routes=[NETWORK, DEFAULT]), _links({**LINK, "addresses": []}, routes=[]),
        {
            "address 10.0.0.5/24 dev eth0 is gone":
            "ip addr replace 10.0.0.5/24 dev eth0 && ip route replace default via 10.0.0.1 dev eth0",
        },
    ),
    "a route that is gone by itself": (
        _links(LINK, routes=[NETWORK, DEFAULT]), _links(LINK, routes=[NETWORK]),
        {"route default via 10.0.0.1 dev eth0 is gone": "ip route replace default via 10.0.0.1 dev eth0"},
    ),
    "forwarding of all links is one change": (
        _settings(1, 1), _settings(0, 2),
        {
            "net.ipv4.conf.all.forwarding is 0 instead of 1": "sysctl -w net.ipv4.conf.all.forwarding=1",
            "net.ipv4.conf.eth0.rp_filter is 2 instead of 1": "sysctl -w net.ipv4.conf.eth0.rp_filter=1",
        },
    ),
    "a pod that is the same at another process": (
        _links({**LINK, "peer": POD}, pods=[{"namespace": "process 7", "routes": [DEFAULT]}]),
        _links({**LINK, "peer": {**POD, "namespace": "process 8"}}, pods=[{"namespace": "process 8", "routes": [DEFAULT]}]),
        {},
    ),
    "a route of a pod": (
        _links({**LINK, "peer": POD}, pods=[{"namespace": "process 7", "routes": [DEFAULT]}]),
        _links({**LINK, "peer": POD}, pods=[{"namespace": "process 7", "routes": []}]),
        {
            "route in the pod behind eth0: default via 10.0.0.1 dev eth0 is gone":
            "nsenter --target 7 --net ip route replace default via 10.0.0.1 dev eth0",
        },
    ),
    "a pod that is new with its link and its route": (
        _links(LINK, routes=[NETWORK], pods=[]),
        _links(LINK, NEW_POD, routes=[NETWORK, {**MAIN, "dev": "cali1", "to": "10.9.0.2"}],
               pods=[{"namespace": "process 7", "routes": [DEFAULT]}]),
        {"link cali1 is new": "ip link del cali1"},
    ),
    "a rule of iptables, back in its place": (
        _table("FORWARD -s 10.0.0.0/8 -j ACCEPT", "FORWARD -j OWN"), _table("FORWARD -j OWN", policy="DROP"),
        {
            "rule of ip filter: -A FORWARD -s 10.0.0.0/8 -j ACCEPT is gone":
            "iptables -t filter -I FORWARD 1 -s 10.0.0.0/8 -j ACCEPT",
            "policy of FORWARD of ip filter is DROP instead of ACCEPT": "iptables -t filter -P FORWARD ACCEPT",
        },
    ),
    "a rule of iptables with another target": (
        _table("FORWARD -s 10.0.0.0/8 -j ACCEPT"), _table("FORWARD -s 10.0.0.0/8 -j DROP"),
        {
            "rule of ip filter: -A FORWARD -s 10.0.0.0/8 -j DROP is in the place of -A FORWARD -s 10.0.0.0/8 -j ACCEPT":
            "iptables -t filter -R FORWARD 1 -s 10.0.0.0/8 -j ACCEPT",
        },
    ),
    "counters and handles of nft": (_nft(COUNTED), _nft([{"counter": {"packets": 9, "bytes": 99}}, *DROP], handle=40), {}),
    "a rule of nft": (
        _nft(), _nft(DROP),
        {'rule of inet own c: {"expr": [{"drop": null}]} is new': "nft delete rule inet own c handle 4"},
    ),
    "an element of a set of nft": (_nft(elements=("10.0.0.1",)), _nft(), {'element of set inet own s: "10.0.0.1" is gone': ""}),
    "a member of an ipset": (
        {"ipsets": [{"name": "s", "save": "create s hash:ip family inet\nadd s 10.0.0.1 timeout 30\nadd s 10.0.0.2\n"}]},
        {"ipsets": [{"name": "s", "save": "create s hash:ip family inet\nadd s 10.0.0.1 timeout 9\n"}]},
        {"member add s 10.0.0.2 is gone": "ipset add s 10.0.0.2"},
    ),
    "an endpoint of IPVS": (
        {"ipvs": [{"address": "10.96.0.1", "port": 80, "destinations": [{"address": "10.9.0.2", "port": 80}]}]},
        {"ipvs": [{"address": "10.96.0.1", "port": 80, "destinations": []}]},
        {"endpoint of the virtual server 10.96.0.1  80 : 10.9.0.2:80 is gone": ""},
    ),
    "a BPF program of this collection": (
        {"bpf": []},
        {
            "bpf": [
                {
                    **{"link": "eth0", "hook": "tcx", "direction": "ingress", "name": "kubenode_foax_i", "tag": "03"},
                    "probes": [{"source": "fe80::1", "translated": "2001:db8::1"}],
                }
            ]
        },
        {"program kubenode_foax_i (tcx of eth0), which translates fe80::1 to 2001:db8::1 is new": ""},
    ),
    "a subset that one of them does not show": ({"rules": [_rule(100)], "routes": []}, {"rules": None, "routes": []}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_difference_is_one_change_with_its_command(name: str) -> None:
    before, after, expected = CASES[name]
    difference = Difference(before, after)
    assert {change.text: " && ".join(difference.undo(change)) for change in difference.changes} == expected


@pytest.mark.parametrize("name", CASES)
def test_the_node_between_is_the_earlier_one_without_changes_and_the_later_one_with_all(name: str) -> None:
    before, after, _expected = CASES[name]
    difference = Difference(before, after)
    assert difference.between(frozenset()) == before
    assert Difference(difference.between(frozenset(difference.changes)), after).changes == []
    assert Difference(after, difference.between(frozenset(difference.changes))).changes == []


def test_a_route_is_gone_with_each_of_the_changes_that_remove_it() -> None:
    down = {**LINK, "flags": DOWN, "addresses": []}
    difference = Difference(_links(LINK, routes=[DEFAULT]), _links(down, routes=[]))
    assert len(difference.changes) == 2
    assert [difference.between(frozenset([change]))["routes"] for change in difference.changes] == [[], []]
    returned = Difference(_links(down, routes=[]), _links(LINK, routes=[DEFAULT]))
    assert [returned.between(frozenset([change]))["routes"] for change in returned.changes] == [[], []]
    assert returned.between(frozenset(returned.changes))["routes"] == [DEFAULT]


def test_a_network_that_another_route_replaced_is_gone_with_its_address() -> None:
    bare, blackhole = {**LINK, "addresses": []}, {"table": "254", "family": "ipv4", "to": "10.0.0.0/24", "type": "blackhole"}
    difference = Difference(_links(LINK, routes=[NETWORK]), _links(bare, routes=[blackhole]))
    routes = {change.kind: difference.between(frozenset([change]))["routes"] for change in difference.changes}
    assert routes == {"address": [], "route": [blackhole]}
    assert difference.between(frozenset(difference.changes))["routes"] == [blackhole]


def test_a_default_route_by_another_link_replaced_one_that_is_gone_with_the_last_address() -> None:
    bare, elsewhere = {**LINK, "addresses": []}, {**DEFAULT, "dev": "cali1", "via": ""}
    difference = Difference(_links(LINK, routes=[DEFAULT]), _links(bare, routes=[elsewhere]))
    routes = {change.kind: difference.between(frozenset([change]))["routes"] for change in difference.changes}
    assert routes == {"address": [], "route": [elsewhere]}
    stayed = Difference(_links(LINK, routes=[DEFAULT]), _links(bare, routes=[{**DEFAULT, "via": "10.0.0.2"}]))
    assert stayed.between(frozenset(change for change in stayed.changes if change.kind == "address"))["routes"] == [DEFAULT]


def test_each_part_of_the_changes_is_made_alone() -> None:
    cases = [CASES[name] for name in ("a next hop", "a rule of nft", "a member of an ipset")]
    before = {key: value for case in cases for key, value in case[0].items()}
    after = {key: value for case in cases for key, value in case[1].items()}
    changes = Difference(before, after).changes
    assert len(changes) == 3
    for count in range(4):
        for part in map(frozenset, itertools.combinations(changes, count)):
            between = Difference(before, after).between(part)
            assert {change.text for change in Difference(before, between).changes} == {change.text for change in part}
