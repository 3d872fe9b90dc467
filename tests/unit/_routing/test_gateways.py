# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors about a gateway or a source that the kernel would refuse; the integration tests ask the kernel itself."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.gateways import Gateways, resolved
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import (
    BLACKHOLE,
    BROADCAST,
    GLOBAL,
    HOST,
    LINK,
    LOCAL,
    UNICAST,
    Hop,
    Route,
)

MAIN, LOCALS, VRF = 254, 255, 7
OWN = {8: "192.0.2.255", 9: "192.0.2.254/31", 10: "192.0.0.0/9", 11: "128.0.0.0/1", 12: "0.0.0.0/0"}


def packed(address: str) -> bytes:
    return fields.address(address)[1] if address else b""


def held(to: str, dev: str, table: int = MAIN, kind: int = UNICAST, **options: t.Any) -> Route:
    family, dst = fields.prefix(to)
    scope = GLOBAL if family == IPV6 else HOST if kind == LOCAL else LINK
    return Route(family, table, dst, type=kind, scope=scope, hops=(Hop(dev),), **options)


NODE = Gateways(
    (
        *(held("192.0.2.0/24", "eth0"), held("10.1.0.0/16", "eth1"), held("10.6.6.6", "eth0", kind=LOCAL)),
        *(held("192.0.2.10", "eth0", LOCALS, LOCAL), held("127.0.0.0/8", "lo", LOCALS, LOCAL)),
        held("192.0.2.255", "eth0", LOCALS, BROADCAST),
        held("192.0.2.77", "eth0", LOCALS, LOCAL, beside=(16, b"", 0)),
        *(held("10.7.0.1", "eth7", VRF, LOCAL), held("2001:db8:9::/64", "eth0", VRF)),
        *(held("10.9.0.1", "eth7", VRF, LOCAL, metric=5), held("10.9.0.1", "eth7", VRF, metric=1)),
        *(held(to, "eth0", table) for table, to in OWN.items()),
        *(held("2001:db8::/64", "eth0"), held("2001:db8:1::/64", "eth1"), held("2001:db8:5::/48", "", kind=BLACKHOLE)),
        Route(IPV6, MAIN, hops=(Hop("eth0", packed("fe80::1")),)),
        *(held("2001:db8::10", "eth0", LOCALS, LOCAL), held("fe80::10", "eth0", LOCALS, LOCAL)),
        held("::1", "lo", LOCALS, LOCAL),
    )
)

ITSELF = "an address of another node; it is an address of this node"
NO_HOST = "a unicast address; it is a broadcast or multicast address"
LACKS: list[tuple[str, str, str]] = [
    ("", "eth0", ""),
    ("192.0.2.1", "eth0", ""),
    ("192.0.2.1", "eth1", "a neighbour on eth1 by a connected route, or onlink must be true"),
    ("192.0.2.255", "eth0", "a unicast address; it is a broadcast address of eth0"),
    ("192.0.2.255", "eth1", "a neighbour on eth1 by a connected route, or onlink must be true"),
    ("192.0.2.1", "eth1 onlink", ""),
    ("192.0.2.10", "eth1 onlink", ITSELF),
    *((one, "eth0 onlink", NO_HOST) for one in ("192.0.2.255", "255.255.255.255", "224.0.0.1", "239.255.0.1")),
    *((one, "eth0 onlink", "") for one in ("223.224.0.1", "240.224.0.1", "10.7.0.1")),
    ("2001:db8::1", "eth0", ""),
    ("2001:db8::1", "eth1", "a neighbour on eth1 by a connected route, or onlink must be true"),
    ("2001:db8::1", "eth1 onlink", "a neighbour on eth1; table main reaches it over another link"),
    ("2001:db8:1::1", "eth1 onlink", ""),
    *((one, "eth1 onlink", "") for one in ("2001:db8:5::1", "2001:db8:9::1")),  # but for the default route
    *(("2001:db8::10", dev, ITSELF) for dev in ("eth0", "eth1", "eth1 onlink")),
    ("fe80::10", "eth0", ITSELF),
    ("fe80::10", "eth1", ""),
    ("fe80::99", "eth0", ""),
]


