# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients that checks try: one of each class that rules and routes distinguish."""

from __future__ import annotations

import ipaddress
import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import clients
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS, Node
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

POD = "10.1.9.9"
ADDRESSES = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
    inet 10.1.0.5/24 scope global eth0
3: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
    inet 10.1.1.5/24 scope global eth1
4: v9@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
"""
ROUTES = f"""default via 10.1.0.1 dev eth0
10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.5
172.17.0.0/16 dev docker0 proto kernel scope link src 172.17.0.1
{POD} dev v9 scope link
"""
ENI = "default via 10.1.1.1 dev eth1 table 21\n"
KERNELS = "32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"


def node(rules: str, routes: str = ROUTES + ENI) -> Node:
    outputs = {
        "ip -d addr": ADDRESSES,
        "ip route show table all": routes,
        "ip rule": f"0:\tfrom all lookup local\n{rules}{KERNELS}",
    }
    whole: dict[str, Any] = {name: [] for name in SUBSETS}
    return Node({**whole, **{name: value for name, value in pastes.read(outputs).snapshot.items() if name != "open"}}, Context())


def networks(addresses: list[str]) -> list[str]:
    """Return the smallest of the networks here in which each address is."""
    named = ("10.1.0.0/24", "10.1.1.0/24", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0")
    return [next(each for each in named if ipaddress.ip_address(address) in ipaddress.ip_network(each)) for address in addresses]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", ["0.0.0.0/0"]),
        (f"110:\tfrom {POD} lookup 21\n", ["0.0.0.0/0"]),
        (f"110:\tfrom {POD} to 10.1.0.0/16 lookup 21\n", ["10.1.0.0/24", "0.0.0.0/0"]),
        (f"110:\tfrom {POD} to 10.0.0.0/8 lookup 21\n109:\tfrom all to 10.1.0.0/16 lookup main\n", ["10.0.0.0/8", "0.0.0.0/0"]),
    ],
)
def test_there_is_a_client_of_each_class(rules: str, expected: list[str]) -> None:
    assert networks([client.address for client in clients.of(node(rules), "ipv4", "eth0", POD)]) == expected


def test_a_client_is_observed_where_a_route_leads_to_it_by_the_link() -> None:
    is_observed = {client.address: client.is_observed for client in clients.of(node("", ROUTES), "ipv4", "eth1")}
    assert is_observed == {"198.51.100.7": False}


def test_no_client_has_an_address_from_which_nothing_comes() -> None:
    routes = "".join(f"{prefix} dev eth0 scope link\n" for prefix in ("169.254.169.254", "224.0.0.0/4", "255.255.255.255"))
    found = clients.of(node(f"109:\tfrom {POD} to 224.0.0.0/4 lookup 21\n", ROUTES + routes + ENI), "ipv4", "eth0", POD)
    assert networks([client.address for client in found]) == ["0.0.0.0/0"]


def test_a_node_with_many_rules_takes_linear_time() -> None:
    rules = "".join(f"900:\tfrom all to 203.0.{n // 250}.{n % 250} lookup 77\n" for n in range(20_000))
    many = node(f"109:\tfrom {POD} lookup 21\n{rules}")
    began = time.process_time()
    assert clients.of(many, "ipv4", "eth0", POD)
    assert time.process_time() - began < 5
