# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's decoder of rules, routes, neighbours and links agrees with pyroute2's on the same kernel.

iproute2 adds the objects, so that they depend on neither decoder.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from lab.node import NamespaceNode

RULES = [
    "from 10.1.0.0/16 fwmark 0x80/0xf0 iif eth0 lookup 77 ipproto tcp sport 10-20 dport 80 uidrange 5-9",
    "from 10.2.0.1 tos 0x10 lookup main suppress_prefixlength 0",
    "not to 10.3.0.0/24 oif eth0 prohibit",
    "fwmark 0x1 lookup 4000000000 protocol 75",
    "to 10.4.0.1 goto 32766",
    "iif lo blackhole protocol 99",
    "from fd00:1::/64 to fd00:2::1 lookup 1003 protocol 4",
    "from all fwmark 0x0/0x3 unreachable",
]
ROUTES = [
    "10.9.0.0/24 via 192.0.2.254 dev eth0 onlink table 1234 metric 7 mtu 1400 src 192.0.2.17 protocol 75",
    "default dev eth0 scope link table 1003",
    "blackhole 10.10.0.0/16 table 77 protocol 99",
    "throw 10.11.0.1 table 77",
    "10.12.0.0/16 table 77 nexthop via 192.0.2.3 dev eth0 weight 2 onlink nexthop via 192.0.2.4 dev eth0 weight 5 onlink",
    "fd00:9::/64 via fe80::1 dev eth0 table 1234 metric 7 protocol 4",
    "unreachable fd00:10::1 table 77",
]
NEIGHBOURS = [
    "192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
    "fe80::99 lladdr 02:00:00:00:00:98 dev eth0 nud reachable",
]
PROGRAM = """
import json, socket, sys
from pyroute2 import IPRoute
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

FAMILIES = (socket.AF_INET, socket.AF_INET6)
NOWHERE = [["", "", False]]
kernel = IPRoute()
names = dict((index, name) for index, name in socket.if_nameindex())

def span(text):
    return [int(number) for number in text.split(":")] if text else []

def prefix(address, length):
    return f"{address}/{length}" if address else ""

def ours(packed, length):
    return f"{fields.show(packed)}/{length}" if packed else ""

def hop(of, attribute):
    flags = of.get("flags", 0)
    return [names.get(of.get("oif") or attribute("RTA_OIF") or 0, ""), attribute("RTA_GATEWAY") or "", bool(flags & 4)]

def their_rules():
    for family in FAMILIES:
        for one in kernel.get_rules(family=family):
            get = lambda name, default=0: one.get_attr(name) or default
            yield {
                "family": family, "priority": get("FRA_PRIORITY"), "src": prefix(get("FRA_SRC", ""), one["src_len"]),
                "dst": prefix(get("FRA_DST", ""), one["dst_len"]), "iif": get("FRA_IIFNAME", ""),
                "oif": get("FRA_OIFNAME", ""), "fwmark": get("FRA_FWMARK"), "fwmask": get("FRA_FWMASK"), "tos": one["tos"],
                "uidrange": span(get("FRA_UID_RANGE", "")), "ipproto": get("FRA_IP_PROTO"),
                "sport": span(get("FRA_SPORT_RANGE", "")), "dport": span(get("FRA_DPORT_RANGE", "")),
                "invert": bool(one["flags"] & 2), "action": one["action"], "table": get("FRA_TABLE"),
                "goto": get("FRA_GOTO"), "protocol": get("FRA_PROTOCOL"),
            }

def our_rules():
    for rule, protocol in Netlink().rules():
        keys = ("family", "priority", "iif", "oif", "fwmark", "fwmask", "tos", "ipproto", "invert", "action", "table", "goto")
        plain = {key: getattr(rule, key) for key in keys}
        yield {
            **plain, "src": ours(*rule.src), "dst": ours(*rule.dst), "protocol": protocol,
            **{key: list(getattr(rule, key)) for key in ("uidrange", "sport", "dport")},
        }

def their_routes():
    for family in FAMILIES:
        for one in kernel.get_routes(family=family):
            get = one.get_attr
            several = get("RTA_MULTIPATH")
            hops = sorted(hop(part, part.get_attr) for part in several) if several else [hop(one, get)]
            metrics = get("RTA_METRICS")
            yield {
                "family": family, "table": get("RTA_TABLE"), "dst": prefix(get("RTA_DST"), one["dst_len"]),
                "metric": get("RTA_PRIORITY") or 0, "type": one["type"], "scope": one["scope"],
                "src": get("RTA_PREFSRC") or "", "mtu": metrics.get_attr("RTAX_MTU") or 0 if metrics else 0,
                # The kernel gives IPv6 routes that lead nowhere the link lo.
                "hops": NOWHERE if one["type"] in (6, 7, 8, 9) else hops,
                "protocol": one["proto"],
            }

def our_routes():
    for route, protocol in Netlink().routes():
        hops = sorted([one.dev, fields.show(one.via) if one.via else "", one.onlink] for one in route.hops)
        yield {
            **{key: getattr(route, key) for key in ("family", "table", "metric", "type", "scope", "mtu")},
            "dst": ours(*route.dst), "src": fields.show(route.src) if route.src else "", "hops": hops or NOWHERE,
            "protocol": protocol,
        }

def their_neighbours():
    for family in FAMILIES:
        for one in kernel.get_neighbours(family=family):
            if one["state"] not in (0, 0x01, 0x40):  # none, incomplete, noarp
                mac = one.get_attr("NDA_LLADDR") if one["state"] != 0x20 else ""  # failed
                yield [one.get_attr("NDA_DST"), names[one["ifindex"]], mac or "", one["state"]]

def our_neighbours():
    return [[one.address, one.link, one.mac, one.state] for one in Netlink().neighbours()]

def their_links():
    for one in kernel.get_links():
        info = one.get_attr("IFLA_LINKINFO")
        kind = info.get_attr("IFLA_INFO_KIND") if info else ""
        get = one.get_attr
        yield [one["index"], get("IFLA_IFNAME"), kind or "", get("IFLA_MASTER") or 0, get("IFLA_ADDRESS")]

def our_links():
    return [[one.number, one.name, one.kind, one.master, one.mac.hex(":")] for one in LinkMessages().links()]

readers = {
    "rules": (our_rules, their_rules), "routes": (our_routes, their_routes),
    "neighbours": (our_neighbours, their_neighbours), "links": (our_links, their_links),
}
print(json.dumps([list(reader()) for reader in readers[sys.argv[1]]]))
"""


@pytest.mark.parametrize("what", ["rules", "routes", "neighbours", "links"])
def test_our_reader_and_pyroute2_agree_on_the_kernel(node: NamespaceNode, what: str) -> None:
    node.set_sysctls({"net.ipv6.conf.eth0.disable_ipv6": 0})
    rules = [f"rule add priority {600 + number} {one}" for number, one in enumerate(RULES)]
    for line in (*rules, *(f"route add {one}" for one in ROUTES)):
        node.run_from_host(["ip", "-6" if "fd00" in line else "-4", *line.split()])
    node.ip([f"neigh replace {one}" for one in NEIGHBOURS])
    node.ip(["link add br7 type bridge", "link add end0 type veth peer name end1", "link set end0 master br7 up"])
    path = f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}"
    ours, theirs = json.loads(node.run(["env", path, sys.executable, "-c", PROGRAM, what]).stdout)
    assert [_key(one) for one in ours] == [_key(one) for one in theirs]
    assert len(ours) >= {"rules": len(RULES), "routes": len(ROUTES), "neighbours": len(NEIGHBOURS), "links": 4}[what]


def _key(one: Any) -> str:
    return json.dumps(one, sort_keys=True)
