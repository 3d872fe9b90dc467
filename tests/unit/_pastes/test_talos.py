# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources of Talos are read as what ip prints of the same node. Values that no field holds are named."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import bundles, pastes, talos

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
