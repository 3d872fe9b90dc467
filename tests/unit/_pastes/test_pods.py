# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of network namespaces and of ipamd give the pods' addresses, ends of links, and by which of several a pod answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

WEB = {"k8sPodNamespace": "default", "k8sPodName": "web-0", "interfacesCount": 1}
KEY = {"networkName": "aws-cni", "containerID": "", "ifName": ""}
ALLOCATION = {**KEY, "containerID": "12ab", "ifName": "eth0", "ipv4": "10.12.1.5", "allocationTimestamp": 1, "metadata": WEB}
CHECKPOINT = {"version": "vpc-cni-ipam/1", "allocations": [ALLOCATION, {**ALLOCATION, "ipv4": "10.12.1.6", "metadata": {}}]}
ASSIGNED = {"Address": "10.12.1.5", "IPAMKey": KEY, "IPAMMetadata": WEB, "AssignedTime": "2026-11-26T12:00:00Z"}
FREE = {"Address": "10.12.1.6", "IPAMKey": KEY, "IPAMMetadata": {}}
CIDRS = {
    "10.12.1.5/32": {"Cidr": {"IP": "10.12.1.5", "Mask": "/////w=="}, "IPAddresses": {"10.12.1.5": ASSIGNED}, "IsPrefix": False},
    "10.12.1.6/32": {"Cidr": {"IP": "10.12.1.6", "Mask": "/////w=="}, "IPAddresses": {"10.12.1.6": FREE}, "IsPrefix": False},
    "10.12.9.0/28": {"Cidr": {"IP": "10.12.9.0", "Mask": "////8A=="}, "IPAddresses": None, "IsPrefix": True},
}
ENI = {"ID": "eni-1", "IsPrimary": True, "DeviceNumber": 0, "AvailableIPv4Cidrs": CIDRS, "IPv6Cidrs": None}
POOL = {"TotalIPs": 2, "AssignedIPs": 1, "ENIs": {"eni-1": ENI}}
COMPACT = (",", ":")  # separators, as ipamd writes JSON


@pytest.mark.parametrize(
    ("document", "interface"), [(CHECKPOINT, "eth0"), (POOL, ""), ({"0": POOL, "1": {**POOL, "ENIs": {}}}, "")]
)
def test_addresses_of_pods_are_read_and_free_ones_left_out(document: dict[str, Any], interface: str) -> None:
    pasted = pastes.read({"ipam.json": json.dumps(document, separators=COMPACT), "ip-rule": "0: from all lookup local\n"})
    assert pasted.snapshot["pod_addresses"] == [{"pod": "default/web-0", "interface": interface, "addresses": ["10.12.1.5"]}]
    assert pasted.ignored == []


@pytest.mark.parametrize(
    "document",
    [
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "ipv4": "10.12.1.500"}]},
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "metadata": {**WEB, "k8sPodName": "web\n0"}}]},
        {**CHECKPOINT, "allocations": [{**ALLOCATION, "metadata": {**WEB, "k8sPodName": 5}}]},
        {**CHECKPOINT, "allocations": 5},
        {"0": {"TotalIPs": 1}},
    ],
)
def test_another_form_is_named(document: dict[str, Any]) -> None:
    pasted = pastes.read({"ipam.json": json.dumps(document, separators=COMPACT), "ip-rule": "0: from all lookup local\n"})
    assert not pasted.snapshot["pod_addresses"]
    assert any("is no JSON of ipamd" in sentence for sentence in pasted.ignored)


