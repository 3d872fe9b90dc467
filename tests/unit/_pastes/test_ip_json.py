# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON of iproute2 and nft, and resources of Talos, mean what the texts of the tools mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import bundles, pastes, talos

# JSON of iproute2 and nft means what their text means, and is preferred to it


# Entries of the JSON, and the text of the same objects.
CASES: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "rules": (
        "rule",
        [
            {"priority": 0, "src": "all", "table": "local", "protocol": "kernel"},
            {"priority": 5, "not": None, "src": "10.0.0.5", "fwmark": "0x80", "fwmask": "0x80", "table": "100"},
            {
                **{"priority": 6, "src": "all", "iif": "eth0", "ipproto": "tcp", "table": "7"},
                **{"sport_start": 5, "sport_end": 6, "dport": 80},
            },
            {"priority": 8, "src": "10.0.0.0", "srclen": 24, "dst": "10.1.1.0", "dstlen": 24, "action": "unreachable"},
            {"priority": 9, "src": "all", "table": "main", "suppress_prefixlen": 0, "protocol": "static"},
        ],
        "0: from all lookup local proto kernel\n5: not from 10.0.0.5 fwmark 0x80/0x80 lookup 100\n"
        "6: from all iif eth0 ipproto tcp sport 5-6 dport 80 lookup 7\n8: from 10.0.0.0/24 to 10.1.1.0/24 unreachable\n"
        "9: from all lookup main suppress_prefixlength 0 proto static\n",
    ),
    "routes": (
        "route show table all",
        [
            {"type": "unicast", "dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "protocol": "dhcp", "flags": ["onlink"]},
            {"dst": "10.0.0.0/24", "dev": "eth0", "table": "7", "protocol": "kernel", "scope": "link", "prefsrc": "10.0.0.4"},
            {"type": "blackhole", "dst": "10.8.0.0/16", "table": "main", "metric": 5},
            {"dst": "10.9.0.0/16", "nexthops": [{"gateway": "10.0.0.3", "dev": "eth0", "weight": 2}, {"dev": "eth1"}]},
            {"type": "local", "dst": "10.0.0.4", "dev": "eth0", "table": "local", "protocol": "kernel", "scope": "host"},
            {"dst": "10.7.0.0/16", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "eth0"},
            {"dst": "10.6.0.0/16", "dev": "eth0", "metrics": [{"mtu": 1400}]},
        ],
        "default via 10.0.0.1 dev eth0 proto dhcp onlink\n10.0.0.0/24 dev eth0 table 7 proto kernel scope link src 10.0.0.4\n"
        "blackhole 10.8.0.0/16 table main metric 5\n"
        "10.9.0.0/16\n nexthop via 10.0.0.3 dev eth0 weight 2\n nexthop dev eth1\n"
        "local 10.0.0.4 dev eth0 table local proto kernel scope host\n10.7.0.0/16 via inet6 fe80::1 dev eth0\n"
        "10.6.0.0/16 dev eth0 mtu 1400\n",
    ),
    "links": (
        "addr show",
        [
            {},
            {
                **{"ifindex": 4, "ifname": "veth1", "link_index": 2, "link_netnsid": 3, "flags": ["UP", "LOWER_UP"], "mtu": 1500},
                **{"master": "br7", "link_type": "ether", "address": "02:00:00:00:00:01"},
                "linkinfo": {
                    **{"info_kind": "veth", "info_slave_kind": "bridge"},
                    "info_slave_data": {"hairpin": True, "isolated": False},
                },
                "addr_info": [
                    {},
                    {"family": "inet", "local": "10.0.0.4", "address": "10.0.0.5", "prefixlen": 32, "scope": "global"},
                    {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link", "nodad": True, "dynamic": True},
                ],
            },
            {
                **{"ifindex": 5, "link": "eth0", "ifname": "eth0.7", "mtu": 1500},
                "linkinfo": {"info_kind": "vlan", "info_data": {"id": 7}},
            },
        ],
        "4: veth1@if2: <UP,LOWER_UP> mtu 1500 master br7 state UP\n    link/ether 02:00:00:00:00:01 link-netnsid 3\n    veth\n"
        "    bridge_slave hairpin on isolated off\n    inet 10.0.0.4 peer 10.0.0.5/32 scope global\n"
        "    inet6 fe80::1/64 scope link nodad dynamic\n5: eth0.7@eth0: <> mtu 1500\n    vlan protocol 802.1Q id 7\n",
    ),
    "neighbours": (
        "neighbor show",
        [
            {"dst": "10.0.0.2", "dev": "eth0", "lladdr": "02:00:00:00:00:01", "state": ["PERMANENT"]},
            {"dst": "10.0.0.3", "dev": "eth0", "state": ["FAILED"]},
            {"dst": "10.0.0.9", "dev": "eth0", "proxy": None, "state": []},
        ],
        "10.0.0.2 dev eth0 lladdr 02:00:00:00:00:01 PERMANENT\n10.0.0.3 dev eth0 FAILED\n10.0.0.9 dev eth0 proxy\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_json_of_ip_is_read_as_its_text(name: str) -> None:
    command, entries, text = CASES[name]
    of_json, of_text = pastes.read({f"ip -j {command}": json.dumps(entries)}), pastes.read({f"ip {command}": text})
    assert of_json.snapshot == of_text.snapshot
    assert len(of_json.ignored) == len(of_text.ignored)


def test_json_without_a_command_is_known_by_its_keys() -> None:
    dump = {"report": json.dumps(CASES["rules"][1], indent=4)}
    assert pastes.read(dump).snapshot["rules"] == pastes.read({"ip rule": CASES["rules"][2]}).snapshot["rules"]


def test_json_is_preferred_to_text() -> None:
    dump = {"ip -j rule": json.dumps(CASES["rules"][1]), "ip rule": "0: from all lookup local\n4: from all lookup 9\n"}
    found = pastes.read(dump)
    assert [rule["priority"] for rule in found.snapshot["rules"]] == [0, 5, 6, 8, 9]
    broken = pastes.read({**dump, "ip -j rule": '[{"priority": 0'})
    assert [rule["priority"] for rule in broken.snapshot["rules"]] == [0, 4] and "no JSON of ip" in broken.ignored[0]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("rule", '[{"priority": 1, "src": "all", "table": "7", "suppress_ifgroup": "x"}]'),
        ("rule", '[{"priority": 1, "src": "all\\nlookup 9", "table": "7"}]'),
        ("route", '[{"dst": ["default"], "dev": "eth0"}]'),
        ("addr", '[{"ifname": {"x": 1}}]'),
        ("addr", '[{"ifname": "eth0", "addr_info": [{"family": "inet"}]}]'),
        ("neigh", '[{"dst":' + "[" * 100_000),
    ],
)
def test_json_that_is_not_understood_is_named_and_leaves_its_fact_open(command: str, text: str) -> None:
    found = pastes.read({f"ip -j {command}": text, "sysctl -a": "net.ipv4.ip_forward = 1\n"})
    assert "is no JSON of ip" in found.ignored[0]
    facts = {"rule": "rules", "route": "routes", "addr": "addresses", "neigh": "neighbors"}
    assert facts[command] in {fact["fact"] for fact in found.snapshot["open"]}


def test_netconf_has_settings_of_links() -> None:
    entries = [
        {"family": "inet", "interface": "all", "forwarding": True, "rp_filter": "off", "proxy_neigh": False},
        {"family": "inet", "interface": "eth0.7", "forwarding": True, "rp_filter": "loose", "mc_forwarding": False},
        {"family": "inet6", "interface": "eth0", "forwarding": False, "proxy_neigh": True},
        {"family": "mpls", "interface": "eth0", "input": False},
    ]
    settings = pastes.read({"ip -d -j netconf show": json.dumps(entries)}).snapshot["settings"]
    assert settings["node"] == {"net.ipv4.ip_forward": 1}
    assert settings["ipv4"]["eth0.7"] == {"forwarding": 1, "rp_filter": 2, "mc_forwarding": 0}
    assert settings["ipv6"]["eth0"] == {"forwarding": 0, "proxy_ndp": 1}


RULESET: list[dict[str, Any]] = [
    {"metainfo": {"version": "1.0.6"}},
    {"table": {"family": "ip", "name": "nat"}},
    {"chain": {"family": "ip", "table": "nat", "name": "POSTROUTING"}},
]


def rule(*words: dict[str, Any]) -> dict[str, Any]:
    return {"rule": {"family": "ip", "table": "nat", "chain": "POSTROUTING", "expr": list(words)}}


def test_a_ruleset_in_json_lacks_the_tables_of_other_outputs_and_rules_without_contents() -> None:
    comment, target = {"xt": {"type": "match", "name": "comment"}}, {"xt": {"type": "target", "name": "MASQUERADE"}}
    text = json.dumps({"nftables": [*RULESET, rule(comment, target), rule({"xt": None}), rule({"drop": None}), {"x": 1}]})
    found = pastes.read({"nft -jn list ruleset": text, "nft list ruleset": "table ip nat {\n}\n"})
    assert found.snapshot["nftables"] == [*RULESET[1:], rule({"masquerade": None}), rule({"drop": None}), {"x": 1}]
    assert "nftables_text" not in found.snapshot and "without its contents" in found.ignored[0]
    assert "nft" in {fact["fact"] for fact in found.snapshot["open"]}
    saved = pastes.read({"nft -j list ruleset": text, "iptables-save": "*nat\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n"})
    assert saved.snapshot["nftables"] == [{"x": 1}] and not saved.ignored


# Resources of Talos are read as what ip prints of the same node. Values that no field holds are named


HEAD = "metadata:\n    namespace: network\n    version: 2\n    owner: network.X\n    created: 2026-11-29T10:00:00Z\n"
LINK = HEAD + (
    "    id: eth0\nspec:\n    index: 2\n    type: ether\n    linkIndex: 0\n    flags: UP,BROADCAST,LOWER_UP\n"
    "    hardwareAddr: 02:00:00:00:00:01\n    mtu: 1500\n    masterIndex: 3\n    kind: \"\"\n    altNames:\n        - ens3\n"
)  # fmt: skip
VLAN = LINK.replace("id: eth0", "id: eth0.7").replace("index: 2", "index: 4").replace("linkIndex: 0", "linkIndex: 2")
VLAN = VLAN.replace('kind: ""', "kind: vlan\n    vlan:\n        vlanID: 7\n        vlanProtocol: 802.1q").replace(
    "    masterIndex: 3\n", ""
)
BOND = LINK.replace("id: eth0", "id: bond0").replace("index: 2", "index: 3").replace("    masterIndex: 3\n", "")
BOND = BOND.replace('kind: ""', "kind: bond")
ADDRESS = HEAD + (
    "    id: bond0/10.0.0.5/24\nspec:\n    address: 10.0.0.5/24\n    local: 10.0.0.5\n    linkIndex: 3\n    linkName: bond0\n"
    "    family: inet4\n    scope: global\n    flags: permanent,noprefixroute\n    priority: 0\n"
)  # fmt: skip
ROUTE = HEAD + (
    "    id: inet4/10.0.0.1//100\nspec:\n    family: inet4\n    dst: \"\"\n    src: 10.0.0.5\n    gateway: 10.0.0.1\n"
    "    outLinkName: bond0\n    table: RoutingTable(1002)\n    priority: 100\n    scope: global\n    type: unicast\n"
    "    flags: \"\"\n    protocol: RouteProtocol(75)\n    mtu: 1400\n"
)  # fmt: skip
MULTIPATH = HEAD + (
    "    id: inet6//fd00:9::/64/1024\nspec:\n    family: inet6\n    dst: fd00:9::/64\n    src: \"\"\n    gateway: \"\"\n"
    "    table: main\n    priority: 1024\n    scope: global\n    type: unicast\n    flags: \"\"\n    protocol: boot\n"
    "    nextHops:\n        - gateway: fe80::1\n          outLinkName: bond0\n          weight: 1\n"
    "        - gateway: fe80::2\n          outLinkName: bond0\n          weight: 2\n"
)  # fmt: skip
RULE = HEAD + (
    "    id: inet4/01024\nspec:\n    family: inet4\n    src: 10.1.0.9/32\n    dst: \"\"\n    table: main\n    priority: 1024\n"
    "    action: unicast\n    fwMark: 128\n    fwMask: 128\n"
)  # fmt: skip
FILES = {
    "linkstatuses": f"{LINK}---\n{VLAN}---\n{BOND}",
    "addressstatuses": ADDRESS,
    "routestatuses": f"{ROUTE}---\n{MULTIPATH}",
    "routingrulestatuses": RULE,
    "hostnamestatuses": f'{HEAD}    id: hostname\nspec:\n    hostname: node7\n    domainname: ""\n',
}


def texts(files: dict[str, str]) -> dict[str, dict[str, str]]:
    return bundles.nodes({f"support.zip/10.0.0.7/resources/{name}.net.talos.dev.yaml": text for name, text in files.items()})


def read(files: dict[str, str]) -> pastes.Pasted:
    (of_node,) = texts(files).values()
    return pastes.read(of_node)


def test_resources_are_the_node() -> None:
    assert [*texts(FILES)] == ["node7"]
    pasted = read(FILES)
    links = {link["name"]: link for link in pasted.snapshot["links"]}
    assert (links["eth0"]["master"], links["eth0.7"]["parent"], links["eth0.7"]["settings"]) == ("bond0", "eth0", {"id": 7})
    assert links["bond0"]["addresses"] == [{"address": "10.0.0.5/24", "peer": "", "scope": "global", "flags": ["noprefixroute"]}]
    default, multipath = pasted.snapshot["routes"]
    expected = {"to": "default", "via": "10.0.0.1", "dev": "bond0", "table": "1002", "metric": 100, "mtu": 1400}
    assert {key: default[key] for key in expected} == expected and default["protocol"] == "75"
    assert [(hop["via"], hop["weight"]) for hop in multipath["nexthops"]] == [("fe80::1", 1), ("fe80::2", 2)]
    rule = next(rule for rule in pasted.snapshot["rules"] if rule["priority"] == 1024)
    assert (rule["from"], rule["fwmark"], rule["table"]) == ("10.1.0.9", "0x80/0x80", "254")
    assert pasted.ignored == []


def test_rules_of_which_talos_has_one_of_a_priority_are_not_whole() -> None:
    facts = {(fact["fact"], fact.get("family")) for fact in read(FILES).snapshot["open"]}
    assert ("rules", "ipv4") in facts and not {fact for fact, _family in facts} & {"routes", "addresses"}


def test_the_rule_of_vrfs_looks_up_their_tables_and_a_rule_of_another_action_is_named() -> None:
    vrf, goto = RULE.replace("table: main", "table: unspec"), RULE.replace("action: unicast", "action: RoutingRuleAction(2)")
    (rule,) = (rule for rule in read({**FILES, "routingrulestatuses": vrf}).snapshot["rules"] if rule["priority"] == 1024)
    assert rule["l3mdev"] and not rule.get("table")
    assert any("1024" in sentence for sentence in read({**FILES, "routingrulestatuses": goto}).ignored)


def test_a_veth_with_the_index_of_another_link_is_no_link_on_it() -> None:
    veth = VLAN.replace("kind: vlan", "kind: veth").replace("id: eth0.7", "id: web")
    (link,) = (link for link in read({"linkstatuses": f"{LINK}---\n{veth}"}).snapshot["links"] if link["name"] == "web")
    assert (link["kind"], link["parent"]) == ("veth", "")


@pytest.mark.parametrize("value", ["1e999", "Infinity", "NaN", "true", "-1", "1" * 5000, "[]", '"', "{}", "- 5"])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(("linkstatuses", field) for field in ("index: 2", "mtu: 1500", "masterIndex: 3", "vlanID: 7")),
        *(("routestatuses", field) for field in ("priority: 100", "mtu: 1400", "weight: 2", "table: RoutingTable(1002)")),
        *(("routingrulestatuses", field) for field in ("priority: 1024", "fwMark: 128", "fwMask: 128")),
    ],
)
def test_a_value_that_no_field_holds_is_named_and_makes_nothing_else(name: str, field: str, value: str) -> None:
    key = field.partition(":")[0]
    given = {**FILES, name: FILES[name].replace(field, f"{key}: {value}")}
    try:
        pasted = read(given)
    except Invalid:  # which names the kind
        return
    assert pasted.ignored or _values(pasted.snapshot).isdisjoint({value, float("inf")}), pasted.snapshot


def _values(entry: Any) -> set[Any]:
    if isinstance(entry, dict):
        entry = [*entry.values()]
    return set().union(*map(_values, entry)) if isinstance(entry, list) else {entry}


@pytest.mark.parametrize(
    "text", ["metadata:\n", "x", "- a\n- b\n", "\n".join(" " * n + "a:" for n in range(5000)), "spec: {}\nmetadata: []"]
)
def test_what_is_no_resource_is_refused_by_its_kind(text: str) -> None:
    with pytest.raises(Invalid, match="^dump must be resources of Talos, each whole"):
        talos.outputs({talos.LINKS: text, "iptables-save": ""})