@pytest.mark.parametrize(("via", "dev", "lack"), LACKS)
def test_a_gateway_is_another_node_that_its_link_leads_to(via: str, dev: str, lack: str) -> None:
    name, onlink, _rest = f"{dev} ".partition(" onlink")
    hop = Hop(name.strip(), packed(via), bool(onlink))
    for table in (MAIN, VRF):
        assert NODE.lack(Route(IPV6 if ":" in via else IPV4, table, hops=(hop,)), hop) == lack


@pytest.mark.parametrize("table", OWN)
def test_an_address_that_a_routes_own_table_leads_to_is_no_broadcast_address_to_it(table: int) -> None:
    hop = Hop("eth0", packed("192.0.2.255"))
    assert NODE.lack(Route(IPV4, table, hops=(hop,)), hop) == ""


NOT_HERE = "an address of this node"
SOURCES: list[tuple[str, str, int, str]] = [
    ("", "eth0", MAIN, ""),
    *(("192.0.2.10", "eth1", table, "") for table in (MAIN, VRF)),
    ("127.0.0.5", "eth0", MAIN, ""),
    *((one, "eth0", MAIN, NOT_HERE) for one in ("192.0.2.11", "192.0.2.255", "192.0.2.77", "10.6.6.6", "10.7.0.1")),
    ("10.7.0.1", "eth7", VRF, ""),
    ("10.7.0.1", "eth7", 8, NOT_HERE),
    ("10.9.0.1", "eth7", VRF, NOT_HERE),  # the route of the lower metric counts
    *(("2001:db8::10", dev, MAIN, "") for dev in ("eth0", "eth1", "eth0 eth1")),
    ("2001:db8::11", "eth0 eth1", MAIN, NOT_HERE),
    *(("fe80::10", "eth0", table, "") for table in (MAIN, VRF)),
    ("fe80::10", "eth1", MAIN, f"{NOT_HERE} on eth1"),
    ("fe80::10", "eth1 eth0", MAIN, f"{NOT_HERE} on eth0 and on eth1"),
    ("::1", "lo", MAIN, ""),
    ("::1", "eth0", MAIN, f"{NOT_HERE} on eth0"),
]


@pytest.mark.parametrize(("src", "devs", "table", "lack"), SOURCES)
def test_a_source_is_an_address_of_this_node_and_a_narrow_one_of_each_link(src: str, devs: str, table: int, lack: str) -> None:
    hops = tuple(Hop(dev) for dev in devs.split())
    route = Route(IPV6 if ":" in src else IPV4, table, src=packed(src), hops=hops)
    assert NODE.lack_of_source(route) == lack


@pytest.mark.parametrize("src", ["10.5.5.5", "2001:db8:5::5"])
def test_a_source_may_be_the_address_that_its_route_makes(src: str) -> None:
    made = held(src, "eth0", kind=LOCAL)._replace(src=packed(src))
    assert NODE.lack_of_source(made) == ""
    assert NODE.lack_of_source(made._replace(type=UNICAST)) == NOT_HERE
    assert NODE.lack_of_source(made._replace(dst=fields.network(packed(src), 24))) == NOT_HERE
    assert NODE.lack_of_source(made._replace(type=BLACKHOLE, hops=())) == ""  # no packet leaves, so no check


def test_a_next_hop_that_names_its_link_keeps_it_beside_one_that_does_not() -> None:
    hops = (Hop("", packed("192.0.2.1")), Hop("eth9", packed("10.1.0.1")))
    (route,) = resolved(policy.Policy(routes=(Route(IPV4, VRF, hops=hops),)), NODE).routes or ()
    assert route.hops == (Hop("eth0", packed("192.0.2.1")), Hop("eth9", packed("10.1.0.1")))