NODE = {
    "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
    "8: veth8@if3: <UP,LOWER_UP> mtu 1500\n9: veth9@if4: <UP,LOWER_UP> mtu 1500\n10: veth10@if3: <UP,LOWER_UP> mtu 1500\n",
    "ip route": "default via 192.0.2.1 dev eth0\n10.0.0.5 dev veth8\n10.0.0.7 dev veth10\n",
}
LINKS = (
    "3: eth0@if8: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.5/32 scope global eth0\n    inet6 fe80::5/64 scope link\n"
    "4: net1@if9: <UP> mtu 1500\n"
)
SEVERAL = {
    "ip netns exec cni-1 ip -d address show": LINKS,
    "ip netns exec cni-1 ip -4 rule list": "0: from all lookup local\n5: from 10.0.0.5 lookup 7\n32766: from all lookup main\n",
    "ip netns exec cni-1 ip route show table all": "default dev net1\ndefault dev eth0 table 7\n",
    "ip netns exec cni-2 ip -4 addr show": "3: eth0@if10: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.7/32 scope global eth0\n",
    "ip netns exec cni-2 ip -6 addr show": "3: eth0@if10: <UP,LOWER_UP> mtu 1500\n    inet6 2001:db8::7/128 scope global\n",
    "ip netns exec cni-2 ip -4 rule list": "0: from all lookup local\n",
}


def snapshot(**changes: str | None) -> dict[str, Any]:
    dump = {
        **NODE,
        **SEVERAL,
        **{f"ip netns exec cni-1 ip {key.replace('_', ' ')}": text for key, text in changes.items() if text},
    }
    dropped = {f"ip netns exec cni-1 ip {key.replace('_', ' ')}" for key, text in changes.items() if text is None}
    return pastes.read({name: text for name, text in dump.items() if name not in dropped}).snapshot


def test_links_lead_to_the_pods_of_their_namespaces() -> None:
    peers = {link["name"]: link["peer"] for link in snapshot()["links"]}
    assert [(peers[name] or {}).get("namespace") for name in ("eth0", "veth8", "veth9", "veth10")] == [
        None,
        "cni-1",
        "cni-1",
        "cni-2",
    ]
    assert peers["veth8"]["addresses"] == ["10.0.0.5", "fe80::5"] and peers["veth9"]["name"] == "net1"
    assert peers["veth10"]["addresses"] == ["10.0.0.7", "2001:db8::7"]


def test_a_pod_with_several_links_has_its_rules_and_routes() -> None:
    (pod,) = snapshot()["pods"]
    assert pod["namespace"] == "cni-1"
    assert [rule["priority"] for rule in pod["rules"]] == [0, 5, 32766]
    assert [(route["table"], route["dev"]) for route in pod["routes"]] == [("254", "net1"), ("7", "eth0")]


def test_a_pod_has_its_neighbours_and_the_addresses_that_all_outputs_show() -> None:
    (pod,) = snapshot(neigh="10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 PERMANENT\n")["pods"]
    assert pod["neighbors"] == [{"address": "10.0.0.1", "dev": "eth0", "mac": "02:00:00:00:00:01", "state": "PERMANENT"}]
    assert pod["addresses"] == ["10.0.0.5", "fe80::5"]


NO_IPV6 = {"-6_route_show_table_all": "local ::1 dev lo table local proto kernel\n"}
TABLES = {"route_show_table_all": None, "route_show_table_main": "default dev net1\n"}


@pytest.mark.parametrize(
    "changes",
    [
        {"-4_rule_list": None},
        {"-4_rule_list": "0: from all lookup local\nnonsense\n"},
        {"route_show_table_all": None},
        TABLES,
        {"-d_address_show": f"{LINKS}    inet6 2001:db8::5/128 scope global\n"},
        {"-6_route_show_table_all": "local 2001:db8::5 dev eth0 table local proto kernel metric 0\n"},
        {"-d_address_show": None, "-4_addr_show": LINKS},
    ],
    ids=[
        *("no rules", "a rule that is not understood", "no routes", "a table is missing", "no rules of a further family"),
        *("an address in table local", "no addresses of a further family"),
    ],
)
def test_what_is_not_whole_leaves_open_by_which_link_a_pod_answers(changes: dict[str, str | None]) -> None:
    assert snapshot(**changes)["pods"] is None


def test_table_local_shows_that_there_is_no_address_of_a_family() -> None:
    assert snapshot(**{"-d_address_show": None, "-4_addr_show": LINKS}, **NO_IPV6)["pods"]


def test_the_table_of_the_rules_is_enough() -> None:
    assert snapshot(**TABLES, **{"route_show_table_7": "default dev eth0\n"})["pods"]
