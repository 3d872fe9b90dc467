# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules, routes and neighbours as plain data: nothing is lost, whatever the kernel has."""

from __future__ import annotations

from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import HEADER, NDA_DST, Neighbour
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import Hop, Route
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import entries


def test_a_rule_has_the_options_that_give_it_and_its_owner() -> None:
    rule = Rule(IPV4, 512, dst=(bytes((10, 244, 0, 5)), 32), table=254)
    assert entries.rule(rule, 3) == {"priority": 512, "family": "ipv4", "to": "10.244.0.5", "table": "254", "protocol": "boot"}


def test_an_action_without_a_name_is_a_number() -> None:
    assert entries.rule(Rule(IPV6, 7, action=3), 75) == {"priority": 7, "family": "ipv6", "action": "3", "protocol": "75"}


def test_routes_of_the_kernel_have_their_type_and_are_read_in_full() -> None:
    route = Route(IPV4, 255, (bytes((10, 0, 0, 255)), 32), type=3, scope=253, hops=(Hop("eth0"),), unread=("its type",))
    shown = entries.route(route, 2)
    assert (shown["type"], shown["scope"], shown["protocol"]) == ("broadcast", "link", "kernel")
    assert "unread" not in shown and entries.unread(route) == []


def test_a_route_names_what_its_entry_lacks_and_shows_its_whole_key() -> None:
    route = Route(IPV6, 254, scope=7, unread=("encap", "from", "its type", "tos"), beside=(8, bytes(16), 64), type=42)
    shown = entries.route(route._replace(family=IPV4), 75)
    assert (shown["type"], shown["scope"], shown["tos"], shown["from"]) == ("type 42", "7", 8, "::/64")
    assert shown["unread"] == ["encap", "from", "tos"]


def test_a_neighbour_has_the_name_of_its_state() -> None:
    shown = entries.neighbour(Neighbour("192.0.2.1", "eth0", "12:34:56:78:9a:bc", 0x02))
    assert shown == {"address": "192.0.2.1", "dev": "eth0", "mac": "12:34:56:78:9a:bc", "state": "REACHABLE"}
    assert entries.neighbour(Neighbour("192.0.2.1", "eth0", "", 0x03))["state"] == "3"


def test_an_address_for_which_the_node_answers_has_a_link() -> None:
    body = HEADER.pack(IPV6, 3, 0, 8, 0) + pack({NDA_DST: bytes(15) + b"\1"})
    assert entries.proxy(body, {3: "eth0"}) == {"address": "::1", "dev": "eth0", "mac": "", "state": "PROXY"}
